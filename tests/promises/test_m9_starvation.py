"""M9 and fault 72, the functional half: a backlog that cannot run does not block the others."""

import asyncio

import pytest

from hark import Context, Done, Machine, Start, step
from hark.app.door_access import DoorAccess
from tests.promises.support_machines import harness, neighbour
from tests.support.inspect import until
from tests.support.stores import Store

BACKLOG = 2000


class Hangs(Machine):
    """Holds its key until the test is over."""

    inside: list[str]

    @step
    async def start(self, ctx: Context) -> Done:
        self.inside.append(ctx.id)
        await asyncio.Event().wait()
        return Done()


class Backlog(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        raise AssertionError("no worker can run this")


class Works(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(ctx.state)


@pytest.mark.parametrize("priority", [0, -5], ids=["as urgent", "more urgent"])
@pytest.mark.parametrize("why", ["blocked on one key", "limited by one bucket", "without code"])
async def test_m9_fault_72_a_backlog_that_cannot_run_does_not_starve_the_queue(
    store: Store, why: str, priority: int
) -> None:
    Hangs.inside = []
    limits = {"dry": {"allowed": 1, "period": 86400, "burst": 1}}
    definitions = (Hangs, Works) if why == "without code" else (Hangs, Works, Backlog)
    async with (
        harness(store, *definitions, rate_limits=limits) as app,
        neighbour(app, store, Backlog, rate_limits=limits) as door,
        app.worker({"default": 2}, grace=0),
    ):
        await app.start(Hangs, concurrency_key="busy", rate_limit="dry")
        await until(lambda: Hangs.inside, "the key and the token to be taken")
        option = {"blocked on one key": {"concurrency_key": "busy"}, "limited by one bucket": {"rate_limit": "dry"}}
        backlog = Start("Backlog", priority=priority, **option.get(why, {}))
        await door.start_many([backlog] * BACKLOG)
        turns = DoorAccess(app).turns
        await (await app.start(Works, 0)).result(timeout=60)
        assert DoorAccess(app).turns - turns < 50, "with one free slot, a turn still reads past the whole backlog"
        for works in await app.start_many([(Works, n) for n in range(50)]):
            await works.result(timeout=60)
        for n in range(10):
            assert await (await app.start(Works, n)).result(timeout=60) == n
        assert len(await app.list(definition="Backlog", status="runnable", limit=10_000)) == BACKLOG
