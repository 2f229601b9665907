"""T1: the ticks of cron expressions and intervals, in both directions of a change of clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.model.cron import Timing, check_timing
from hark.model.errors import InvalidInput
from hark.model.names import from_micros, moment

BERLIN = "Europe/Berlin"


def local(timing: Timing, after: datetime, count: int) -> list[str]:
    """The first ticks after a time, as local times with their offset."""
    ticks, _ = timing.due(moment(after, "after"), None, count)
    zone = ZoneInfo(timing.timezone)
    return [from_micros(tick).astimezone(zone).isoformat(sep=" ", timespec="seconds") for tick in ticks]


def test_five_fields_and_six_with_seconds_first() -> None:
    after = datetime(2026, 1, 1, tzinfo=UTC)
    assert local(check_timing("0 9 * * MON", None, "UTC"), after, 2) == [
        "2026-01-05 09:00:00+00:00",
        "2026-01-12 09:00:00+00:00",
    ]
    assert local(check_timing("*/30 0 9 * * ?", None, "UTC"), after, 3) == [
        "2026-01-01 09:00:00+00:00",
        "2026-01-01 09:00:30+00:00",
        "2026-01-02 09:00:00+00:00",
    ]
    assert local(check_timing("0 0 29 2 *", None, "UTC"), after, 1) == ["2028-02-29 00:00:00+00:00"]


def test_the_tick_after_a_tick_is_the_next_one() -> None:
    timing = check_timing("0 9 * * *", None, BERLIN)
    first = timing.next(moment(datetime(2026, 1, 1, tzinfo=UTC), "t"), 0)
    assert first is not None
    second = timing.next(first, 0)
    assert second is not None
    assert second - first == 86_400_000_000
    assert timing.next(first - 1, 0) == first


def test_t1_a_local_time_that_occurs_twice_is_one_tick() -> None:
    timing = check_timing("30 2 * * *", None, BERLIN)  # on 25 October 2026, 03:00 becomes 02:00
    assert local(timing, datetime(2026, 10, 24, 12, tzinfo=UTC), 2) == [
        "2026-10-25 02:30:00+02:00",
        "2026-10-26 02:30:00+01:00",
    ]
    # Also for a process that looks only during the second of the two hours.
    assert local(timing, datetime(2026, 10, 25, 1, 10, tzinfo=UTC), 1) == ["2026-10-26 02:30:00+01:00"]
    half_hours = check_timing("*/30 * * * *", None, BERLIN)
    assert local(half_hours, datetime(2026, 10, 25, 0, 0, tzinfo=UTC), 2) == [
        "2026-10-25 02:30:00+02:00",
        "2026-10-25 03:00:00+01:00",
    ]


def test_t1_a_local_time_that_is_skipped_is_a_tick_at_the_end_of_the_gap() -> None:
    timing = check_timing("30 2 * * *", None, BERLIN)  # on 29 March 2026, 02:00 becomes 03:00
    assert local(timing, datetime(2026, 3, 28, 12, tzinfo=UTC), 2) == [
        "2026-03-29 03:00:00+02:00",
        "2026-03-30 02:30:00+02:00",
    ]
    # Several skipped times, and the time at the end of the gap itself, are one tick.
    quarters = check_timing("*/15 * * * *", None, BERLIN)
    assert local(quarters, datetime(2026, 3, 29, 0, 45, tzinfo=UTC), 2) == [
        "2026-03-29 03:00:00+02:00",
        "2026-03-29 03:15:00+02:00",
    ]
    # A gap of half an hour, and one of a whole day.
    assert local(check_timing("15 2 * * *", None, "Australia/Lord_Howe"), datetime(2026, 10, 3, tzinfo=UTC), 1) == [
        "2026-10-04 02:30:00+11:00"
    ]
    assert local(check_timing("0 12 30 12 *", None, "Pacific/Apia"), datetime(2011, 12, 1, tzinfo=UTC), 1) == [
        "2011-12-31 00:00:00+14:00"
    ]


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["*/7 * * * *", "30 1,2 * * *", "0 */5 * * *", "15 0 2 * * *", "*/40 59 1 * * *"]),
    st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "UTC"]),
    st.datetimes(datetime(2015, 1, 1), datetime(2027, 1, 1)),
    st.integers(1, 200),
)
def test_t1_ticks_rise_and_do_not_depend_on_when_one_looks(cron: str, zone: str, start: datetime, count: int) -> None:
    timing = check_timing(cron, None, zone)
    after = moment(start.replace(tzinfo=UTC), "after")
    ticks, _ = timing.due(after, None, count)
    assert ticks == sorted(set(ticks))
    assert ticks[0] > after
    middle = (ticks[0] + ticks[-1]) // 2
    assert timing.due(middle, ticks[-1], 10**6) == ([tick for tick in ticks if tick > middle], False)
    seen: set[Any] = set()
    for tick in ticks:
        at = from_micros(tick).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        assert at not in seen  # no local time twice
        seen.add(at)


def test_due_ticks_end_at_the_limit() -> None:
    timing = check_timing("* * * * * *", None, "UTC")
    now = moment(datetime(2026, 1, 1, tzinfo=UTC), "now")
    ticks, more = timing.due(now, now + 10_000_000, 4)
    assert ([(tick - now) // 1_000_000 for tick in ticks], more) == ([1, 2, 3, 4], True)
    assert timing.due(now, now + 4_000_000, 4) == (ticks, False)


def test_t2_an_interval_does_not_drift() -> None:
    timing = check_timing(None, timedelta(seconds=60), "UTC")
    assert timing.next(1_000, anchor=500) == 60_000_500
    assert timing.next(60_000_500, anchor=500) == 120_000_500
    assert timing.next(119_999_999, anchor=120_000_500) == 120_000_500
    assert timing.next(3_600_000_501, anchor=500) == 3_660_000_500


@pytest.mark.parametrize(
    ("cron", "every", "timezone", "says"),
    [
        ("* * * *", None, "UTC", "five fields"),
        ("61 * * * *", None, "UTC", "Bad minute"),
        ("0 0 30 2 *", None, "UTC", "Bad day"),
        ("0 0 31 2,4 *", None, "UTC", "Bad day"),
        ("every day", None, "UTC", "five fields"),
        ("", None, "UTC", "five fields"),
        (5, None, "UTC", "give a text"),
        ("0 9 * * *" + " " * 300, None, "UTC", "give a text"),
        (None, None, "UTC", "either cron"),
        ("0 9 * * *", 60, "UTC", "either cron"),
        (None, 0, "UTC", "zero"),
        (None, -1, "UTC", "negative"),
        (None, 0.001, "UTC", "too short"),
        (None, "60", "UTC", "seconds"),
        (None, 60, "Mars/Olympus", "not a time zone"),
        (None, 60, "Europe", "not a time zone"),
        ("* * * * *", None, "localtime", "not a time zone"),  # another one on each machine
        ("* * * * *", None, "right/UTC", "not a time zone"),  # counts leap seconds
        (None, 60, "../etc/passwd", "not a time zone"),
        (None, 60, "", "not a time zone"),
        (None, 60, None, "not a time zone"),
    ],
)
def test_t1_a_malformed_timing_is_refused(cron: Any, every: Any, timezone: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        check_timing(cron, every, timezone)
