"""M1: one method per step; committed before it proceeds; a crash before the commit runs the whole step again."""

import asyncio
from typing import Any

from hark import Await, Context, Done, Machine, Next, step
from tests.promises.support_machines import Fuse, harness, kill_a_worker
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


async def test_m1_a_machine_runs_one_method_after_another_until_it_ends(store: Store) -> None:
    class Walk(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            return Next(self.middle, [*ctx.state, ctx.step])

        @step
        async def middle(self, ctx: Context) -> Next:
            return Next("end", [*ctx.state, ctx.step])

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([*ctx.state, ctx.step])

    async with harness(store, Walk) as app:
        walk = await app.start(Walk, [])
        assert await app.drain() == {"steps": 3, "done": 1, "next": 2}
        assert await walk.result() == ["start", "middle", "end"]
        kept = await walk.get()
        assert (kept.status, kept.step, kept.kind, kept.version, kept.error) == ("done", "end", "machine", 1, None)


async def test_m1_the_new_state_is_committed_before_execution_proceeds(store: Store) -> None:
    seen: list[tuple[str, str, Any]] = []

    class Looks(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            ctx.state["n"] = 1
            return Next(self.second)

        @step
        async def second(self, ctx: Context) -> Await:
            await self.look(ctx)
            ctx.state["n"] = 2
            return Await("go", then=self.third)

        @step
        async def third(self, ctx: Context) -> Done:
            await self.look(ctx)
            ctx.state["n"] = 3
            return Done()

        async def look(self, ctx: Context) -> None:
            row = await app.get(ctx.id)  # on a connection of its own, which sees only committed data
            seen.append((row.status, row.step, row.state))

    async with harness(store, Looks) as app:
        looks = await drained(app, app.start(Looks))
        await drained(app, looks.signal("go"))
        assert seen == [("executing", "second", {"n": 1}), ("executing", "third", {"n": 2})]
        assert (await looks.get()).state == {"n": 3}


async def test_m1_a_crash_before_the_commit_runs_the_whole_step_again(store: Store) -> None:
    fuse, log = Fuse(), []

    class Bakes(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            log.append("start")
            return Next(self.bake)

        @step
        async def bake(self, ctx: Context) -> Done:
            log.append(f"mix {ctx.state.get('eggs', 0)}")
            ctx.state["eggs"] = 3
            ctx.start(Bakes, id="side-effect")
            await fuse.touch()
            log.append("eat")
            return Done()

    async with harness(store, Bakes) as app:
        cake = await app.start(Bakes)
        await kill_a_worker(app, store, fuse, Bakes)
        fuse.lit = False
        assert [i.id for i in await app.list()] == [cake.id], "the killed step's effects were not applied"
        await drained(app, app.cancel(await app.start(Bakes, id="side-effect")))
        assert log == ["start", "mix 0", "mix 0", "eat"]
        assert (await cake.get()).status == "done"


async def test_m1_a_step_that_is_handed_back_runs_again_from_its_beginning(store: Store) -> None:
    fuse, attempts = Fuse(), []

    class Slow(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            attempts.append(ctx.attempt)
            await fuse.touch()
            return Done()

    async with harness(store, Slow) as app:
        slow = await app.start(Slow)
        async with app.worker(grace=0):
            await until(lambda: fuse.touched, "the step to run")
        assert (await slow.get()).status == "runnable", "given back at once, no lease has to run out"
        fuse.lit = False
        await app.drain()
        assert attempts == [0, 0], "a graceful stop does not count as a retry"
        assert (await slow.get()).status == "done"


async def test_m1_steps_of_many_instances_run_side_by_side(store: Store) -> None:
    here: set[str] = set()
    together = asyncio.Event()

    class Meets(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            here.add(ctx.id)
            if len(here) == 3:
                together.set()
            await together.wait()
            return Done()

    async with harness(store, Meets) as app, app.worker({"default": 3}):
        for meets in await app.start_many([(Meets, None)] * 3):
            await meets.result(timeout=30)
        assert len(here) == 3
