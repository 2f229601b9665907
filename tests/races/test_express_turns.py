"""A large turn for one queue does not delay what another process wakes in another queue (runtime/express_turns.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark import Child, Context, Done, Hark, Machine, Spawn, step
from hark.store.postgres import PostgresStore, PostgresTx
from hark.store.protocol import Lost, LostCall
from tests.races.test_hints import listening
from tests.support.inspect import until
from tests.support.stores import Store

MANY = 30
SOON = 60.0  # seconds a test waits; no process polls in that time
begun = asyncio.Event()


class Short(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        begun.set()
        return Done(ctx.attempt)


class Crowd:
    """As many instances of the queue `news` as it has slots. One turn commits all of them, and waits at its COMMIT."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = store
        self._monkeypatch = monkeypatch
        self.may_end, self.in_commit, self.may_commit = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.running = 0

    @asynccontextmanager
    async def in_a_turn(self) -> AsyncIterator[tuple[Hark, Hark]]:
        """The app whose clerk is in that turn, and another one on the same store."""
        crowd = self

        class Member(Machine, queue="news"):
            @step
            async def start(self, ctx: Context) -> Done:
                crowd.running += 1
                await crowd.may_end.wait()
                return Done()

        async with (
            listening(self._store, Member, Short) as app,
            listening(self._store, Short) as other,
            app.worker({"news": MANY, "default": 5}),
        ):
            members = [await app.start(Member) for _ in range(MANY)]
            await until(lambda: self.running == MANY, "the crowd")
            self._hold_commits_of(app, asyncio.get_running_loop())
            self.may_end.set()
            await asyncio.wait_for(self.in_commit.wait(), SOON)
            try:
                yield app, other
            finally:
                self.may_commit.set()
            for member in members:
                await member.result(timeout=SOON)

    def _hold_commits_of(self, app: Hark, loop: asyncio.AbstractEventLoop) -> None:
        commit = PostgresTx.commit

        async def held(tx: PostgresTx) -> None:
            clerk = app._clerk
            if tx._db is clerk.store._db and len(clerk.turns.committing) == MANY and not self.may_commit.is_set():
                loop.call_soon_threadsafe(self.in_commit.set)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.may_commit.wait(), loop))
            await commit(tx)

        self._monkeypatch.setattr(PostgresTx, "commit", held)


