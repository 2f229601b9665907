"""Tags: names and values that an instance is started with, and found by."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hark import Child, Context, Done, FunctionContext, InvalidInput, Machine, Next, Spawn, Start, step, workflow
from hark.testing import Harness
from tests.support.harness import drained
from tests.support.inspect import query
from tests.support.stores import Store


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


class Parent(Machine):
    @step
    async def start(self, ctx: Context) -> Next:
        ctx.start(Quick, id="effect", tags={"from": "effect"})
        return Next(self.spawn)

    @step
    async def spawn(self, ctx: Context) -> Spawn:
        children = [Child(Quick, id="child", tags={"from": "child"}), Child(Quick, id="untagged")]
        return Spawn(children, then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


@workflow
async def starter(ctx: FunctionContext) -> None:
    await ctx.start(Quick, id="started", tags={"from": "start"})
    await ctx.call(Quick, id="called", tags={"from": "call"})


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(Quick, Parent, starter, url=store.url, **store.options) as app:
        yield app


async def ids(app: Harness, **filters: Any) -> set[str]:
    return {instance.id for instance in await app.list(**filters)}


async def test_an_instance_has_the_tags_it_was_started_with(app: Harness) -> None:
    tagged = await app.start(Quick, tags={"tenant": "a", "größe": "x\"\\ '%_ 5€"})
    assert (await tagged.get()).tags == {"tenant": "a", "größe": "x\"\\ '%_ 5€"}
    plain = await app.start(Quick)
    assert (await plain.get()).tags == {}
    await app.drain()
    assert (await tagged.get()).tags["tenant"] == "a"


async def test_every_way_to_start_takes_tags_and_children_do_not_inherit_them(app: Harness) -> None:
    await app.start(Parent, tags={"tenant": "a"}, id="parent")
    await app.start(starter, tags={"tenant": "a"}, id="function")
    await app.start_many([Start(Quick, id="many", tags={"from": "many"}), Start(Quick, id="plain", tags=None)])
    await app.drain()
    assert await ids(app, tags={"tenant": "a"}) == {"parent", "function"}
    for name, id in {
        "effect": "effect",
        "child": "child",
        "start": "started",
        "call": "called",
        "many": "many",
    }.items():
        assert (await app.get(id)).tags == {"from": name}
        assert await ids(app, tags={"from": name}) == {id}
    assert (await app.get("untagged")).tags == {}


async def test_x4_tags_that_are_not_a_small_dict_of_texts_are_refused(app: Harness) -> None:
    wrong: list[tuple[Any, str]] = [
        ("tenant=a", "dict of text to text"),
        ([("tenant", "a")], "dict of text to text"),
        (0, "dict of text to text"),
        ({"tenant": 1}, "tag 'tenant' must be text"),
        ({1: "a"}, "name of a tag must be text"),
        ({"": "a"}, "name of a tag is empty"),
        ({"tenant": ""}, "tag 'tenant' is empty"),
        ({"tenant": "é" * 128}, "256 bytes"),
        ({"é" * 128: "a"}, "256 bytes"),
        ({"tenant": "a\0"}, "NUL"),
        ({"tenant": "\ud800"}, "surrogate"),
        ({f"tag {n}": "a" for n in range(21)}, "at most 20"),
    ]
    for tags, says in wrong:
        with pytest.raises(InvalidInput, match=says):
            await app.start(Quick, tags=tags)
        with pytest.raises(InvalidInput, match=says):
            await app.list(tags=tags)
    assert await app.list() == []


async def test_the_largest_tags_are_found(app: Harness) -> None:
    tags = {f"{n:02}" + "é" * 126: "v" * 255 for n in range(20)}
    await app.start(Quick, id="large", tags=tags)
    assert await ids(app, tags=tags) == {"large"}


async def test_x7_retention_removes_tags_with_their_instance(app: Harness, store: Store) -> None:
    await drained(app, app.start(Quick, id="old", tags={"tenant": "a", "plan": "pro"}))
    await app.advance(10)
    await drained(app, app.start(Quick, id="new", tags={"tenant": "a"}))
    cut = (await app.get("new")).created_at
    [exported] = await app.export(before=cut)
    assert exported["tags"] == {"tenant": "a", "plan": "pro"}
    await app.forget(before=cut)
    assert await ids(app, tags={"tenant": "a"}) == {"new"}
    assert await query(store, "SELECT instance_id, name FROM tags") == [("new", "tenant")]
    await app.start(Quick, id="old")  # the id is free again, and has no tags left over
    assert await ids(app, tags={"tenant": "a"}) == {"new"}
