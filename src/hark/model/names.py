"""Check names, ids, versions, durations and points in time where they enter.

Ids and names are returned unchanged; durations and datetimes become whole microseconds, by integer
arithmetic only. Whether a name is known, or a time is over, is not decided here.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from datetime import UTC, datetime, timedelta
from random import Random
from time import time_ns

from hark.model.errors import InvalidInput
from hark.model.lanes import ENGINE_QUEUE

NAME_BYTES = 255
SECOND = 1_000_000
CENTURY = 36_525 * 86_400 * SECOND

_MAX_VERSION = 2**31 - 1  # the column is a 32-bit integer
_AWAKEABLE = "prom_1"
_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def check_id(id: str) -> str:
    """The id; raises InvalidInput unless it is 1 to 128 characters of A-Z a-z 0-9 _ . -"""
    if isinstance(id, str) and _ID.fullmatch(id):
        return id
    raise InvalidInput(f"{_shown(id)} is not an id; use 1 to 128 characters of A-Z a-z 0-9 _ . -")


def check_name(name: str, what: str) -> str:
    """The name; raises InvalidInput unless it is text of 1 to 255 bytes that every store and door can carry."""
    if not isinstance(name, str):
        raise InvalidInput(f"The {what} must be text, not {_shown(name)}; pass a str")
    if not name:
        raise InvalidInput(f"The {what} is empty; give it at least one character")
    if "\0" in name:
        raise InvalidInput(f"The {what} {_shown(name)} contains a NUL character; remove it")
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            f"The {what} {_shown(name)} contains half of a surrogate pair; pass text that UTF-8 can carry"
        ) from None
    if size > NAME_BYTES:
        raise InvalidInput(f"The {what} is {size} bytes long; shorten it to {NAME_BYTES} bytes of UTF-8")
    return name


def check_queue(queue: str) -> str:
    """The name of a queue; raises InvalidInput unless `check_name` accepts it, or if it is the engine's own queue."""
    if queue == ENGINE_QUEUE:
        raise InvalidInput(
            f"The queue {ENGINE_QUEUE!r} belongs to the engine: every worker serves it. Use another name."
        )
    return check_name(queue, "queue name")


def is_name(name: str) -> bool:
    try:
        return bool(check_name(name, "name"))
    except InvalidInput:
        return False


def version_problem(version: object) -> str | None:
    """The error text for the version of a definition; None if it is valid. The caller chooses the error."""
    if type(version) is int and 0 <= version <= _MAX_VERSION:
        return None
    return f"version={_shown(version)}: give a whole number from 0 to {_MAX_VERSION}"


def micros(duration: float | timedelta, what: str, *, zero: bool, least: int = 0) -> int:
    """Seconds or a timedelta as whole microseconds; a positive duration never becomes zero.

    Raises InvalidInput. All its errors about one kind of duration name the same values: zero or more, with `zero`; at
    least `least` µs; or else above zero.
    """
    if isinstance(duration, timedelta):
        span = duration // _MICROSECOND
    elif isinstance(duration, bool) or not isinstance(duration, int | float):
        raise InvalidInput(f"The {what} must be seconds (int or float) or a timedelta, not {_shown(duration)}")
    elif isinstance(duration, int):
        span = duration * SECOND
    elif duration != duration or duration in (float("inf"), float("-inf")):
        raise InvalidInput(f"The {what} is {duration}; give a finite number of seconds")
    else:
        above, below = duration.as_integer_ratio()
        span = (2 * above * SECOND + below) // (2 * below)  # to the nearest, without a float product
    if span <= 0 and duration:  # a non-zero duration that is negative, or that rounded to zero
        if isinstance(duration, timedelta) or duration < 0:
            raise InvalidInput(f"The {what} is negative ({_shown(duration)}); give {_allowed(zero, least)}")
        span = 1
    if span == 0 and not zero:
        raise InvalidInput(f"The {what} is zero; give {_allowed(zero, least)}")
    if span < least:
        raise InvalidInput(f"The {what} is too short ({_shown(duration)}); give {_allowed(zero, least)}")
    if span > CENTURY:
        raise InvalidInput(f"The {what} is over 100 years ({_shown(duration)}); give a shorter one, in seconds")
    return span


def _allowed(zero: bool, least: int) -> str:
    if least:
        return f"at least {least / SECOND:g} seconds"
    return "zero or more seconds" if zero else "a duration above zero, in seconds"


