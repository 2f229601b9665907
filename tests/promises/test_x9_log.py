"""X9: failures are in the log, and `ctx.log` is a logger for the code of an instance."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from hark import Context, Done, FunctionContext, Machine, Next, Retry, RunFailed, Stop, step, workflow
from hark.model.log import FIELDS
from tests.promises.support_machines import harness
from tests.support.harness import drained, parked
from tests.support.inspect import query
from tests.support.stores import Store

Lines = Callable[[], list[Any]]


def look_up(prices: dict[str, int]) -> int:
    return prices["sku"]


def records(caplog: pytest.LogCaptureFixture, name: str = "hark") -> list[Any]:
    return [record for record in caplog.records if record.name == name]


class Shop(Machine):
    @step
    async def start(self, ctx: Context) -> Any:
        look_up({})

    @step
    async def rest(self, ctx: Context) -> Any:
        return Done()

    def handle(self, error: Exception, ctx: Context) -> Any:
        if ctx.state.get("rest"):
            return Next("rest")
        return Retry(2.0) if ctx.attempt < 1 else Stop(error)


# -- failures --------------------------------------------------------------------------------------


async def test_x9_a_retry_is_a_warning_and_the_final_failure_an_error(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with parked(store, Shop) as (app, shop):
        await drained(app, app.advance(2))
    retry, stop = records(caplog)
    assert (retry.levelname, stop.levelname) == ("WARNING", "ERROR")
    for record, attempt in ((retry, 0), (stop, 1)):
        fields = [getattr(record, name) for name in FIELDS]
        assert fields == [shop.id, "Shop", "start", attempt]
        assert "in look_up\n" in record.exc_text
    assert retry.getMessage() == f"Shop {shop.id} at start: attempt 1 failed: KeyError: 'sku'; next try in 2 s"
    assert stop.getMessage() == f"Shop {shop.id} failed at start: KeyError: 'sku'"
    assert "in look_up" in caplog.text  # as the handlers of the standard library print it


async def test_x9_an_error_that_handle_turns_into_another_outcome_is_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness(store, Shop) as app:
        await drained(app, app.start(Shop, {"rest": True}))
    [record] = records(caplog)
    assert record.levelname == "WARNING"
    assert (
        "attempt 1 failed: KeyError: 'sku'; it is not retried; the code decides how it goes on" in record.getMessage()
    )


async def test_x9_each_failed_attempt_of_a_run_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def pay(ctx: FunctionContext) -> None:
        await ctx.run(look_up, {}, retries=1, backoff=0.5)

    async with parked(store, pay) as (app, paid):
        await drained(app, app.advance(1))
    found = records(caplog)
    assert [(record.levelname, record.step, record.attempt) for record in found] == [
        ("WARNING", "run look_up", 0),
        ("WARNING", "run look_up", 1),
        ("ERROR", found[-1].step, 0),
    ]
    assert f"pay {paid.id} at run look_up: attempt 1 of 2 failed: KeyError: 'sku'; next try in 0.5 s" in caplog.text
    assert "direct cause" in found[-1].exc_text


async def test_x9_a_filter_that_raises_does_not_stop_the_engine(
    store: Store, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError("a broken filter")

    logging.getLogger("hark").addFilter(broken)
    try:
        async with harness(store, Shop) as app:
            shop = await drained(app, app.start(Shop))
            await drained(app, app.advance(2))
            assert (await shop.get()).status == "failed"
    finally:
        logging.getLogger("hark").removeFilter(broken)
    assert "a broken filter" in capsys.readouterr().err


async def test_x9_nothing_is_formatted_when_the_log_is_off(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="hark")
    async with harness(store, Shop) as app:
        await drained(app, app.start(Shop))
    assert records(caplog) == []


@pytest.mark.parametrize("name", ["hark", "hark.http", "hark.workflow"])
def test_x9_every_record_has_the_fields(name: str, caplog: pytest.LogCaptureFixture) -> None:
    import hark.doors.http.asgi

    assert hark.doors.http.asgi
    logging.getLogger(name).warning("about no instance")
    [record] = records(caplog, name)
    assert [getattr(record, field) for field in FIELDS] == [None, None, None, None]


async def test_x9_the_token_of_a_link_is_in_no_error_event_or_log(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    links: list[str] = []

    def mail(url: str) -> None:
        links.append(url)
        raise OSError(f"the server refused <{url}>, sent to ann")

    @workflow
    async def ask(ctx: FunctionContext) -> None:
        question = await ctx.awakeable()
        await ctx.run(mail, question.url, retries=1, backoff=1)

    async with harness(store, ask, base_url="https://example.org/hark") as app:
        asked = await drained(app, app.start(ask))
        await drained(app, app.advance(1))
        found, events = await asked.get(), await app.events(asked)
        journal = await query(store, "SELECT error FROM journal")
    [token] = {url.partition("?t=")[2] for url in links}
    assert len(token) > 20
    assert token not in f"{found} {events} {journal} {caplog.text}"
    assert "?t=***>, sent to ann" in (found.error or "")


# -- ctx.log ---------------------------------------------------------------------------------------


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The records that the code of instances has logged so far."""
    caplog.set_level(logging.INFO, logger="hark")
    return lambda: records(caplog, "hark.workflow")