def _never_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a turn or a hint forgets is not found by the next poll."""
    never = property(lambda store: 3600.0, lambda store, seconds: None)
    monkeypatch.setattr(PostgresStore, "poll", never, raising=False)


@pytest.fixture
def crowd(pg_store: Store, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    _never_poll(monkeypatch)
    begun.clear()
    return Crowd(pg_store, monkeypatch)


async def test_m10_an_instance_of_another_queue_runs_while_a_large_turn_is_not_committed(crowd: Crowd) -> None:
    async with crowd.in_a_turn() as (_, other):
        short = await other.start(Short)
        await asyncio.wait_for(begun.wait(), SOON)
        assert not crowd.may_commit.is_set()
    # Its outcome is committed in the next turn.
    async with listening(crowd._store) as reader:
        assert (await reader.get(short.id)).attempt == 0


async def test_m10_slots_of_the_other_queue_are_not_exceeded(crowd: Crowd) -> None:
    """More instances than an express turn claims, and than there are slots."""
    async with crowd.in_a_turn() as (app, other):
        for _ in range(12):
            await other.start(Short)
        await asyncio.sleep(0)
        assert app._clerk.worker is not None
        assert len(app._clerk.worker.executing()) <= MANY + 5
        crowd.may_commit.set()
        for item in await other.list(definition="Short", limit=20):
            assert await other.result(item.id, timeout=SOON) == 0


@pytest.mark.parametrize("key", [None, "key"])
async def test_m10_what_an_express_turn_cannot_claim_is_claimed_by_the_next_turn(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    begin = PostgresStore.begin

    async def no_connection(store: PostgresStore, *, express: bool = False, **how: bool) -> PostgresTx:
        if express and key is None:
            raise Lost("too many connections")
        return await begin(store, express=express, **how)

    monkeypatch.setattr(PostgresStore, "begin", no_connection)
    async with crowd.in_a_turn() as (_, other):
        short = await other.start(Short, concurrency_key=key)
        crowd.may_commit.set()
        assert await other.result(short.id, timeout=SOON) == 0


async def test_x5_claims_of_an_express_turn_whose_reply_is_lost_are_handed_back(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, lost, worker = PostgresTx.fetch, [], []

    async def lose_the_reply(it: PostgresTx, *args: Any, **values: Any) -> Any:
        found = await fetch(it, *args, **values)
        express = worker[0]._clerk.store._express
        if express is not None and it._db is express[0] and not lost:
            lost.append(found)
            it._db.terminate()
            raise LostCall("cut", it._session)
        return found

    async with crowd.in_a_turn() as (app, other):
        worker.append(app)
        monkeypatch.setattr(PostgresTx, "fetch", lose_the_reply)
        short = await other.start(Short)
        await until(lambda: lost, "the express turn")
        assert not begun.is_set()
        crowd.may_commit.set()
        assert await other.result(short.id, timeout=SOON) == 0


async def test_m8_children_in_another_queue_begin_after_a_large_turn_of_their_parents(
    pg_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    _never_poll(monkeypatch)
    may_end, running, ran = asyncio.Event(), [], []

    class Kid(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            ran.append(ctx.id)
            return Done()

    class Parent(Machine, queue="news"):
        @step
        async def start(self, ctx: Context) -> Spawn:
            running.append(ctx.id)
            await may_end.wait()
            return Spawn([Child(Kid)], then=self.after)

        @step
        async def after(self, ctx: Context) -> Done:
            return Done()

    async with listening(pg_store, Parent, Kid) as app, app.worker({"news": MANY, "default": 2 * MANY}):
        for _ in range(MANY):
            await app.start(Parent)
        await until(lambda: len(running) == MANY, "the parents")
        may_end.set()
        await until(lambda: len(ran) == MANY, "the children")


async def test_m10_a_slot_of_another_queue_that_a_cancel_freed_is_filled_beside_a_large_turn(
    pg_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn of the cancel claims before the slot is free; the next turn is the large one."""
    _never_poll(monkeypatch)
    may_end, running, slow = asyncio.Event(), [], []
    in_cancel, may_commit = asyncio.Event(), asyncio.Event()
    loop, commit = asyncio.get_running_loop(), PostgresTx.commit

    class Member(Machine, queue="news"):
        @step
        async def start(self, ctx: Context) -> Done:
            running.append(ctx.id)
            await may_end.wait()
            return Done()

    class Slow(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            slow.append(ctx.id)
            await asyncio.Event().wait()
            return Done()

    async with listening(pg_store, Member, Slow) as app, app.worker({"news": MANY, "default": 1}):
        clerk = app._clerk

        async def held(tx: PostgresTx) -> None:
            if tx._db is clerk.store._db and not in_cancel.is_set():
                loop.call_soon_threadsafe(in_cancel.set)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(may_commit.wait(), loop))
            await commit(tx)

        for _ in range(MANY):
            await app.start(Member)
        await app.start(Slow, id="first")
        await until(lambda: len(running) == MANY and slow == ["first"], "the crowd")
        await app.start(Slow, id="second")
        monkeypatch.setattr(PostgresTx, "commit", held)
        cancelled = app.cancel("first")
        await asyncio.wait_for(in_cancel.wait(), SOON)
        may_end.set()
        await until(lambda: len(clerk.queue._items) == MANY, "the outcomes")
        may_commit.set()
        await cancelled
        await until(lambda: slow == ["first", "second"], "the second one")
