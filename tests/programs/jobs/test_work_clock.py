"""The working time of an attempt, with a clock that is moved by hand."""

import asyncio
from typing import Any

from hark.programs.jobs.tasks.work_clock import WorkClock


class Hand:
    """The clock of a loop, and the timeout around a handler."""

    def __init__(self) -> None:
        self.now = 100.0
        self.at: float | None = None

    def time(self) -> float:
        return self.now

    def when(self) -> float | None:
        return self.at

    def reschedule(self, at: float | None) -> None:
        self.at = at

    def expired(self) -> bool:
        return False


def clock_of(**limits: Any) -> tuple[WorkClock, Hand]:
    hand: Any = Hand()
    clock = WorkClock(limits.get("worked", 0), limits.get("timeout"), limits.get("heartbeat"))
    clock._loop, clock.limit = hand, hand
    clock.start()
    return clock, hand


async def test_waiting_is_not_working_time() -> None:
    clock, hand = clock_of(timeout=10.0, worked=2_000_000)
    assert hand.at == 108
    hand.now += 3
    clock.begin_wait()
    clock.begin_wait()
    assert hand.at is None
    hand.now += 1000
    clock.end_wait()
    assert hand.at is None, "another wait is open"
    clock.end_wait()
    assert hand.at == hand.now + 5
    assert clock.worked() == 5_000_000
    hand.now += 5
    assert "timeout_sec (10 s" in str(clock.why_expired())


async def test_a_heartbeat_is_expected_while_the_handler_works() -> None:
    clock, hand = clock_of(timeout=100.0, heartbeat=5.0)
    assert hand.at == 105
    hand.now += 4
    clock.beat()
    assert hand.at == 109
    clock.begin_wait()
    assert hand.at is None
    hand.now += 60
    clock.end_wait()
    assert hand.at == hand.now + 5, "a wait counts as a sign of life"
    hand.now += 5
    assert "heartbeat_sec (5 s)" in str(clock.why_expired())


async def test_a_suspended_handler_has_a_while_to_end() -> None:
    clock, hand = clock_of(timeout=1.0)
    clock.begin_wait()
    clock.unwind()
    clock.end_wait()
    assert hand.at == 110


async def test_without_limits_nothing_ends_a_handler() -> None:
    clock, hand = clock_of()
    clock.begin_wait()
    clock.end_wait()
    clock.beat()
    assert hand.at is None
    clock.stop()
    await asyncio.sleep(0)
