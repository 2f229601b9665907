"""Names, ids, durations and points in time: what is accepted, what is refused, and that no microsecond is lost."""

from __future__ import annotations

import base64
import os
import random
import re
import signal
import threading
import time
import uuid
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.model import names
from hark.model.errors import InvalidInput
from hark.model.names import CENTURY, check_id, check_name, from_micros, micros, moment, new_id, version_problem

HUGE = 10**5000  # Python refuses to print it

# Ids given by the user.


@pytest.mark.parametrize("id", ["a", "order-42", "A.b_c-9", "0", "x" * 128, "018f-7", ".", "-"])
def test_an_id_of_the_allowed_characters_comes_back_as_it_is(id: str) -> None:
    assert check_id(id) == id


@pytest.mark.parametrize(
    "id",
    ["", "x" * 129, "order:42", "a b", "a/b", "é", "a\n", "\0", "\ud800", "a\u0663", None, 42, b"a", HUGE],
    ids=count(),
)
def test_an_id_of_other_characters_or_length_or_type_is_refused(id: str) -> None:
    with pytest.raises(InvalidInput, match="is not an id; use 1 to 128 characters"):
        check_id(id)


# Ids of awakeables.


@pytest.mark.parametrize(
    ("instance", "entry"), [("my-job-1", 0), ("order.1_a", 12), ("a", 2**31), ("x" * 128, 7), ("team:job", 3)]
)
def test_a2_the_id_of_an_awakeable_is_parsed_back_with_and_without_padding(instance: str, entry: int) -> None:
    id = names.awakeable_id(instance, entry)
    padded = "prom_1" + base64.urlsafe_b64encode(f"{instance}:{entry}".encode()).decode()
    assert names.parse_awakeable_id(id) == names.parse_awakeable_id(padded) == (instance, entry)


def test_a2_the_example_of_the_format_is_parsed_as_documented() -> None:
    assert names.parse_awakeable_id("prom_1am9vLWpvYi0xOjA=") == ("joo-job-1", 0)


def _as_id(text: bytes | str) -> str:
    return "prom_1" + base64.urlsafe_b64encode(text.encode() if isinstance(text, str) else text).decode().rstrip("=")


@pytest.mark.parametrize(
    "id",
    [
        "", "prom_1", "prom_2am9iOjA", "am9iOjA", "prom_1!!!!", "prom_1am9iOjA!", "prom_1am9iOjA==", "prom_1am9i=OjA",
        "prom_1am 9iOjA", "prom_1am9iOjB", _as_id("job"), _as_id(":0"), _as_id("job:"), _as_id("job:x"),
        _as_id("job:-1"), _as_id("job:01"), _as_id("job:+1"), _as_id("job: 1"), _as_id("job:1_0"), _as_id("job:٣"),
        _as_id(b"\xff\xfe:0"), _as_id("a\0b:0"), _as_id(f"job:{'9' * 5000}"), "prom_1é", "\ud800", None,
        42, b"prom_1am9iOjA",
    ],
    ids=count(),
)  # fmt: skip
def test_a2_what_is_not_the_id_of_an_awakeable_is_refused(id: Any) -> None:
    with pytest.raises(InvalidInput, match="awakeable"):
        names.parse_awakeable_id(id)


@given(st.text(max_size=40))
def test_a2_parsing_refuses_or_returns_what_makes_the_same_id(text: str) -> None:
    for id in (text, "prom_1" + text):
        try:
            instance, entry = names.parse_awakeable_id(id)
        except InvalidInput:
            continue
        assert names.awakeable_id(instance, entry) == id.rstrip("=")


# Names.


@pytest.mark.parametrize("name", ["a", "order:42", "payment confirmed", "é" * 127, "😀", "x" * 255, "\n", "a/b"])
def test_a_name_is_any_text_up_to_255_bytes(name: str) -> None:
    assert check_name(name, "signal name") == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "The signal name is empty; give"),
        ("x" * 256, "The signal name is 256 bytes long; shorten it to 255"),
        ("é" * 128, "The signal name is 256 bytes long; shorten it to 255"),
        ("a\0b", "contains a NUL character; remove"),
        ("a\ud800", "half of a surrogate pair; pass"),
        (None, "The signal name must be text, not None; pass a str"),
        (7, "The signal name must be text, not 7; pass a str"),
        (HUGE, "The signal name must be text, not <int>; pass a str"),
        (b"a", "The signal name must be text"),
    ],
    ids=count(),
)
def test_a_name_that_a_store_or_door_cannot_carry_is_refused(name: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(problem)):
        check_name(name, "signal name")


