"""X9: what is kept of an exception: its type, its message, and a traceback with the user's frames first."""

import asyncio
import itertools
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hark.model.errors import InvalidInput, RunFailed
from hark.model.failures import MAX_ERROR, MAX_TRACEBACK, Failure, error_text, failure_of, traceback_of
from hark.model.names import check_name


def raised(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def missing_key() -> NoReturn:
    {}["x"]
    raise AssertionError


def test_x9_a_failure_has_the_type_the_message_and_the_place_of_an_exception() -> None:
    failure = failure_of(raised(missing_key))
    assert (failure.type, failure.message, failure.text) == ("KeyError", "'x'", "KeyError: 'x'")
    assert failure.traceback is not None
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert f'File "{__file__}"' in failure.traceback
    assert "in missing_key" in failure.traceback
    assert '{}["x"]' in failure.traceback
    assert failure.traceback.endswith("KeyError: 'x'\n")


def test_x9_an_exception_without_a_text_is_its_type() -> None:
    assert failure_of(ValueError()).text == error_text(ValueError()) == "ValueError"


def test_x9_a_reason_is_a_failure_without_a_type() -> None:
    assert failure_of("no stock") == Failure(None, "no stock", None)
    assert failure_of({"code": 7}).text == '{"code":7}'


def test_x9_frames_of_the_engine_and_of_asyncio_are_left_out() -> None:
    async def step() -> None:
        check_name("", "queue name")

    text = traceback_of(raised(asyncio.run, step()))
    assert "in step\n" in text
    assert "in raised\n" in text
    assert "check_name(" in text  # the user's line that called the engine
    assert "asyncio" not in text
    assert "model/names.py" not in text
    assert text.splitlines()[-1].startswith("hark.model.errors.InvalidInput: ")


def test_x9_an_error_of_the_engine_alone_keeps_its_frames() -> None:
    error = InvalidInput("refused")
    try:
        check_name("", "queue name")
    except InvalidInput as found:
        error = found
    assert error.__traceback__ is not None
    inside = error.with_traceback(error.__traceback__.tb_next)
    assert "model/names.py" in traceback_of(inside)


def test_x9_causes_are_kept_in_the_order_of_python() -> None:
    def outer() -> None:
        try:
            missing_key()
        except KeyError as cause:
            raise RuntimeError("no price") from cause

    text = traceback_of(raised(outer))
    first, second = text.index("KeyError: 'x'"), text.index("RuntimeError: no price")
    assert first < text.index("direct cause of the following") < second
    assert "in missing_key" in text
    assert "in outer" in text


def test_x9_a_context_is_kept_unless_it_is_suppressed() -> None:
    def during() -> None:
        try:
            missing_key()
        except KeyError:
            raise RuntimeError("second")  # noqa: B904

    def suppressed() -> None:
        try:
            missing_key()
        except KeyError:
            raise RuntimeError("second") from None

    assert "During handling of the above exception" in traceback_of(raised(during))
    assert "KeyError" not in traceback_of(raised(suppressed))


def test_x9_causes_that_form_a_circle_or_a_long_chain_end() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert traceback_of(one).count("ValueError: one") == 1
    last: BaseException = ValueError("0")
    for number in range(1, 500):
        after = ValueError(str(number))
        after.__cause__ = last
        last = after
    text = traceback_of(last)
    assert text.endswith("ValueError: 499\n")
    assert text.count("direct cause") == 4


def test_x9_a_recursion_is_short_and_has_its_beginning_and_its_end() -> None:
    def fall(depth: int) -> None:
        if depth == 0:
            raise RecursionError("the floor")
        fall(depth - 1)

    text = traceback_of(raised(fall, sys.getrecursionlimit() // 2))
    assert len(text) < MAX_TRACEBACK
    assert "more times]" in text
    assert "frames left out" in text
    assert "in raised\n" in text
    assert text.endswith("RecursionError: the floor\n")


def test_x9_the_users_frames_stay_when_a_traceback_has_to_be_cut(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "deep.py"
    library.parent.mkdir()
    names = [f"layer_{'n' * 60}_{number}" for number in range(60)]
    source = [f"def {name}(then):\n    return {after}(then)\n" for name, after in itertools.pairwise(names)]
    library.write_text("".join(source) + f"def {names[-1]}(then):\n    return then()\n")
    deep: dict[str, Any] = {}
    exec(compile(library.read_text(), str(library), "exec"), deep)

    def my_step() -> None:
        deep[names[0]](missing_key)

    text = traceback_of(raised(my_step))
    assert len(text) <= MAX_TRACEBACK
    assert "in my_step\n" in text
    assert "in missing_key\n" in text
    assert "frames left out" in text


def test_x9_a_long_message_leaves_room_for_the_frames() -> None:
    def loud() -> None:
        raise ValueError("x" * 1_000_000)

    failure = failure_of(raised(loud))
    assert len(failure.message) < MAX_ERROR + 100
    assert "1000000 characters" in failure.message
    assert failure.traceback is not None
    assert len(failure.traceback) <= MAX_TRACEBACK
    assert "in loud" in failure.traceback


def test_x9_every_text_can_be_stored() -> None:
    def odd() -> None:
        error = ValueError("nul \0 and a lone \udc80")
        error.add_note("note \0")
        raise error

    failure = failure_of(raised(odd))
    for text in (failure.message, failure.traceback or ""):
        assert "\0" not in text
        text.encode()  # no lone surrogate
    assert "note" in (failure.traceback or "")


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def __notes__(self) -> list[str]:
        raise RuntimeError("no notes")


def test_x9_an_exception_that_cannot_be_shown_is_a_failure_too() -> None:
    def hostile() -> None:
        raise Hostile

    failure = failure_of(raised(hostile))
    assert (failure.type, failure.message) == ("Hostile", "(its text cannot be read)")
    assert "cannot be shown" in (failure.traceback or "")


def test_x9_the_exceptions_of_a_group_are_kept() -> None:
    def group() -> None:
        raise ExceptionGroup("several", [raised(missing_key), *(ValueError(str(n)) for n in range(9))])  # type: ignore

    text = traceback_of(raised(group))
    assert "ExceptionGroup: several (10 sub-exceptions)" in text
    assert "  | KeyError: 'x'" in text
    assert "in missing_key" in text
    assert "and 6 more" in text


def test_x9_the_frames_of_a_failed_run_come_before_those_of_the_function() -> None:
    run = failure_of(raised(missing_key))

    def function() -> None:
        raise RunFailed("build raised KeyError: 'x'", type="KeyError", message="'x'", traceback=run.traceback)

    text = traceback_of(raised(function))
    assert text.index("in missing_key") < text.index("direct cause") < text.index("in function")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("stop")])
def test_x9_exceptions_that_are_not_errors_are_described_too(error: BaseException) -> None:
    assert failure_of(error).type == type(error).__name__


def test_x9_a_text_that_looks_like_many_links_takes_no_time() -> None:
    began = time.process_time()
    failure_of(ValueError("/a/x?&" * 1_000_000))
    assert time.process_time() - began < 2


def test_x9_a_long_chain_of_failed_runs_keeps_the_last_exception_whole() -> None:
    def function(cause: BaseException | None) -> None:
        raise RunFailed("y" * 3000, type="KeyError", message="'x'", traceback="z" * MAX_TRACEBACK) from cause

    error: BaseException | None = None
    for _ in range(10):
        error = raised(function, error)
    assert error is not None
    text = traceback_of(error)
    assert len(text) <= MAX_TRACEBACK
    assert text.rpartition("direct cause of the following exception:")[2].count("in function\n") == 1
