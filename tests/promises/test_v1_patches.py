"""V1: a patch guards a change of the code of a durable function."""

from __future__ import annotations

from typing import Any

import pytest

from hark import FunctionContext, InstanceHeld, InvalidInput, workflow
from tests.support.harness import harness
from tests.support.stores import Store

ran: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


def note(text: str) -> str:
    ran.append(text)
    return text


def function(code: Any) -> Any:
    return workflow(name="order")(code)


async def old(ctx: FunctionContext) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    await ctx.wait_for_signal("paid")
    return await ctx.run(note, "ship", name="ship")


async def new(ctx: FunctionContext) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    if ctx.patched("check stock"):
        await ctx.run(note, "check", name="check")
    await ctx.wait_for_signal("paid")
    if ctx.patched("wrap"):
        await ctx.run(note, "wrap", name="wrap")
    return await ctx.run(note, "ship", name="ship")


async def without_old_branch(ctx: FunctionContext) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    await ctx.run(note, "check", name="check")
    await ctx.wait_for_signal("paid")
    await ctx.run(note, "wrap", name="wrap")
    return await ctx.run(note, "ship", name="ship")


async def test_an_instance_of_earlier_code_goes_on_without_the_patch_that_it_has_passed(store: Store) -> None:
    async with harness(store, function(old)) as app:
        order = await app.start("order")
        await app.drain()
    async with harness(store, function(new)) as app:
        await app.signal(order.id, "paid")
        await app.drain()
        assert await app.result(order.id) == "ship"
    assert ran == ["reserve", "wrap", "ship"]  # the second patch is beyond the place where it waited


async def test_a_new_instance_takes_the_patch_and_keeps_its_answer_in_every_replay(store: Store) -> None:
    for step, code in enumerate((new, new, without_old_branch)):
        async with harness(store, function(code)) as app:
            if step == 0:
                order = await app.start("order")
            if step == 2:  # an answered True survives the removal of the call
                await app.signal(order.id, "paid")
            await app.drain()
            assert (await app.get(order.id)).status == ("done" if step == 2 else "awaiting_signal")
    assert ran == ["reserve", "check", "wrap", "ship"]


async def test_a_patch_without_an_operation_behind_it_is_recorded_and_answers_the_same(store: Store) -> None:
    answers = []

    async def asks(ctx: FunctionContext) -> Any:
        answers.append(ctx.patched("first"))
        await ctx.wait_for_signal("a")
        answers.append(ctx.patched("second"))
        await ctx.wait_for_signal("b")
        return None

    order = None
    for name in ("", "a", "b"):
        async with harness(store, function(asks)) as app:
            order = order or await app.start("order")
            if name:
                await app.signal(order.id, name)
            await app.drain()
    assert answers == [True, True, True, True, True]


async def test_every_round_of_a_loop_decides_for_itself(store: Store) -> None:
    async def plain(ctx: FunctionContext) -> Any:
        for _ in range(4):
            await ctx.wait_for_signal("go")
            await ctx.run(note, "old", name="work")
        return None

    async def patched(ctx: FunctionContext) -> Any:
        for _ in range(4):
            await ctx.wait_for_signal("go")
            await ctx.run(note, "new" if ctx.patched("work") else "old", name="work")
        return None

    async with harness(store, function(plain)) as app:
        order = await app.start("order")
        for _ in range(2):
            await app.signal(order.id, "go")
            await app.drain()
    async with harness(store, function(patched)) as app:
        for _ in range(2):
            await app.signal(order.id, "go")
            await app.drain()
        assert (await app.get(order.id)).status == "done"
    assert ran == ["old", "old", "new", "new"]


async def test_code_that_was_parked_at_a_wait_behind_the_patch_has_been_there(store: Store) -> None:
    async def waits(ctx: FunctionContext) -> Any:
        await ctx.wait_for_signal("paid")
        return "old"

    async def patched(ctx: FunctionContext) -> Any:
        if ctx.patched("checks"):
            await ctx.run(note, "check")
        await ctx.wait_for_signal("paid")
        return "new"

    async with harness(store, function(waits)) as app:
        order = await app.start("order")
        await app.drain()
    async with harness(store, function(patched)) as app:
        await app.signal(order.id, "paid")
        await app.drain()
        assert await app.result(order.id) == "new"
    assert ran == []


async def test_branches_of_a_gather_find_their_own_answers(store: Store) -> None:
    async def branch(ctx: FunctionContext, name: str, *, patched: bool) -> str:
        await ctx.wait_for_signal(name)
        if patched and ctx.patched(f"work {name}"):
            await ctx.run(note, f"new {name}", name=f"new {name}")
        return str(await ctx.run(note, f"work {name}", name=f"work {name}"))

    async def plain(ctx: FunctionContext) -> Any:
        return await ctx.gather(branch(ctx, "a", patched=False), branch(ctx, "b", patched=False))

    async def patches(ctx: FunctionContext) -> Any:
        return await ctx.gather(branch(ctx, "a", patched=True), branch(ctx, "b", patched=True))

    # One call in the code for both branches, with a name for each.
    async with harness(store, function(plain)) as app:
        order = await app.start("order")
        await app.signal(order.id, "a")
        await app.drain()
    async with harness(store, function(patches)) as app:
        await app.signal(order.id, "b")
        await app.drain()
        assert await app.result(order.id) == ["work a", "work b"]
    assert ran == ["work a", "new b", "work b"]


async def test_one_name_at_two_places_of_the_code_holds_the_instance_and_names_both(store: Store) -> None:
    async def twice(ctx: FunctionContext) -> Any:
        if ctx.patched("change"):
            await ctx.run(note, "a")
        if ctx.patched("change"):
            await ctx.run(note, "b")

    async def once(ctx: FunctionContext) -> Any:
        if ctx.patched("change"):
            await ctx.run(note, "a")

    async with harness(store, function(twice)) as app:
        order = await app.start("order")
        with pytest.raises(InstanceHeld, match=r"ctx.patched\('change'\) at two places"):
            await app.drain()
    async with harness(store, function(once)) as app:
        await app.drain()
        assert await app.result(order.id) is None
    assert ran == ["a"]


@pytest.mark.parametrize("name", ["", "x" * 256, 7])
async def test_a_malformed_name_of_a_patch_is_refused(store: Store, name: Any) -> None:
    async def asks(ctx: FunctionContext) -> Any:
        with pytest.raises(InvalidInput):
            ctx.patched(name)
        return "refused"

    async with harness(store, function(asks)) as app:
        order = await app.start("order")
        await app.drain()
        assert await order.result() == "refused"
