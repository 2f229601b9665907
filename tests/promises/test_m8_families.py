"""M8: the live descendants of one instance are bounded, however they are started, and a start costs nothing for it."""

from typing import Any

import pytest

from hark import CallFailed, Child, Context, Done, FunctionContext, Hark, InvalidInput, Machine, Spawn, step, workflow
from hark.kernel import families
from hark.testing import Harness
from tests.bpmn.small_files import bpmn_file, chain
from tests.support.stores import Store

MOST = 60
_CALL = '<callActivity id="{}" calledElement="p"/>'
ITSELF_THREE_TIMES = (
    '<startEvent id="s"/><parallelGateway id="g"/><sequenceFlow id="f" sourceRef="s" targetRef="g"/>'
    + "".join(
        f'{_CALL.format(id)}<sequenceFlow id="to_{id}" sourceRef="g" targetRef="{id}"/>'
        for id in ("one", "two", "three")
    )
)


class Rabbit(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Rabbit), Child(Rabbit), Child(Rabbit)], then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Done:
        return Done([child.error for child in ctx.children])


@workflow
async def hare(ctx: FunctionContext) -> Any:
    try:
        return await ctx.gather(*(ctx.call(hare) for _ in range(3)))
    except CallFailed as error:
        return str(error)


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(1)


class Branch(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Leaf) for _ in range(10)], then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Done:
        return Done(sum(child.result for child in ctx.children))


class Tree(Machine):
    """A family of 10 times 10 that is never larger than 11 at a time: a branch after the other."""

    @step
    async def start(self, ctx: Context) -> Spawn | Done:
        if ctx.state == 10:
            return Done(ctx.state)
        return Spawn([Child(Branch)], then=self.joined, state=ctx.state + 1)

    @step
    async def joined(self, ctx: Context) -> Any:
        return await self.start(ctx)


async def family(app: Harness) -> list[Any]:
    return list(await app.list(limit=10_000))


@pytest.mark.parametrize("kind", ["processes", "machines", "functions"])
async def test_m8_a_family_that_starts_itself_without_an_end_is_bounded(store: Store, kind: str) -> None:
    async with Harness(Rabbit, hare, url=store.url, max_family=MOST, **store.options) as app:
        await app.deploy(bpmn_file(ITSELF_THREE_TIMES))
        root = await app.start({"processes": "p", "machines": Rabbit, "functions": hare}[kind])
        await app.drain()
        every = await family(app)
        assert {one.status for one in every} <= {"done", "failed"}
        assert MOST // 3 <= len(every) <= 4 * (MOST + 20)  # of each that has run, three starts may have been refused
        said = " ".join(f"{one.error} {one.result}" for one in every)
        assert "has as many live instances as it may: 60" in said
        assert f"cancel {root.id}" in said


async def test_m8_families_below_half_of_the_bound_cost_no_statement(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families.sql, "roots_of", None)  # whoever looks at a family fails
    async with Harness(Tree, Branch, Leaf, url=store.url, **store.options) as app:
        tree = await app.start(Tree, 0)
        await app.drain()
        assert await tree.result() == 10


async def test_m8_a_family_that_ends_as_fast_as_it_grows_is_not_refused(store: Store) -> None:
    async with Harness(Tree, Branch, Leaf, url=store.url, max_family=20, **store.options) as app:
        tree = await app.start(Tree, 0)
        await app.drain()
        assert await tree.result() == 10
        assert len(await family(app)) == 1 + 10 * 11


async def test_m8_the_children_of_a_root_itself_are_not_bounded(store: Store) -> None:
    async with Harness(Branch, Leaf, url=store.url, max_family=3, **store.options) as app:
        branch = await app.start(Branch)
        await app.drain()
        assert await branch.result() == 10


async def test_m8_a_family_that_was_full_may_grow_again_when_it_has_room(store: Store) -> None:
    async with Harness(Tree, Branch, Leaf, url=store.url, max_family=9, **store.options) as app:
        tree = await app.start(Tree, 0)
        await app.drain()
        assert await tree.result() == 10
        branches = [one for one in await family(app) if one.definition == "Branch"]
        assert {one.status for one in branches} == {"failed"}  # 10 at once are more than 9
    async with Harness(Tree, Branch, Leaf, url=store.url, max_family=11, **store.options) as app:
        tree = await app.start(Tree, 0)
        await app.drain()
        branches = [one for one in await family(app) if one.parent_id == tree.id]
        assert {one.status for one in branches} == {"done"}


async def test_m8_a_process_whose_call_was_refused_goes_on_with_a_retry(store: Store) -> None:
    async with Harness(url=store.url, max_family=2, **store.options) as app:
        await app.deploy(bpmn_file(chain('<callActivity id="c" calledElement="leaf"/>')).replace('id="p"', 'id="sub"'))
        await app.deploy(bpmn_file(chain('<task id="t"/>')).replace('id="p"', 'id="leaf"'))
        top = bpmn_file(
            chain(
                '<callActivity id="c" calledElement="sub"><multiInstanceLoopCharacteristics>'
                "<loopCardinality>3</loopCardinality></multiInstanceLoopCharacteristics></callActivity>"
            )
        )
        await app.deploy(top.replace('id="p"', 'id="top"'))
        one = await app.start("top")
        await app.drain()
        found = await one.get()
        assert found.status == "failed"
        assert "max_family" in str(found.error)


def test_m8_the_bound_is_an_option() -> None:
    with pytest.raises(InvalidInput, match="max_family"):
        Hark("sqlite://", max_family=0)