def texts(lines: Lines) -> list[str]:
    return [record.getMessage() for record in lines()]


async def test_x9_the_log_of_a_step_has_the_fields_of_its_instance(store: Store, lines: Lines) -> None:
    class Chatty(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            ctx.log.info("order %s", 7, extra={"amount": 12})
            return Retry(0) if ctx.attempt == 0 else Next("second")

        @step
        def second(self, ctx: Context) -> Any:
            ctx.log.debug("not at this level")
            ctx.log.warning("from a thread")
            return Done()

    async with parked(store, Chatty) as (_, chatty):
        pass
    found = lines()
    assert [(r.getMessage(), *(getattr(r, name) for name in FIELDS)) for r in found] == [
        ("order 7", chatty.id, "Chatty", "start", 0),
        ("order 7", chatty.id, "Chatty", "start", 1),
        ("from a thread", chatty.id, "Chatty", "second", 0),
    ]
    assert found[0].amount == 12
    assert found[0].filename == "test_x9_log.py"


async def test_x9_a_function_logs_each_line_once_across_parks(store: Store, lines: Lines) -> None:
    @workflow
    async def deploy(ctx: FunctionContext) -> None:
        ctx.log.info("begin")
        try:
            await ctx.run(str)
            ctx.log.info("built")
            await ctx.sleep(10)
            ctx.log.info("slept")
            question = await ctx.awakeable()
            ctx.log.info("asked")
            await question
            ctx.log.info("answered")
            for _ in range(2):
                await ctx.wait_for_signal("go")
                ctx.log.info("went")
            await ctx.now()
            ctx.log.info("looked at the clock")
            await ctx.sleep(10)
        finally:
            ctx.log.info("finally")

    async with parked(store, deploy) as (app, run):
        await drained(app, app.advance(10))
        [asked] = await app.awakeables()
        await drained(app, app.resolve(asked.id))
        for _ in range(2):
            await drained(app, app.signal(run, "go"))
        await drained(app, app.advance(10))
        assert (await run.get()).status == "done"
    assert texts(lines) == [
        "begin", "built", "slept", "asked", "answered", "went", "went", "looked at the clock", "finally",
    ]  # fmt: skip
    assert {record.instance for record in lines()} == {run.id}


async def test_x9_a_function_that_continues_as_new_logs_from_its_first_line_on(store: Store, lines: Lines) -> None:
    @workflow
    async def pages(ctx: FunctionContext, page: int) -> Any:
        ctx.log.info("page %d", page)
        await ctx.sleep(10)
        ctx.log.info("slept %d", page)
        return ctx.continue_as_new({"page": page + 1}) if page < 3 else page

    async with harness(store, pages) as app:
        await app.start(pages, {"page": 1})
        for _ in range(4):
            await app.drain()
            await app.advance(10)
    assert texts(lines) == ["page 1", "slept 1", "page 2", "slept 2", "page 3", "slept 3"]


async def test_x9_a_function_logs_what_follows_a_run_while_another_run_is_to_be_repeated(
    store: Store, lines: Lines
) -> None:
    calls: list[int] = []

    def second_time(number: int) -> None:
        calls.append(number)
        if calls.count(number) == 1:
            raise OSError("busy")

    @workflow
    async def loop(ctx: FunctionContext) -> None:
        for number in range(3):
            await ctx.run(second_time, number, retries=1, backoff=5)
            ctx.log.info("done %d", number)

    async with harness(store, loop) as app:
        run = await app.start(loop)
        for _ in range(4):
            await app.drain()
            await app.advance(5)
        await app.drain()
        assert (await run.get()).status == "done"
    assert texts(lines) == ["done 0", "done 1", "done 2"]


@pytest.mark.parametrize("waits", [False, True], ids=["", "while it waits"])
async def test_x9_a_function_that_gave_up_its_slot_logs_what_it_had_not_run(
    store: Store, lines: Lines, waits: bool
) -> None:
    @workflow
    async def stepwise(ctx: FunctionContext) -> None:
        async def work() -> None:
            for number in range(4):
                await ctx.run(str, number)
                ctx.log.info("%s %d", ctx.id, number)

        await (ctx.gather(ctx.wait_for_signal("stop"), work()) if waits else work())

    async with harness(store, stepwise) as app:
        runs = [await app.start(stepwise, id=name) for name in ("a", "b", "c")]
        for name in ("unasked", "stop") if waits else ():  # the first is in the inbox, as an answer would be
            for run in runs:
                await app.signal(run, name)
            await app.drain()
        await app.drain()
        assert {(await run.get()).status for run in runs} == {"done"}
    assert sorted(texts(lines)) == [f"{name} {number}" for name in "abc" for number in range(4)]


async def test_x9_a_retry_by_hand_logs_what_runs_again(store: Store, lines: Lines) -> None:
    broken = [True]

    def work() -> None:
        if broken[0]:
            raise OSError("broken")

    @workflow
    async def fragile(ctx: FunctionContext) -> None:
        await ctx.sleep(1)
        ctx.log.info("before")
        await ctx.run(work)
        ctx.log.info("after")

    async with parked(store, fragile) as (app, run):
        await drained(app, app.advance(1))
        broken.clear()
        broken.append(False)
        await drained(app, app.retry(run))
    assert texts(lines) == ["before", "after"]


async def test_x9_a_function_that_is_undone_logs_nothing_again(store: Store, lines: Lines) -> None:
    undone: list[str] = []

    @workflow
    async def trip(ctx: FunctionContext) -> None:
        await ctx.run(str, "flight", undo=undone.append)
        ctx.log.info("booked")
        await ctx.wait_for_signal("go")

    async with parked(store, trip) as (app, run):
        await drained(app, app.cancel(run))
        assert (await run.get()).status == "cancelled"
    assert undone == ["flight"]
    assert texts(lines) == ["booked"]


async def test_x9_the_log_says_that_a_function_failed_and_is_undone(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Once before its undo, as a warning, and once when it has failed."""
    caplog.set_level(logging.WARNING, logger="hark")

    @workflow
    async def trip(ctx: FunctionContext) -> None:
        await ctx.run(str, "flight", undo=print)
        raise ValueError("no hotel")

    async with harness(store, trip) as app:
        await drained(app, app.start(trip, id="t"))
    logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert logged == [
        ("WARNING", "trip t failed at run str, and its undo runs now: ValueError: no hotel"),
        ("ERROR", "trip t failed at undo str: ValueError: no hotel"),
    ]


async def test_x9_the_log_of_a_function_works_after_a_failed_run(store: Store, lines: Lines) -> None:
    @workflow
    async def careful(ctx: FunctionContext) -> None:
        try:
            await ctx.run(look_up, {})
        except RunFailed:
            ctx.log.exception("it failed")
        await ctx.sleep(1)

    async with harness(store, careful) as app:
        await drained(app, app.start(careful))
        await drained(app, app.advance(1))
    [record] = lines()
    assert record.exc_info is not None