# New ids.


def test_a_new_id_is_a_canonical_uuid_of_version_7_and_a_valid_id() -> None:
    made = uuid.UUID(new_id())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert check_id(str(made)) == str(made)
    assert len(str(made)) == 36


def test_a_new_id_begins_with_the_present_millisecond() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_id()).int >> 80
    assert before <= made <= time.time_ns() // 1_000_000 + 1


def test_new_ids_rise_strictly_as_text() -> None:
    made = [new_id() for _ in range(20_000)]
    assert all(a < b for a, b in pairwise(made))


def test_ids_made_by_many_threads_are_all_different_and_rise_within_each() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def work(mine: list[str]) -> None:
        start.wait()
        mine.extend(new_id() for _ in range(5_000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id for mine in made for id in mine}) == 40_000
    assert all(mine == sorted(mine) for mine in made)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [1_700_000_000_000]
    monkeypatch.setattr(names, "time_ns", lambda: now[0] * 1_000_000)
    return now


def test_ids_rise_when_the_clock_steps_back(clock: list[int]) -> None:
    ids = names._Ids()
    first = ids.new()
    clock[0] -= 3_600_000
    assert first < ids.new() < ids.new()


def test_ids_rise_when_a_millisecond_has_no_room_left(clock: list[int]) -> None:
    ids = names._Ids()
    ids.new()
    ids._counter = (1 << 26) - 2
    last = ids.new()
    assert last[:24].endswith("-7fff-bfff-")
    following = ids.new()
    assert last < following
    assert uuid.UUID(following).int >> 80 == clock[0] + 1
    assert uuid.UUID(following).version == 7


def test_seeding_the_global_generator_does_not_repeat_ids(clock: list[int]) -> None:
    def run() -> list[str]:
        random.seed(0)
        ids = names._Ids()
        return [ids.new() for _ in range(100)]

    assert not set(run()) & set(run())


def test_a_forked_child_makes_other_ids_even_when_a_thread_held_the_lock() -> None:
    read, write = os.pipe()
    with names._ids._lock:  # as if another thread were making an id at this moment
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # ends a child that waits for that lock
            os.write(write, "\n".join(new_id() for _ in range(100)).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        theirs = {line.strip()[-12:] for line in pipe}
    os.waitpid(child, 0)
    ours = {new_id()[-12:] for _ in range(100)}
    assert len(theirs) == 100
    assert not theirs & ours


# Durations.


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (1, 1_000_000),
        (0.1, 100_000),
        (1.1, 1_100_000),
        (0.000001, 1),
        (1e-9, 1),
        (5e-324, 1),
        (0.0000014, 1),
        (1e9 + 0.25, 1_000_000_000_250_000),
        (timedelta(days=1, microseconds=1), 86_400_000_001),
        (timedelta(days=36_525), CENTURY),
        (36_525 * 86_400, CENTURY),
    ],
)
def test_a_duration_becomes_whole_microseconds(duration: float | timedelta, expected: int) -> None:
    assert micros(duration, "timeout", zero=False) == expected


@given(st.integers(1, CENTURY))
def test_a_timedelta_loses_nothing(span: int) -> None:
    assert micros(timedelta(microseconds=span), "timeout", zero=False) == span


@given(st.floats(1e-6, CENTURY / 1_000_000))
def test_float_seconds_become_the_nearest_microsecond(seconds: float) -> None:
    span = micros(seconds, "timeout", zero=False)
    assert abs(Fraction(seconds) * 1_000_000 - span) <= Fraction(1, 2)


@pytest.mark.parametrize("nothing", [0, 0.0, -0.0, timedelta()])
def test_zero_is_accepted_only_where_it_is_allowed(nothing: float | timedelta) -> None:
    assert micros(nothing, "delay", zero=True) == 0
    with pytest.raises(InvalidInput, match="The timeout is zero; give a duration above zero, in seconds"):
        micros(nothing, "timeout", zero=False)


