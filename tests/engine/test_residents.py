"""Functions that stay in memory after their park (decision 21): when they continue, and when they are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hark import FunctionContext, Handle, Hark, workflow
from hark.engine.worker import activations, residents
from hark.engine.worker.attached_worker import AttachedWorker
from hark.engine.worker.slots import Slots
from hark.kernel.requests import Commit
from hark.model.activation import Claim, Traits
from hark.model.decisions import Decision, Park
from hark.store.protocol import Full
from tests.support.claims import a_claim
from tests.support.inspect import counted, until
from tests.support.stores import Store

begun: list[str] = []
closed: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    begun.clear()
    closed.clear()


@workflow
async def waits(ctx: FunctionContext, name: str) -> list[Any]:
    begun.append(name)
    try:
        return [(await ctx.wait_for_signal("one")).payload, (await ctx.wait_for_signal("two")).payload]
    finally:
        closed.append(name)


def make(store: Store, **options: Any) -> Hark:
    app = Hark(store.url, **store.options, **options)
    app.register(waits)
    return app


async def parked(app: Hark, id: str, name: str) -> None:
    async def is_parked() -> bool:
        return any(wait.instance_id == id and wait.name == name for wait in await app.waits(kind="signal"))

    await until(is_parked, f"{id} to wait for {name}")


async def end(it: Handle[Any]) -> None:
    await it.signal("one", 1)
    await it.signal("two", 2)
    assert await it.result(timeout=30) == [1, 2]


async def end_in_steps(app: Hark, it: Handle[Any]) -> None:
    """Send each signal when the function has parked on it."""
    for n, name in enumerate(("one", "two")):
        await parked(app, it.id, name)
        await it.signal(name, n)
    assert await it.result(timeout=30) == [0, 1]


async def test_a_function_that_is_answered_soon_is_not_replayed(store: Store) -> None:
    async with make(store) as app, app.worker():
        it = await app.start(waits, {"name": "a"})
        for n, name in enumerate(("one", "two")):
            await parked(app, it.id, name)
            assert closed == []
            await it.signal(name, n)
        assert await it.result(timeout=30) == [0, 1]
    assert begun == ["a"]
    assert closed == ["a"]


async def test_a_signal_that_it_knew_when_it_parked_is_not_received_twice(store: Store) -> None:
    @workflow
    async def listens(ctx: FunctionContext) -> list[Any]:
        begun.append(ctx.id)
        return [(await ctx.wait_for_signal(name)).payload for name in ("one", "two", "two")]

    async with make(store) as app:
        app.register(listens)
        it = await app.start(listens)
        await it.signal("two", 2)
        async with app.worker():
            await parked(app, it.id, "one")
            await it.signal("one", 1)
            await parked(app, it.id, "two")
            await it.signal("two", 3)
            assert await it.result(timeout=30) == [1, 2, 3]
    assert begun == [it.id]


async def test_with_the_option_0_every_activation_replays(store: Store) -> None:
    async with make(store, resident_functions=0) as app, app.worker():
        it = await app.start(waits, {"name": "a"})
        await end_in_steps(app, it)
    assert begun == ["a"] * 3
    assert closed == ["a"] * 3


async def test_the_oldest_is_given_up_when_there_are_too_many(store: Store) -> None:
    async with make(store, resident_functions=1) as app, app.worker():
        first, second = await app.start(waits, {"name": "a"}), None
        await parked(app, first.id, "one")
        second = await app.start(waits, {"name": "b"})
        await parked(app, second.id, "one")
        await until(lambda: closed == ["a"], "the first to be given up")
        for it in (second, first):
            await end(it)
    assert begun == ["a", "b", "a"]


async def test_large_ones_are_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "_MOST_TEXT", 100)
    async with make(store) as app, app.worker():
        small, large = await app.start(waits, {"name": "a"}), await app.start(waits, {"name": "b" * 200})
        for it in (small, large):
            await parked(app, it.id, "one")
        await until(lambda: "b" * 200 in closed, "the large one to be given up")
        for it in (small, large):
            await end(it)


async def test_old_ones_are_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residents, "_SECONDS", 0.05)
    async with make(store) as app, app.worker():
        it = await app.start(waits, {"name": "a"})
        await parked(app, it.id, "one")
        await until(lambda: closed == ["a"], "it to be given up")
        await it.signal("one", 1)
        await parked(app, it.id, "two")
        await it.signal("two", 2)
        assert await it.result(timeout=30) == [1, 2]
    assert begun[:2] == ["a", "a"]


async def test_one_that_is_given_up_after_its_claim_reads_its_journal_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn that claimed it did not read the journal, because the function was in memory then."""

    def gone(kept: residents.Residents, claim: Any) -> None:
        kept._give_up(claim.id)

    monkeypatch.setattr(residents.Residents, "resume", gone)
    async with make(store, one_call_turns=False) as app, app.worker():
        it = await app.start(waits, {"name": "a"})
        with counted(store, monkeypatch) as sent:
            await end_in_steps(app, it)
    assert "journal_of" not in sent
    assert begun == ["a"] * 3


