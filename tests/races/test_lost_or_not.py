"""A look for lost steps that meets a commit: who has just gone on is not lost."""

import asyncio

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


async def test_x2_a_look_between_a_commit_and_its_echo_takes_nobody_for_lost(store: Store) -> None:
    """The epoch in the store is one ahead of the worker's as soon as the database has committed."""
    app = Hark(store.url, **store.options)
    app.register(Ten, ten)
    over = asyncio.Event()
    taken: list[set[str]] = []

    async def look() -> None:
        while not over.is_set():
            await app._clerk._find_lost()
            await asyncio.sleep(0)

    async with app, app.worker() as worker:
        lost = worker.lost
        worker.lost = lambda ids: (taken.append(ids), lost(ids))[1]  # type: ignore[method-assign, func-returns-value]
        app._clerk.spawn(look())
        for _ in range(10):
            started = await app.start_many([(Ten, None), (ten, None)] * 10)
            assert [await one.result(timeout=30) for one in started] == [10] * 20
        over.set()
    assert taken == []
