"""M5: which workers are dead, by the monotonic clock of the process that watches them."""

import time
from typing import Any

import pytest

from hark.engine.peers.worker_watch import WorkerWatch

SECOND = 1_000_000
NOW = 1_000_000 * SECOND
LEASE = 30.0


class Watched:
    """A watch, a monotonic clock and a database's clock that run together until one is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watch = WorkerWatch(LEASE)
        self.monotonic, self.now = 0.0, NOW
        self.until: dict[str, int] = {}
        self.length = LEASE
        monkeypatch.setattr(time, "monotonic", lambda: self.monotonic)

    def renew(self, worker: str = "w") -> None:
        self.until[worker] = self.now + int(self.length * SECOND)

    def wait(self, seconds: float) -> None:
        self.monotonic += seconds
        self.now += int(seconds * SECOND)

    def dead(self, *, answer_takes: float = 0.0, **how: Any) -> list[str]:
        asked, now = self.monotonic, self.now
        self.wait(answer_takes)
        leases = [(id, until, self.length) for id, until in self.until.items()]
        found = self.watch.find_dead(leases, now, asked, **how)
        assert all(self.until[id] == until for id, until in found.items())
        return sorted(found)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_m5_a_worker_is_dead_when_its_lease_is_over_and_not_before(watched: Watched) -> None:
    watched.renew()
    assert watched.dead() == []
    watched.wait(LEASE - 0.1)
    assert watched.dead() == []
    watched.wait(0.2)
    assert watched.dead() == ["w"]


def test_m5_a_lease_that_ends_while_the_answer_is_on_its_way_is_looked_at_again(watched: Watched) -> None:
    """The process was suspended between asking and looking, maybe together with the worker."""
    watched.renew()
    assert watched.dead() == []
    assert watched.dead(answer_takes=10 * LEASE) == []
    watched.renew()
    assert watched.dead() == []
    watched.renew("new")
    assert watched.dead(answer_takes=10 * LEASE) == []
    watched.wait(LEASE / 3)
    watched.renew("new")
    assert "new" not in watched.dead()


def test_m5_a_worker_that_renews_its_lease_lives(watched: Watched) -> None:
    for _ in range(10):
        watched.renew()
        assert watched.dead() == []
        watched.wait(LEASE / 3)


@pytest.mark.parametrize("jump", [3600, -3600, 20, -20])
def test_m5_a_jump_of_the_clock_changes_nothing_about_a_lease_that_was_seen(watched: Watched, jump: int) -> None:
    watched.renew()
    watched.dead()
    watched.now += jump * SECOND
    watched.wait(LEASE - 0.1)
    assert watched.dead() == []
    watched.wait(0.2)
    assert watched.dead() == ["w"]


@pytest.mark.parametrize("jump", [3600, -3600, 20, -20])
def test_m5_a_lease_that_is_first_seen_after_a_jump_has_time_for_a_renewal(watched: Watched, jump: int) -> None:
    watched.renew()
    watched.now += jump * SECOND
    assert watched.dead() == []
    watched.wait(LEASE / 3 + 1)
    assert watched.dead() == []
    watched.renew()
    assert watched.dead() == []


def test_m5_a_dead_worker_is_found_within_a_lease_whatever_its_row_says(watched: Watched) -> None:
    watched.renew()
    watched.now -= 3600 * SECOND
    watched.dead()
    watched.wait(LEASE + 0.1)
    assert watched.dead() == ["w"]


def test_m5_a_process_that_looks_at_a_long_dead_worker_is_sure_after_half_a_lease(watched: Watched) -> None:
    watched.renew()
    watched.wait(3600)
    assert watched.dead() == []
    watched.wait(LEASE / 2 + 0.1)
    assert watched.dead() == ["w"]


def test_m5_a_caller_that_looks_once_trusts_the_clock_unless_it_has_seen_the_lease(watched: Watched) -> None:
    watched.renew("seen")
    watched.dead()
    watched.renew("new")
    watched.now += 3600 * SECOND
    assert watched.dead(trust_clock=True) == ["new"]


def test_m5_a_worker_without_a_recorded_lease_is_judged_by_our_own(watched: Watched) -> None:
    watched.renew()
    watched.length = 0.0
    watched.now += 3600 * SECOND
    assert watched.dead() == []
    watched.wait(LEASE / 2 + 0.1)
    assert watched.dead() == ["w"]
