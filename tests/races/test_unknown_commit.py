"""Faults 37 and 70: after a connection lost in COMMIT the result is read, never guessed; the turn is applied once."""

import asyncio
from collections.abc import Callable

import pytest

from hark import Await, Context, Done, Hark, Machine, Next, step
from hark.store.postgres import PostgresTx
from hark.store.protocol import Lost
from tests.support.inspect import counted
from tests.support.stores import Store


class Sender(Machine):
    @step
    async def start(self, ctx: Context) -> Next:
        ctx.signal("friend", "hello")
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.state["n"])


class Friend(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("hello", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(len(ctx.all))


@pytest.fixture(params=["before the server committed", "after the server committed"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Callable[[], int]]:
    """Cut this many of the next commits. The returned function says how many are left to cut."""
    original = PostgresTx.commit
    left = 0

    async def commit(tx: PostgresTx) -> None:
        nonlocal left
        if left == 0:
            return await original(tx)
        left -= 1
        if request.param.startswith("after"):
            await original(tx)
        tx._db.terminate()
        raise Lost("cut")

    def arm(count: int) -> Callable[[], int]:
        nonlocal left
        left = count
        return lambda: left

    monkeypatch.setattr(PostgresTx, "commit", commit)
    return arm


async def test_fault_70_a_signal_and_a_start_whose_commit_is_cut_are_applied_once(
    pg_store: Store, cut: Callable[[int], Callable[[], int]]
) -> None:
    async with Hark(pg_store.url, **pg_store.options) as app:
        app.register(Friend)
        left = cut(1)
        friend = await app.start(Friend, correlation_key="friend")
        assert left() == 0
        left = cut(1)
        assert (await app.signal("friend", "hello")).status == "stored"
        assert left() == 0
        assert [event.type for event in await app.events(friend)] == ["started", "signal"]
        async with app.worker():
            assert await friend.result(timeout=30) == 1


async def test_fault_70_outcomes_whose_commits_are_cut_repeatedly_are_applied_once(
    pg_store: Store, cut: Callable[[int], Callable[[], int]]
) -> None:
    async with Hark(pg_store.url, **pg_store.options) as app:
        friend = await app.start(Friend, correlation_key="friend")
        sender = await app.start(Sender)
        left = cut(3)
        async with app.worker():
            assert await sender.result(timeout=60) == 1
            assert await friend.result(timeout=60) == 1
        assert left() == 0
        types = [event.type for event in await app.events(sender)]
        assert types == ["started", "next", "done"]


async def test_fault_70_claims_in_one_call_whose_commits_are_cut_are_made_once(
    pg_store: Store, cut: Callable[[int], Callable[[], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that only claims writes no event, so only the number of its transaction says whether it has committed."""
    async with Hark(pg_store.url, **pg_store.options) as app:
        app.register(Friend)
        friends = [await app.start(Friend) for _ in range(3)]
        monkeypatch.setattr(app._clerk, "code_changed", app._clerk.hint)  # a turn that looks for held ones is no call
        app._clerk.work_left.code_changed = app._clerk.work_left.held = False
        left = cut(2)
        with counted(pg_store, monkeypatch) as sent:
            async with app.worker():
                while len(await app.waits()) < 3:
                    await asyncio.sleep(0.01)
                assert left() == 0
                for friend in friends:
                    await app.signal(friend, "hello")
                assert [await friend.result(timeout=30) for friend in friends] == [1, 1, 1]
        assert sent[0] == "call_turn"
        for friend in friends:
            assert (await app.get(friend)).attempt == 0
            assert [event.type for event in await app.events(friend)] == ["started", "await", "signal", "done"]
