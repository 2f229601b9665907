"""Read and write the dates, times and durations of FEEL, and give their properties.

Years may have up to nine digits and be negative, so Python's own types do not do. `zone` is an offset in seconds, the
IANA name of a time zone, or None for a local time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from hark.model.errors import InvalidInput
from hark.model.time_zones import time_zone

SECOND: Final = 1_000_000_000  # nanoseconds
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
_MAX_YEAR = 999_999_999
_MAX_OFFSET = 18 * 3600
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

Zone: TypeAlias = int | str | None


@dataclass(frozen=True, slots=True)
class FeelDate:
    """A date of the Gregorian calendar, also before its introduction."""

    year: int
    month: int
    day: int

    def __str__(self) -> str:
        return f"{'-' if self.year < 0 else ''}{abs(self.year):04}-{self.month:02}-{self.day:02}"


@dataclass(frozen=True, slots=True)
class FeelTime:
    """A time of day, in nanoseconds since midnight."""

    nanos: int
    zone: Zone = None

    def __str__(self) -> str:
        hours, minutes, seconds, fraction = _split(self.nanos)
        return f"{hours:02}:{minutes:02}:{seconds:02}{_fraction(fraction)}{_zone_text(self.zone)}"


@dataclass(frozen=True, slots=True)
class FeelDateTime:
    """A date and a time."""

    date: FeelDate
    time: FeelTime

    def __str__(self) -> str:
        return f"{self.date}T{self.time}"


@dataclass(frozen=True, slots=True)
class DaysDuration:
    """A duration of days, hours, minutes and seconds, in nanoseconds."""

    nanos: int

    def __str__(self) -> str:
        days, rest = divmod(abs(self.nanos), DAY)
        hours, minutes, seconds, fraction = _split(rest)
        time = f"{hours}H" if hours else ""
        time += f"{minutes}M" if minutes else ""
        time += f"{seconds}{_fraction(fraction)}S" if seconds or fraction else ""
        text = (f"{days}D" if days else "") + (f"T{time}" if time else "")
        return f"{'-' if self.nanos < 0 else ''}P{text or 'T0S'}"


@dataclass(frozen=True, slots=True)
class MonthsDuration:
    """A duration of years and months."""

    months: int

    def __str__(self) -> str:
        years, months = divmod(abs(self.months), 12)
        text = (f"{years}Y" if years else "") + (f"{months}M" if months else "")
        return f"{'-' if self.months < 0 else ''}P{text or '0M'}"


Temporal: TypeAlias = FeelDate | FeelTime | FeelDateTime | DaysDuration | MonthsDuration


def _split(nanos: int) -> tuple[int, int, int, int]:
    seconds, fraction = divmod(nanos, SECOND)
    return seconds // 3600, seconds // 60 % 60, seconds % 60, fraction


def _fraction(nanos: int) -> str:
    return f".{nanos:09}".rstrip("0") if nanos else ""


def _zone_text(zone: Zone) -> str:
    if zone is None:
        return ""
    if isinstance(zone, str):
        return f"@{zone}"
    if zone == 0:
        return "Z"
    offset = abs(zone)
    seconds = f":{offset % 60:02}" if offset % 60 else ""
    return f"{'-' if zone < 0 else '+'}{offset // 3600:02}:{offset // 60 % 60:02}{seconds}"


# -- the calendar ---------------------------------------------------------------------------------


def new_date(year: int, month: int, day: int) -> FeelDate | None:
    """A date, if it exists."""
    if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month) or abs(year) > _MAX_YEAR:
        return None
    return FeelDate(year, month, day)


def days_in_month(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _LENGTHS[month - 1]


def day_number(date: FeelDate) -> int:
    """The number of days since 1970-01-01."""
    year = date.year - (date.month <= 2)
    era, of_era = divmod(year, 400)
    of_year = (153 * ((date.month + 9) % 12) + 2) // 5 + date.day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def date_of(number: int) -> FeelDate | None:
    """The date that is this many days after 1970-01-01."""
    era, of_era = divmod(number + 719_468, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    day = of_year - (153 * shifted + 2) // 5 + 1
    return new_date(year_of_era + era * 400 + (month <= 2), month, day)


def weekday(date: FeelDate) -> int:
    """1 for Monday to 7 for Sunday."""
    return (day_number(date) + 3) % 7 + 1


def local_nanos(at: FeelDateTime) -> int:
    """Nanoseconds since 1970 by the local clock."""
    return day_number(at.date) * DAY + at.time.nanos


def from_local_nanos(nanos: int, zone: Zone) -> FeelDateTime | None:
    days, rest = divmod(nanos, DAY)
    date = date_of(days)
    return None if date is None else FeelDateTime(date, FeelTime(rest, zone))


def offset_at(at: FeelDateTime) -> int | None:
    """The offset of a date and time in seconds; None if it is local."""
    zone = at.time.zone
    if not isinstance(zone, str):
        return zone
    if not 1 < at.date.year < 9999:
        return 0
    seconds = at.time.nanos // SECOND
    local = datetime(at.date.year, at.date.month, at.date.day) + timedelta(seconds=seconds)
    offset = local.replace(tzinfo=time_zone(zone)).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def instant(at: FeelDateTime) -> int | None:
    """Nanoseconds since 1970, UTC; None if it is local."""
    offset = offset_at(at)
    return None if offset is None else local_nanos(at) - offset * SECOND


# -- reading --------------------------------------------------------------------------------------

_ZONE = r"(?P<zone>Z|[+-]\d\d:\d\d(?::\d\d)?|@[A-Za-z0-9_+/-]+)?"
_DATE = r"(?P<year>-?(?:[1-9]\d{3,8}|0\d{3}))-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = rf"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{{1,18}}))?{_ZONE}"
_AS_DATE = re.compile(_DATE, re.ASCII)
_AS_TIME = re.compile(_TIME, re.ASCII)
_AS_DATE_TIME = re.compile(f"{_DATE}T{_TIME}", re.ASCII)
_AS_MONTHS = re.compile(r"(-?)P(?=\d)(?:(\d{1,15})Y)?(?:(\d{1,15})M)?", re.ASCII)
_AS_DAYS = re.compile(
    r"(-?)P(?=[\dT])(?:(\d{1,15})D)?(?:T(?=\d)(?:(\d{1,15})H)?(?:(\d{1,15})M)?(?:(\d{1,15})(?:\.(\d{0,18}))?S)?)?",
    re.ASCII,
)


def read_date(text: str) -> FeelDate | None:
    return None if (found := _AS_DATE.fullmatch(text)) is None else _found_date(found)


def read_time(text: str) -> FeelTime | None:
    return None if (found := _AS_TIME.fullmatch(text)) is None else _found_time(found)


def read_date_time(text: str) -> FeelDateTime | None:
    """A date and a time; a date alone is its midnight."""
    if found := _AS_DATE_TIME.fullmatch(text):
        date, time = _found_date(found), _found_time(found)
        return None if date is None or time is None else FeelDateTime(date, time)
    midnight = read_date(text)
    return None if midnight is None else FeelDateTime(midnight, FeelTime(0))


def read_duration(text: str) -> DaysDuration | MonthsDuration | None:
    if found := _AS_MONTHS.fullmatch(text):
        months = int(found[2] or 0) * 12 + int(found[3] or 0)
        return MonthsDuration(-months if found[1] else months)
    if found := _AS_DAYS.fullmatch(text):
        nanos = int(found[2] or 0) * DAY + int(found[3] or 0) * HOUR + int(found[4] or 0) * MINUTE
        nanos += int(found[5] or 0) * SECOND + _nanos(found[6])
        return DaysDuration(-nanos if found[1] else nanos)
    return None


def read_temporal(text: str) -> Temporal | None:
    """The value that `@"…"` stands for."""
    return read_date(text) or read_time(text) or read_date_time(text) or read_duration(text)


def _found_date(found: re.Match[str]) -> FeelDate | None:
    return new_date(int(found["year"]), int(found["month"]), int(found["day"]))


def _found_time(found: re.Match[str]) -> FeelTime | None:
    zone: Zone = None
    if (text := found["zone"]) is not None:
        zone = read_zone(text)
        if zone is None:
            return None
    nanos = _nanos(found["fraction"])
    return new_time(int(found["hour"]), int(found["minute"]), int(found["second"]) * SECOND + nanos, zone)


def new_time(hour: int, minute: int, nanos: int, zone: Zone) -> FeelTime | None:
    """A time, if it exists. `nanos` are those of the minute."""
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= nanos < MINUTE:
        return None
    if isinstance(zone, int) and abs(zone) > _MAX_OFFSET:
        return None
    return FeelTime(hour * HOUR + minute * MINUTE + nanos, zone)


def read_zone(text: str) -> int | str | None:
    """A zone as it is written behind a time: `Z`, `+01:00`, `@Europe/Berlin`."""
    if text == "Z":
        return 0
    if text.startswith("@"):
        try:
            time_zone(text[1:])
        except InvalidInput:
            return None
        return text[1:]
    hours, minutes, *seconds = (int(part) for part in text[1:].split(":"))
    offset = hours * 3600 + minutes * 60 + sum(seconds)
    if minutes > 59 or any(second > 59 for second in seconds):
        return None
    return -offset if text[0] == "-" else offset


def _nanos(fraction: str | None) -> int:
    return int(f"{fraction:0<9}"[:9]) if fraction else 0


# -- properties -----------------------------------------------------------------------------------


def property_of(value: Temporal, name: str) -> Any:
    """The property of a date, a time or a duration; None if it has none of that name."""
    match value:
        case FeelDate():
            return _date_property(value, name)
        case FeelTime():
            return _time_property(value, name, None)
        case FeelDateTime():
            found = _date_property(value.date, name)
            return _time_property(value.time, name, value) if found is None else found
        case MonthsDuration():
            years, months = divmod(abs(value.months), 12)
            number = {"years": years, "months": months}.get(name)
            return number if number is None or value.months >= 0 else -number
        case DaysDuration():
            days, rest = divmod(abs(value.nanos), DAY)
            hours, minutes, seconds, _ = _split(rest)
            number = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}.get(name)
            return number if number is None or value.nanos >= 0 else -number


def _date_property(date: FeelDate, name: str) -> int | None:
    if name == "weekday":
        return weekday(date)
    return {"year": date.year, "month": date.month, "day": date.day}.get(name)


def _time_property(time: FeelTime, name: str, at: FeelDateTime | None) -> Any:
    if name == "timezone":
        return time.zone if isinstance(time.zone, str) else None
    if name == "time offset":
        offset = offset_at(FeelDateTime(FeelDate(1970, 1, 1), time) if at is None else at)
        return None if offset is None else DaysDuration(offset * SECOND)
    hours, minutes, seconds, _ = _split(time.nanos)
    return {"hour": hours, "minute": minutes, "second": seconds}.get(name)
