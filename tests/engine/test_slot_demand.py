"""SlotDemand chooses the handlers that give up their slots, and reads the store only for them."""

from __future__ import annotations

from typing import Any

import pytest

from hark.engine.turns import slot_demand
from hark.engine.turns.clerk_state import ClerkState
from hark.engine.turns.database_clock import DatabaseClock
from hark.engine.turns.slot_demand import SlotDemand
from hark.kernel.requests import Capacity
from hark.kernel.result import TurnResult
from hark.model.activation import TASK_TRAITS
from hark.model.lingering import Lingering
from hark.store import reads
from hark.store.protocol import Lost
from tests.support.inspect import until


class Scene:
    """A worker with handlers that linger, and a store with work."""

    owner = "worker"
    open = True

    def __init__(self, **free: int) -> None:
        self.free = free
        self.lingering: dict[str, Lingering] = {}
        self.held: dict[str, int] = {}
        self.asked: list[str] = []
        self.claimable: dict[str, int] = {}
        self.blocked: dict[str, int] = {}
        self.questions: list[Any] = []
        self.fails: Exception | None = None
        self.state = ClerkState(DatabaseClock(lambda: 0))
        self.state.worker = self  # type: ignore[assignment]
        self.state.store = self  # type: ignore[assignment]
        self.demand = SlotDemand(self.state)

    def linger(self, id: str, queue: str = "default", key: str | None = None) -> Lingering:
        one = Lingering(id, 1, queue, key, len(self.held), lambda: None)
        self.lingering[id], self.held[id] = one, 1
        return one

    async def look(self) -> list[str]:
        """The handlers that are asked now."""
        before = len(self.asked)
        self.demand.ask()
        await self.demand.look()
        return self.asked[before:]

    # -- the worker

    def capacity(self, commits: Any) -> Capacity:
        return Capacity(self.owner, dict(self.free), {"task:a": TASK_TRAITS, "task:b": TASK_TRAITS})

    def executing(self) -> dict[str, int]:
        return dict(self.held)

    def make_room(self, leaving: list[Lingering]) -> None:
        self.asked += [one.id for one in leaving]

    # -- the store

    async def read(self, sql: Any, rows: Any, *, most: int) -> list[tuple[str, int]]:
        self.questions.append((sql, rows, most))
        if self.fails is not None:
            raise self.fails
        if sql is reads.blocked_on_keys:
            return [(key, min(most, self.blocked.get(key, 0))) for key, _ in rows]
        # All of it is in one of the lanes.
        return [(queue, min(most, self.claimable.get(queue, 0)) if lane == "task:a" else 0) for queue, lane in rows]


async def test_j7_as_many_are_asked_as_rows_wait_the_longest_waiting_first() -> None:
    scene = Scene(default=0)
    for id in ("c", "a", "b"):
        scene.linger(id)
    scene.claimable = {"default": 2}
    assert await scene.look() == ["c", "a"]


async def test_j7_those_that_are_about_to_leave_count_until_their_slot_is_free() -> None:
    scene = Scene(default=0)
    for id in ("a", "b"):
        scene.linger(id)
    scene.claimable = {"default": 1}
    assert await scene.look() == ["a"]
    assert await scene.look() == []
    del scene.lingering["a"]  # its handler has ended; the commit of its park is on its way
    assert await scene.look() == []
    del scene.held["a"]  # committed, and the row that waited was claimed for the slot; another one waits
    assert await scene.look() == ["b"]


async def test_j7_one_that_received_its_signal_instead_does_not_count() -> None:
    scene = Scene(default=0)
    first = scene.linger("a")
    scene.linger("b")
    scene.claimable = {"default": 1}
    assert await scene.look() == ["a"]
    first.is_over = True
    del scene.lingering["a"]
    assert await scene.look() == ["b"]


async def test_j7_nobody_is_asked_when_the_work_is_gone_or_a_slot_is_free() -> None:
    scene = Scene(default=0)
    scene.linger("a")
    assert await scene.look() == []
    scene.claimable, scene.free = {"default": 5}, {"default": 1}
    assert await scene.look() == []
    scene.free = {}  # a queue that the worker does not serve any more
    assert await scene.look() == []


async def test_j7_only_handlers_of_the_queue_and_of_the_key_are_asked() -> None:
    scene = Scene(default=0, gpu=0)
    for id, queue, key in (("a", "default", None), ("b", "gpu", None), ("c", "default", "k"), ("d", "gpu", "k")):
        scene.linger(id, queue, key)
    scene.blocked = {"k": 1}
    assert await scene.look() == ["c"]
    scene.claimable = {"gpu": 1}
    assert await scene.look() == ["b"]
    scene.claimable = {"gpu": 1, "default": 1}  # the slot of `c` is on its way
    assert await scene.look() == []


async def test_j7_nothing_is_read_while_no_handler_lingers_or_all_have_room() -> None:
    scene = Scene(default=0, other=3)
    result = TurnResult(0, 0)
    result.pending.left_claimable = True
    scene.demand.ask_after(result)
    scene.demand.ask_after_hint()
    assert not scene.demand
    await scene.look()
    scene.linger("a", "other")
    scene.demand.ask_after(TurnResult(0, 0))  # a turn that left nothing
    assert not scene.demand
    await scene.look()
    assert scene.questions == []
    scene.demand.ask_after(result)
    assert scene.demand


@pytest.mark.parametrize("error", [Lost("gone"), TimeoutError(), ValueError("unexpected")])
async def test_j7_a_read_that_fails_ends_no_turn_and_the_next_look_reads_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_demand, "_READ_AGAIN", 0.001)
    scene = Scene(default=0)
    scene.linger("a")
    scene.claimable, scene.fails = {"default": 1}, error
    assert await scene.look() == []
    assert not scene.demand
    if not isinstance(error, ValueError):
        await until(lambda: bool(scene.demand), "it to ask again")
    scene.fails = None
    assert await scene.look() == ["a"]
