"""Fault 35: six thousand children in one go, with a worker of large concurrency."""

import pytest

from hark import Child, Context, Done, Machine, Spawn, step
from tests.promises.support_machines import harness
from tests.support.stores import Store

pytestmark = pytest.mark.slow

MANY = 6000


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(ctx.state)


class Crowd(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Leaf, n) for n in range(MANY)], then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Done:
        assert {child.status for child in ctx.children} == {"done"}
        return Done([len(ctx.children), sum(child.result for child in ctx.children)])


async def test_m8_fault_35_six_thousand_children_at_once_work(store: Store) -> None:
    async with harness(store, Crowd, Leaf) as app, app.worker({"default": 1000}):
        crowd = await app.start(Crowd)
        assert await crowd.result(timeout=100) == [MANY, MANY * (MANY - 1) // 2]
        assert [event.type for event in await app.events(crowd)] == ["started", "spawn", "joined", "done"]
