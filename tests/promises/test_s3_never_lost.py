"""S3: a signal that arrives before, during or after the park is never lost.

On PostgreSQL the two orders are forced with two connections: one transaction holds the instance, the
other is seen to wait for it, and only then does the first commit.
"""

import asyncio

import pytest

from hark import Await, Context, Done, Machine, step
from hark.kernel.requests import Deliver
from hark.model.decisions import Arm, Park
from tests.promises.support_signals import Gate, Turns, Waiter, count, harness, outcome, until_blocked
from tests.support.harness import drained
from tests.support.stores import Store

PARK = Park((Arm("signal", "the-wait", name="go"),))


async def test_s3_a_signal_before_the_first_step_is_there_when_it_parks(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        assert (await app.signal("w", "go", "early")).status == "stored"
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert (await app.result("w"))["awaited"] == [["go", "early"]]


async def test_s3_fault_2_a_signal_committed_before_the_await_wakes_it_immediately(store: Store) -> None:
    gate = Gate()

    class Slow(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            await gate.hold()
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([signal.payload for signal in ctx.awaited])

    async with harness(store, Slow) as app:
        handle = await app.start(Slow)
        draining = asyncio.create_task(app.drain())
        await gate.reached.wait()
        assert (await app.signal(handle, "go", "while it executes")).status == "stored"
        gate.open.set()
        assert await draining == {"steps": 2, "await": 1, "done": 1}
        assert await handle.result() == ["while it executes"]


async def test_s3_a_signal_after_the_park_wakes(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"]}, id="w"))
        assert (await app.signal("w", "go")).status == "woke"
        assert await app.drain() == {"steps": 1, "done": 1}


@pytest.mark.parametrize("requests", ["signal first", "park first"])
async def test_s3_a_signal_and_a_park_in_one_turn_wake_the_instance(store: Store, requests: str) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        await turns.start("M", "m")
        claim = await turns.claim("M")
        signal, park = Deliver(target="m", name="go"), outcome(claim, PARK, step="woken")
        await turns.run(*((signal, park) if requests == "signal first" else (park, signal)))
        assert not park.fenced
        assert (await turns.claim("M")).step == "woken"


async def test_s3_park_first_the_delivery_waits_and_wakes(pg_store: Store) -> None:
    async with Turns(pg_store) as worker, Turns(pg_store) as sender:
        await worker.register("M")
        await worker.start("M", "m")
        claim = await worker.claim("M")
        await sender.run()  # connected
        parking = await worker.open_turn(outcome(claim, PARK, step="woken"))
        signal = Deliver(target="m", name="go")
        sending = asyncio.create_task(sender.run(signal))
        await until_blocked(pg_store, sender)
        await parking.tx.commit()
        await sending
        assert signal.result.status == "woke"
        assert (await worker.claim("M")).step == "woken"


async def test_s3_delivery_first_the_park_waits_and_rechecks_the_inbox(pg_store: Store) -> None:
    async with Turns(pg_store) as worker, Turns(pg_store) as sender:
        await worker.register("M")
        await worker.start("M", "m")
        claim = await worker.claim("M")
        signal = Deliver(target="m", name="go")
        delivering = await sender.open_turn(signal)
        parking = asyncio.create_task(worker.run(outcome(claim, PARK, step="woken")))
        await until_blocked(pg_store, worker)
        await delivering.tx.commit()
        await parking
        assert signal.result.status == "stored"
        woken = await worker.claim("M")
        assert woken.step == "woken"
        assert [row.name for row in woken.inbox] == ["go"]


async def test_s3_a_delivery_that_is_rolled_back_wakes_no_instance(pg_store: Store) -> None:
    async with Turns(pg_store) as worker, Turns(pg_store) as sender:
        await worker.register("M")
        await worker.start("M", "m")
        claim = await worker.claim("M")
        delivering = await sender.open_turn(Deliver(target="m", name="go"))
        parking = asyncio.create_task(worker.run(outcome(claim, PARK, step="woken")))
        await until_blocked(pg_store, worker)
        await delivering.tx.rollback()
        await parking
        assert await worker.nobody_runs("M")
        assert await count(pg_store, "inbox") == 0
        await sender.run(Deliver(target="m", name="go"))
        assert (await worker.claim("M")).step == "woken"


async def test_s3_a_park_that_is_rolled_back_leaves_the_signal_for_the_next_run(pg_store: Store) -> None:
    async with Turns(pg_store) as worker, Turns(pg_store) as sender:
        await worker.register("M")
        await worker.start("M", "m")
        claim = await worker.claim("M")
        await sender.run()
        parking = await worker.open_turn(outcome(claim, PARK, step="woken"))
        signal = Deliver(target="m", name="go")
        sending = asyncio.create_task(sender.run(signal))
        await until_blocked(pg_store, sender)
        await parking.tx.rollback()
        await sending
        assert signal.result.status == "stored"
        await worker.commit(claim, PARK, step="woken")
        assert (await worker.claim("M")).step == "woken"
