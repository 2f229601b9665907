"""M6: versions live side by side, and a worker never claims what it has no code for."""

import pytest

from hark import Await, Child, Context, Dag, Done, Machine, NotFound, Spawn, Start, step
from hark.testing import Harness
from tests.promises.support_machines import harness, neighbour
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


def order(number: int) -> type[Machine]:
    class Order(Machine, version=number):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(number)

    return Order


One, Two = order(1), order(2)


async def test_m6_an_instance_finishes_on_the_version_it_started(store: Store) -> None:
    async with harness(store, One) as app:
        old = await drained(app, app.start("Order"))
        await app.register(Two)
        new = await drained(app, app.start("Order"))
        assert [(await old.get()).version, (await new.get()).version] == [1, 2]
        for both in (old, new):
            await both.signal("go")
        await app.drain()
        assert [await old.result(timeout=0), await new.result(timeout=0)] == [1, 2]


async def test_m6_the_newest_is_started_unless_a_version_is_named(store: Store) -> None:
    async with harness(store, Two, One) as app:
        versions = [
            await app.start("Order"),
            await app.start("Order", version=1),
            await app.start(One),
            await app.start(Two),
            *await app.start_many([Start("Order", version=1), ("Order", None), (One, None)]),
        ]
        assert [(await handle.get()).version for handle in versions] == [2, 1, 1, 2, 1, 2, 1]
        for missing in (0, 3):
            with pytest.raises(NotFound, match="1, 2"):
                await app.start("Order", version=missing)
        with pytest.raises(NotFound, match="There is no definition 'Orders'"):
            await app.start("Orders")
        assert len(await app.list()) == 7


async def test_m6_fault_32_an_unknown_version_is_left_for_a_worker_that_knows_it(store: Store) -> None:
    async with harness(store, One) as app:
        other = neighbour(app, store, Two)
        async with other:
            old, new = await app.start("Order", version=1), await app.start("Order", version=2)
            for both in (old, new):
                await both.signal("go")
            assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
            assert await old.result(timeout=0) == 1
            untouched = await new.get()
            assert (untouched.status, untouched.attempt, untouched.step) == ("runnable", 0, "start")
            assert [event.type for event in await app.events(new)] == ["started", "signal"]
            assert await other.drain() == {"steps": 2, "await": 1, "done": 1}
            assert await other.result(new.id, timeout=0) == 2


async def test_m6_starting_by_name_needs_no_code_in_this_process(store: Store) -> None:
    async with harness(store) as door:
        with pytest.raises(NotFound, match="There is no definition 'Order'"):
            await door.start("Order")
        worker = neighbour(door, store, One)
        async with worker:
            handle = await door.start("Order", {"any": "input"})
            assert (await handle.get()).queue == "default"
            assert await door.drain() == {"steps": 0}, "no code here"
            assert await worker.drain() == {"steps": 1, "await": 1}


async def test_m6_starting_or_spawning_a_class_registers_it(store: Store) -> None:
    class Late(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done("late")

    class Later(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done("later")

    class Parent(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            ctx.start(Later, id="effect")
            return Spawn([Child(Late)], then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([child.result for child in ctx.children])

    async with harness(store) as app:
        parent = await drained(app, app.start(Parent))
        assert await parent.result(timeout=0) == ["late"]
        assert await app.result("effect", timeout=0) == "later"


async def test_m6_a_definition_registered_while_a_worker_runs_is_run_by_it(store: Store) -> None:
    async with harness(store, One) as app, app.worker({"default": 5}):
        async with neighbour(app, store, Two) as other:
            new = await other.start("Order", version=2)
        await until(lambda: is_idle(app), "a claim that did not find the code")
        await app.register(Two)
        await app.signal(new, "go")
        assert await app.result(new, timeout=5) == 2


async def test_m6_a_handler_registered_while_a_worker_runs_gets_the_tasks_that_wait_for_it(store: Store) -> None:
    dag = Dag("late")
    dag.task("work", "work")
    async with harness(store, dag) as app, app.worker():
        job = await app.start(dag)
        await until(lambda: is_idle(app), "a claim that did not find the handler")
        app.handler("work")(lambda task: "done")
        assert await job.result(timeout=5) == {"work": "done"}


async def is_idle(app: Harness) -> bool:
    """Return True if the task or instance waits, and no turn is going to look for it."""
    waiting = [*await app.list(status="runnable"), *await app.list(status="runnable", kind="task")]
    return bool(waiting) and not app._clerk.work_left
