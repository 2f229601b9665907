"""M6: the options of a machine, and the mistakes found when its class is defined."""

from dataclasses import dataclass

import pytest

from hark import Await, Context, Done, InvalidInput, Machine, Next, Spawn, step
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


async def test_m6_name_version_queue_initial_and_state_are_options(store: Store) -> None:
    @dataclass
    class Count:
        n: int = 3

    class Named(Machine, name="other-name", version=7, queue="side", initial="first", state=Count):
        @step
        async def first(self, ctx: Context) -> Done:
            return Done(ctx.state.n)

    async with harness(store, Named) as app:
        named = await app.start(Named)
        kept = await named.get()
        assert (kept.definition, kept.version, kept.queue, kept.step) == ("other-name", 7, "side", "first")
        await app.drain()
        assert await named.result(timeout=0) == 3
        assert [i.id for i in await app.list(definition="other-name")] == [named.id]


async def test_m6_without_options_it_has_its_class_name_version_1_the_default_queue_and_starts_at_start(
    store: Store,
) -> None:
    class Plain(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done()

    async with harness(store, Plain) as app:
        kept = await (await app.start(Plain)).get()
        assert (kept.definition, kept.version, kept.queue, kept.step) == ("Plain", 1, "default", "start")


async def test_m6_a_step_is_named_by_its_method_or_by_its_decorator_and_reached_by_either(store: Store) -> None:
    class Renamed(Machine, initial="the first"):
        @step("the first")
        async def one(self, ctx: Context) -> Next:
            return Next(self.two, [ctx.step])

        @step("the second")
        def two(self, ctx: Context) -> Await:
            return Await("go", then="three", state=[*ctx.state, ctx.step])

        @step
        async def three(self, ctx: Context) -> Spawn:
            return Spawn([], then=self.four, state=[*ctx.state, ctx.step])

        @step("the last")
        async def four(self, ctx: Context) -> Done:
            return Done([*ctx.state, ctx.step])

    async with harness(store, Renamed) as app:
        renamed = await drained(app, app.start(Renamed))
        assert (await renamed.get()).step == "three"
        await drained(app, renamed.signal("go"))
        assert await renamed.result(timeout=0) == ["the first", "the second", "three", "the last"]
        # A start may begin elsewhere, by method or by name.
        for at in (Renamed.four, "the last"):
            later = await drained(app, app.start(Renamed, ["here"], step=at))
            assert await later.result(timeout=0) == ["here", "the last"]
        with pytest.raises(InvalidInput, match=r"It has: .*the last"):
            await app.start(Renamed, [], step="nowhere")


async def test_m6_steps_are_inherited_and_overridden_like_methods(store: Store) -> None:
    class Base(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            return Next(self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(self.word())

        def word(self) -> str:
            return "base"

    class Sub(Base):
        def word(self) -> str:
            return "sub"

    async with harness(store, Base, Sub) as app:
        base, sub = await app.start(Base), await app.start(Sub)
        await app.drain()
        assert [await base.result(timeout=0), await sub.result(timeout=0)] == ["base", "sub"]
