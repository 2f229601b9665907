"""S6: timeouts and deadlines. A timeout is a wake-up, and a signal in the same turn takes precedence."""

import asyncio
from datetime import timedelta, timezone

import pytest

from hark import Await, Broadcast, Context, Done, Machine, Next, Retry, Stop, step
from hark.kernel.requests import Deliver
from hark.model.names import from_micros
from tests.promises.support_signals import Gate, Pack, Turns, Waiter, event_types, harness, rows, seen
from tests.support.harness import drained
from tests.support.stores import Store


def at(app: Waiter, seconds: float) -> str:
    """A time by the app's clock, as a machine's input can carry it."""
    return (from_micros(app.clock.now) + timedelta(seconds=seconds)).isoformat()


async def test_s6_a_timeout_wakes_without_signals_and_sets_timed_out(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "timeout": 60}, id="w"))
        await app.advance(59.999999)
        assert await app.drain() == {"steps": 0}
        await app.advance(0.000001)
        assert await app.drain() == {"steps": 1, "done": 1}
        assert await app.result("w") == {"awaited": [], "all": [], "timed_out": True, "attempt": 0}


async def test_s6_fault_22_a_timeout_wakes_with_what_arrived(store: Store) -> None:
    async with harness(store, Pack) as app:
        await drained(app, app.start(Pack, {"names": ["item"], "size": 3, "deadline": at(app, 60)}, id="p"))
        for n in range(2):
            await drained(app, app.signal("p", "item", n))
        await drained(app, app.advance(60))
        found = await app.result("p")
        assert (found["payloads"], found["timed_out"], found["looks"]) == ([0, 1], True, 3)


async def test_s6_a_signal_in_time_prevents_the_timeout(store: Store) -> None:
    class Twice(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.middle, timeout=60)

        @step
        async def middle(self, ctx: Context) -> Await:
            assert not ctx.timed_out
            return Await("more", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx))

    async with harness(store, Twice) as app:
        handle = await drained(app, app.start(Twice))
        await app.advance(59)
        await drained(app, app.signal(handle, "go"))
        await app.advance(3600)
        assert await app.drain() == {"steps": 0}
        assert (await handle.get()).waits[0].deadline is None
        await drained(app, app.signal(handle, "more"))
        assert (await handle.result())["timed_out"] is False


async def test_s6_attempt_is_untouched_by_a_timeout(store: Store) -> None:
    """A wake-up is neither a retry nor progress: the step sees the attempt that the previous outcome set."""

    class Tries(Machine):
        @step
        async def start(self, ctx: Context) -> Retry | Await:
            return Retry() if ctx.attempt < 2 else Await("go", then=self.woken, timeout=1)

        @step
        async def woken(self, ctx: Context) -> Retry | Done:
            ctx.state.setdefault("attempts", []).append(ctx.attempt)
            assert ctx.timed_out  # also when it runs again
            return Retry() if ctx.attempt < 2 else Done(ctx.state["attempts"])

    async with harness(store, Tries) as app:
        handle = await drained(app, app.start(Tries))
        await app.advance(1)
        assert (await handle.get()).attempt == 0
        await app.drain()
        assert await handle.result() == [0, 1, 2]


async def test_s6_timed_out_refers_only_to_the_await_that_led_to_this_step(store: Store) -> None:
    class Moves(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.woken, timeout=1)

        @step
        async def woken(self, ctx: Context) -> Next | Await:
            ctx.state["first"] = ctx.timed_out
            return Next(self.after) if ctx.state["way"] == "next" else Await("go", then=self.end)

        @step
        async def after(self, ctx: Context) -> Await:
            ctx.state["after"] = ctx.timed_out
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([ctx.state["first"], ctx.state.get("after"), ctx.timed_out])

    async with harness(store, Moves) as app:
        for way in ("next", "await"):
            await app.start(Moves, {"way": way}, id=way)
        await app.drain()
        await drained(app, app.advance(1))
        for way in ("next", "await"):
            assert (await app.signal(way, "go")).status == "woke"
        await app.drain()
        assert await app.result("next") == [True, False, False]
        assert await app.result("await") == [True, None, False]


