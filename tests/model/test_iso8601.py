"""ISO 8601 texts of timers: points in time, durations on the calendar, repeating intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hark.model.cron import Timing
from hark.model.errors import InvalidInput
from hark.model.iso8601 import Moment, parse_duration, parse_moment, parse_repeat


def at(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T09:00:00Z", "2026-01-31T09:00:00"),
        ("2026-01-31T09:00:00", "2026-01-31T09:00:00"),
        ("2026-01-31T09:00", "2026-01-31T09:00:00"),
        (" 2026-01-31 ", "2026-01-31T00:00:00"),
        ("2026-01-31T09:00:00.250Z", "2026-01-31T09:00:00.250"),
        ("2026-01-31T09:00:00+02:00", "2026-01-31T07:00:00"),
        ("2026-01-31T09:00:00-0530", "2026-01-31T14:30:00"),
        ("20260131T090000Z", "2026-01-31T09:00:00"),
        ("2026-01-31T09:00:00[Europe/Berlin]", "2026-01-31T08:00:00"),
        ("2026-07-31T09:00:00+02:00[Europe/Berlin]", "2026-07-31T07:00:00"),
        ("2026-07-31T09:00:00@Europe/Berlin", "2026-07-31T07:00:00"),
        ("2026-03-29T02:30:00[Europe/Berlin]", "2026-03-29T01:00:00"),  # clocks skip it: the end of the gap
    ],
)
def test_a_date_is_read_in_its_zone_and_otherwise_in_utc(text: str, moment: str) -> None:
    assert parse_moment(text).at == at(moment)


@pytest.mark.parametrize(
    ("start", "text", "end"),
    [
        ("2026-01-31T09:00:00", "PT15M", "2026-01-31T09:15:00"),
        ("2026-01-31T09:00:00", "PT0S", "2026-01-31T09:00:00"),
        ("2026-01-31T09:00:00", "P1M", "2026-02-28T09:00:00"),
        ("2024-01-31T09:00:00", "P1M", "2024-02-29T09:00:00"),
        ("2024-02-29T09:00:00", "P1Y", "2025-02-28T09:00:00"),
        ("2026-01-31T09:00:00", "P1Y2M3DT4H5M6S", "2027-04-03T13:05:06"),
        ("2026-01-31T09:00:00", "P2W", "2026-02-14T09:00:00"),
        ("2026-01-31T09:00:00", "P0.5D", "2026-01-31T21:00:00"),
        ("2026-01-31T09:00:00", "P0.5Y", "2026-07-31T09:00:00"),
        ("2026-01-31T09:00:00", "PT1,5S", "2026-01-31T09:00:01.500"),
        ("2026-01-31T09:00:00", "pt36h", "2026-02-01T21:00:00"),
        ("2026-01-31T09:00:00", "-P1M", "2025-12-31T09:00:00"),
    ],
)
def test_a_duration_is_added_on_the_calendar(start: str, text: str, end: str) -> None:
    assert Moment(at(start)).plus(parse_duration(text)) == at(end)


def test_a_day_is_the_same_local_time_also_when_clocks_change() -> None:
    start = parse_moment("2026-03-28T09:00[Europe/Berlin]")
    assert start.plus(parse_duration("P1D")) == at("2026-03-29T07:00:00")
    assert start.plus(parse_duration("PT24H")) == at("2026-03-29T08:00:00")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_moment, "tomorrow"),
        (parse_moment, ""),
        (parse_moment, "2026-02-30T00:00:00Z"),
        (parse_moment, "2026-01-31T09:00:00[Mars/Olympus]"),
        (parse_moment, "9" * 300),
        (parse_duration, "P"),
        (parse_duration, "PT"),
        (parse_duration, "P1DT"),
        (parse_duration, "15 minutes"),
        (parse_duration, "P1S"),
        (parse_duration, "P0.3M"),
        (parse_duration, "P99999Y"),
        (parse_duration, "PT999999999999H"),
        (parse_repeat, "R"),
        (parse_repeat, "R/"),
        (parse_repeat, "PT1H"),
        (parse_repeat, "R-1/PT1H"),
        (parse_repeat, "R/PT0S"),
        (parse_repeat, "R/-PT1H"),
        (parse_repeat, "R3/PT1H/PT1H"),
        (parse_repeat, "R/2026-01-02/2026-01-01"),
        (parse_repeat, "R/2026-01-01/2026-01-02/2026-01-03"),
    ],
)
def test_what_is_not_iso_8601_is_refused_with_an_example(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(InvalidInput):
        read(text)


def test_a_time_outside_the_calendar_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Moment(at("9999-01-01T00:00:00")).plus(parse_duration("P1Y"))


def times(text: str, now: str, most: int = 6) -> tuple[list[str], int | None]:
    repeat = parse_repeat(text)
    due, count = repeat.first(at(now))
    found: list[str] = []
    tick: int | None = due
    while tick is not None and len(found) < (most if count is None else min(most, count)):
        found.append((datetime(1970, 1, 1) + timedelta(microseconds=tick)).isoformat())
        tick = repeat.after(tick)
    return found, count


def test_a_repeat_without_a_start_begins_one_duration_from_now() -> None:
    assert times("R3/PT1H", "2026-01-01T00:00:00") == (
        ["2026-01-01T01:00:00", "2026-01-01T02:00:00", "2026-01-01T03:00:00"], 3,
    )  # fmt: skip
    assert times("R/P1D", "2026-01-01T00:00:00", 2) == (["2026-01-02T00:00:00", "2026-01-03T00:00:00"], None)


def test_a_repeat_with_a_start_leaves_out_what_is_over() -> None:
    text = "R4/2026-01-01T00:00:00Z/PT1H"
    assert times(text, "2025-12-31T00:00:00")[0][0] == "2026-01-01T00:00:00"
    assert times(text, "2026-01-01T01:30:00") == (["2026-01-01T02:00:00", "2026-01-01T03:00:00"], 2)
    assert times(text, "2026-01-01T02:00:00") == (["2026-01-01T02:00:00", "2026-01-01T03:00:00"], 2)
    assert times(text, "2026-02-01T00:00:00") == ([], 0)


def test_a_repeat_of_months_keeps_the_day_of_its_start() -> None:
    found, _ = times("R/2026-01-31T09:00:00Z/P1M", "2026-01-01T00:00:00", 4)
    assert found == ["2026-01-31T09:00:00", "2026-02-28T09:00:00", "2026-03-31T09:00:00", "2026-04-30T09:00:00"]


def test_a_repeat_with_an_end_is_counted_back_from_it() -> None:
    assert times("R/PT1H/2026-01-01T12:00:00Z", "2026-01-01T09:30:00") == (
        ["2026-01-01T10:00:00", "2026-01-01T11:00:00", "2026-01-01T12:00:00"], 3,
    )  # fmt: skip
    assert times("R2/PT1H/2026-01-01T12:00:00Z", "2026-01-01T00:00:00") == (
        ["2026-01-01T11:00:00", "2026-01-01T12:00:00"], 2,
    )  # fmt: skip
    assert times("R2/PT1H/2026-01-01T12:00:00Z", "2026-01-02T00:00:00") == ([], 0)
    assert times("R3/2026-01-01T00:00:00Z/2026-01-01T02:00:00Z", "2026-01-01T00:00:00")[0] == [
        "2026-01-01T00:00:00", "2026-01-01T02:00:00", "2026-01-01T04:00:00",
    ]  # fmt: skip


def test_a_timing_reads_a_repeat_of_the_calendar() -> None:
    timing = Timing(cron="R/2026-03-28T09:00[Europe/Berlin]/P1D", timezone="Europe/Berlin")
    first = timing.next(at("2026-03-28T00:00:00"), 0)
    assert first == at("2026-03-28T08:00:00")
    found, cut = timing.due(first, at("2026-03-30T12:00:00"), 10)
    assert (found, cut) == ([at("2026-03-29T07:00:00"), at("2026-03-30T07:00:00")], False)
    assert timing.due(first, at("2026-03-30T12:00:00"), 1) == ([at("2026-03-29T07:00:00")], True)
