"""Run-ahead: an instance keeps its slot for its next step, unless a more urgent instance waits for one."""

import asyncio
from typing import Any

import pytest

from hark import Context, Done, FunctionContext, Machine, Next, Start, step, workflow
from hark.model.epochs import count_of
from tests.promises.support_machines import harness
from tests.support.inspect import query, until
from tests.support.stores import Store

ran: list[str] = []


class Walks(Machine):
    """`a3` takes three steps and records each."""

    gate: asyncio.Event

    @step
    async def start(self, ctx: Context) -> Next | Done:
        name, left = ctx.state
        ran.append(f"{name}{left}")
        await self.gate.wait()
        return Next(self.start, [name, left - 1]) if left > 1 else Done()


class Side(Walks, queue="side"):
    pass


@pytest.fixture(autouse=True)
def gate() -> asyncio.Event:
    ran.clear()
    Walks.gate = asyncio.Event()
    return Walks.gate


def walk(name: str, **options: Any) -> Start:
    return Start(Walks, [name[0], int(name[1])], **options)


async def test_m10_without_a_backlog_every_next_step_runs_ahead_on_its_claim(store: Store) -> None:
    Walks.gate.set()
    async with harness(store, Walks) as app:
        (handle,) = await app.start_many([walk("a9")])
        await app.drain()
        assert (await handle.get()).status == "done"
        assert ran == [f"a{n}" for n in range(9, 0, -1)]
        assert [e.type for e in await app.events(handle)] == ["started", *["next"] * 8, "done"]
        # One claim, eight steps that run ahead, one end; a claim for every step would have added eight.
        [(epoch,)] = await query(store, "SELECT epoch FROM instances")
        assert count_of(epoch) == 10


@pytest.mark.parametrize("key", [None, "k"], ids=["", "under a concurrency key"])
async def test_m10_a_more_urgent_row_gets_the_slot_before_the_next_step(
    store: Store, gate: asyncio.Event, key: str | None
) -> None:
    async with harness(store, Walks) as app, app.worker({"default": 1}):
        handles = await app.start_many([walk("a3", concurrency_key=key)])
        await until(lambda: ran == ["a3"], "a to run")
        handles += await app.start_many([walk("u2", priority=-1)])
        gate.set()
        for handle in handles:
            await handle.result(timeout=30)
        assert ran == ["a3", "u2", "u1", "a2", "a1"]


@pytest.mark.parametrize("key", [None, "k"], ids=["", "under a concurrency key"])
async def test_m10_an_equally_urgent_row_that_waits_longer_gets_the_slot_if_none_is_free(
    store: Store, gate: asyncio.Event, key: str | None
) -> None:
    async with harness(store, Walks) as app, app.worker({"default": 1}):
        handles = await app.start_many([walk("a3", concurrency_key=key)])
        await until(lambda: ran == ["a3"], "a to run")
        for name in ("b2", "c2"):
            handles += await app.start_many([walk(name)])
        gate.set()
        for handle in handles:
            await handle.result(timeout=30)
        assert ran == ["a3", "b2", "c2", "a2", "b1", "c1", "a1"]


async def test_m10_a_less_urgent_row_waits_until_the_others_are_done(store: Store, gate: asyncio.Event) -> None:
    async with harness(store, Walks) as app, app.worker({"default": 1}):
        handles = await app.start_many([walk("a3")])
        await until(lambda: ran == ["a3"], "a to run")
        handles += await app.start_many([walk("z1", priority=1)])
        gate.set()
        for handle in handles:
            await handle.result(timeout=30)
        assert ran == ["a3", "a2", "a1", "z1"]


async def test_m10_while_a_slot_is_free_no_instance_yields(store: Store, gate: asyncio.Event) -> None:
    async with harness(store, Walks) as app, app.worker({"default": 2}):
        handles = await app.start_many([walk("a3"), walk("b3")])
        await until(lambda: len(ran) == 2, "both to run")
        gate.set()
        for handle in handles:
            await handle.result(timeout=30)
        assert [name for name in ran if name[0] == "a"] == ["a3", "a2", "a1"]
        assert [name for name in ran if name[0] == "b"] == ["b3", "b2", "b1"]


async def test_m10_the_backlog_of_another_queue_takes_no_slot(store: Store, gate: asyncio.Event) -> None:
    async with harness(store, Walks, Side) as app, app.worker({"default": 1, "side": 1}):
        handles = await app.start_many([walk("a3"), Start(Side, ["s", 3])])
        await until(lambda: len(ran) == 2, "both queues to be full")
        handles += await app.start_many([Start(Side, ["t", 1], priority=-5)])
        gate.set()
        for handle in handles:
            await handle.result(timeout=30)
        assert [name for name in ran if name[0] == "a"] == ["a3", "a2", "a1"]
        assert [name for name in ran if name[0] != "a"] == ["s3", "t1", "s2", "s1"]


async def test_m10_a_narrow_queue_beside_a_wide_one_is_as_fair(store: Store, gate: asyncio.Event) -> None:
    """The backlog of the narrow queue is remembered, however empty the wide one is."""
    async with harness(store, Walks, Side) as app, app.worker({"default": 100, "side": 1}):
        handles = await app.start_many([Start(Side, ["a", 1])])
        await until(lambda: ran == ["a1"], "a to run")
        for name in ("b", "c"):
            handles += await app.start_many([Start(Side, [name, 3])])
        gate.set()
        for handle in handles:
            await handle.result(timeout=30)
        assert ran == ["a1", "b3", "c3", "b2", "c2", "b1", "c1"]


async def test_m10_an_instance_that_yields_keeps_its_key_and_waits_for_its_slot(
    store: Store, gate: asyncio.Event
) -> None:
    async with harness(store, Walks) as app, app.worker({"default": 1}):
        handles = await app.start_many([walk("a2", concurrency_key="k")])
        await until(lambda: ran == ["a2"], "a to run")
        handles += await app.start_many([walk("u1", priority=-1)])
        handles += await app.start_many([walk("b2", concurrency_key="k")])
        gate.set()
        for handle in handles:
            await handle.result(timeout=30)
        # b has waited longest when a releases the key; then a waits for b to end, even with a free slot.
        assert ran == ["a2", "u1", "b2", "b1", "a1"]


async def test_m10_functions_that_wait_beside_their_runs_do_not_take_turns_forever(store: Store) -> None:
    """Each gives its slot to the next one only after it has added a line to its journal."""

    @workflow
    async def beside(ctx: FunctionContext) -> None:
        async def work() -> None:
            for number in range(3):
                await ctx.run(str, number)

        await ctx.gather(ctx.wait_for_signal("stop"), work())

    async with harness(store, beside) as app:
        handles = [await app.start(beside) for _ in range(3)]
        await asyncio.wait_for(app.drain(), 60)
        assert {(await handle.get()).status for handle in handles} == {"awaiting_signal"}