async def test_s6_a_deadline_is_absolute_so_a_pack_does_not_postpone_it(store: Store) -> None:
    async with harness(store, Pack) as app:
        deadline = at(app, 100)
        await drained(app, app.start(Pack, {"names": ["item"], "size": 100, "deadline": deadline}, id="p"))
        for n in range(9):
            await app.advance(10)
            await drained(app, app.signal("p", "item", n))
            assert {wait.deadline.isoformat() for wait in (await app.get("p")).waits} == {deadline}
        await drained(app, app.advance(10))
        found = await app.result("p")
        assert (found["payloads"], found["timed_out"]) == (list(range(9)), True)


async def test_s6_a_timeout_restarts_with_each_await(store: Store) -> None:
    async with harness(store, Pack) as app:
        await drained(app, app.start(Pack, {"names": ["item"], "size": 100, "timeout": 15}, id="p"))
        for n in range(3):
            await app.advance(10)
            await drained(app, app.signal("p", "item", n))
        assert (await app.get("p")).status == "awaiting_signal"
        await drained(app, app.advance(15))
        assert (await app.result("p"))["payloads"] == [0, 1, 2]


async def test_s6_fault_24_a_past_deadline_is_due_immediately(store: Store) -> None:
    async with harness(store, Waiter) as app:
        late = [await app.start(Waiter, {"names": ["go"], "deadline": at(app, -past)}) for past in (0, 1, 10**9)]
        assert await app.drain() == {"steps": 6, "await": 3, "done": 3}
        assert [(await waiter.result())["timed_out"] for waiter in late] == [True] * 3


async def test_s6_a_past_deadline_does_not_hide_a_signal_in_the_inbox(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"], "deadline": at(app, -1)}, id="w")
        await drained(app, app.signal("w", "go", 1))
        assert (await app.result("w"))["awaited"] == [["go", 1]]
        assert (await app.result("w"))["timed_out"] is False


async def test_s6_with_timeout_and_deadline_the_earlier_applies(store: Store) -> None:
    async with harness(store, Waiter) as app:
        for timeout, deadline in ((60, 30), (30, 60), (60, -5)):
            await app.start(Waiter, {"names": ["go"], "timeout": timeout, "deadline": at(app, deadline)})
        assert await app.drain() == {"steps": 4, "await": 3, "done": 1}
        await app.advance(29)
        assert await app.drain() == {"steps": 0}
        await app.advance(1)
        assert await app.drain() == {"steps": 2, "done": 2}
        assert [waiter.result["timed_out"] for waiter in await app.list()] == [True] * 3


@pytest.mark.parametrize("how", ["timeout", "deadline"])
async def test_s6_no_names_is_a_sleep(store: Store, how: str) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"timeout": 60} if how == "timeout" else {"deadline": at(app, 60)}, id="w")
        await app.drain()
        [wait] = (await app.get("w")).waits
        assert (wait.kind, wait.name) == ("timer", None)
        assert (await app.signal("w", "anything")).status == "stored"
        await app.advance(59)
        assert await app.drain() == {"steps": 0}
        await drained(app, app.advance(1))
        assert await app.result("w") == {
            "awaited": [], "all": [["anything", None]], "timed_out": True, "attempt": 0,
        }  # fmt: skip


async def test_s6_fault_20_a_signal_in_the_same_turn_wins_over_the_deadline(store: Store) -> None:
    async with harness(store, Waiter) as app, Turns(store, app.clock) as turns:
        await drained(app, app.start(Waiter, {"names": ["go"], "timeout": 60}, id="w"))
        app.clock.now += 61_000_000
        signal = Deliver(target="w", name="go", payload="1")
        await turns.run(signal, sweep=True)
        assert signal.result.status == "woke"
        assert await app.drain() == {"steps": 1, "done": 1}
        assert await app.result("w") == {
            "awaited": [["go", 1]], "all": [["go", 1]], "timed_out": False, "attempt": 0,
        }  # fmt: skip
        assert await rows(store, "SELECT kind FROM inbox") == [("signal",)]
        assert "timeout" not in await event_types(app, "w")


