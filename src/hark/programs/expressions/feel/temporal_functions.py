"""The functions of FEEL that make dates, times and durations, and read the calendar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hark.programs.expressions.budget import Budget
from hark.programs.expressions.feel import numbers
from hark.programs.expressions.feel.numbers import is_number, whole
from hark.programs.expressions.feel.registry import ANY, feel_function, plain_function
from hark.programs.expressions.feel.temporal import (
    SECOND,
    DaysDuration,
    FeelDate,
    FeelDateTime,
    FeelTime,
    MonthsDuration,
    Zone,
    day_number,
    new_date,
    new_time,
    read_date,
    read_date_time,
    read_duration,
    read_time,
    read_zone,
    weekday,
)
from hark.programs.expressions.feel.temporal_arithmetic import months_between

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip


_LONGEST = 200  # characters of a date, time or duration, with the name of its time zone
_ZONE_STEPS = 200  # of looking for a time zone that may not exist


def _text(budget: Budget, text: str) -> str:
    """The text to read a date, a time, a duration or a time zone from; empty if it is too long for one."""
    budget.spend_text(len(text))
    budget.spend(_ZONE_STEPS if "@" in text else 0)
    return text if len(text) <= _LONGEST else ""


def _one(value: Any) -> Any:
    """The value, or the only item of a list."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


@feel_function("date", ANY, ANY, ANY, optional=2)
def _date(budget: Budget, first: Any, *further: Any) -> FeelDate | None:
    if further:
        parts = [_one(part) for part in (first, *further)]
        if len(parts) != 3 or not all(is_number(part) for part in parts):
            return None
        return new_date(*[whole(part) for part in parts])
    match _one(first):
        case FeelDate() as date:
            return date
        case FeelDateTime(date=date):
            return date
        case str() as text:
            return read_date(_text(budget, text))
    return None


@feel_function("time", ANY, ANY, ANY, ANY, optional=3)
def _time(budget: Budget, first: Any, *further: Any) -> FeelTime | None:
    if further:
        parts = [_one(part) for part in (first, *further)]
        budget.spend(numbers.effort(*parts))
        return _time_of_parts(parts)
    match _one(first):
        case FeelTime() as time:
            return time
        case FeelDateTime(time=time):
            return time
        case FeelDate():
            return FeelTime(0, 0)
        case str() as text:
            return read_time(_text(budget, text))
    return None


def _time_of_parts(parts: list[Any]) -> FeelTime | None:
    offset = parts[3] if len(parts) == 4 else None
    if len(parts) < 3 or not all(is_number(part) for part in parts[:3]):
        return None
    zone: Zone = None
    if isinstance(offset, DaysDuration):
        zone = offset.nanos // SECOND
    elif offset is not None:
        return None
    hour, minute, second = parts[:3]
    nanos = numbers.calculate("*", second, SECOND)
    return None if nanos is None else new_time(whole(hour), whole(minute), whole(nanos), zone)


@feel_function("date and time", ANY, ANY, optional=1)
def _date_and_time(budget: Budget, first: Any, second: Any = None) -> FeelDateTime | None:
    match _one(first), _one(second):
        case (str() as text, None):
            return read_date_time(_text(budget, text))
        case (FeelDateTime() as at, None):
            return at
        case (FeelDate() as date, None):
            return FeelDateTime(date, FeelTime(0))
        case (FeelDate() as date, FeelTime() as time):
            return FeelDateTime(date, time)
        case (FeelDateTime(date=date), FeelTime() as time):
            return FeelDateTime(date, time)
        case (FeelDateTime() as at, str() as name) if (zone := read_zone(_text(budget, f"@{name}") or "@")) is not None:
            return FeelDateTime(at.date, FeelTime(at.time.nanos, zone))
    return None


@feel_function("duration", ANY)
def _duration(budget: Budget, value: Any) -> DaysDuration | MonthsDuration | None:
    match _one(value):
        case str() as text:
            return read_duration(_text(budget, text))
        case DaysDuration() | MonthsDuration() as duration:
            return duration
    return None


@feel_function("years and months duration", ANY, ANY)
def _years_and_months(budget: Budget, start: Any, end: Any) -> MonthsDuration | None:
    match _one(start), _one(end):
        case ((FeelDate() | FeelDateTime()) as first, (FeelDate() | FeelDateTime()) as last):
            return months_between(first, last)
    return None


def _day(value: Any) -> FeelDate | None:
    match _one(value):
        case FeelDate() as date:
            return date
        case FeelDateTime(date=date):
            return date
    return None


def _calendar_function(name: str, run: Callable[[FeelDate], Any]) -> None:
    """Register a function of a date, which gives null for anything else."""
    plain_function(name, lambda value: None if (date := _day(value)) is None else run(date), ANY)


def _week_of_year(date: FeelDate) -> int:
    """The week of ISO 8601: that of the Thursday of the same week."""
    thursday = day_number(date) - weekday(date) + 4
    first = day_number(FeelDate(date.year, 1, 1))
    if thursday < first:
        first = day_number(FeelDate(date.year - 1, 1, 1))
    elif thursday >= day_number(FeelDate(date.year + 1, 1, 1)):
        return 1
    return (thursday - first) // 7 + 1


_calendar_function("day of week", lambda date: _DAYS[weekday(date) - 1])
_calendar_function("month of year", lambda date: _MONTHS[date.month - 1])
_calendar_function("day of year", lambda date: day_number(date) - day_number(FeelDate(date.year, 1, 1)) + 1)
_calendar_function("week of year", _week_of_year)


@feel_function("now")
@feel_function("today")
def _current_time(budget: Budget) -> None:
    """The current time or date. The evaluator knows it; this entry only makes the names known."""
    raise AssertionError("now() and today() are answered by the evaluator")
