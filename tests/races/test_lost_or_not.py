"""A check for lost steps during a commit: a step whose outcome has just been committed is not lost."""

from typing import Any

import pytest

from hark import Context, Done, FunctionContext, Hark, Machine, Next, step, workflow
from tests.support.stores import Store


class Ten(Machine):
    @step
    async def start(self, ctx: Context) -> Next | Done:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return Done(ctx.state["n"]) if ctx.state["n"] == 10 else Next(self.start)


async def nothing() -> None:
    pass


@workflow
async def ten(ctx: FunctionContext) -> int:
    for _ in range(10):
        await ctx.run(nothing)
    return 10


async def test_x2_a_check_between_a_commit_and_its_reply_does_not_take_a_step_for_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database has committed and the worker has no result yet: the store is one epoch ahead of the worker."""
    app = Hark(store.url, **store.options)
    app.register(Ten, ten)
    checks, taken = 0, []
    kind = store.database.tx
    commit = kind.commit

    async def commit_and_check(tx: Any) -> None:
        nonlocal checks
        await commit(tx)
        if app._clerk.worker is not None:
            checks += 1
            await app._clerk.peers.find_lost_steps()

    async with app, app.worker():
        worker = app._clerk.worker
        assert worker is not None
        abandon = worker.abandon

        def take(ids: set[str]) -> None:
            taken.append(ids)
            abandon(ids)

        monkeypatch.setattr(worker, "abandon", take)
        monkeypatch.setattr(kind, "commit", commit_and_check)
        started = await app.start_many([(Ten, None), (ten, None)] * 3)
        assert [await one.result(timeout=20) for one in started] == [10] * 6
        monkeypatch.undo()
    assert checks > 10
    assert taken == []
