"""`start_many` returns handles or duplicates, in the order of its list, and starts all in one commit."""

from collections.abc import AsyncIterator

import pytest

from hark import Context, Done, Duplicate, Handle, Machine, Start, step
from hark.testing import Harness
from tests.support.harness import drained
from tests.support.inspect import query
from tests.support.stores import Store


class Echo(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(ctx.state)


class Other(Machine, queue="other"):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done("other")

    @step
    async def second(self, ctx: Context) -> Done:
        return Done("second")


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(Echo, Other, url=store.url, **store.options) as app:
        yield app


async def test_an_empty_list_starts_nothing(app: Harness) -> None:
    assert await app.start_many([]) == []


async def test_pairs_and_starts_return_handles_in_the_order_of_the_list(app: Harness) -> None:
    handles = await app.start_many(
        [
            (Echo, {"n": 1}),
            Start(Other, id="named", priority=5),
            ("Echo", {"n": 2}),
            Start("Other", step="second", queue="elsewhere"),
            [Echo, None],
        ]
    )
    assert all(isinstance(handle, Handle) for handle in handles)
    assert handles[1].id == "named"
    await app.drain()
    assert [await handle.result() for handle in handles] == [{"n": 1}, "other", {"n": 2}, "second", {}]
    assert (await handles[3].get()).queue == "elsewhere"


async def test_start_many_accepts_a_generator(app: Harness) -> None:
    handles = await app.start_many((Echo, {"n": n}) for n in range(3))
    assert [(await handle.get()).state for handle in handles] == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_a_duplicate_is_returned_at_its_position_and_the_others_start(app: Harness) -> None:
    await app.start(Echo, id="before", correlation_key="old")
    answers = await app.start_many(
        [
            Start(Echo, id="a", correlation_key="key"),
            Start(Echo, id="before"),  # taken by an earlier start
            Start(Echo, id="b", correlation_key="key"),  # taken by the first of this list
            Start(Echo, id="a"),
            Start(Echo, correlation_key="a"),  # a key equal to an id
            Start(Echo, id="key"),  # an id equal to a key
            Start(Echo, correlation_key="old"),
            Start(Echo, id="c"),
        ]
    )
    shown = [answer.id if isinstance(answer, Handle) else ("taken by", answer.holder) for answer in answers]
    assert shown == [
        "a",
        ("taken by", "before"),
        ("taken by", "a"),
        ("taken by", "a"),
        ("taken by", "a"),
        ("taken by", "a"),
        ("taken by", "before"),
        "c",
    ]
    assert all(isinstance(answer, Handle | Duplicate) for answer in answers)
    assert {instance.id for instance in await app.list()} == {"before", "a", "c"}


async def test_instances_run_in_the_order_of_the_list(app: Harness) -> None:
    order: list[int] = []

    class Recorder(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            order.append(ctx.state["n"])
            return Done()

    await drained(app, app.start_many([(Recorder, {"n": n}) for n in range(40)]))
    assert order == list(range(40))


async def test_thousands_are_started_in_one_commit(app: Harness, store: Store) -> None:
    handles = await app.start_many([Start(Echo, {"n": n}, correlation_key=f"key:{n}") for n in range(3000)])
    assert len({handle.id for handle in handles}) == 3000
    assert await query(store, "SELECT count(*), count(DISTINCT created_at) FROM instances") == [(3000, 1)]
    assert (await app.get("key:2999")).state == {"n": 2999}