async def test_s6_fault_20_two_names_due_together_are_one_wake_up(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["a", "b"], "broadcasts": ["x"], "timeout": 60}, id="w"))
        await app.advance(60)
        assert await app.drain() == {"steps": 1, "done": 1}
        assert (await event_types(app, "w")).count("timeout") == 1


async def test_s6_fault_20_a_signal_between_the_timeout_and_the_step_is_not_lost(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "timeout": 60}, id="w"))
        await app.advance(60)
        assert (await app.signal("w", "go", 1)).status == "stored"
        assert await app.drain() == {"steps": 1, "done": 1}
        assert await app.result("w") == {
            "awaited": [["go", 1]], "all": [["go", 1]], "timed_out": True, "attempt": 0,
        }  # fmt: skip


async def test_s6_fault_21_a_signal_after_the_timeout_stays_for_the_next_await(store: Store) -> None:
    gate = Gate()

    class Asks(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.late, timeout=60)

        @step
        async def late(self, ctx: Context) -> Await:
            assert ctx.timed_out
            assert ctx.awaited == []
            await gate.hold()
            return Await("go", then=self.end, timeout=60)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx))

    async with harness(store, Asks) as app:
        handle = await drained(app, app.start(Asks))
        await app.advance(60)
        draining = asyncio.create_task(app.drain())
        await gate.reached.wait()
        await app.signal(handle, "go", "late")
        gate.open.set()
        assert await draining == {"steps": 2, "await": 1, "done": 1}
        assert (await handle.result())["awaited"] == [["go", "late"]]
        assert (await handle.result())["timed_out"] is False


async def test_s6_fault_23_a_restart_keeps_the_original_deadline(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "timeout": 100}, id="w"))
        began = app.clock.now
    restarted = harness(store, Waiter)
    restarted.clock.now = began + 60_000_000
    async with restarted as app:
        await app.sweep()
        assert await app.drain() == {"steps": 0}
        await app.advance(39)
        assert await app.drain() == {"steps": 0}
        await app.advance(1)
        assert await app.drain() == {"steps": 1, "done": 1}


async def test_s6_fault_23_a_deadline_that_passed_while_no_worker_ran_fires_at_the_restart(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "timeout": 100}, id="w"))
        began = app.clock.now
    restarted = harness(store, Waiter)
    restarted.clock.now = began + 3600_000_000
    async with restarted as app, app.worker():
        assert (await app.result("w", timeout=30))["timed_out"] is True


async def test_s6_timers_follow_the_engines_clock_on_a_running_worker(store: Store) -> None:
    """With the real clock: an idle worker wakes up when something is due."""
    from hark import Hark

    async with Hark(store.url, **store.options) as app, app.worker():
        handle = await app.start(Waiter, {"names": ["go"], "timeout": 0.05})
        assert (await handle.result(timeout=30))["timed_out"] is True


async def test_s6_a_retry_after_a_failed_timeout_still_says_timed_out(store: Store) -> None:
    class Late(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.woken, timeout=1)

        @step
        async def woken(self, ctx: Context) -> Stop:
            return Stop("late" if ctx.timed_out else "in time")

    async with harness(store, Late) as app:
        handle = await drained(app, app.start(Late))
        await drained(app, app.advance(1))
        await app.retry(handle)
        assert (await handle.get()).error is None
        await app.drain()
        assert (await handle.get()).error == "late"


async def test_s6_many_deadlines_fire_each_once_and_in_one_sweep(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start_many([(Waiter, {"timeout": 1 + n % 3}) for n in range(30)]))
        await app.advance(2)
        assert await app.drain() == {"steps": 20, "done": 20}
        await app.advance(10)
        assert await app.drain() == {"steps": 10, "done": 10}


async def test_s6_a_deadline_in_another_zone_is_the_same_moment(store: Store) -> None:
    class Zoned(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            east = timezone(timedelta(hours=9))
            return Await(Broadcast("x"), then=self.end, deadline=(ctx.now() + timedelta(seconds=10)).astimezone(east))

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(ctx.timed_out)

    async with harness(store, Zoned) as app:
        handle = await drained(app, app.start(Zoned))
        await app.advance(9)
        assert await app.drain() == {"steps": 0}
        await drained(app, app.advance(1))
        assert await handle.result() is True
