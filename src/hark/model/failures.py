"""Failure: an exception as type, message and traceback, in texts that every store can keep (X9).

A traceback has the user's frames first: frames of the engine and of asyncio are left out, and when it has to be cut,
those of libraries go before those of the user. Everything is bounded, because failures are stored, listed and logged.
Nothing here raises, whatever an exception does when it is shown, and nothing is paid before something has failed.
"""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from types import FrameType, TracebackType
from typing import Final

from msgspec import Struct

from hark.model import json
from hark.model.durations import short_duration
from hark.model.errors import RunFailed
from hark.model.exits import comes_from_signal
from hark.model.masking import without_link_tokens

MAX_ERROR: Final = 1 << 14  # characters: errors are read by people, and shown in lists
MAX_TRACEBACK: Final = 1 << 13
_BRIEF = 500  # characters
_MAX_CAUSES = 4  # exceptions that were raised from each other, and exceptions of a group
_MAX_FRAMES = 100
_LIBRARY = os.path.dirname(os.__file__) + os.sep  # the standard library
_ENGINE = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    _LIBRARY + "asyncio" + os.sep,
    _LIBRARY + "concurrent" + os.sep,
    _LIBRARY + "threading.py",
)
_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"

Frames = Sequence[tuple[FrameType, int]]


class Failure(Struct, frozen=True, gc=False):
    """The failure of an attempt.

    `type` is the bare name of the exception's class; None, and no traceback, for a reason that was given as a value.
    """

    type: str | None
    message: str
    traceback: str | None = None

    @property
    def text(self) -> str:
        """The failure as one text for people: `KeyError: 'x'`."""
        return ": ".join(part for part in (self.type, self.message) if part)

    @property
    def brief(self) -> str:
        line = " ".join(self.text.split())
        return line if len(line) <= _BRIEF else f"{line[:_BRIEF]}…"

    def then_raised(self, what: str, error: BaseException, second: BaseException) -> Failure:
        """Return this failure, that of `error`, joined with a second one in the code that was to handle it."""
        message = f"{self.message}; then {what} raised {error_text(second)}"
        after = traceback_of(second)
        if second is not error and self.traceback is not None:
            half = MAX_TRACEBACK // 2
            after = f"{self.traceback[:half].rstrip()}\n{_DURING}{after[:half]}"
        return Failure(self.type, storable(message), after)


def failure_of(error: object) -> Failure:
    """The failure of an exception, or of the reason given to `Stop`."""
    if isinstance(error, BaseException):
        return Failure(type(error).__name__, _message(error), traceback_of(error))
    return Failure(None, error_text(error))


def attempt_text(attempt: int, retries: int | None, failure: Failure, wait: float | None) -> str:
    """A failed attempt in words: `attempt 2 of 5 failed: KeyError: 'x'; next try in 2 s`.

    Args:
        attempt: How often it was retried before, from 0.
        retries: How often it is retried at most, if that is known.
        failure: Why it failed.
        wait: Seconds until the next attempt; None if there is none.
    """
    of = "" if retries is None else f" of {retries + 1}"
    then = "" if wait is None else f"; {next_try_text(wait)}"
    return f"attempt {attempt + 1}{of} failed: {failure.brief}{then}"


def next_try_text(wait: float) -> str:
    """The time of the next attempt, `wait` seconds from now, in words."""
    return f"next try in {short_duration(wait)}" if wait > 0 else "next try now"


def error_text(error: object) -> str:
    """An error, or the reason of a `Stop`, as text that every store can keep."""
    if isinstance(error, BaseException):
        message = _message(error)
        return f"{type(error).__name__}: {message}" if message else type(error).__name__
    return storable(error if isinstance(error, str) else json.dump_unchecked(error, what="reason"))


