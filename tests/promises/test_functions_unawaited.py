"""A function that never awaits what it asked for fails if work was lost; else a warning names the line."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import pytest

from hark import FunctionContext, InstanceFailed, workflow
from tests.promises.support_functions import Calls, hang
from tests.support.harness import drained, parked
from tests.support.stores import Store


async def send_mail(to: str) -> str:
    return f"mail to {to}"


def line(offset: int) -> str:
    """A line of the calling test, counted from here, as it is in a message."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "never awaited" in record.getMessage()]


@workflow
async def child(ctx: FunctionContext) -> str:
    await ctx.wait_for_signal("go")
    return "grown"


async def test_a_run_that_is_never_awaited_fails_the_function_and_names_the_line(store: Store) -> None:
    asked = line(4)

    @workflow
    async def forgetful(ctx: FunctionContext) -> str:
        ctx.run(send_mail, "ann")
        return "done"

    async with parked(store, forgetful) as (_, it):
        with pytest.raises(InstanceFailed) as failed:
            await it.result()
    text = str(failed.value)
    assert f"returned without awaiting run send_mail, which it asked for at {asked}, so it was not done" in text
    assert "Await it, or give it to ctx.gather or ctx.first" in text


async def test_the_function_continues_once_it_is_fixed_and_retried(store: Store) -> None:
    is_fixed = False
    sent = Calls()

    @workflow
    async def forgetful(ctx: FunctionContext) -> str:
        first = await ctx.run(sent.note, "ann")
        second = ctx.run(sent.note, "bob")
        return f"{first}, {await second}" if is_fixed else first

    async with parked(store, forgetful) as (app, it):
        assert (await it.get()).status == "failed"
        is_fixed = True
        await drained(app, app.retry(it))
        assert await it.result() == "ann, bob"
    assert sent == ["ann", "bob"]


async def cuts_a_run_off(ctx: FunctionContext) -> None:
    ctx.run(hang)
    await ctx.run(send_mail, "ann")


async def forgets_a_call(ctx: FunctionContext) -> None:
    ctx.call(child, id="kid")


async def forgets_a_gather(ctx: FunctionContext) -> None:
    ctx.gather(ctx.run(send_mail, "ann"), ctx.run(send_mail, "bob"))


async def continues_as_new(ctx: FunctionContext) -> Any:
    ctx.run(send_mail, "ann")
    return ctx.continue_as_new()


@pytest.mark.parametrize(
    ("function", "lost"),
    [
        (cuts_a_run_off, ["run hang"]),
        (forgets_a_call, ["call child", "so it was not started"]),
        (forgets_a_gather, ["run send_mail"]),
        (continues_as_new, ["run send_mail"]),
    ],
)
async def test_work_that_is_never_awaited_and_would_be_lost_fails_the_function(
    store: Store, function: Any, lost: list[str]
) -> None:
    async with parked(store, workflow(function), child) as (_, it):
        error = (await it.get()).error or ""
        assert f"without awaiting {lost[0]}" in error
        assert all(text in error for text in lost)


async def test_a_call_whose_child_was_started_is_a_warning_and_the_child_runs_on(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    asked = line(4)

    @workflow
    async def forgetful(ctx: FunctionContext) -> str:
        ctx.call(child, id="kid")
        await ctx.sleep(5)
        return "done"

    async with parked(store, forgetful, child) as (app, it):
        await drained(app, app.advance(5))
        assert await it.result() == "done"
        assert (await app.get("kid")).status == "awaiting_signal"
    [warned] = warnings(caplog)
    assert f"call child, asked for at {asked}: the child runs on, and its result is not read" in warned


async def test_a_sleep_and_a_wait_that_are_never_awaited_are_warnings(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def forgetful(ctx: FunctionContext) -> str:
        ctx.sleep(60)
        ctx.wait_for_signal("go")
        return "done"

    async with parked(store, forgetful) as (_, it):
        assert await it.result() == "done"
    found = warnings(caplog)
    assert ["sleep" in found[0], "wait go" in found[1]] == [True, True]
    assert all(__file__ in text and "the function did not wait for it" in text for text in found)
    [record, _] = [record for record in caplog.records if "never awaited" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert (record.instance, record.definition, record.attempt) == (it.id, "forgetful", 0)  # type: ignore[attr-defined]


async def test_a_run_whose_error_was_not_read_is_a_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise KeyError("x")

    @workflow
    async def forgetful(ctx: FunctionContext) -> str:
        ctx.run(fail)
        ctx.run(send_mail, "ann")
        await ctx.sleep(5)
        return "done"

    async with parked(store, forgetful) as (app, it):
        await drained(app, app.advance(5))
        assert await it.result() == "done"
    failed, unread = sorted(warnings(caplog))
    assert "run fail, asked for at" in failed
    assert "it failed, and its error was not read: fail raised KeyError: 'x'" in failed
    assert "run send_mail, asked for at" in unread
    assert "its result was not read" in unread


async def test_a_branch_that_is_never_awaited_is_a_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def forgetful(ctx: FunctionContext) -> str:
        async def nag() -> None:
            await ctx.sleep(60)

        ctx.gather(nag())
        await ctx.sleep(5)
        return "done"

    async with parked(store, forgetful) as (app, it):
        await drained(app, app.advance(5))
        assert await it.result() == "done"
    [warned] = warnings(caplog)
    assert "nag() of " in warned
    assert __file__ in warned


async def test_what_is_awaited_late_or_through_gather_and_first_is_no_problem(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    @workflow
    async def careful(ctx: FunctionContext) -> Any:
        early = ctx.run(send_mail, "ann")
        both = ctx.gather(ctx.run(send_mail, "bob"), ctx.first(ctx.run(send_mail, "eve"), ctx.sleep(60)))
        question = await ctx.awakeable(title="not needed")
        ctx.start(child, id="independent")
        ctx.signal(ctx.id, "to myself")
        await ctx.sleep(5)
        assert question.id
        return [await early, await both]

    async with parked(store, careful, child) as (app, it):
        await drained(app, app.advance(5))
        assert await it.result() == ["mail to ann", ["mail to bob", [0, "mail to eve"]]]
        assert (await app.get("independent")).status == "awaiting_signal"
    assert warnings(caplog) == []


async def test_effects_that_are_not_awaited_happen(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def sender(ctx: FunctionContext) -> None:
        ctx.start(child, id="kid")
        ctx.signal("kid", "go")
        ctx.broadcast("open")

    async with parked(store, sender, child) as (app, it):
        assert (await it.get()).status == "done"
        assert await app.result("kid", timeout=0) == "grown"
    assert warnings(caplog) == []


async def test_a_function_that_raises_reports_its_own_error(store: Store) -> None:
    @workflow
    async def fails(ctx: FunctionContext) -> None:
        ctx.run(send_mail, "ann")
        raise ValueError("mine")

    async with parked(store, fails) as (_, it):
        with pytest.raises(InstanceFailed, match="ValueError: mine"):
            await it.result()
