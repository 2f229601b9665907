"""Read the texts of timers: when one is due, how often, and what starts a process by the clock.

A date and a duration fire once, a cycle repeatedly: an ISO 8601 repeating interval or a cron expression. A time that is
over is due at once, and so is a duration of zero or less. Each firing of a cycle is counted from the one before it, or
from the start that is written, never from the moment at which it was handled: cycles do not drift.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from msgspec import structs

from hark.model.cron import Timing, check_timing
from hark.model.errors import InvalidInput
from hark.model.iso8601 import Moment, Repeat, parse_duration, parse_moment, parse_repeat
from hark.model.names import from_micros
from hark.model.trigger import Trigger
from hark.programs.bpmn.bpmn_spec import EventSpec
from hark.programs.expressions.sources import evaluate

TimerKind = Literal["date", "duration", "cycle"]

_MACROS: Final = {
    "@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *", "@monthly": "0 0 0 1 * *", "@weekly": "0 0 0 * * SUN",
    "@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@hourly": "0 0 * * * *",
}  # fmt: skip
_ZONE = re.compile(r"(?:CRON_TZ|TZ)=(\S+)\s+(.*)|(.*?)\s*\[([^\[\]]+)\]", re.DOTALL)
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_QUARTZ_DAY = re.compile(r"(?<![#/\d])([1-7])(?!\d)")


def first_due(timer: TimerKind, text: str, now: int) -> tuple[int, int | None]:
    """The first time at which a timer that begins at `now` fires, and the number of times it fires in all.

    Args:
        timer: What the text is.
        text: An ISO 8601 date, duration or repeating interval, or a cron expression.
        now: µs since 1970.

    Returns:
        The first time in µs since 1970, and the number of firings: None without end, 0 if a cycle is over already.

    Raises:
        InvalidInput: The text is malformed. The message says how to write it.
    """
    if timer == "date":
        return max(now, parse_due(text, now)), 1
    if timer == "duration":
        return max(now, Moment(now).plus(parse_duration(text))), 1
    if _is_repeat(text):
        return parse_repeat(text).first(now)
    due = cron_timing(text).next(now, now)
    return (now, 0) if due is None else (due, None)


def parse_due(text: str, now: int) -> int:
    """The time of a date, or a duration from now: Camunda accepts both as a date. It may be over.

    Raises:
        InvalidInput: The text is malformed.
    """
    return Moment(now).plus(parse_duration(text)) if _is_duration(text) else parse_moment(text).at


def next_due(text: str, previous: int) -> int | None:
    """The time at which a cycle fires after it was due at `previous`; None if it has ended. The number of firings is
    not considered.

    Raises:
        InvalidInput: The text is malformed.
    """
    if _is_repeat(text):
        return parse_repeat(text).after(previous)
    return cron_timing(text).next(previous, previous)


def triggers_of_timer(event: EventSpec, step: str, now: int) -> list[Trigger]:
    """The trigger of a timer start event that is deployed at `now`; none if its cycle is over already.

    `step` is the step that its instances begin with.

    Raises:
        ExpressionError: Its text is an expression that cannot be evaluated. There are no variables.
        InvalidInput: Its text is malformed.
    """
    text = evaluate(event.text, {}, now)
    if event.timer is None or not isinstance(text, str):
        raise InvalidInput("A timer needs a text: a date, a duration or a cycle, such as R/PT1H.")
    at, count = first_due(event.timer, text, now)
    until = None if event.until is None else parse_end(evaluate(event.until, {}, now))
    if count == 0 or (until is not None and at > until):
        return []
    start = Trigger(kind="timer", element=step, state="{}", at=at, remaining=count, overlap="allow")
    if event.timer != "cycle":
        return [start]
    timing = _timing(text, at)
    if until is not None and timing.every is not None:
        ticks = (until - at) // timing.every + 1
        start = structs.replace(start, remaining=ticks if count is None else min(ticks, count))
    elif until is not None:
        timing = timing.ending(until)
    return [structs.replace(start, timing=timing)]


def parse_end(value: Any) -> int:
    """The end date of a cycle, µs since 1970.

    Raises:
        InvalidInput: It is not a date.
    """
    if not isinstance(value, str):
        raise InvalidInput("The end date of a timer is a text: write an ISO 8601 date, such as 2026-12-31T00:00:00Z.")
    return parse_moment(value).at


def cron_timing(text: str) -> Timing:
    """The timing of a cron expression, as Unix, Spring, Zeebe or Quartz write it.

    Five fields, six with seconds first, or seven with years last; or a macro such as `@daily`. `TZ=Europe/Berlin`
    before it or `[Europe/Berlin]` behind it names its time zone. With seven fields, or with a `?`, weekdays are those
    of Quartz: 1 is Sunday.

    Raises:
        InvalidInput: It is malformed.
    """
    zone = "UTC"
    written = text.strip()
    if found := _ZONE.fullmatch(written):
        zone, written = (found[1], found[2]) if found[1] else (found[4], found[3])
    fields = _MACROS.get(written.lower(), written).split()
    if len(fields) < 5:
        raise InvalidInput(
            f"{text[:80]!r} is not a cycle. Write a repeating interval such as R/PT1H or R3/PT10S, or a cron "
            "expression such as '0 0 9 * * MON-FRI'."
        )
    if len(fields) == 7 or (len(fields) == 6 and "?" in fields):
        fields[5] = _QUARTZ_DAY.sub(lambda day: _DAYS[int(day[1]) - 1], fields[5])
        fields[5] = _last_weekday(fields[5])
    years = fields[6:7]
    timing = check_timing(" ".join(fields[:6]), None, zone)
    if years and years != ["*"] and years != ["?"]:
        raise InvalidInput(f"{text[:80]!r} names years. Write * as its last field, and end the cycle with an event.")
    return timing


def _last_weekday(field: str) -> str:
    """`FRIL`, the last Friday, as the number that cronsim reads."""
    return re.sub(r"(SUN|MON|TUE|WED|THU|FRI|SAT)L", lambda day: f"{_DAYS.index(day[1])}L", field)


def _timing(text: str, first: int) -> Timing:
    """The timing of a cycle that fires first at this time."""
    if not _is_repeat(text):
        return cron_timing(text)
    repeat = parse_repeat(text)
    zone = next((moment.zone for moment in (repeat.start, repeat.end) if moment is not None), "UTC")
    duration = repeat.duration
    if not duration.months and (zone == "UTC" or not duration.days):
        return Timing(every=duration.days * 86_400_000_000 + duration.micros)
    return Timing(cron=_anchored(text, repeat, first), timezone=zone)


def _anchored(text: str, repeat: Repeat, first: int) -> str:
    """A repeating interval of the calendar with its first time in it, as `Timing` reads it."""
    if repeat.start is not None or repeat.end is not None:
        return text.strip()
    return f"R/{from_micros(first).isoformat()}/{text.strip().partition('/')[2]}"


def _is_duration(text: str) -> bool:
    return text.strip().lstrip("+-")[:1] in ("P", "p")


def _is_repeat(text: str) -> bool:
    return re.match(r"\s*R\d*/", text) is not None
