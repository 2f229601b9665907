"""Each effect has a request, each kind of wait a class, each outcome all its parts: what a program asks for is done."""

import ast
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

import hark
import hark.kernel
from hark.kernel import effects, requests, turn
from hark.kernel.requests import Commit, Request
from hark.kernel.wait_kinds import WAIT_KINDS, UnfinishedChild, WaitContext
from hark.model.activation import WaitRow
from hark.model.decisions import Effect, Move, NewInstance, SendBroadcast, SendSignal
from hark.model.outcomes import Outcome
from hark.model.values import PARKED, WaitKind
from hark.programs.machines.machine import _targets

TESTS = Path(__file__).parents[1]
TRY_EVERY_OUTCOME = (
    "m2_outcomes", "m3_state", "m4_handle", "m5_death", "m9_concurrency_keys", "s8_effects", "x2_fencing",
)  # fmt: skip


def modules() -> list[ModuleType]:
    return [import_module(found.name) for found in pkgutil.walk_packages(hark.kernel.__path__, "hark.kernel.")]


def test_every_effect_has_a_request() -> None:
    assert set(effects._requests) == set(get_args(Effect))


@pytest.mark.parametrize(
    "effect", [SendSignal("id", "go", "null"), SendBroadcast("go", "null"), NewInstance("m", "{}", "id")]
)
def test_the_request_of_an_effect_has_the_outcome_as_its_sender(effect: Effect) -> None:
    sender = Commit()
    request = effects.as_request(effect, sender)
    assert request.sender is sender  # type: ignore[attr-defined]


def test_every_request_is_read_by_a_verb_that_the_turn_calls() -> None:
    """A request that no verb reads would be answered with None, and do nothing."""
    called = [module for module in modules() if module is turn or getattr(turn, module.__name__.split(".")[-1], None)]
    texts = "".join(inspect.getsource(module) for module in called)
    names = [cls.__name__ for cls in vars(requests).values() if isinstance(cls, type) and issubclass(cls, Request)]
    assert [name for name in names if name != "Request" and f"batch.of({name})" not in texts] == []


def test_every_kind_of_wait_has_a_class() -> None:
    assert tuple(WAIT_KINDS) == get_args(WaitKind)


@pytest.mark.parametrize("kind", WAIT_KINDS)
def test_a_kind_of_wait_can_be_explained(kind: WaitKind) -> None:
    wait = WaitRow("w", "", kind, "name", "key", None, 1, None)
    context = WaitContext("target", [UnfinishedChild("child", "executing", "start")], "May we?")
    behaviour = WAIT_KINDS[kind]
    assert behaviour.status in PARKED
    assert behaviour.describe(wait)
    assert behaviour.wake_command(wait, context) or behaviour.note(wait, context)


def test_no_other_file_of_the_kernel_tests_for_a_kind() -> None:
    """Except the verb that answers the kind, in its own file."""
    own = {"settle": "awakeable", "broadcast": "broadcast", "children": "children", "message": "message"}
    own["schedules"] = "timer"  # a kind of start
    for module in modules():
        name = module.__name__.split(".")[-1]
        text = inspect.getsource(module)
        for kind in get_args(WaitKind):
            if own.get(name) != kind and name not in ("wait_kinds", "inbox"):
                assert f'kind == "{kind}"' not in text, name
                assert f'kind != "{kind}"' not in text, name


def test_no_file_outside_the_programs_tests_for_the_class_of_a_move() -> None:
    """mypy reports a new move at a `match` that ends in `assert_never`, and at an attribute of every move."""
    moves = "|".join(move.__name__ for move in get_args(Move))
    tests = re.compile(rf"isinstance\([^()]*\b({moves})\b|type\([^()]*\bmove\) (is|in)\b")
    source = Path(hark.__file__).parent
    found = [path.relative_to(source) for path in source.rglob("*.py") if tests.search(path.read_text("utf-8"))]
    assert [path for path in found if path.parts[0] != "programs"] == []


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_every_outcome_is_public_and_takes_a_state(outcome: type) -> None:
    assert outcome.__name__ in hark.__all__
    assert "state" in inspect.signature(outcome).parameters


@pytest.mark.parametrize("outcome", get_args(Outcome))
def test_the_step_that_an_outcome_names_is_checked_when_the_class_is_defined(outcome: type) -> None:
    for position, parameter in enumerate(inspect.signature(outcome).parameters.values()):
        if parameter.name in ("step", "then"):
            calls = [f"{outcome.__name__}({parameter.name}='ship')"]
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                calls.append(f"{outcome.__name__}({'0, ' * position}'ship')")
            for call in calls:
                assert [ast.literal_eval(target) for target in _targets(ast.parse(call))] == ["ship"], call


@pytest.mark.parametrize("file", TRY_EVERY_OUTCOME)
def test_the_tests_that_try_every_outcome_try_each(file: str) -> None:
    text = (TESTS / f"promises/test_{file}.py").read_text("utf-8")
    assert [outcome.__name__ for outcome in get_args(Outcome) if f"{outcome.__name__}(" not in text] == []
