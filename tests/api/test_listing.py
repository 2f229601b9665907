"""Lists and pages: instances newest first, events newest last, cursors that skip nothing."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from hark import (
    Await,
    Broadcast,
    Context,
    Dag,
    Done,
    Event,
    FunctionContext,
    InvalidInput,
    Machine,
    Page,
    Stop,
    step,
    workflow,
)
from hark.testing import Harness
from hark.views import instance_views, listing
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


class Waiter(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", Broadcast("open"), then=self.end, timeout=60)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done | Stop:
        return Stop("no") if ctx.state.get("fail") else Done()


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(Waiter, Quick, url=store.url, **store.options) as app:
        yield app


async def ids(app: Harness, **options: object) -> list[str]:
    return [instance.id for instance in await app.list(**options)]  # type: ignore[arg-type]


async def test_instances_are_listed_newest_first(app: Harness) -> None:
    for n in range(5):
        await app.start(Quick, id=f"{n}")
        await app.advance(1)
    assert await ids(app) == ["4", "3", "2", "1", "0"]


async def test_every_list_of_an_empty_store_is_empty(app: Harness) -> None:
    assert await ids(app) == []
    assert await app.waits() == []
    assert await app.events() == []
    assert await app.events_after() == []


async def test_filters_work_alone_and_combined(app: Harness) -> None:
    await app.start(Waiter, id="waiting")
    await app.start(Quick, id="done")
    await drained(app, app.start(Quick, {"fail": True}, id="failed"))
    await app.start(Waiter, id="cancelled")
    await app.cancel("cancelled")
    await app.start(Quick, id="new")
    assert await ids(app, status="done") == ["done"]
    assert await ids(app, status="failed") == ["failed"]
    assert await ids(app, status="awaiting_signal") == ["waiting"]
    assert await ids(app, status="runnable") == ["new"]
    assert await ids(app, status="cancelled") == ["cancelled"]
    assert sorted(await ids(app, definition="Quick")) == ["done", "failed", "new"]
    assert await ids(app, definition="Quick", status="failed") == ["failed"]
    assert await ids(app, definition="Unknown") == []
    assert len(await ids(app, kind="machine")) == 5
    assert await ids(app, kind="workflow") == []
    assert await ids(app, kind="machine", definition="Waiter", status="cancelled") == ["cancelled"]


async def test_pages_show_every_instance_once_even_if_many_started_at_the_same_time(app: Harness) -> None:
    """Eight have the same time, so the time alone is not a cursor."""
    expected = []
    for batch in range(3):
        handles = await app.start_many([(Quick, None)] * 4)
        expected = [handle.id for handle in reversed(handles)] + expected
        if batch == 0:
            await app.advance(1)
    for limit in (1, 3, 4, 12, 13):
        seen: list[str] = []
        while page := await ids(app, limit=limit, after=seen[-1] if seen else None):
            assert len(page) <= limit
            seen += page
        assert seen == expected


async def test_the_cursor_of_a_filtered_page_may_be_an_instance_that_does_not_match(app: Harness) -> None:
    for n in range(6):
        await app.start(Quick, {"fail": n % 2 == 0}, id=f"{n}")
        await app.advance(1)
    await app.drain()
    assert await ids(app, status="failed", limit=2) == ["4", "2"]
    assert await ids(app, status="failed", limit=2, after="2") == ["0"]
    assert await ids(app, status="failed", after="3") == ["2", "0"]
    assert await ids(app, status="failed", after="0") == []


async def test_an_instance_started_between_two_pages_is_not_in_the_later_page(app: Harness) -> None:
    for n in range(4):
        await app.start(Quick, id=f"{n}")
        await app.advance(1)
    first = await ids(app, limit=2)
    await app.start(Quick, id="late")
    assert first + await ids(app, limit=2, after=first[-1]) == ["3", "2", "1", "0"]


async def test_a_listed_instance_equals_what_get_returns(app: Harness) -> None:
    await drained(app, app.start(Waiter, {"x": 1}, id="one", correlation_key="key"))
    assert await app.list() == [await app.get("one")]
    assert len((await app.list())[0].waits) == 2


async def test_the_default_limit_of_list_is_100(app: Harness) -> None:
    await app.start_many([(Quick, None)] * 101)
    assert len(await app.list()) == 100
    assert len(await app.list(limit=10_000)) == 101


# -- awakeables ------------------------------------------------------------------------------------


@workflow
async def asks_twelve_times(ctx: FunctionContext) -> None:
    questions = await ctx.gather(*[ctx.awakeable(title=f"{n}") for n in range(12)])
    await ctx.gather(*questions)


async def test_awakeables_of_one_commit_are_in_the_order_of_instances_and_numbers(app: Harness) -> None:
    """The last first. Their ids, base64 of the number, have another order."""
    app.register(asks_twelve_times)
    for id in ("b", "a"):
        await app.start(asks_twelve_times, id=id)
    await app.drain()
    expected = [(id, n) for id in ("b", "a") for n in reversed(range(12))]
    found = await app.awakeables()
    assert len({one.created_at for one in found}) == 1
    assert [(one.instance_id, one.title) for one in found] == [(id, f"{n}") for id, n in expected]
    by: list[dict[str, Any]] = [{}, {"status": "PENDING"}, {"job": "a"}]
    for limit, filters in itertools.product((1, 5, 100), by):
        seen: list[tuple[str, int]] = []
        after = None
        while page := await app.awakeables(limit=limit, after=after, **filters):
            seen += [(one.instance_id, int(one.title or "")) for one in page]
            after = page[-1].id
        assert seen == [one for one in expected if filters.get("job") in (None, one[0])]


# -- pages -----------------------------------------------------------------------------------------


async def test_the_next_of_each_page_leads_through_a_list_to_its_last_page(app: Harness) -> None:
    app.register(asks_twelve_times)
    await drained(app, app.start_many([(asks_twelve_times, None)] * 2 + [(Waiter, None)] * 5))
    for name in ("weekly", "daily", "hourly"):
        await app.schedule(name, Quick, every=3600)
    for verb, count in {"list": 7, "awakeables": 24, "waits": 34, "schedules": 3}.items():
        read: Callable[..., Awaitable[Page[Any]]] = getattr(app, verb)
        every = await read()
        assert (len(every), every.next) == (count, None)
        page = await read(limit=2)
        seen = list(page)
        while page.next is not None:
            page = await read(limit=2, after=page.next)
            seen += page
        assert seen == every


@pytest.mark.parametrize("target", [None, "w"])
async def test_the_next_of_a_page_of_events_goes_back_in_time_and_the_cursor_of_an_event_forward(
    app: Harness, target: str | None
) -> None:
    await drained(app, app.start(Waiter, id="w"))
    for n in range(5):
        await app.signal("w", "other", n)
    every = await app.events(target)
    assert (len(every), every.next) == (7, None)
    page = await app.events(target, limit=3)
    back = list(page)
    while page.next is not None:
        page = await app.events(target, limit=3, after=page.next)
        back[:0] = page
    assert back == every

    async def forward(after: str | tuple[int, int]) -> list[Event]:
        page = await app.events(target, limit=3, after=after)
        return [*page, *(await forward(page.next) if page.next is not None else [])]

    async def reads_all() -> bool:  # it stops below the oldest running transaction, of another test
        return await forward((0, 0)) == every and await forward(every[2].cursor) == every[3:]

    await until(reads_all, "all events")


async def test_a_cursor_that_no_page_has_is_refused(app: Harness) -> None:
    wrong: list[Any] = ["", "x", "1", "1.x", "~", "~1", "9" * 19 + ".1", 5, ("1", "2")]
    for read, after in itertools.product((app.events, app.waits), wrong):
        if (read, after) != (app.waits, "1"):  # a time, and the first wait of it
            with pytest.raises(InvalidInput, match=r"after|cursor"):
                await read(after=after)


# -- bytes -----------------------------------------------------------------------------------------


async def test_a_page_ends_with_the_instance_that_reaches_the_limit_of_bytes(
    app: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_BYTES", 1000)
    sizes = [10, 400, 400, 400, 2000, 10, 10, 2000]
    for n, size in enumerate(sizes):
        await app.start(Quick, {"x": "é" * (size // 2)}, id=f"{n}", tags={"x": "y"}, correlation_key=f"k{n}")
    for filters in ({}, {"tags": {"x": "y"}}, {"key_prefix": "k"}):
        pages, after = [], None
        while page := await ids(app, after=after, limit=7, **filters):
            pages.append(page)
            after = page[-1]
        assert pages == [["7"], ["6", "5", "4"], ["3", "2", "1"], ["0"]]


async def test_the_bytes_of_a_list_are_not_read_before_its_page_is_known(
    app: Harness, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 states of 1 kB: a page reads those that it shows, in as many statements as a page of small ones."""
    monkeypatch.setattr(listing, "MAX_BYTES", 8500)
    await app.start_many([(Quick, {"x": "x" * 1000})] * 40)
    read = []
    views_of = instance_views.instances

    async def instances(store: Any, ids: Any) -> Any:
        read.append(len(ids))
        return await views_of(store, ids)

    monkeypatch.setattr(instance_views, "instances", instances)
    assert len(await app.list(limit=10_000)) == 9
    assert read == [9]