async def test_x5_a_journal_that_cannot_be_read_for_a_while_does_not_fail_the_function(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function was given up after its claim, and the read of its journal meets a database that is gone."""
    read, refused = activations.read_journal, []

    async def fails_at_first(it: Any, claim: Claim) -> Any:
        if len(refused) < 3:
            refused.append(claim.id)
            raise Full("the disk is full")
        return await read(it, claim)

    monkeypatch.setattr(activations, "read_journal", fails_at_first)
    monkeypatch.setattr(activations, "_READ_AGAIN", 0.0)
    monkeypatch.setattr(residents.Residents, "resume", lambda kept, claim: kept._give_up(claim.id))
    async with make(store, one_call_turns=False) as app, app.worker():
        it = await app.start(waits, {"name": "a"})
        await end_in_steps(app, it)
    assert refused == [it.id] * 3


async def test_the_outcome_of_an_abandoned_claim_keeps_no_function_in_memory() -> None:
    """A turn may claim an instance again before the worker knows that its earlier claim is over: the earlier claim is
    abandoned, and its session is closed on the worker's loop."""
    started: list[tuple[Any, ...]] = []
    later: Any = SimpleNamespace(
        call_soon_threadsafe=lambda function, *args: started.append(args), is_closed=lambda: False
    )
    registry: Any = SimpleNamespace(queues=lambda: ["default"], lanes=dict)
    slots, work = Slots("worker", registry, {"default": 5}), SimpleNamespace(start=None, abandon=None)
    worker = AttachedWorker("worker", slots, cast("Any", work), cast("Any", None), cast("Any", None), later)
    earlier, claim = (_claim_of_function(epoch) for epoch in (1, 3))
    worker.receive([], [earlier])
    worker.receive([], [claim])
    worker.receive([_parked_outcome(earlier)], [])
    assert started[-1] == ([], [], [], [])
    assert slots.claims() == [claim]
    worker.receive([_parked_outcome(claim)], [])
    assert started[-1] == ([], [], [], [claim])
    assert slots.claims() == []


def _claim_of_function(epoch: int) -> Claim:
    claim = a_claim(kind="workflow", epoch=epoch, has_inbox_rows=True)
    claim.session, claim.traits = _Session(), Traits(keeps_journal=True)
    return claim


def _parked_outcome(claim: Claim) -> Commit:
    return Commit(claim=claim, decision=Decision("await", "start", "{}", Park()))


async def test_a_worker_that_stops_gives_up_all_and_the_next_one_replays(store: Store) -> None:
    async with make(store) as app:
        async with app.worker():
            it = await app.start(waits, {"name": "a"})
            await parked(app, it.id, "one")
        assert closed == ["a"]
        async with app.worker():
            await end(it)
    assert begun == ["a", "a"]


async def _cancel_elsewhere(other: Hark, id: str) -> None:
    await other.cancel(id)


async def _activate_elsewhere(other: Hark, id: str) -> None:
    async with other.worker():
        await other.signal(id, "one", 1)
        await parked(other, id, "two")


@pytest.mark.parametrize("elsewhere", [_cancel_elsewhere, _activate_elsewhere], ids=["cancelled", "activated"])
async def test_a_function_to_which_another_process_did_something_is_replayed(
    store: Store, elsewhere: Callable[[Hark, str], Awaitable[None]]
) -> None:
    async with make(store) as app, make(store) as other:
        worker = app.worker()
        async with worker:
            it = await app.start(waits, {"name": "a"})
            await parked(app, it.id, "one")
            worker._activations.open = False  # it claims nothing while the other process works
            await elsewhere(other, it.id)
            worker._activations.open = True
            app._clerk.hint()
            if elsewhere is _cancel_elsewhere:
                assert (await it.get()).status == "cancelled"
                return
            before = len(begun)
            await it.signal("two", 2)
            assert await it.result(timeout=30) == [1, 2]
            assert len(begun) == before + 1, "the code that had parked before the other process did is not used"


async def test_signals_that_it_did_not_ask_for_are_not_given_twice(store: Store) -> None:
    @workflow
    async def takes(ctx: FunctionContext) -> list[Any]:
        first = await ctx.wait_for_signal("go")
        return [first.payload, *[(await ctx.wait_for_signal("noise")).payload for _ in range(4)]]

    app = Hark(store.url, **store.options)
    app.register(takes)
    async with app, app.worker():
        it = await app.start(takes)
        await parked(app, it.id, "go")
        await asyncio.gather(*(it.signal("noise", n) for n in range(2)))
        await it.signal("go", "go")
        await parked(app, it.id, "noise")
        for n in (2, 3):
            await it.signal("noise", n)
        found = await it.result(timeout=30)
    assert found == ["go", 0, 1, 2, 3]


class _Session:
    def size(self) -> int:
        return 1


async def test_what_parks_after_the_worker_has_stopped_is_given_up_at_once() -> None:
    given_up: list[Any] = []
    kept = residents.Residents(10, given_up.append)
    kept.close()
    claim: Any = SimpleNamespace(id="late", epoch=1, session=_Session())
    kept.keep(claim)
    assert given_up == [claim]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_x2_a_function_that_parked_in_a_past_that_the_database_has_lost_is_given_up(is_lost: bool) -> None:
    given_up: list[Any] = []
    resumed: list[Any] = []
    kept = residents.Residents(10, given_up.append)
    parked: Any = SimpleNamespace(id="x", epoch=1, session=SimpleNamespace(size=lambda: 1, resume=resumed.append))
    kept.keep(parked)
    claim = a_claim(id="x", epoch=3)
    claim.epoch_before = (1 << 40) + 2 if is_lost else kept.epochs["x"]
    kept.resume(claim)
    kept.close()
    assert (given_up, resumed) == (([parked], []) if is_lost else ([], [claim]))
