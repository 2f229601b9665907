"""The error tree: what catches what, what data each has, and that all of it can be pickled."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import pytest

from hark.model import errors
from hark.model.errors import HarkError

AT = datetime(2024, 5, 1, tzinfo=UTC)
EXAMPLES: list[HarkError] = [
    errors.HarkError("m"),
    errors.InvalidInput("m"),
    errors.MalformedJson("m", line=3, column=7),
    errors.PayloadTooLarge("m", size=11, limit=10),
    errors.InvalidState("m"),
    errors.InvalidAnswer("m", problems=["no"]),
    errors.NotAssigned("m", problems=["no"]),
    errors.InvalidDefinition("m", problems=[("task", 3, "no")]),
    errors.InvalidMigration("m", problems=[("task", None, "no")]),
    errors.InvalidOutcome("m"),
    errors.NotFound("m"),
    errors.NoTarget("m", target="order:42"),
    errors.Duplicate("m", holder="abc"),
    errors.Conflict("m", status="done"),
    errors.AlreadyClaimed("m", status="PENDING", by="ann"),
    errors.AlreadySettled("m", status="RESOLVED", by="ann", at=AT),
    errors.TaskLost("m", status="cancelled"),
    errors.InstanceFailed("m", id="abc", error="boom"),
    errors.InstanceCancelled("m", id="abc", reason="late"),
    errors.SignalTimeout("m"),
    errors.AwakeableTimedOut("m"),
    errors.AwakeableRejected("m"),
    errors.BpmnError("m", variables={"a": 1}),
    errors.RunFailed("m", type="OSError", message="full"),
    errors.CallFailed("m", id="abc", error="boom"),
    errors.NonDeterministic("m", entry=3, expected="run a", found="run b", line="order.py:3"),
    errors.InstanceHeld("m", id="abc", error="does not fit"),
    errors.StoreUnavailable("m"),
    errors.StoreTooNew("m"),
    errors.NotOpen("m"),
    errors.MissingExtra("m", extra="postgres"),
    errors.WouldBlockEventLoop("m"),
]
DEFINED = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HarkError)}

each = pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)


def test_every_error_has_an_example_here() -> None:
    assert {type(error) for error in EXAMPLES} == DEFINED


@each
def test_the_text_of_an_error_is_its_message(error: HarkError) -> None:
    assert str(error) == "m"
    assert error.args == ("m",)


@each
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling_with_its_data(error: HarkError, protocol: int) -> None:
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


@each
def test_an_error_can_be_copied(error: HarkError) -> None:
    assert vars(copy.copy(error)) == vars(copy.deepcopy(error)) == vars(error)


@each
def test_every_error_has_a_docstring_of_its_own(error: HarkError) -> None:
    assert type(error).__doc__
    assert type(error).__doc__ != type(error).__base__.__doc__


@each
def test_the_tree_in_the_module_docstring_names_every_error_and_its_data(error: HarkError) -> None:
    lines = [
        line
        for line in (errors.__doc__ or "").splitlines()
        if type(error).__name__ in line.split() or line.strip(" │├└─").split(" ")[0] == type(error).__name__
    ]
    assert len(lines) == 1
    for name in vars(error):
        assert f".{name}" in lines[0]


def test_a_note_survives_pickling() -> None:
    error = errors.Duplicate("m", holder="abc")
    error.add_note("while starting")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while starting"]


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InvalidInput, ValueError),
        (errors.PayloadTooLarge, errors.InvalidInput),
        (errors.MalformedJson, errors.InvalidInput),
        (errors.InvalidState, errors.InvalidInput),
        (errors.InvalidAnswer, errors.InvalidInput),
        (errors.NotAssigned, errors.InvalidAnswer),
        (errors.NotFound, LookupError),
        (errors.NoTarget, LookupError),
        (errors.AlreadyClaimed, errors.Conflict),
        (errors.AlreadySettled, errors.Conflict),
        (errors.TaskLost, errors.Conflict),
        (errors.SignalTimeout, TimeoutError),
        (errors.AwakeableTimedOut, TimeoutError),
        (errors.InvalidOutcome, TypeError),
        (errors.WouldBlockEventLoop, RuntimeError),
    ],
)
def test_an_error_is_caught_by_its_builtin_base_class(kind: type[HarkError], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)
    assert issubclass(kind, HarkError)


def test_the_data_of_an_error_is_required() -> None:
    with pytest.raises(TypeError, match="holder"):
        errors.Duplicate("m")  # type: ignore[call-arg]