# -- events ----------------------------------------------------------------------------------------


async def test_events_returns_the_latest_ones_newest_last(app: Harness) -> None:
    await drained(app, app.start(Waiter, id="a"))
    await drained(app, app.start(Quick, id="b"))
    every = [(event.instance_id, event.type) for event in await app.events()]
    assert every == [("a", "started"), ("a", "await"), ("b", "started"), ("b", "done")]
    assert [(event.instance_id, event.type) for event in await app.events(limit=3)] == every[1:]
    assert [event.type for event in await app.events("a", limit=1)] == ["await"]


async def test_the_default_limit_of_events_is_50(app: Harness) -> None:
    await app.start_many([(Quick, None)] * 60)
    assert len(await app.events()) == 50
    assert len(await app.events(limit=60)) == 60


@pytest.mark.parametrize("limit", [1, 7, 1000])
async def test_events_after_a_cursor_returns_every_event_once_oldest_first(app: Harness, limit: int) -> None:
    for n in range(4):
        await drained(app, app.start_many([(Quick, {"fail": n % 2 == 0})] * 3))
    expected = [(event.instance_id, event.type) for event in await app.events(limit=1000)]
    assert len(expected) == 24
    seen: list[tuple[str, str]] = []
    cursor = (0, 0)

    async def read_on() -> int:
        # It stops below the oldest running transaction, which may belong to another test: hence `until`.
        nonlocal cursor
        page = await app.events_after(cursor, limit=limit)
        assert len(page) <= limit
        seen.extend((event.instance_id, event.type) for event in page)
        cursor = page[-1].cursor if page else cursor
        return len(seen)

    await until(lambda: _reached(read_on, 24), "all events")
    assert seen == expected
    await app.start(Quick, id="later")
    await until(lambda: _reached(read_on, 25), "the event that came later")
    assert seen == [*expected, ("later", "started")]


