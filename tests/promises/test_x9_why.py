"""X9: `why` and `hark instance show` say which attempt failed, why, and when the next one begins."""

from __future__ import annotations

from typing import Any

import pytest

from hark import Context, Done, FunctionContext, Machine, Retry, RetryPolicy, Stop, step, workflow
from tests.promises.support_machines import harness
from tests.support.harness import drained, parked
from tests.support.inspect import name_of
from tests.support.stores import Store


def look_up(prices: dict[str, int]) -> int:
    return prices["x"]


class Shop(Machine):
    @step
    async def start(self, ctx: Context) -> Any:
        look_up({})

    def handle(self, error: Exception, ctx: Context) -> Any:
        return Retry(2) if ctx.attempt < 3 else Stop(error)


async def test_x9_during_the_backoff_of_a_step_why_says_what_failed_and_when_the_next_attempt_is(store: Store) -> None:
    async with parked(store, Shop) as (app, shop):
        await drained(app, app.advance(2))
        why = await app.why(shop)
        [blocker] = [one for one in why.blockers if one.reason == "delayed"]
    assert blocker.text == "start: attempt 2 failed: KeyError: 'x'; next try in 2 s."
    assert "start: attempt 2 failed: KeyError: 'x'; next try in 2 s." in why.text
    assert "in look_up\n" in (why.traceback or "")


async def test_x9_a_retry_without_an_error_is_explained_too(store: Store) -> None:
    class Poll(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Retry(90)

    async with parked(store, Poll) as (app, poll):
        why = await app.why(poll)
    assert "start returned Retry; next try in 2 min." in why.text
    assert why.traceback is None


async def test_x9_a_delayed_start_is_not_taken_for_a_retry(store: Store) -> None:
    async with harness(store, Shop) as app:
        shop = await app.start(Shop, delay=60)
        assert "It is delayed." in [blocker.text for blocker in (await app.why(shop)).blockers]


async def test_x9_during_the_backoff_of_a_run_why_says_which_attempt_of_how_many_failed(store: Store) -> None:
    @workflow
    async def pay(ctx: FunctionContext) -> None:
        await ctx.sleep(1)
        await ctx.run(look_up, {}, name="charge", retries=RetryPolicy(4, delay=1, factor=2))

    async with parked(store, pay) as (app, paid):
        assert (await app.why(paid)).text == "It waits for a time."
        for seconds in (1, 1):
            await drained(app, app.advance(seconds))
        why = await app.why(paid)
    assert why.text == "run charge: attempt 2 of 5 failed: KeyError: 'x'; next try in 2 s."
    [wait] = why.waits
    assert wait.note == "run charge: attempt 2 of 5 failed: KeyError: 'x'; next try in 2 s"
    assert "in look_up\n" in (why.traceback or "")


async def test_x9_a_backoff_beside_other_waits_names_both(store: Store) -> None:
    async def missing() -> int:  # async: two threads would fail in any order
        return look_up({})

    @workflow
    async def both(ctx: FunctionContext) -> None:
        await ctx.gather(
            ctx.run(missing, name="a", retries=1, backoff=30),
            ctx.run(missing, name="b", retries=9, backoff=60),
            ctx.wait_for_signal("go"),
            ctx.sleep(3600),
        )

    async with parked(store, both) as (app, run):
        why = await app.why(run)
    assert why.text == (
        "It waits for signal 'go' or a time. run a: attempt 1 of 2 failed: KeyError: 'x'; next try in 30 s. "
        "run b: attempt 1 of 10 failed: KeyError: 'x'; next try in 1 min."
    )


async def test_x9_why_of_a_failed_instance_has_its_error_and_its_traceback(store: Store) -> None:
    class Breaks(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Done(look_up({}))

    async with parked(store, Breaks) as (app, breaks):
        why = await app.why(breaks)
    assert "It has failed: KeyError: 'x'." in why.text
    assert "in look_up\n" in (why.traceback or "")


@pytest.mark.parametrize("runs", [1, 50])
async def test_x9_why_reads_the_retries_in_one_statement(
    store: Store, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    @workflow
    async def many(ctx: FunctionContext) -> None:
        await ctx.gather(*(ctx.run(look_up, {}, name=str(n), retries=1, backoff=60) for n in range(runs)))

    async with parked(store, many) as (app, run):
        sent: list[str] = []
        read = app._clerk.store.read

        async def noted(sql: Any, *args: Any, **values: Any) -> Any:
            sent.append(name_of(sql))
            return await read(sql, *args, **values)

        monkeypatch.setattr(app._clerk.store, "read", noted)
        why = await app.why(run)
    assert sent.count("latest_retries") == 1
    assert why.text.count("attempt 1 of 2 failed") == runs


async def test_x9_the_wait_is_measured_by_the_clock_of_the_store(store: Store) -> None:
    async with parked(store, Shop) as (app, shop):
        app.clock.now += 1_500_000
        assert "next try in 0.5 s" in (await app.why(shop)).text
        app.clock.now += 5_000_000
        assert "next try now" in (await app.why(shop)).text
