"""Timer texts of processes: dates, durations and cycles, as modelers write them (B4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hark.model.errors import InvalidInput
from hark.programs.bpmn.bpmn_spec import EventSpec
from hark.programs.bpmn.interpreter.timers import first_due, next_due, triggers_of_timer
from hark.programs.expressions import ExpressionError

HOUR = 3_600_000_000


def at(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


NOW = at("2026-01-01T00:00:30")  # a Thursday


@pytest.mark.parametrize(
    ("timer", "text", "due"),
    [
        ("date", "2026-01-31T09:00:00Z", "2026-01-31T09:00:00"),
        ("date", "2026-01-31T09:00[Europe/Berlin]", "2026-01-31T08:00:00"),
        ("date", "2020-01-31T09:00:00Z", "2026-01-01T00:00:30"),
        ("date", "PT5M", "2026-01-01T00:05:30"),
        ("duration", "PT5M", "2026-01-01T00:05:30"),
        ("duration", "PT0S", "2026-01-01T00:00:30"),
        ("duration", "-PT5M", "2026-01-01T00:00:30"),
        ("duration", "P1M", "2026-02-01T00:00:30"),
    ],
)
def test_b4_a_date_or_duration_is_due_once_and_at_once_if_it_is_over(timer: Any, text: str, due: str) -> None:
    assert first_due(timer, text, NOW) == (at(due), 1)


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("0 0/5 * * * ?", "2026-01-01T00:05:00", "2026-01-01T00:10:00"),
        ("*/10 * * * * *", "2026-01-01T00:00:40", "2026-01-01T00:00:50"),
        ("0 9 * * MON-FRI", "2026-01-01T09:00:00", "2026-01-02T09:00:00"),
        ("0 0 9 ? * 2-6", "2026-01-01T09:00:00", "2026-01-02T09:00:00"),  # Quartz: Monday to Friday
        ("0 0 9 ? * 1 *", "2026-01-04T09:00:00", "2026-01-11T09:00:00"),  # Quartz: Sunday
        ("0 0 9 * * 1", "2026-01-05T09:00:00", "2026-01-12T09:00:00"),  # Spring: Monday
        ("0 0 9 ? * 6#3 *", "2026-01-16T09:00:00", "2026-02-20T09:00:00"),  # the third Friday
        ("0 0 9 ? * 6L *", "2026-01-30T09:00:00", "2026-02-27T09:00:00"),  # the last Friday
        ("0 0 0 L * ?", "2026-01-31T00:00:00", "2026-02-28T00:00:00"),
        ("0 0 0 LW * ?", "2026-01-30T00:00:00", "2026-02-27T00:00:00"),
        ("@daily", "2026-01-02T00:00:00", "2026-01-03T00:00:00"),
        ("@Hourly", "2026-01-01T01:00:00", "2026-01-01T02:00:00"),
        ("TZ=Europe/Berlin 0 9 * * *", "2026-01-01T08:00:00", "2026-01-02T08:00:00"),
        ("0 0 9 * * * [Europe/Berlin]", "2026-01-01T08:00:00", "2026-01-02T08:00:00"),
        ("R/PT1H", "2026-01-01T01:00:30", "2026-01-01T02:00:30"),
        ("R/2026-01-01T00:00:00Z/PT1H", "2026-01-01T01:00:00", "2026-01-01T02:00:00"),
    ],
)
def test_b4_a_cycle_is_a_repeating_interval_or_cron(text: str, first: str, second: str) -> None:
    due, count = first_due("cycle", text, NOW)
    assert (due, count) == (at(first), None)
    assert next_due(text, due) == at(second)


def test_b4_a_counted_cycle_says_how_often_it_fires_and_does_not_drift() -> None:
    assert first_due("cycle", "R3/PT10S", NOW) == (NOW + 10_000_000, 3)
    assert next_due("R3/PT10S", NOW + 10_000_000) == NOW + 20_000_000
    assert first_due("cycle", "R2/2020-01-01/P1D", NOW)[1] == 0
    assert next_due("R/PT1H/2026-01-01T12:00:00Z", at("2026-01-01T12:00:00")) is None


@pytest.mark.parametrize(
    ("timer", "text", "says"),
    [
        ("date", "tomorrow", "2026-01-31T09:00:00Z"),
        ("duration", "5 minutes", "PT15M"),
        ("duration", "2026-01-31T09:00:00Z", "PT15M"),
        ("cycle", "PT5M", "R/PT1H"),
        ("cycle", "R/PT0S", "at least"),
        ("cycle", "often", "R/PT1H"),
        ("cycle", "0 0 9 15W * ?", "cron expression"),
        ("cycle", "0 99 * * *", "cron expression"),
        ("cycle", "0 0 0 30 2 ?", ""),
        ("cycle", "0 0 0 1 1 ? 2030", "Write * as its last field"),
        ("cycle", "TZ=Mars/Olympus 0 9 * * *", "time zone"),
    ],
)
def test_b4_a_timer_text_that_cannot_be_read_is_refused_with_advice(timer: Any, text: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        first_due(timer, text, NOW)
    assert says in str(caught.value)


def starts(timer: Any, text: str, until: Any = None) -> Any:
    return triggers_of_timer(EventSpec("timer", timer=timer, text=text, until=until), "start:Begin", NOW)


def test_b4_a_timer_start_event_becomes_an_automatic_start() -> None:
    [once] = starts("date", "2026-01-31T09:00:00Z")
    assert (once.kind, once.element, once.state) == ("timer", "start:Begin", "{}")
    assert (once.at, once.remaining, once.overlap) == (at("2026-01-31T09:00:00"), 1, "allow")
    assert (once.timing.cron, once.timing.every) == (None, None)
    [later] = starts("duration", '=duration("PT1H")')
    assert (later.at, later.remaining) == (NOW + HOUR, 1)
    [cycle] = starts("cycle", "R3/PT1H")
    assert (cycle.at, cycle.remaining, cycle.timing.every) == (NOW + HOUR, 3, HOUR)
    [daily] = starts("cycle", "R/P1D")
    assert daily.timing.every == 24 * HOUR
    [cron] = starts("cycle", "0 0/5 * * * ?")
    assert (cron.at, cron.remaining) == (at("2026-01-01T00:05:00"), None)
    assert cron.timing.next(cron.at, cron.at) == at("2026-01-01T00:10:00")


def test_b4_a_cycle_of_months_or_local_days_starts_on_the_calendar() -> None:
    [monthly] = starts("cycle", "R/P1M")
    assert monthly.at == at("2026-02-01T00:00:30")
    assert monthly.timing.next(monthly.at, monthly.at) == at("2026-03-01T00:00:30")
    [local] = starts("cycle", "R/2026-03-28T09:00[Europe/Berlin]/P1D")
    assert local.timing.next(local.at, local.at) == at("2026-03-29T07:00:00")


def test_b4_a_start_whose_cycle_is_over_never_starts() -> None:
    assert starts("cycle", "R2/2020-01-01/P1D") == []


def test_b4_a_timer_start_event_needs_a_text_without_variables() -> None:
    with pytest.raises(InvalidInput):
        starts("duration", "=missing")
    with pytest.raises(ExpressionError):
        starts("duration", "${missing}")


@pytest.mark.parametrize(
    ("text", "until", "times"),
    [
        ("R/PT1H", "2026-01-01T03:00:30Z", 3),  # the last one at the end date itself
        ("R/PT1H", "2026-01-01T03:00:29.999999Z", 2),
        ("R2/PT1H", "2026-01-01T03:00:30Z", 2),
        ("R/2026-01-01T02:00:00Z/PT1H", "2026-01-01T03:00:00Z", 2),
    ],
)
def test_b4_the_end_date_of_a_start_event_limits_how_often_it_starts(text: str, until: str, times: int) -> None:
    [start] = starts("cycle", text, until)
    assert start.remaining == times


@pytest.mark.parametrize(
    ("text", "until", "times"),
    [
        ("0 0 * * * ?", "2026-01-01T03:00:00Z", 3),
        ("0 0 * * * ?", "2026-01-01T04:59:59+01:00", 3),
        ("R/P1M", "2026-03-01T00:00:30Z", 2),
    ],
)
def test_b4_the_end_date_of_a_start_event_ends_its_ticks_on_the_calendar(text: str, until: str, times: int) -> None:
    [start] = starts("cycle", text, until)
    ticks = [start.at]
    while (tick := start.timing.next(ticks[-1], ticks[-1])) is not None:
        ticks.append(tick)
    assert (len(ticks), start.remaining) == (times, None)
    assert start.timing.due(NOW, ticks[-1] + 1000 * HOUR, 100) == (ticks, False)


def test_b4_a_start_event_with_an_end_date_before_its_first_time_never_starts() -> None:
    assert starts("cycle", "R/PT1H", "2026-01-01T01:00:29Z") == []
    assert starts("cycle", "0 0 * * * ?", "2020-01-01") == []


def test_b4_the_end_date_of_a_start_event_is_a_date_without_variables() -> None:
    with pytest.raises(InvalidInput):
        starts("cycle", "R/PT1H", "soon")
    with pytest.raises(InvalidInput):
        starts("cycle", "R/PT1H", "=missing")
    with pytest.raises(ExpressionError):
        starts("cycle", "R/PT1H", "${missing}")