@pytest.mark.parametrize(
    ("duration", "problem"),
    [
        (True, "must be seconds (int or float) or a timedelta, not True"),
        (False, "must be seconds (int or float) or a timedelta, not False"),
        (None, "must be seconds"),
        ("5", "must be seconds (int or float) or a timedelta, not '5'"),
        (Fraction(1, 2), "must be seconds"),
        (float("nan"), "is nan; give a finite"),
        (float("inf"), "is inf; give a finite"),
        (float("-inf"), "is -inf; give a finite"),
        (-1, "is negative (-1); give"),
        (-1e-12, "is negative (-1e-12); give"),
        (-HUGE, "is negative (<int>); give"),
        (timedelta(microseconds=-1), "is negative"),
        (36_525 * 86_400 + 1, "is over 100 years (3155760001); give"),
        (1e300, "is over 100 years (1e+300); give"),
        (HUGE, "is over 100 years (<int>); give"),
        (timedelta.max, "is over 100 years"),
    ],
    ids=count(),
)
@pytest.mark.parametrize("zero", [True, False])
def test_a_meaningless_duration_is_refused(duration: float, problem: str, zero: bool) -> None:
    with pytest.raises(InvalidInput, match=re.escape(problem)) as caught:
        micros(duration, "timeout", zero=zero)
    assert str(caught.value).startswith("The timeout ")


# Moments.


@given(st.datetimes(timezones=st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))))
def test_a_moment_goes_to_microseconds_and_back_unchanged(at: datetime) -> None:
    try:
        span = moment(at, "deadline")
    except InvalidInput:
        assert at.year in (1, 9999)
    else:
        assert from_micros(span) == at
        assert from_micros(span).tzinfo is UTC


@given(st.integers(-(10**16), 10**17))
def test_microseconds_go_to_a_moment_and_back_unchanged(span: int) -> None:
    assert moment(from_micros(span), "deadline") == span


def test_a_moment_counts_from_1970_in_utc() -> None:
    assert moment(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "deadline") == 0
    assert moment(datetime(2001, 9, 9, 1, 46, 40, 1, tzinfo=UTC), "deadline") == 10**15 + 1
    assert moment(datetime.max.replace(tzinfo=UTC), "deadline") == 253_402_300_799_999_999


class _Undecided(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, at: datetime | None) -> str | None:
        return None


@pytest.mark.parametrize("at", [datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=_Undecided())])
def test_a_moment_without_a_time_zone_is_refused_with_advice(at: datetime) -> None:
    with pytest.raises(
        InvalidInput, match="The deadline 2024-05-01T00:00:00 has no time zone; make it timezone-aware UTC"
    ):
        moment(at, "deadline")


@pytest.mark.parametrize("at", [None, 1_700_000_000, "2024-05-01", date(2024, 5, 1)])
def test_a_moment_that_is_not_a_datetime_is_refused(at: datetime) -> None:
    with pytest.raises(InvalidInput, match=r"The deadline must be a datetime, not .*; use"):
        moment(at, "deadline")


@pytest.mark.parametrize(
    "at",
    [
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    ],
)
def test_a_moment_outside_the_years_of_utc_is_refused(at: datetime) -> None:
    with pytest.raises(InvalidInput, match="outside the years 1 to 9999"):
        moment(at, "deadline")


@pytest.mark.parametrize("span", [10**18, -(10**18), HUGE], ids=count())
def test_microseconds_outside_the_calendar_are_refused(span: int) -> None:
    with pytest.raises(InvalidInput, match="outside the years 1 to 9999"):
        from_micros(span)


# Versions of definitions.


@pytest.mark.parametrize("version", [0, 1, 2**31 - 1])
def test_a_version_from_0_to_the_limit_of_the_column_is_valid(version: int) -> None:
    assert version_problem(version) is None


@pytest.mark.parametrize("version", [-1, 2**31, True, 1.0, "1", None, HUGE], ids=count())
def test_the_problem_of_a_version_names_both_bounds(version: object) -> None:
    assert str(version_problem(version)).endswith(": give a whole number from 0 to 2147483647")
