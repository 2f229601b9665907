"""Fault 28 with the whole engine: two workers in one process have the same hostname and pid."""

import asyncio

from hark import Context, Done, Hark, Machine, step
from tests.support.inspect import until
from tests.support.stores import Store


class Held(Machine):
    """Runs until the test releases it, and records how often it began."""

    begun: list[str] = []  # noqa: RUF012
    let_go: asyncio.Event

    @step
    async def start(self, ctx: Context) -> Done:
        Held.begun.append(ctx.id)
        await Held.let_go.wait()
        return Done(ctx.attempt)


async def test_fault_28_two_workers_in_one_process_do_not_reclaim_from_each_other(pg_store: Store) -> None:
    Held.begun, Held.let_go = [], asyncio.Event()
    async with Hark(pg_store.url, **pg_store.options) as ours, Hark(pg_store.url, **pg_store.options) as theirs:
        ours.register(Held)
        theirs.register(Held)
        async with theirs.worker({"default": 1}):
            first = await theirs.start(Held)
            await until(lambda: Held.begun == [first.id], "the first step")
            async with ours.worker({"default": 1}, grace=0):
                second = await ours.start(Held)
                await until(lambda: Held.begun == [first.id, second.id], "the second step")
                for app in (ours, theirs):
                    await app.sweep()
                assert [(await app.get(h)).attempt for app, h in ((ours, first), (theirs, second))] == [0, 0]
            # The first worker left: its work is handed back, that of the other worker is not touched.
            assert (await ours.get(second)).status == "runnable"
            assert (await ours.get(first)).status == "executing"
            await theirs.sweep()
            Held.let_go.set()
            assert await first.result(timeout=60) == 0
            assert await second.result(timeout=60) == 0
    assert Held.begun.count(first.id) == 1
