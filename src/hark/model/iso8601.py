"""Parse ISO 8601: points in time, durations and repeating intervals, for the timers of processes.

All times are µs since 1970. A date without a zone is in UTC. Years, months, weeks and days are counted on the calendar
of the zone that was written, so a day is the same time of the next day, also when clocks change; hours, minutes and
seconds are elapsed time.
"""

from __future__ import annotations

import calendar
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NoReturn

from msgspec import Struct

from hark.model.errors import InvalidInput
from hark.model.names import from_micros, to_micros
from hark.model.time_zones import instant_of, time_zone

_DAY = 86_400_000_000
_MAX_TEXT = 255
_MAX_DAYS = 3_660_000  # ten thousand years

_NUMBER = r"(\d{1,12}(?:[.,]\d{1,9})?)"
_DURATION = re.compile(
    rf"([-+]?)P(?=[\dT])(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=\d)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
    re.ASCII,
)
_NAMED_ZONE = re.compile(r"(.*?)(?:\[([^\[\]]+)\]|@([^@\[\]]+))", re.ASCII)
_REPEAT = re.compile(r"R(\d{0,9})/(.+)", re.ASCII)


class Duration(Struct, frozen=True):
    """A duration: months and days of the calendar, and elapsed µs. All are negative, or none is."""

    months: int = 0
    days: int = 0
    micros: int = 0

    @property
    def is_positive(self) -> bool:
        return self.months > 0 or self.days > 0 or self.micros > 0

    @property
    def longest(self) -> int:
        """An upper bound of its length in µs."""
        return self.months * 31 * _DAY + self.days * _DAY * 25 // 24 + self.micros

    def times(self, factor: int) -> Duration:
        return Duration(self.months * factor, self.days * factor, self.micros * factor)


class Moment(Struct, frozen=True):
    """A point in time, and the zone that it was written in."""

    at: int
    zone: str = "UTC"

    def plus(self, duration: Duration) -> int:
        """The time that is this much later, in µs. Raises InvalidInput outside the years 1 to 9999."""
        try:
            if not duration.months and not duration.days:
                return _checked(self.at + duration.micros)
            return _checked(_on_the_calendar(self, duration) + duration.micros)
        except (OverflowError, ValueError):
            raise InvalidInput("The time is outside the years 1 to 9999. Give a shorter duration.") from None


def _checked(at: int) -> int:
    from_micros(at)
    return at


def _on_the_calendar(moment: Moment, duration: Duration) -> int:
    zone = time_zone(moment.zone)
    local = from_micros(moment.at).astimezone(zone).replace(tzinfo=None)
    year, month = divmod(local.year * 12 + local.month - 1 + duration.months, 12)
    day = min(local.day, calendar.monthrange(year, month + 1)[1])
    local = local.replace(year=year, month=month + 1, day=day) + timedelta(days=duration.days)
    return to_micros(instant_of(local, zone))