def storable(text: str, limit: int = MAX_ERROR) -> str:
    """The text without the tokens of links and the characters that a store refuses (NUL, lone surrogates), cut at a
    number of characters."""
    if len(text) > limit:
        text = f"{text[:limit]}… ({len(text)} characters)"
    return without_link_tokens(text).encode(errors="backslashreplace").decode().replace("\0", "\\0")


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception and, briefly, those of its causes, in the form that Python prints."""
    try:
        return storable("".join(_chain(error)), MAX_TRACEBACK)
    except BaseException as second:  # a property of the exception raised, or has exited
        if comes_from_signal(second):
            raise
        return f"{type(error).__name__} (its traceback cannot be shown: {type(second).__name__})"


def innermost_line_of_user(error: BaseException, package: str) -> tuple[str, int] | None:
    """The file and the line of the innermost frame that is the user's, or None if there is none.

    Frames of Hark and of libraries are not the user's. Those of `package` are, also if it is installed as a library.
    """
    lines = [
        (frame.f_code.co_filename, line)
        for frame, line in _walk(error.__traceback__)[0]
        if not _is_engine(frame) and (not _is_library(frame) or _top_package(frame) == package)
    ]
    return lines[-1] if lines else None


def _message(error: BaseException) -> str:
    try:
        return storable(str(error))
    except BaseException as second:  # also an exit, which would end the loop: this runs after the step
        if comes_from_signal(second):
            raise
        return "(its text cannot be read)"


def _chain(error: BaseException) -> Iterator[str]:
    """The exception last, as Python prints it; it may use half of the room, and its causes the rest."""
    chain: list[tuple[BaseException, str]] = []
    found: BaseException | None = error
    connection = ""
    while found is not None and len(chain) <= _MAX_CAUSES and all(found is not one for one, _ in chain):
        chain.append((found, connection))
        if found.__cause__ is not None:
            found, connection = found.__cause__, _CAUSED
        else:
            found, connection = (None if found.__suppress_context__ else found.__context__), _DURING
    runs = {id(one): one.traceback for one, _ in chain if isinstance(one, RunFailed) and one.traceback}
    half = MAX_TRACEBACK // 2 - len(_CAUSED) * (len(chain) + len(runs))
    share = half // max(1, len(chain) - 1 + len(runs))
    for one, connection in reversed(chain):
        if id(one) in runs:  # where it was raised: in another call, perhaps in another process
            yield runs[id(one)][:share].rstrip() + "\n"
            yield _CAUSED
        yield _one(one, half if one is error else share)
        yield connection


def _one(error: BaseException, room: int) -> str:
    """An exception with its frames, in at most `room` characters; those inside a group are indented below it."""
    inner = ""
    if isinstance(error, BaseExceptionGroup):
        room //= 2
        for one in error.exceptions[:_MAX_CAUSES]:
            lines = _without_group(one, room // _MAX_CAUSES).splitlines()
            inner += "".join(f"  | {line}\n" for line in lines)
        if len(error.exceptions) > _MAX_CAUSES:
            inner += f"  | … and {len(error.exceptions) - _MAX_CAUSES} more\n"
    return _without_group(error, room) + inner


def _without_group(error: BaseException, room: int) -> str:
    line = _last_line(error)[: room // 2]
    room -= len(line) + 1
    return f"{_frames(error.__traceback__, room)[:room]}{line}\n"


def _last_line(error: BaseException) -> str:
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    lines = [f"{name}: {message}" if (message := _message(error)) else name]
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        lines += [str(note) for note in notes[:_MAX_CAUSES]]
    return "\n".join(lines)


def _frames(tb: TracebackType | None, room: int) -> str:
    """The frames as text of at most `room` characters, unless a single frame needs more."""
    frames, left_out = _walk(tb)
    if not frames:
        return ""
    wanted = [frame for frame in frames if not _is_engine(frame[0])] or frames
    text = _render(wanted, left_out)
    if len(text) > room:
        own = [frame for frame in wanted if not _is_library(frame[0])]
        if own:
            left_out += len(wanted) - len(own)
            wanted = own if wanted[-1] is own[-1] else [*own, wanted[-1]]
            text = _render(wanted, left_out)
    while len(text) > room and len(wanted) > 1:
        half = len(wanted) // 2
        left_out += len(wanted) - half
        wanted = [*wanted[: half // 2], *wanted[len(wanted) - half + half // 2 :]]
        text = _render(wanted, left_out)
    return text


def _walk(tb: TracebackType | None) -> tuple[list[tuple[FrameType, int]], int]:
    """The outermost and the innermost frames, and how many between them are left out."""
    walk = traceback.walk_tb(tb)
    first = list(islice(walk, _MAX_FRAMES // 2))
    last: deque[tuple[FrameType, int]] = deque(maxlen=_MAX_FRAMES // 2)
    between = 0
    for frame in walk:
        last.append(frame)
        between += 1
    return first + list(last), between - len(last)


def _render(frames: Frames, left_out: int) -> str:
    """Frames as Python prints them; a recursion is one frame with a count."""
    lines = traceback.StackSummary.extract(iter(frames)).format()
    if left_out:
        lines.insert((len(lines) + 1) // 2, f"  … {left_out} frames left out\n")
    return "".join(["Traceback (most recent call last):\n", *lines])


def _is_engine(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_ENGINE)


def _is_library(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith((_LIBRARY, "<frozen")) or "site-packages" in name or "dist-packages" in name


def _top_package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]
