"""M10: queues with their own concurrency, priority (lower first), `delay=` and `at=` on start."""

import asyncio
from datetime import UTC, timedelta

import pytest

from hark import Context, Done, Hark, InvalidInput, Machine, Start, step
from hark.model.names import from_micros
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


class Says(Machine):
    """Records its name when it runs."""

    ran: list[str]

    @step
    async def start(self, ctx: Context) -> Done:
        self.ran.append(ctx.state)
        return Done()


@pytest.fixture
def ran() -> list[str]:
    Says.ran = []
    return Says.ran


async def test_m10_each_queue_has_its_own_concurrency(store: Store) -> None:
    inside = {"wide": 0, "narrow": 0, "default": 0}
    most = dict(inside)
    full = asyncio.Event()

    class Stays(Machine, queue="wide"):
        @step
        async def start(self, ctx: Context) -> Done:
            queue = ctx.state
            inside[queue] += 1
            most[queue] = max(most[queue], inside[queue])
            if inside == {"wide": 5, "narrow": 2, "default": 1}:
                full.set()
            await full.wait()
            inside[queue] -= 1
            return Done()

    async with harness(store, Stays) as app, app.worker({"wide": 5, "narrow": 2, "default": 1}):
        starts = [Start(Stays, queue, queue=queue) for queue in inside for _ in range(8)]
        for handle in await app.start_many(starts):
            await handle.result(timeout=30)
        assert most == {"wide": 5, "narrow": 2, "default": 1}


async def test_m10_a_worker_serves_its_own_queues_only(store: Store, ran: list[str]) -> None:
    async with harness(store, Says) as app:
        here = await app.start(Says, "here", queue="here")
        there = await app.start(Says, "there", queue="there")
        async with app.worker({"here": 1}):
            await here.result(timeout=30)
        assert ran == ["here"]
        assert (await there.get()).status == "runnable"
        async with app.worker({"there": 1}):
            await there.result(timeout=30)
        assert ran == ["here", "there"]


async def test_m10_a_full_queue_does_not_block_another(store: Store, ran: list[str]) -> None:
    never = asyncio.Event()
    inside: list[str] = []

    class Hangs(Machine, queue="full"):
        @step
        async def start(self, ctx: Context) -> Done:
            inside.append(ctx.id)
            await never.wait()
            return Done()

    async with harness(store, Hangs, Says) as app, app.worker({"full": 2, "default": 1}, grace=0):
        await app.start_many([Start(Hangs, priority=-100)] * 50)
        await until(lambda: len(inside) == 2, "the queue to be full")
        for n in range(5):
            await (await app.start(Says, str(n), priority=100)).result(timeout=30)
        assert len(inside) == 2
        assert ran == list("01234")


async def test_m10_the_lower_priority_goes_first_and_the_older_among_equals(store: Store, ran: list[str]) -> None:
    async with harness(store, Says) as app:
        for name, priority in (("a", 0), ("b", 5), ("c", -5), ("d", 0), ("e", 5), ("f", 2**31 - 1), ("g", -(2**31))):
            await app.start(Says, name, priority=priority)
        await app.drain()
        assert "".join(ran) == "gcadbef"


async def test_m10_priority_counts_over_all_definitions_of_a_queue(store: Store, ran: list[str]) -> None:
    class Also(Says):
        pass

    async with harness(store, Says, Also) as app:
        for n in range(6):
            await app.start((Says, Also)[n % 2], str(n), priority=-n)
        await app.drain()
        assert "".join(ran) == "543210"


async def test_m10_delay_and_at_postpone_a_start(store: Store, ran: list[str]) -> None:
    async with harness(store, Says) as app:
        now = from_micros(app.clock.now)
        await app.start(Says, "delay 10", delay=10)
        await app.start(Says, "delta 20", delay=timedelta(seconds=20))
        await app.start(Says, "at 15", at=now + timedelta(seconds=15))
        await app.start(Says, "past", at=now - timedelta(days=400))
        await app.start(Says, "no delay", delay=0)
        late = await app.start(Says, "at 30", at=(now + timedelta(seconds=30)).astimezone(tz=UTC))
        assert (await late.get()).status == "runnable"
        await app.drain()
        assert ran == ["past", "no delay"]
        await drained(app, app.advance(9.999))
        assert len(ran) == 2
        for seconds in (0.001, 5, 5, 10):
            await drained(app, app.advance(seconds))
        assert ran[2:] == ["delay 10", "at 15", "delta 20", "at 30"]


async def test_m10_instances_due_together_run_by_priority_and_then_by_due_time(store: Store, ran: list[str]) -> None:
    async with harness(store, Says) as app:
        await app.start(Says, "later", delay=20)
        await app.start(Says, "sooner", delay=10)
        await app.start(Says, "urgent", delay=30, priority=-1)
        await app.advance(60)
        await drained(app, app.start(Says, "new"))
        assert ran == ["urgent", "sooner", "later", "new"]


async def test_m10_a_delayed_start_can_be_signalled_and_cancelled_before_its_time(store: Store, ran: list[str]) -> None:
    async with harness(store, Says) as app:
        waits, gone = await app.start(Says, "waits", delay=10), await app.start(Says, "gone", delay=10)
        assert (await waits.signal("x")).status == "stored"
        await gone.cancel()
        assert await app.drain() == {"steps": 0}, "a signal does not shorten a delay"
        await drained(app, app.advance(10))
        assert ran == ["waits"]


async def test_m10_a_worker_that_has_stopped_cannot_be_started_again(store: Store) -> None:
    """Its lease is given back and its slots are closed: it would wait for ever, or claim nothing."""
    async with Hark(store.url, **store.options) as app:
        worker = app.worker()
        async with worker:
            pass
        with pytest.raises(InvalidInput, match=r"has stopped. Make another one with app.worker"):
            async with worker:
                pass
        async with app.worker():
            pass