class Repeat(Struct, frozen=True):
    """A repeating interval: `R3/PT1H`, `R/2026-01-01T09:00:00Z/P1D`, `R/PT1H/2026-12-31T00:00:00Z`.

    Attributes:
        duration: From one time to the next.
        count: How often in all; None: without end.
        start: The first time; None: one duration after it begins to count.
        end: The last time; the others are whole durations before it.
    """

    duration: Duration
    count: int | None = None
    start: Moment | None = None
    end: Moment | None = None

    def after(self, previous: int) -> int | None:
        """The first time later than `previous`; None if there is none. `count` is not considered.

        Without start and end, `previous` is one of the times.
        """
        if self.start is not None:
            return self.start.plus(self.duration.times(self._steps_after(self.start.at, previous, self.start)))
        if self.end is not None:
            back = self._steps_before(previous)
            return None if back is None else self.end.plus(self.duration.times(-back))
        return Moment(previous).plus(self.duration)

    def first(self, now: int) -> tuple[int, int | None]:
        """The first time that is not over at `now`, and how many there are from it on; None: without end."""
        if self.start is not None:
            passed = self._steps_after(self.start.at, now - 1, self.start)
            left = None if self.count is None else max(0, self.count - passed)
            return self.start.plus(self.duration.times(passed)), left
        if self.end is not None:
            back = self._steps_before(now - 1)
            if back is None:
                return now, 0
            if self.count is not None:
                back = min(back, max(0, self.count - 1))
            return self.end.plus(self.duration.times(-back)), 0 if self.count == 0 else back + 1
        return Moment(now).plus(self.duration), self.count

    def _steps_after(self, start: int, previous: int, first: Moment) -> int:
        """The number of durations from the start to the first time later than `previous`."""
        steps = max(0, (previous - start) // self.duration.longest)
        while first.plus(self.duration.times(steps)) <= previous:
            steps += 1
        return steps

    def _steps_before(self, previous: int) -> int | None:
        """The number of durations from the first time later than `previous` to the end; None if there is none."""
        if self.end is None or self.end.at <= previous:
            return None
        steps = (self.end.at - previous - 1) // self.duration.longest
        while self.end.plus(self.duration.times(-(steps + 1))) > previous:
            steps += 1
        return steps


def parse_moment(text: str) -> Moment:
    """A point in time: `2026-01-31T09:00:00Z`, `2026-01-31T09:00+01:00`, `2026-01-31T09:00[Europe/Berlin]`.

    Raises InvalidInput.
    """
    written = _text(text, "date")
    name = "UTC"
    if found := _NAMED_ZONE.fullmatch(written):
        written, name = found[1], found[2] or found[3]
    zone = time_zone(name)
    try:
        moment = datetime.fromisoformat(written)
        at = instant_of(moment, zone) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        _refuse(text, "a date", "2026-01-31T09:00:00Z, 2026-01-31T09:00:00+01:00 or 2026-01-31T09:00[Europe/Berlin]")
    return Moment(to_micros(at), name)


def parse_duration(text: str) -> Duration:
    """A duration: `PT15M`, `P1DT12H`, `P1M`, `P2W`, `PT0.5S`. Raises InvalidInput."""
    example = "PT15M, P1DT12H, P1M or PT0.5S"
    found = _DURATION.fullmatch(_text(text, "duration").upper())
    if found is None or all(part is None for part in found.groups()[1:]):
        _refuse(text, "a duration", example)
    sign = -1 if found[1] == "-" else 1
    parts = [Decimal(part.replace(",", ".")) if part else Decimal(0) for part in found.groups()[1:]]
    years, months, weeks, days, hours, minutes, seconds = parts
    all_months = years * 12 + months
    all_days = weeks * 7 + days
    whole_days = int(all_days)
    elapsed = (all_days - whole_days) * 86_400 + hours * 3600 + minutes * 60 + seconds
    if all_months != int(all_months):
        raise InvalidInput(f"{_shown(text)}: a part of a month has no length. Give whole months, or days.")
    if all_months > 12 * 10_000 or all_days > _MAX_DAYS or elapsed > _MAX_DAYS * 86_400:
        raise InvalidInput(f"{_shown(text)} is too long. Give at most ten thousand years.")
    return Duration(sign * int(all_months), sign * whole_days, sign * int(elapsed * 1_000_000))


def parse_repeat(text: str) -> Repeat:
    """A repeating interval: `R/PT1H`, `R3/PT10S`, `R5/2026-01-01T00:00:00Z/PT1H`, `R/PT1H/2026-12-31T00:00:00Z`.

    Raises InvalidInput.
    """
    example = "R/PT1H, R3/PT10S or R/2026-01-31T09:00:00Z/P1D"
    found = _REPEAT.fullmatch(_text(text, "repeating interval"))
    if found is None:
        _refuse(text, "a repeating interval", example)
    count = int(found[1]) if found[1] else None
    first, second = _parts(found[2])
    start = end = None
    if second is None:
        duration = parse_duration(first)
    elif first.lstrip("+-").upper().startswith("P"):
        duration, end = parse_duration(first), parse_moment(second)
    elif second.lstrip("+-").upper().startswith("P"):
        start, duration = parse_moment(first), parse_duration(second)
    else:
        start = parse_moment(first)
        duration = Duration(micros=parse_moment(second).at - start.at)
    if not duration.is_positive or duration.longest < 10_000:
        raise InvalidInput(f"{_shown(text)} repeats at once. Give a duration of at least 10 milliseconds.")
    return Repeat(duration, count, start, end)


def _parts(text: str) -> tuple[str, str | None]:
    """The parts between slashes; one in `[Europe/Berlin]` does not count."""
    parts = re.split(r"/(?![^\[]*\])", text, maxsplit=1)
    return parts[0], parts[1] if len(parts) == 2 else None


def _text(text: Any, what: str) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > _MAX_TEXT:
        raise InvalidInput(f"{_shown(text)}: a {what} is a text of at most {_MAX_TEXT} characters.")
    return text.strip()


def _refuse(text: str, what: str, example: str) -> NoReturn:
    raise InvalidInput(f"{_shown(text)} is not {what}. Write it as {example}.")


def _shown(value: Any) -> str:
    return repr(value)[:80]