def moment(at: datetime, what: str) -> int:
    """An aware datetime as microseconds since 1970-01-01 UTC."""
    if not isinstance(at, datetime):
        raise InvalidInput(f"The {what} must be a datetime, not {_shown(at)}; use datetime.now(timezone.utc)")
    if at.utcoffset() is None:
        raise InvalidInput(
            f"The {what} {at.isoformat()} has no time zone; make it timezone-aware UTC: "
            "datetime.now(timezone.utc), or .replace(tzinfo=timezone.utc)"
        )
    span = to_micros(at)
    if not _EARLIEST <= span <= _LATEST:
        raise InvalidInput(f"The {what} {at.isoformat()} is outside the years 1 to 9999 in UTC; move it inside")
    return span


def to_micros(at: datetime) -> int:
    """An aware datetime as microseconds since 1970-01-01 UTC, unchecked."""
    return (at - _EPOCH) // _MICROSECOND


def from_micros(at: int) -> datetime:
    """The aware UTC datetime of microseconds since 1970-01-01."""
    try:
        return _EPOCH + timedelta(microseconds=at)
    except OverflowError:
        raise InvalidInput(f"{_shown(at)} µs is outside the years 1 to 9999; pass µs since 1970") from None


def awakeable_id(instance_id: str, entry: int) -> str:
    """The public id of an awakeable (A2): `prom_1` and unpadded base64url of `instance_id:entry`."""
    return _AWAKEABLE + base64.urlsafe_b64encode(f"{instance_id}:{entry}".encode()).decode().rstrip("=")


def parse_awakeable_id(id: str) -> tuple[str, int]:
    """Split the id of an awakeable into the instance that asked and the number of the entry in its journal.

    Args:
        id: The id, with or without base64 padding.

    Returns:
        The id of the instance (of a task's awakeable, that of its job), and the number of the entry.

    Raises:
        InvalidInput: It is not the id of an awakeable. Whether there is such an awakeable is not looked up.

    Example:
        instance_id, entry_index = parse_awakeable_id(question.id)
    """
    text = check_name(id, "awakeable id").rstrip("=")
    encoded = text.removeprefix(_AWAKEABLE)
    padding = "=" * (-len(encoded) % 4)
    try:
        owner, _, entry = base64.urlsafe_b64decode(encoded + padding).decode().rpartition(":")
        # Made again and compared: base64 decoders skip what they do not know, and a number has many spellings.
        if entry.isdecimal() and text == awakeable_id(owner, int(entry)) and id in (text, text + padding):
            return check_name(owner, "instance id"), int(entry)
    except ValueError:
        pass
    raise InvalidInput(
        f"{_shown(id)} is not the id of an awakeable. Give one as `Awakeable.id` and `hark awakeable list` show it: "
        f"{_AWAKEABLE}…"
    )


def instance_of(awakeable_id: str) -> str | None:
    """The instance that an awakeable id contains; None if the id has another form."""
    text = awakeable_id.removeprefix(_AWAKEABLE)
    if len(text) == len(awakeable_id):
        return None
    try:
        owner, colon, entry = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().rpartition(":")
    except ValueError:
        return None
    return owner if colon and entry.isdecimal() and _ID.fullmatch(owner) else None


def check_awakeable_id(id: str) -> str:
    """The id as it is stored; base64 padding is accepted and removed."""
    return check_name(id, "awakeable id").rstrip("=")


class _Ids:
    """UUIDv7: 48 bits of milliseconds, 26 bits of counter (RFC 9562, 6.2 method 1), 48 random bits.

    Each millisecond the counter starts at a random value in its lower half, so that at least 2**25 ids
    fit into it; when the clock steps back, the last millisecond is kept. The generator is our own: a
    program that calls random.seed(0) must not get the ids of its previous run.
    """

    def __init__(self) -> None:
        self._millisecond = 0
        self._counter = 0
        self._prefix = ""
        self.reseed()

    def reseed(self) -> None:
        """Make a new lock and generator, also in a forked child: it must neither repeat ids nor inherit a held lock."""
        self._lock = threading.Lock()
        self._bits = Random().getrandbits

    def new(self) -> str:
        """A new id. Later ids of this process sort after it, also as text."""
        bits = self._bits
        now = time_ns() // 1_000_000
        with self._lock:
            if now > self._millisecond:
                count = self._enter(now)
            else:
                self._counter = count = self._counter + 1
                if count >= 1 << 26:
                    count = self._enter(self._millisecond + 1)
            prefix = self._prefix
        # An f-string takes half as long again, and every start makes at least one id.
        return "%s%03x-%04x-%012x" % (prefix, count >> 14, 0x8000 | count & 0x3FFF, bits(48))  # noqa: UP031

    def _enter(self, millisecond: int) -> int:
        self._millisecond = millisecond
        self._prefix = f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7"
        self._counter = self._bits(25)
        return self._counter


_ids = _Ids()
new_id = _ids.new  # the bound method itself: a function around it costs a tenth more
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.reseed)


def _shown(value: object) -> str:
    """A short repr for a message. Python refuses the repr of a huge int: then the type name."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
