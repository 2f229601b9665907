"""Calculate with dates, times and durations. A pair of values that FEEL does not combine gives null."""

from __future__ import annotations

from typing import Any

from hark.programs.expressions.feel import numbers
from hark.programs.expressions.feel.temporal import (
    DAY,
    SECOND,
    DaysDuration,
    FeelDate,
    FeelDateTime,
    FeelTime,
    MonthsDuration,
    date_of,
    day_number,
    days_in_month,
    from_local_nanos,
    instant,
    local_nanos,
    new_date,
    offset_at,
)

_MAX_NANOS = 10**9 * 366 * DAY


def combine(operator: str, left: Any, right: Any) -> Any:
    """`left operator right`, of which at least one is a date, a time or a duration."""
    match operator:
        case "+":
            return _add(left, right) if not _is_duration(left) or _is_duration(right) else _add(right, left)
        case "-":
            return _add(left, negative(right)) if _is_duration(right) else _difference(left, right)
        case "*":
            if _is_duration(right):
                left, right = right, left
            return _scale("*", left, right)
        case "/":
            if type(left) is type(right) and _is_duration(left):
                return numbers.calculate("/", _amount(left), _amount(right))
            return _scale("/", left, right)
    return None


def negative(duration: Any) -> Any:
    """`-duration`."""
    match duration:
        case DaysDuration():
            return DaysDuration(-duration.nanos)
        case MonthsDuration():
            return MonthsDuration(-duration.months)
    return None


def _is_duration(value: Any) -> bool:
    return isinstance(value, DaysDuration | MonthsDuration)


def _amount(duration: DaysDuration | MonthsDuration) -> int:
    return duration.nanos if isinstance(duration, DaysDuration) else duration.months


def _scale(operator: str, duration: Any, number: Any) -> Any:
    if not _is_duration(duration) or not numbers.is_number(number):
        return None
    amount = numbers.calculate(operator, _amount(duration), number)
    if amount is None or not -_MAX_NANOS <= amount <= _MAX_NANOS:
        return None
    return type(duration)(numbers.whole(amount))


def _add(left: Any, right: Any) -> Any:
    """`left + right`, where `right` is a duration."""
    match left, right:
        case (DaysDuration(), DaysDuration()):
            return DaysDuration(left.nanos + right.nanos)
        case (MonthsDuration(), MonthsDuration()):
            return MonthsDuration(left.months + right.months)
        case (FeelDate(), MonthsDuration()):
            return add_months(left, right.months)
        case (FeelDate(), DaysDuration()):
            return date_of((day_number(left) * DAY + right.nanos) // DAY)
        case (FeelDateTime(), MonthsDuration()):
            date = add_months(left.date, right.months)
            return None if date is None else FeelDateTime(date, left.time)
        case (FeelDateTime(), DaysDuration()):
            return _later(left, right.nanos)
        case (FeelTime(), DaysDuration()):
            return FeelTime((left.nanos + right.nanos) % DAY, left.zone)
    return None


def add_months(date: FeelDate, months: int) -> FeelDate | None:
    """The date some months later; the last day of the month if it is shorter."""
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    return new_date(year, month + 1, min(date.day, days_in_month(year, month + 1)))


def _later(at: FeelDateTime, nanos: int) -> FeelDateTime | None:
    zone = at.time.zone
    if not isinstance(zone, str) or (start := instant(at)) is None:
        return from_local_nanos(local_nanos(at) + nanos, zone)
    # Elapsed time, not the time of the clock: the offset may change in between.
    moved = from_local_nanos(start + nanos, zone)
    for _ in range(2):
        if moved is not None:
            moved = from_local_nanos(start + nanos + (offset_at(moved) or 0) * SECOND, zone)
    return moved


def _difference(left: Any, right: Any) -> Any:
    match left, right:
        case (FeelTime(), FeelTime()):
            one, other = (FeelDateTime(FeelDate(1970, 1, 1), time) for time in (left, right))
        case (FeelDate() | FeelDateTime(), FeelDate() | FeelDateTime()):
            one, other = as_date_time(left), as_date_time(right)
        case _:
            return None
    if (pair := comparable(one, other)) is None:
        return None
    return DaysDuration(pair[0] - pair[1])


def as_date_time(value: FeelDate | FeelDateTime) -> FeelDateTime:
    """A date as its midnight in UTC, as FEEL has it where a date meets a date and time."""
    return value if isinstance(value, FeelDateTime) else FeelDateTime(value, FeelTime(0, 0))


def comparable(one: FeelDateTime, other: FeelDateTime) -> tuple[int, int] | None:
    """Both as numbers that can be compared and subtracted; None if one is local and the other is not."""
    instants = instant(one), instant(other)
    if instants[0] is not None and instants[1] is not None:
        return instants[0], instants[1]
    return (local_nanos(one), local_nanos(other)) if instants[0] is instants[1] else None


def months_between(start: FeelDate | FeelDateTime, end: FeelDate | FeelDateTime) -> MonthsDuration:
    """The whole months from one to the other."""
    first, last = (value if isinstance(value, FeelDate) else value.date for value in (start, end))
    times = [value.time.nanos if isinstance(value, FeelDateTime) else 0 for value in (start, end)]
    months = (last.year - first.year) * 12 + last.month - first.month
    rest = (last.day, times[1]), (first.day, times[0])
    if months > 0 and rest[0] < rest[1]:
        months -= 1
    elif months < 0 and rest[0] > rest[1]:
        months += 1
    return MonthsDuration(months)
