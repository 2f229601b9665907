"""X9: type, message and traceback of every failed attempt are in the events and in the instance."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from hark import (
    Await,
    Broadcast,
    CallFailed,
    Child,
    Context,
    Done,
    Event,
    FunctionContext,
    Machine,
    Next,
    Retry,
    RunFailed,
    Spawn,
    Stop,
    step,
    workflow,
)
from hark.model.log import FIELDS
from hark.testing import Harness
from tests.promises.support_machines import Fuse, harness, kill_a_worker
from tests.support.harness import drained, held, parked
from tests.support.stores import Store


async def events(app: Harness, id: Any, *types: str) -> list[Event]:
    """The events of an instance that have one of these types."""
    return [event for event in await app.events(id, limit=1000) if event.type in types]


def look_up(prices: dict[str, int]) -> int:
    return prices["sku"]


# -- machines --------------------------------------------------------------------------------------


OUTCOMES: dict[str, Any] = {
    "none": lambda error, ctx: Stop(error),
    "retry": lambda error, ctx: Retry(2.0) if ctx.attempt < 2 else Stop("gave up"),
    "soon": lambda error, ctx: Retry(0) if ctx.attempt < 1 else Stop(error),
    "next": lambda error, ctx: Next("rest"),
    "await": lambda error, ctx: Await("go", then="rest", timeout=60),
    "done": lambda error, ctx: Done("anyway"),
    "raise": lambda error, ctx: [][7],
    "again": lambda error, ctx: raise_(error),
}


class Shop(Machine):
    """`handle` returns what the input says, by attempt."""

    @step
    async def start(self, ctx: Context) -> Any:
        look_up({})

    @step
    async def rest(self, ctx: Context) -> Any:
        return Done("rested")

    def handle(self, error: Exception, ctx: Context) -> Any:
        return OUTCOMES[ctx.state["handle"]](error, ctx)


def raise_(error: BaseException) -> Any:
    raise error


async def test_x9_a_step_that_raises_ends_the_instance_with_its_traceback(store: Store) -> None:
    class Plain(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            look_up({})

    async with parked(store, Plain) as (app, plain):
        found = await plain.get()
        [stop] = await events(app, plain, "stop")
    assert (found.status, found.error) == ("failed", "KeyError: 'sku'")
    assert found.traceback is not None
    assert "in look_up\n" in found.traceback
    assert "in start\n" in found.traceback
    assert stop.data == {
        "type": "KeyError", "message": "'sku'", "traceback": found.traceback, "error": "KeyError: 'sku'",
    }  # fmt: skip


async def test_x9_a_retry_says_why_and_until_when(store: Store) -> None:
    async with parked(store, Shop, input={"handle": "retry"}) as (app, shop):
        [first] = await events(app, shop, "retry")
        assert (await shop.get()).traceback is None
        await drained(app, app.advance(2))
        await drained(app, app.advance(2))
        retries, [stop] = await events(app, shop, "retry"), await events(app, shop, "stop")
        found = await shop.get()
    assert "in look_up\n" in first.data.pop("traceback")
    until = datetime.fromisoformat(first.data.pop("until"))
    assert first.data == {"type": "KeyError", "message": "'sku'", "attempt": 0}
    assert until - first.at == timedelta(seconds=2)
    assert [event.data["attempt"] for event in retries] == [0, 1]
    assert (stop.data["type"], stop.data["error"]) == ("KeyError", "gave up")  # the reason, and the error behind it
    assert found.error == "gave up"
    assert found.traceback == stop.data["traceback"]


async def test_x9_a_retry_without_a_delay_has_no_until(store: Store) -> None:
    async with parked(store, Shop, input={"handle": "soon"}) as (app, shop):
        [retry] = await events(app, shop, "retry")
    assert retry.data["until"] is None


async def test_x9_a_retry_without_an_error_has_its_attempt_and_its_time(store: Store) -> None:
    class Poll(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Retry(5) if ctx.attempt == 0 else Done()

    async with parked(store, Poll) as (app, poll):
        [retry] = await events(app, poll, "retry")
    assert set(retry.data) == {"attempt", "until"}
    assert datetime.fromisoformat(retry.data["until"]) - retry.at == timedelta(seconds=5)


@pytest.mark.parametrize(("handle", "outcome"), [("next", "next"), ("await", "await"), ("done", "done")])
async def test_x9_an_error_that_handle_turns_into_another_outcome_is_an_event_before_it(
    store: Store, handle: str, outcome: str
) -> None:
    async with parked(store, Shop, input={"handle": handle}) as (app, shop):
        error, after, *_ = await events(app, shop, "error", "next", "await", "done")
        assert (await shop.get()).traceback is None
    assert (error.type, error.step, after.type) == ("error", "start", outcome)
    assert "in look_up\n" in error.data.pop("traceback")
    assert error.data == {"type": "KeyError", "message": "'sku'", "attempt": 0}


async def test_x9_an_error_and_an_error_of_handle_are_both_kept(store: Store) -> None:
    async with parked(store, Shop, input={"handle": "raise"}) as (app, shop):
        found = await shop.get()
        [stop] = await events(app, shop, "stop")
    assert found.error == "KeyError: 'sku'; then handle raised IndexError: list index out of range"
    assert found.traceback is not None
    assert found.traceback.index("in look_up\n") < found.traceback.index("[][7]")
    assert (stop.data["type"], stop.data["traceback"]) == ("KeyError", found.traceback)


async def test_x9_an_error_that_handle_raises_again_is_shown_once(store: Store) -> None:
    async with parked(store, Shop, input={"handle": "again"}) as (_, shop):
        found = await shop.get()
    assert (found.traceback or "").count("return prices[") == 1


@pytest.mark.parametrize("reason", ["no stock", {"code": 7}])
async def test_x9_a_stop_without_an_exception_has_its_reason(store: Store, reason: Any) -> None:
    class Refuses(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Stop(reason)

    async with parked(store, Refuses) as (app, refuses):
        found = await refuses.get()
        [stop] = await events(app, refuses, "stop")
    assert stop.data == {"type": None, "message": found.error, "traceback": None, "error": found.error}
    assert found.traceback is None


async def test_x9_a_retry_by_hand_forgets_the_error_and_its_traceback(store: Store) -> None:
    class Fixed(Machine):
        broken = True

        @step
        async def start(self, ctx: Context) -> Any:
            return Done(look_up({} if Fixed.broken else {"sku": 1}))

    async with parked(store, Fixed) as (app, fixed):
        Fixed.broken = False
        again = await app.retry(fixed)
        assert (again.error, again.traceback) == (None, None)
        await app.drain()
        assert (await fixed.get()).result == 1


async def test_x9_an_error_of_a_plain_def_step_has_the_users_frames_only(store: Store) -> None:
    class Threaded(Machine):
        @step
        def start(self, ctx: Context) -> Any:
            return Done(look_up({}))

    async with parked(store, Threaded) as (_, threaded):
        found = await threaded.get()
    assert found.traceback is not None
    assert found.traceback.count('File "') == 2
    assert "concurrent" not in found.traceback


async def test_x9_a_state_that_cannot_be_stored_is_a_failure_with_the_engines_message(store: Store) -> None:
    class Odd(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Done(object())

    async with parked(store, Odd) as (app, odd):
        [stop] = await events(app, odd, "stop")
    assert stop.data["type"] == "InvalidInput"


async def test_x9_a_quarantined_instance_has_the_reason_as_its_message_and_is_an_error_in_the_log(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    fuse = Fuse()

    class Deadly(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            await fuse.touch()
            return Done()

    async with harness(store, Deadly, max_crashes=1) as app:
        deadly = await app.start(Deadly)
        await kill_a_worker(app, store, fuse, Deadly, max_crashes=1)
        await app.drain()
        found = await deadly.get()
        [failed] = await events(app, deadly, "failed")
    assert found.error is not None
    assert found.error.startswith("quarantined: ")
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [getattr(record, name) for name in ("name", *FIELDS[:3])] == ["hark", deadly.id, "Deadly", "start"]
    assert "quarantined" in record.getMessage()
    assert failed.data == {"type": None, "message": found.error, "traceback": None, "error": found.error}


async def test_x9_a_child_that_could_not_start_has_the_reason_as_its_message(store: Store) -> None:
    class Parent(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Spawn([Child("Unknown")], then="end")

        @step
        async def end(self, ctx: Context) -> Any:
            return Done([child.id for child in ctx.children])

    async with parked(store, Parent) as (app, parent):
        [child] = await parent.result()
        [failed] = await events(app, child, "failed")
        found = await app.get(child)
    assert failed.data["message"] == failed.data["error"] == found.error


# -- waits -----------------------------------------------------------------------------------------


async def test_x9_an_event_that_begins_a_wait_says_for_what_and_until_when(store: Store) -> None:
    class Waits(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Await("paid", Broadcast("closing"), then="end", timeout=60)

        @step
        async def end(self, ctx: Context) -> Any:
            return Await("forever", then="end")

    async with parked(store, Waits) as (app, waits):
        await drained(app, app.advance(60))
        begin, timeout, forever = await events(app, waits, "await", "timeout")
    asked = [{"kind": "signal", "name": "paid"}, {"kind": "broadcast", "name": "closing"}]
    assert begin.data["waits"] == asked
    assert datetime.fromisoformat(begin.data["until"]) - begin.at == timedelta(seconds=60)
    assert timeout.type == "timeout"
    assert sorted(timeout.data["waits"], key=lambda wait: asked.index(wait)) == asked
    assert timeout.data["until"] == begin.data["until"]
    assert forever.data == {"until": None, "waits": [{"kind": "signal", "name": "forever"}]}


async def test_x9_an_event_lists_a_bounded_number_of_waits(store: Store) -> None:
    class Many(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Await(*(f"s{n}" for n in range(500)), then="start", timeout=9)

    async with parked(store, Many) as (app, many):
        await app.advance(9)
        begin, timeout = await events(app, many, "await", "timeout")
    for event in (begin, timeout):
        assert (len(event.data["waits"]), event.data["more"]) == (20, 480)


async def test_x9_a_spawn_says_how_many_children_it_waits_for(store: Store) -> None:
    class Parent(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Spawn([Child(Shop, {"handle": "await"}) for _ in range(3)], then="end", join=2)

        @step
        async def end(self, ctx: Context) -> Any:
            return Done()

    async with parked(store, Parent, Shop) as (app, parent):
        [spawn] = await events(app, parent, "spawn")
    assert spawn.data == {"until": None, "waits": [{"kind": "children", "remaining": 2}]}


async def test_x9_a_function_that_waits_says_for_what_and_until_when(store: Store) -> None:
    @workflow
    async def waits(ctx: FunctionContext) -> None:
        question = await ctx.awakeable(timeout=90)
        await ctx.gather(question, ctx.wait_for_signal("go", timeout=120), ctx.sleep(30))

    async with parked(store, waits) as (app, run):
        [asked] = await app.awakeables()
        await drained(app, app.advance(30))
        begin, slept, later = await events(app, run, "await", "timeout")
    wanted = [{"kind": "awakeable", "name": asked.id}, {"kind": "signal", "name": "go"}, {"kind": "timer"}]
    assert begin.data["waits"] == wanted
    assert datetime.fromisoformat(begin.data["until"]) - begin.at == timedelta(seconds=30)
    assert slept.data["waits"] == [{"kind": "timer"}]
    assert sorted(map(str, later.data["waits"])) == sorted(map(str, wanted[:2]))  # those that stay armed
    assert datetime.fromisoformat(later.data["until"]) - begin.at == timedelta(seconds=90)


# -- functions -------------------------------------------------------------------------------------


def charge(order: int) -> int:
    return look_up({})


async def test_x9_each_failed_attempt_of_a_run_is_an_event(store: Store) -> None:
    @workflow
    async def pay(ctx: FunctionContext) -> str:
        try:
            await ctx.run(charge, 7, retries=2, backoff=10)
        except RunFailed as error:
            return f"{error.type}|{error.message}|{error.traceback}"
        return "paid"

    async with parked(store, pay) as (app, paid):
        [first] = await events(app, paid, "retry", "error")
        await drained(app, app.advance(10))
        await drained(app, app.advance(20))
        found = await events(app, paid, "retry", "error", "stop")
        result = await paid.result()
    assert (first.step, datetime.fromisoformat(first.data["until"]) - first.at) == ("run charge", timedelta(seconds=10))
    assert [(event.type, event.data["attempt"], event.data["retries"]) for event in found] == [
        ("retry", 0, 2),
        ("retry", 1, 2),
        ("error", 2, 2),
    ]
    assert {(event.data["type"], event.data["message"]) for event in found} == {("KeyError", "'sku'")}
    traceback = found[-1].data["traceback"]
    assert "in charge\n" in traceback
    assert "in look_up\n" in traceback
    assert "until" not in found[-1].data
    assert result == f"KeyError|'sku'|{traceback}"


async def test_x9_the_error_of_a_run_comes_before_the_event_of_what_the_function_does_next(store: Store) -> None:
    @workflow
    async def careful(ctx: FunctionContext) -> str:
        try:
            await ctx.run(charge, 7)
        except RunFailed:
            await ctx.run(str)
        return "done"

    async with parked(store, careful) as (app, run):
        found = [event.type for event in await app.events(run)]
    assert found == ["started", "error", "next", "next", "done"]


async def test_x9_a_failed_function_has_its_own_frames_and_those_of_the_run(store: Store) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.sleep(1)
        await pay_for(ctx)

    async def pay_for(ctx: FunctionContext) -> None:
        await ctx.run(charge, 7)

    async with parked(store, order) as (app, run):
        await drained(app, app.advance(1))
        found = await run.get()
        [stop] = await events(app, run, "stop")
    assert found.error == "RunFailed: charge raised KeyError: 'sku'"
    assert found.traceback is not None
    run_frames, function_frames = found.traceback.split("direct cause of the following exception")
    assert "in look_up\n" in run_frames
    assert "in order\n" in function_frames
    assert "in pay_for\n" in function_frames
    assert "/hark/" not in found.traceback.replace("tests", "")
    assert stop.data == {
        "type": "RunFailed", "message": "charge raised KeyError: 'sku'", "traceback": found.traceback,
        "error": found.error,
    }  # fmt: skip


async def test_x9_the_traceback_of_a_run_is_the_same_in_a_replay(store: Store) -> None:
    seen: list[str | None] = []

    @workflow
    async def twice(ctx: FunctionContext) -> None:
        try:
            await ctx.run(charge, 7)
        except RunFailed as error:
            seen.append(error.traceback)
        await ctx.sleep(1)

    async with harness(store, twice) as app:
        await drained(app, app.start(twice))
        await drained(app, app.advance(1))
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert "in look_up\n" in (seen[0] or "")


async def test_x9_a_failed_call_names_the_error_of_the_child(store: Store) -> None:
    @workflow
    async def child(ctx: FunctionContext) -> None:
        look_up({})

    @workflow
    async def parent(ctx: FunctionContext) -> str:
        try:
            await ctx.call(child)
        except CallFailed as error:
            return error.id
        return ""

    async with parked(store, parent, child) as (app, run):
        found = await app.get(await run.result())
    assert found.error == "KeyError: 'sku'"
    assert "in look_up\n" in (found.traceback or "")


async def test_x9_a_function_that_diverged_says_so(store: Store) -> None:
    @workflow(name="changing")
    async def before(ctx: FunctionContext) -> None:
        await ctx.sleep(1)

    @workflow(name="changing")
    async def after(ctx: FunctionContext) -> None:
        await ctx.wait_for_signal("x")

    async with harness(store, before) as app:
        changing = await drained(app, app.start("changing"))
        id = changing.id
        clock = app.clock.now
    async with harness(store, after) as app:
        app.clock.now = clock
        await app.advance(2)
        await held(app, id)
        [event] = await events(app, id, "held")
    assert "diverged" in event.data["cause"]


async def test_x9_a_failed_attempt_beside_others_is_an_event_too(store: Store) -> None:
    @workflow
    async def both(ctx: FunctionContext) -> int:
        results = await ctx.gather(ctx.run(charge, 1, retries=1, backoff=5), ctx.sleep(60), return_exceptions=True)
        return len(results)

    async with parked(store, both) as (app, run):
        await drained(app, app.advance(5))
        found = await events(app, run, "retry", "error")
        assert [event.type for event in found] == ["retry", "error"]
        assert datetime.fromisoformat(found[0].data["until"]) - found[0].at == timedelta(seconds=5)
        await drained(app, app.advance(60))
        assert await run.result() == 2
