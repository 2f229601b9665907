"""M2: Next, Retry, Await, Spawn, Done and Stop, and what each does to `attempt`."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from hark import (
    Await,
    Broadcast,
    Child,
    Context,
    Done,
    InstanceFailed,
    InvalidInput,
    Machine,
    Next,
    Retry,
    Spawn,
    Stop,
    step,
)
from hark.testing import Harness
from tests.promises.support_machines import Fuse, harness, kill_a_worker
from tests.support.harness import drained
from tests.support.stores import Store


async def test_m2_all_six_outcomes_do_what_they_say(store: Store) -> None:
    class Tour(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            return Next(self.polls)

        @step
        async def polls(self, ctx: Context) -> Retry | Await:
            return Retry() if ctx.attempt < 2 else Await("go", then=self.spawns)

        @step
        async def spawns(self, ctx: Context) -> Spawn:
            return Spawn([Child(Tour, step="stops")], then=self.ends)

        @step
        async def ends(self, ctx: Context) -> Done:
            return Done([child.error for child in ctx.children])

        @step
        async def stops(self, ctx: Context) -> Stop:
            return Stop("enough")

    async with harness(store, Tour) as app:
        tour = await app.start(Tour)
        assert await app.drain() == {"steps": 4, "await": 1, "next": 1, "retry": 2}
        assert (await tour.get()).status == "awaiting_signal"
        await tour.signal("go")
        assert await app.drain() == {"steps": 3, "done": 1, "spawn": 1, "stop": 1}
        assert await tour.result() == ["enough"]
        types = [event.type for event in await app.events(tour)]
        assert types == ["started", "next", "retry", "retry", "await", "signal", "spawn", "joined", "done"]


async def test_m2_next_resets_attempt_and_retry_adds_one_after_its_delay(store: Store) -> None:
    ran: list[tuple[str, int]] = []

    class Backs(Machine):
        @step
        async def start(self, ctx: Context) -> Retry | Next:
            ran.append((ctx.step, ctx.attempt))
            return Retry(timedelta(seconds=2**ctx.attempt)) if ctx.attempt < 3 else Next(self.second)

        @step
        async def second(self, ctx: Context) -> Retry | Done:
            ran.append((ctx.step, ctx.attempt))
            return Retry(0.5) if ctx.attempt == 0 else Done()

    async with harness(store, Backs) as app:
        backs = await app.start(Backs)
        for delay in (1, 2, 4):  # the policy is the user's: here it doubles
            await app.drain()
            await app.advance(delay - 0.001)
            assert await app.drain() == {"steps": 0}, f"{delay} s are not over"
            assert (await backs.get()).status == "runnable"
            await app.advance(0.001)
        assert await app.drain() == {"steps": 2, "next": 1, "retry": 1}
        await drained(app, app.advance(0.5))
        assert ran == [("start", 0), ("start", 1), ("start", 2), ("start", 3), ("second", 0), ("second", 1)]
        assert (await backs.get()).attempt == 0, "every other outcome sets 0"


async def test_m2_attempt_is_zero_after_an_await_or_spawn_and_a_wake_up_leaves_it_unchanged(store: Store) -> None:
    ran: list[tuple[str, int]] = []

    class Parks(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            ran.append((ctx.step, ctx.attempt))
            return Retry() if ctx.attempt == 0 else Await("go", then=self.woken)

        @step
        async def woken(self, ctx: Context) -> Any:
            ran.append((ctx.step, ctx.attempt))
            return Retry() if ctx.attempt == 0 else Spawn([], then=self.joined)

        @step
        async def joined(self, ctx: Context) -> Any:
            ran.append((ctx.step, ctx.attempt))
            return Done()

    async with harness(store, Parks) as app:
        parks = await drained(app, app.start(Parks))
        assert (await parks.get()).attempt == 0
        await parks.signal("go")
        assert (await parks.get()).attempt == 0
        await app.drain()
        assert ran == [("start", 0), ("start", 1), ("woken", 0), ("woken", 1), ("joined", 0)]


async def test_m2_a_lost_lease_adds_one_to_attempt_and_the_next_outcome_resets_it(store: Store) -> None:
    fuse, ran = Fuse(), []

    class Dies(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            ran.append(ctx.attempt)
            await fuse.touch()
            return Next(self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            ran.append(ctx.attempt)
            return Done()

    async with harness(store, Dies) as app:
        dies = await app.start(Dies)
        await kill_a_worker(app, store, fuse, Dies)
        assert (await dies.get()).attempt == 1
        fuse.lit = False
        await app.drain()
        assert ran == [0, 1, 0]


async def test_m2_a_retry_without_delay_is_queued_behind_waiting_instances(store: Store) -> None:
    ran: list[str] = []

    class Polls(Machine):
        @step
        async def start(self, ctx: Context) -> Retry | Done:
            ran.append(f"{ctx.state['name']}{ctx.attempt}")
            return Retry() if ctx.attempt < ctx.state["tries"] else Done()

    async with harness(store, Polls) as app:
        await drained(app, app.start_many([(Polls, {"name": "a", "tries": 2}), (Polls, {"name": "b", "tries": 0})]))
        assert ran == ["a0", "b0", "a1", "a2"]


async def test_m2_done_records_its_result_and_stop_its_reason(store: Store) -> None:
    class Endings(Machine):
        @step
        async def start(self, ctx: Context) -> Done | Stop:
            match ctx.state["how"]:
                case "nothing":
                    return Done()
                case "text":
                    return Stop("out of stock")
                case "error":
                    return Stop(KeyError("sku"))
                case other:
                    return Done(other)

    async with harness(store, Endings) as app:
        nothing = await app.start(Endings, {"how": "nothing"})
        value = await app.start(Endings, {"how": {"deep": [1, 2.5, None, "ü"]}})
        text = await app.start(Endings, {"how": "text"})
        error = await app.start(Endings, {"how": "error"})
        assert await app.drain() == {"steps": 4, "done": 2, "stop": 2}
        assert await nothing.result() is None
        assert await value.result() == {"deep": [1, 2.5, None, "ü"]}
        with pytest.raises(InstanceFailed, match="out of stock") as failed:
            await text.result()
        assert failed.value.error == "out of stock"
        assert failed.value.id == text.id
        assert (await error.get()).error == "KeyError: 'sku'"
        assert (await error.get()).status == "failed"


async def test_m2_fault_11_done_and_stop_leave_neither_inbox_nor_waits_open(store: Store) -> None:
    from hark import NoTarget

    class Endings(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.end, timeout=60)

        @step
        async def end(self, ctx: Context) -> Done | Stop:
            return Done() if ctx.state["well"] else Stop("no")

    async with harness(store, Endings) as app:
        both = [await app.start(Endings, {"well": well}) for well in (True, False)]
        await app.drain()
        for ends in both:
            await ends.signal("other")
            await ends.signal("go", dedup_key="g")
        await app.drain()
        assert [(await ends.get()).status for ends in both] == ["done", "failed"]
        assert await app.waits() == []
        await app.advance(120)
        assert await app.drain() == {"steps": 0}, "a deadline of the finished fires nothing"
        for ends in both:
            with pytest.raises(NoTarget):
                await ends.signal("go")
            assert (await ends.signal("go", dedup_key="g")).status == "duplicate"


async def test_m2_fault_10_a_retry_sees_the_same_signals_again(store: Store) -> None:
    seen: list[list[int]] = []

    class Tries(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("n", then=self.take)

        @step
        async def take(self, ctx: Context) -> Retry | Next:
            seen.append([signal.payload for signal in ctx.awaited])
            return Retry(1) if ctx.attempt < 2 else Next(self.after)

        @step
        async def after(self, ctx: Context) -> Done:
            seen.append([signal.payload for signal in ctx.all])
            return Done()

    async with harness(store, Tries) as app:
        tries = await drained(app, app.start(Tries))
        await drained(app, tries.signal("n", 1))
        await tries.signal("n", 2)
        assert await app.drain() == {"steps": 0}, "a Retry waits out its delay whatever arrives"
        await drained(app, app.advance(1))
        await drained(app, app.advance(1))
        assert seen == [[1], [1, 2], [1, 2], []]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Await("x", then="start", timeout=0), "zero"),
        (lambda: Await("x", then="start", timeout=-1), "negative"),
        (lambda: Await("x", then="start", timeout=float("nan")), "finite"),
        (lambda: Await("x", then="start", timeout=float("inf")), "finite"),
        (lambda: Await("x", then="start", timeout=1e300), "100 years"),
        (lambda: Await("x", then="start", timeout=timedelta(days=-1)), "negative"),
        (lambda: Await("x", then="start", timeout="5"), "seconds"),
        (lambda: Await("x", then="start", timeout=True), "seconds"),
        (lambda: Await("x", then="start", deadline="tomorrow"), "datetime"),
        (lambda: Await("x", then="start", deadline=datetime(2030, 1, 1)), "no time zone"),
        (lambda: Await(then="start"), "would wait forever"),
        (lambda: Await("", then="start"), "empty"),
        (lambda: Await(Broadcast, then="start"), "text"),
        (lambda: Await("x\0", then="start"), "NUL"),
        (lambda: Await("x" * 256, then="start"), "255"),
        (lambda: Retry(-1), "negative"),
        (lambda: Retry(float("nan")), "finite"),
        (lambda: Next(print), "step"),
        (lambda: Spawn([Child("Any")], then="start", join=2), "join=2"),
        (lambda: Spawn([Child("Any")], then="start", join=0), "join=0"),
        (lambda: Spawn(["Any"], then="start"), "Child"),
    ],
)
async def test_m2_fault_24_a_malformed_outcome_is_refused_with_a_reason(make: Any, reason: str) -> None:
    handled: list[Exception] = []

    class Makes(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return make()

        def handle(self, error: Exception, ctx: Context) -> Stop:
            handled.append(error)
            return Stop(error)

    with pytest.raises(InvalidInput, match=reason):
        make()
    async with Harness(Makes) as app:
        makes = await app.start(Makes)
        assert await app.drain() == {"steps": 1, "stop": 1}
        assert isinstance(handled[0], InvalidInput)
        assert reason in (await makes.get()).error