async def _reached(read_on: Callable[[], Awaitable[int]], count: int) -> bool:
    return await read_on() >= count


async def test_events_of_one_instance_are_in_the_order_they_happened(app: Harness) -> None:
    await drained(app, app.start(Waiter, id="w"))
    await app.signal("w", "other")
    await drained(app, app.signal("w", "go", 1))
    events = await app.events("w")
    assert [(event.type, event.data and event.data.get("name")) for event in events] == [
        ("started", None),
        ("await", None),
        ("signal", "other"),
        ("signal", "go"),
        ("done", None),
    ]
    assert [event.seq for event in events] == sorted({event.seq for event in events})


# -- waits -----------------------------------------------------------------------------------------


async def test_waits_are_listed_longest_first_until_they_are_answered(app: Harness) -> None:
    for id in ("first", "second"):
        await drained(app, app.start(Waiter, id=id))
        await app.advance(1)
    waits = await app.waits()
    assert [wait.instance_id for wait in waits] == ["first", "first", "second", "second"]
    assert {(wait.kind, wait.name) for wait in waits} == {("signal", "go"), ("broadcast", "open")}
    assert await app.waits(kind="broadcast", name="open") == [wait for wait in waits if wait.kind == "broadcast"]
    await drained(app, app.signal("first", "go"))
    assert {wait.instance_id for wait in await app.waits()} == {"second"}
    await drained(app, app.advance(60))
    assert await app.waits() == []


# -- tasks -----------------------------------------------------------------------------------------


@workflow
async def calls(ctx: FunctionContext) -> Any:
    return await ctx.call(Quick, {})


async def test_d7_the_default_list_shows_what_was_started_and_no_tasks(app: Harness) -> None:
    """Whatever the other filters are: only `kind` lists the tasks of jobs and processes."""
    dag = Dag("build")
    for n in range(6):
        dag.task(f"t{n}", "fails" if n == 5 else "works")

    @app.handler("works")
    async def works(task: Any) -> None: ...

    @app.handler("fails")
    async def fails(task: Any) -> None:
        raise RuntimeError("as asked")

    app.register(dag, calls)
    await app.start(Quick, id="before")
    await drained(app, app.start(dag, id="job", correlation_key="build:1", tags={"tenant": "a"}))
    await app.advance(1)
    called = await drained(app, app.start(calls, id="caller"))
    child = next(one.id for one in await app.list(definition="Quick") if one.parent_id == called.id)
    started = [child, "caller", "job", "before"]
    assert await ids(app) == started
    assert await ids(app, definition="build") == ["job"]
    assert await ids(app, status="failed") == ["job"]
    assert await ids(app, tags={"tenant": "a"}) == ["job"]
    assert await ids(app, key_prefix="build:") == ["job"]
    assert await ids(app, key_prefix="build:", status="failed", definition="build") == ["job"]
    tasks = await ids(app, kind="task")
    assert len(tasks) == 6
    assert all(id.startswith("job.") for id in tasks)
    assert len(await ids(app, kind="task", status="failed")) == 1
    assert sorted(await ids(app, kind="task", definition="build")) == sorted(tasks)
    assert await ids(app, kind="job") == ["job"]


async def test_d7_a_page_without_tasks_is_full_unless_the_list_ends(app: Harness) -> None:
    dag = Dag("wide")
    for n in range(5):
        dag.task(f"t{n}", "works")

    @app.handler("works")
    async def works(task: Any) -> None: ...

    app.register(dag)
    jobs = [f"job-{n}" for n in range(7)]
    for id in jobs:
        await drained(app, app.start(dag, id=id))
        await app.advance(1)
    for limit in (1, 2, 3, 7, 8):
        page = await app.list(limit=limit)
        seen = [one.id for one in page]
        while page.next is not None:
            assert len(page) == limit
            page = await app.list(limit=limit, after=page.next)
            seen += [one.id for one in page]
        assert seen == jobs[::-1]
    task = (await ids(app, kind="task"))[0]
    assert await ids(app, after=task, limit=2) == [id for id in jobs[::-1] if id < task.partition(".")[0] + "."][:2]
