"""X8: a cancel reaches the children that a parent left running when it continued after `join=k` and ended."""

from hark import Await, Child, Context, Done, Machine, Spawn, step
from hark.testing import Harness
from tests.support.harness import drained
from tests.support.stores import Store


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Await | Done:
        return Done() if ctx.state["quick"] else Await("never", then=self.start)


class Middle(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Leaf, {"quick": True}), Child(Leaf, {"quick": False})], then=self.end, join=1)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Root(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Middle)], then=self.rest)

    @step
    async def rest(self, ctx: Context) -> Await:
        return Await("never", then=self.start)


async def test_x8_a_cancel_reaches_a_grandchild_whose_own_parent_has_ended(store: Store) -> None:
    async with Harness(Root, Middle, Leaf, url=store.url, **store.options) as app:
        root = await drained(app, app.start(Root))
        left = [leaf for leaf in await app.list(definition="Leaf") if leaf.status == "awaiting_signal"]
        assert len(left) == 1
        assert (await app.list(definition="Middle"))[0].status == "done"
        await root.cancel()
        assert (await app.get(left[0].id)).status == "cancelled"
        assert (await app.list(definition="Middle"))[0].status == "done"
        assert not await app.waits()
