"""Compute the ticks of a schedule: of a cron expression in a time zone, or of an interval.

A tick is an instant, in µs since 1970. The ticks of a cron expression are the local times that match it, each once: a
local time that occurs twice, because clocks are set back, counts the first time, and one that clocks skip is moved to
the first instant after the gap. The ticks of an interval are a fixed distance apart, so they do not drift.

The fields are parsed and searched by cronsim, over local times without a time zone; this file converts such a time to
an instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hark.model.errors import InvalidInput
from hark.model.iso8601 import parse_moment, parse_repeat
from hark.model.names import from_micros, micros, to_micros
from hark.model.time_zones import instant_of, time_zone

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from cronsim import CronSim

_MAX_TEXT = 255  # characters of a cron expression
_MIN_INTERVAL = 10_000  # µs
_UNTIL = " until "  # separates a cron expression from the time of its last tick


class Timing(Struct, frozen=True):
    """The ticks of a schedule: those of `cron` in `timezone`, or one each `every` µs; with neither there are none.

    The timer of a process may have a repeating interval of the calendar in `cron`: `R/2026-01-31T09:00:00Z/P1M`; and
    ` until 2026-12-31T00:00:00+00:00` behind either: no tick is later.
    """

    cron: str | None = None
    every: int | None = None
    timezone: str = "UTC"

    def next(self, after: int, anchor: int) -> int | None:
        """The first tick later than `after`, or None if there is none.

        `anchor` is a tick of an interval, past or future: the others are whole intervals away from it.

        Raises:
            InvalidInput: The expression or the time zone cannot be read in this process.
        """
        if self.every is not None:
            return anchor + ((after - anchor) // self.every + 1) * self.every
        found, _ = self.due(after, None, 1)
        return found[0] if found else None

    def ending(self, last: int) -> Timing:
        """Return this timing without the ticks of `cron` that are later than `last`."""
        return Timing(f"{self.cron}{_UNTIL}{from_micros(last).isoformat()}", self.every, self.timezone)

    def due(self, after: int, until: int | None, limit: int) -> tuple[list[int], bool]:
        """The ticks of a cron expression later than `after` and not later than `until`, at most `limit`; and whether
        `limit` cut them off.

        Raises:
            InvalidInput: The expression or the time zone cannot be read in this process.
        """
        ticks: list[int] = []
        if self.cron is None:
            return ticks, False
        cron, _, end = self.cron.partition(_UNTIL)
        if end:
            until = parse_moment(end).at if until is None else min(until, parse_moment(end).at)
        for tick in _repeated(cron, after) if cron.startswith("R") else _matched(cron, time_zone(self.timezone), after):
            if until is not None and tick > until:
                break
            if len(ticks) == limit:
                return ticks, True
            ticks.append(tick)
            if until is None and len(ticks) == limit:
                break
        return ticks, False


def _matched(cron: str, zone: ZoneInfo, last: int) -> Iterator[int]:
    try:
        for local in _matches(cron, from_micros(last).astimezone(zone).replace(tzinfo=None)):
            tick = to_micros(instant_of(local, zone))
            if tick > last:  # else in the second of two equal hours, or moved to the end of a gap like the one before
                last = tick
                yield tick
    except OverflowError:  # after the year 9999
        pass


def _repeated(text: str, last: int) -> Iterator[int]:
    repeat = parse_repeat(text)
    tick = repeat.after(last)
    while tick is not None:
        yield tick
        tick = repeat.after(tick)


def check_timing(cron: Any, every: Any, timezone: Any) -> Timing:
    """The timing of a schedule, checked.

    Args:
        cron: A cron expression of five fields, or six with seconds first; or None.
        every: Seconds or a timedelta; or None. A schedule has one of both.
        timezone: The IANA name of the time zone that the expression is read in.

    Raises:
        InvalidInput: One of them is malformed, or both or none of `cron` and `every` are given.
    """
    time_zone(timezone)
    if (cron is None) == (every is None):
        raise InvalidInput("Give a schedule either cron= (such as '0 9 * * MON') or every= (seconds).")
    if cron is None:
        return Timing(every=micros(every, "interval", zero=False, least=_MIN_INTERVAL), timezone=timezone)
    if not isinstance(cron, str) or len(cron) > _MAX_TEXT:
        raise InvalidInput(f"cron={repr(cron)[:60]}: give a text of five fields, or six with seconds first.")
    for _ in _matches(cron, datetime(2024, 1, 1)):  # a leap year, so that 29 February is found soon
        return Timing(cron=cron, timezone=timezone)
    raise InvalidInput(f"cron={cron!r} matches no date. Check its day and month.")


def _matches(cron: str, after: datetime) -> CronSim:
    """The local times later than `after` that match the expression, in order."""
    from cronsim import CronSim, CronSimError  # a program without schedules does not need it

    # `?` is how Spring and Quartz write a day field that does not matter.
    fields = ["*" if field == "?" else field for field in cron.split()]
    try:
        return CronSim(" ".join(fields), after)
    except (CronSimError, AssertionError, ValueError) as error:
        raise InvalidInput(
            f"cron={cron!r} is not a cron expression ({error}). Give five fields (minute hour day month weekday), or "
            "six with seconds first, such as '0 9 * * MON'."
        ) from error
