"""Plain `def` steps run in threads, concurrently with each other and with the event loop."""

import asyncio
import threading

from hark import Context, Done, Machine, Next, step
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


async def test_api_a_sync_step_runs_in_a_thread_and_an_async_one_on_the_loop(store: Store) -> None:
    threads: list[threading.Thread] = []

    class Mixed(Machine):
        @step
        def start(self, ctx: Context) -> Next:
            threads.append(threading.current_thread())
            ctx.state["plain"] = True
            return Next(self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            threads.append(threading.current_thread())
            return Done(ctx.state)

    async with harness(store, Mixed) as app:
        mixed = await drained(app, app.start(Mixed))
        assert await mixed.result(timeout=0) == {"plain": True}
        assert threads[0] is not threading.current_thread()
        assert threads[1] is threading.current_thread()


async def test_api_sync_steps_that_block_delay_neither_each_other_nor_the_loop(store: Store) -> None:
    inside: list[str] = []
    go = threading.Event()

    class Blocks(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            inside.append(ctx.id)
            assert go.wait(30)
            return Done()

    class Runs(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done("meanwhile")

    async with harness(store, Blocks, Runs) as app, app.worker({"default": 5}):
        handles = await app.start_many([(Blocks, None)] * 3)
        await until(lambda: len(inside) == 3, "all three to block")
        assert await (await app.start(Runs)).result(timeout=30) == "meanwhile"
        go.set()
        for handle in handles:
            await handle.result(timeout=30)


async def test_api_a_sync_step_may_call_the_engine_synchronously(store: Store) -> None:
    class Leaf(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done("leaf")

    class Calls(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            leaf = app.start(Leaf).result(timeout=30)
            return Done(leaf.result().result(timeout=30))

    async with harness(store, Leaf, Calls) as app, app.worker({"default": 5}):
        assert await (await app.start(Calls)).result(timeout=60) == "leaf"


async def test_api_a_cancelled_sync_step_finishes_and_its_outcome_is_refused(store: Store) -> None:
    inside, go, out = threading.Event(), threading.Event(), threading.Event()
    handled: list[object] = []

    class Blocks(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            inside.set()
            go.wait(30)
            ctx.start(Blocks, id="side-effect")
            out.set()
            return Done("too late")

        def handle(self, error: Exception, ctx: Context) -> Done:
            handled.append(error)
            return Done("handled")

    class Quick(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            return Done()

    async with harness(store, Blocks, Quick) as app, app.worker({"default": 1}):
        blocks = await app.start(Blocks)
        await asyncio.to_thread(inside.wait, 30)
        cancelled = await blocks.cancel("not needed")
        assert cancelled.status == "cancelled"
        go.set()
        assert await asyncio.to_thread(out.wait, 30)
        # The slot has been free since the cancel: the next instance runs, and the late outcome has arrived by then.
        assert await (await app.start(Quick)).result(timeout=30) is None
    async with harness(store) as app:
        assert [(i.status, i.result) for i in await app.list(definition="Blocks")] == [("cancelled", None)]
    assert handled == []
