"""The memory of the worker against the store: checks for lost steps around the COMMIT of an outcome (X8)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hark import Context, Done, Hark, Machine, Next, step
from hark.engine.turns.reply import Reply, answer_all
from hark.store import statements
from tests.support.inspect import pass_through_the_clerk
from tests.support.stores import Store


class Two(Machine):
    """The instance `first` notices if it loses the only slot to another instance in the middle of its second step."""

    app: Hark
    before_commit: Callable[[], Awaitable[None]] | None
    begun: list[str]
    second_step: asyncio.Event
    checked: asyncio.Event

    @step
    async def start(self, ctx: Context) -> Next:
        Two.begun.append(ctx.id)
        if Two.before_commit is not None:
            await Two.before_commit()
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        if ctx.id == "first":
            Two.second_step.set()
            await Two.checked.wait()
            await Two.app.start(Two, id="second")
            await pass_through_the_clerk(Two.app)
        return Done(Two.begun[-1])


@pytest.fixture
def app(store: Store) -> Hark:
    Two.before_commit, Two.begun, Two.second_step, Two.checked = None, [], asyncio.Event(), asyncio.Event()
    Two.app = Hark(store.url, **store.options)
    Two.app.register(Two)
    return Two.app


async def test_x8_a_check_between_a_commit_and_its_report_does_not_abandon_the_live_step(
    app: Hark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is one epoch ahead of the worker then."""
    commit = store.database.tx.commit
    checks: list[str] = []

    async def commit_and_check(tx: Any) -> None:
        await commit(tx)
        checks.extend(app._clerk.turns.committing)
        await app._clerk.peers.find_lost_steps()

    monkeypatch.setattr(store.database.tx, "commit", commit_and_check)
    Two.checked.set()
    async with app, app.worker({"default": 1}):
        assert await (await app.start(Two, id="first")).result(timeout=20) == "first"
    assert checks[:2] == ["first", "first"]


async def test_x8_a_step_that_went_on_while_a_check_read_the_store_is_not_abandoned(
    app: Hark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is one epoch ahead of what the check began with."""
    loop, reading = asyncio.get_running_loop(), asyncio.Event()
    async with app, app.worker({"default": 1}):
        clerk, read = app._clerk, app._clerk.store.read

        async def read_late(sql: Any, *args: Any, **values: Any) -> Any:
            if sql is statements.epochs:
                loop.call_soon_threadsafe(reading.set)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(Two.second_step.wait(), loop))
            return await read(sql, *args, **values)

        async def check(begun: Reply[None]) -> None:
            answer_all([(begun, None)])
            await clerk.peers.find_lost_steps()
            loop.call_soon_threadsafe(Two.checked.set)

        async def begin_check() -> None:
            begun: Reply[None] = Reply()
            clerk.spawn(check, begun)
            await begun
            await reading.wait()

        monkeypatch.setattr(clerk.store, "read", read_late)
        monkeypatch.setattr(Two, "before_commit", staticmethod(begin_check))
        assert await (await app.start(Two, id="first")).result(timeout=20) == "first"


async def test_m5_a_worker_whose_row_was_removed_is_not_dead_for_itself(
    app: Hark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_dead(found: Reply[Any]) -> None:
        answer_all([(found, await app._clerk.find_dead())])

    async with app, app.worker({"default": 1}), store.database.connect(store) as ask:
        await app.start(Two, id="first")
        await asyncio.wait_for(Two.second_step.wait(), 20)
        await ask("DELETE FROM workers")
        monkeypatch.setattr(app._clerk.store, "no_reclaim_before", lambda: 0.0)
        found: Reply[Any] = Reply()
        app._clerk.spawn(find_dead, found)
        assert await found == {}
        Two.checked.set()
