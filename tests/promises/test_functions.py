"""Durable functions: journaled, suspended without resources, replayed deterministically."""

from __future__ import annotations

import asyncio
import gc
import uuid
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from hark import (
    Await,
    Broadcast,
    CallFailed,
    Context,
    Done,
    Duplicate,
    FunctionContext,
    Hark,
    InvalidInput,
    Machine,
    NoTarget,
    NotFound,
    RetryPolicy,
    RunFailed,
    SignalTimeout,
    Stop,
    step,
    workflow,
)
from hark.engine.worker import watchdog
from hark.testing import Harness
from tests.promises.support_functions import Calls
from tests.promises.support_machines import LEASE, Fuse, kill_a_worker
from tests.support.harness import drained, harness, parked
from tests.support.inspect import query, until
from tests.support.stores import Store

# -- run -------------------------------------------------------------------------------------------


async def test_arguments_of_a_run_are_released_when_it_is_done(store: Store) -> None:
    class Picture:
        """Something large."""

    kept: weakref.WeakSet[Picture] = weakref.WeakSet()

    @workflow
    async def shows(ctx: FunctionContext) -> None:
        for _ in range(3):
            picture = Picture()
            kept.add(picture)
            await ctx.run(lambda picture=picture: type(picture).__name__, name="show")

    async with parked(store, shows) as (_, it):
        assert (await it.get()).status == "done"
    gc.collect()
    assert not kept


async def test_a_run_is_done_once_and_replays_its_result(store: Store) -> None:
    calls = Calls()

    @workflow
    async def three(ctx: FunctionContext, first: int) -> list[int]:
        a = await ctx.run(calls.note, first)
        b = await ctx.run(lambda: calls.plain(a + 1))
        await ctx.wait_for_signal("go")
        c = await ctx.run(lambda: calls.note(b + 1), name="last")  # a coroutine that a lambda returns is awaited
        return [a, b, c]

    async with harness(store, three) as app:
        it = await app.start(three, {"first": 1})
        assert await app.drain() == {"steps": 1, "await": 1}
        assert calls == [1, 2]
        await drained(app, it.signal("go"))
        assert await it.result() == [1, 2, 3]
        assert calls == [1, 2, 3]


@dataclass
class Line:
    item: str
    at: datetime


@dataclass
class Image:
    name: str
    layers: tuple[int, ...]


async def an_image() -> Image:
    return Image("api", (1, 2))


def typed_lines() -> list[Line]:
    return [Line("tea", datetime(2026, 1, 2, tzinfo=UTC))]


def a_date() -> datetime:
    return datetime(2026, 1, 2, tzinfo=UTC)


def a_set() -> set[int]:
    return {1, 2}


def lies() -> list[Line]:
    return [{"item": 7}]  # type: ignore[list-item]


async def untyped() -> Any:
    return {"when": datetime(2026, 1, 2), "items": (1, 2)}


async def test_a_run_returns_the_type_its_function_is_annotated_with_live_and_on_replay(store: Store) -> None:
    seen: list[Any] = []

    @workflow
    async def typed(ctx: FunctionContext) -> None:
        functions = (an_image, typed_lines, a_date, a_set, lies, untyped)
        seen.append([await ctx.run(function) for function in functions])
        await ctx.wait_for_signal("go")

    async with parked(store, typed) as (app, it):
        await drained(app, it.signal("go"))
    live, replayed = seen
    read = [{"item": 7}], {"when": "2026-01-02T00:00:00", "items": [1, 2]}
    assert live == replayed == [Image("api", (1, 2)), typed_lines(), a_date(), {1, 2}, *read]


async def test_a_failed_run_raises_runfailed_live_and_on_replay(store: Store) -> None:
    seen: list[Any] = []

    async def explode() -> None:
        seen.append("tried")
        raise KeyError("no such thing")

    @workflow
    async def careful(ctx: FunctionContext) -> str:
        try:
            await ctx.run(explode)
        except RunFailed as error:
            seen.append((error.type, error.message))
        await ctx.wait_for_signal("go")
        return "went on"

    async with parked(store, careful) as (app, it):
        await drained(app, it.signal("go"))
        assert await it.result() == "went on"
        assert [event.type for event in await app.events(it)].count("error") == 1, "only the next commit records it"
    assert seen == ["tried", ("KeyError", "'no such thing'"), ("KeyError", "'no such thing'")]


async def test_a_function_whose_result_cannot_be_written_fails_with_a_next_step(store: Store) -> None:
    @workflow
    async def odd(ctx: FunctionContext) -> Any:
        return object()

    async with parked(store, odd) as (_, it):
        assert "result of odd" in str((await it.get()).error)


# -- input -----------------------------------------------------------------------------------------


class Struct(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


async def test_a_dict_gives_keyword_arguments_another_value_one_argument_none_no_argument(store: Store) -> None:
    @workflow
    async def named(ctx: FunctionContext, a: int, b: int = 2) -> Any:
        return [a, b]

    @workflow
    async def single(ctx: FunctionContext, value: Any) -> Any:
        return value

    @workflow
    async def bare(ctx: FunctionContext) -> Any:
        return "none"

    @workflow
    async def typed(ctx: FunctionContext, item: Struct, other: Model | None = None) -> Any:
        return item.n

    @workflow
    async def take(ctx: FunctionContext, item: Struct) -> Any:
        return item.n

    async with harness(store, named, single, bare, typed, take) as app:
        starts = [
            await app.start(named, {"a": 1}),
            await app.start(named, 5),
            await app.start(single, [1, 2]),
            await app.start(bare),
            await app.start(typed, {"item": {"n": 3}}),
            await app.start("named", {"a": 7}),
            await app.start(take, Struct(4)),
            await app.start(take, {"n": 5}),
        ]
        await app.drain()
        assert [await it.result() for it in starts] == [[1, 2], [5, 2], [1, 2], "none", 3, [7, 2], 4, 5]


@pytest.mark.parametrize("value", [None, {"b": 1}, {"a": 1, "c": 2}, {"a": {"n": "x"}}])
async def test_input_that_does_not_match_is_refused_at_the_start_if_the_code_is_known(store: Store, value: Any) -> None:
    @workflow
    async def typed(ctx: FunctionContext, a: Struct) -> None: ...

    async with harness(store, typed) as app:
        with pytest.raises(InvalidInput, match=r"typed|argument"):
            await app.start(typed, value)
        assert await app.list() == []


async def test_input_that_does_not_match_fails_the_instance_if_only_the_worker_has_the_code(store: Store) -> None:
    @workflow
    async def strict(ctx: FunctionContext, a: int) -> None: ...

    async with harness(store, strict):
        pass
    async with Harness(url=store.url, **store.options) as stranger:
        it = await stranger.start("strict", {"b": 1})
        id = it.id
    async with harness(store, strict) as app:
        await app.drain()
        instance = await app.get(id)
        assert instance.status == "failed"
        assert "It takes (a: " in str(instance.error)


# -- waiting ---------------------------------------------------------------------------------------


async def test_signals_arrive_in_order_each_once_before_during_and_after(store: Store) -> None:
    @workflow
    async def collect(ctx: FunctionContext) -> list[Any]:
        got = []
        for _ in range(4):
            signal = await ctx.wait_for_signal("a", "b")
            got.append((signal.name, signal.payload))
        return got

    async with harness(store, collect) as app:
        it = await app.start(collect)
        await it.signal("a", 1)
        await it.signal("other", 0)
        await drained(app, it.signal("b", 2))
        await drained(app, it.signal("a", 3))
        await drained(app, it.signal("b", 4))
        assert await it.result() == [["a", 1], ["b", 2], ["a", 3], ["b", 4]]


async def test_a_signal_that_never_comes_is_a_signaltimeout(store: Store) -> None:
    seen: list[str] = []

    @workflow
    async def patient(ctx: FunctionContext) -> str:
        try:
            await ctx.wait_for_signal("paid", timeout=60)
        except TimeoutError as error:
            seen.append(f"{type(error).__name__}: {error}")
        signal = await ctx.wait_for_signal("paid")
        return f"late: {signal.payload}"

    async with parked(store, patient) as (app, it):
        assert (await it.get()).status == "awaiting_signal"
        await drained(app, app.advance(60))
        await drained(app, it.signal("paid", 9))  # fault 21: a signal after the timeout stays for the next wait
        assert await it.result() == "late: 9"
    assert seen[0] == 'SignalTimeout: signal "paid" timed out after 60 s'


async def test_the_timeout_of_a_wait_for_several_names_names_them_all(store: Store) -> None:
    @workflow
    async def patient(ctx: FunctionContext) -> str:
        try:
            await ctx.wait_for_signal("paid", Broadcast("closed"), timeout=60)
        except TimeoutError as error:
            return str(error)
        return "no timeout"

    async with parked(store, patient) as (app, it):
        await drained(app, app.advance(60))
        assert await it.result() == 'signal "paid" or "closed" timed out after 60 s'


async def test_a_function_can_wait_for_a_broadcast_and_takes_no_signal_for_it(store: Store) -> None:
    @workflow
    async def trader(ctx: FunctionContext) -> Any:
        opened = await ctx.wait_for_signal(Broadcast("open"))
        return [opened.kind, opened.payload]

    async with parked(store, trader) as (app, it):
        await it.signal("open", "no")
        assert await app.drain() == {"steps": 0}
        assert await app.broadcast("open", "yes") == 1
        await app.drain()
        assert await it.result() == ["broadcast", "yes"]


async def test_sleep_keeps_its_deadline_through_a_restart(store: Store) -> None:
    @workflow
    async def nap(ctx: FunctionContext) -> str:
        await ctx.sleep(100)
        return "awake"

    async with parked(store, nap) as (app, it):
        (wait,) = (await it.get()).waits
        assert (wait.kind, wait.name) == ("timer", None)
        now = app.clock.now
    async with harness(store, nap) as app:
        app.clock.now = now
        await app.advance(99)
        assert await app.drain() == {"steps": 0}
        await drained(app, app.advance(1))
        assert await app.result(it.id) == "awake"


async def test_now_uuid_and_random_are_the_same_in_every_replay(store: Store) -> None:
    seen: list[Any] = []

    @workflow
    async def dice(ctx: FunctionContext) -> None:
        seen.append((await ctx.now(), ctx.uuid(), ctx.random()))
        for _ in range(3):
            await ctx.wait_for_signal("again")

    async with harness(store, dice) as app:
        it, other = await app.start(dice), await app.start(dice)
        await app.drain()
        for _ in range(3):
            await app.advance(5)
            await drained(app, it.signal("again"))
        await other.cancel()
    assert len(seen) == 5
    assert len({values for values in seen}) == 2
    assert isinstance(seen[0][1], uuid.UUID)
    assert seen[0][0].tzinfo is not None


@pytest.mark.parametrize("beside", [False, True])
async def test_a_run_that_is_repeated_after_a_crash_gets_what_it_got_before(store: Store, beside: bool) -> None:
    fuse = Fuse()
    seen: list[str] = []

    async def note(at: str) -> None:
        seen.append(at)
        await fuse.touch()

    @workflow
    async def noting(ctx: FunctionContext) -> None:
        if beside:
            await ctx.gather(ctx.run(note, str(await ctx.now())), ctx.run(asyncio.sleep, 0))
        else:
            await ctx.run(note, str(await ctx.now()))

    async with harness(store, noting, lease=LEASE) as app:
        it = await app.start(noting)
        await kill_a_worker(app, store, fuse, noting)
        fuse.lit = False
        await app.drain()
        assert (await it.get()).status == "done"
    assert len(seen) == 2
    assert seen[0] == seen[1]


# -- effects ---------------------------------------------------------------------------------------


class Waiter(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("hello", Broadcast("all"), then="end")

    @step
    async def end(self, ctx: Context) -> Any:
        if ctx.awaited[0].payload == "die":
            return Stop("told to")
        return Done([signal.payload for signal in ctx.awaited])


async def test_start_signal_and_broadcast_happen_once_and_return_their_results(store: Store) -> None:
    @workflow
    async def busy(ctx: FunctionContext) -> Any:
        child = await ctx.start(Waiter, correlation_key="w")
        delivery = await ctx.signal("w", "hello", "you")
        reached = await ctx.broadcast("nobody listens")
        await ctx.wait_for_signal("go")
        return [child, delivery.status, delivery.instance_id, reached]

    async with parked(store, busy, Waiter) as (app, it):
        await drained(app, it.signal("go"))
        child, status, target, reached = await it.result()
        assert child == target
        assert status in ("stored", "woke")
        assert reached == 0
        assert await app.result(child) == ["you"]
        assert len(await app.list(definition="Waiter")) == 1


async def test_an_effect_that_cannot_be_done_raises_live_and_on_replay(store: Store) -> None:
    seen: list[Any] = []

    @workflow
    async def unlucky(ctx: FunctionContext) -> None:
        for effect in (
            lambda: ctx.signal("nobody", "x"),
            lambda: ctx.start(Waiter, correlation_key="w"),
            lambda: ctx.start("Unheard"),
            lambda: ctx.resolve("prom_1x"),
        ):
            try:
                await effect()
            except (NoTarget, Duplicate, NotFound) as error:
                seen.append((type(error), str(error), getattr(error, "holder", None), getattr(error, "target", None)))
        await ctx.wait_for_signal("go")

    async with harness(store, unlucky, Waiter) as app:
        holder = await app.start(Waiter, correlation_key="w")
        it = await drained(app, app.start(unlucky))
        await drained(app, it.signal("go"))
        await it.result()
    assert seen[:4] == seen[4:]
    assert [row[0] for row in seen[:4]] == [NoTarget, Duplicate, NotFound, NotFound]
    assert seen[1][2] == holder.id
    assert seen[0][3] == "nobody"


async def test_effects_of_one_function_to_one_instance_arrive_in_the_order_of_the_calls(store: Store) -> None:
    @workflow
    async def collect(ctx: FunctionContext) -> list[Any]:
        return [(await ctx.wait_for_signal("n")).payload for _ in range(5)]

    @workflow
    async def sender(ctx: FunctionContext) -> None:
        await ctx.gather(*(ctx.signal("c", "n", n) for n in range(5)))

    async with parked(store, collect, sender, id="c") as (app, it):
        await drained(app, app.start(sender))
        assert await it.result() == [0, 1, 2, 3, 4]


# -- calls -----------------------------------------------------------------------------------------


async def test_call_gives_the_childs_result_and_parks_awaiting_children(store: Store) -> None:
    @workflow
    async def child(ctx: FunctionContext, n: int) -> int:
        await ctx.wait_for_signal("go")
        return n * 2

    @workflow
    async def parent(ctx: FunctionContext) -> list[Any]:
        first = await ctx.call(child, {"n": 1}, id="one")
        both = await ctx.gather(ctx.call(child, {"n": 2}, id="two"), ctx.call(Waiter, id="three"))
        return [first, *both]

    async with parked(store, parent, child, Waiter) as (app, it):
        assert (await it.get()).status == "awaiting_children"
        assert (await app.get("one")).parent_id == it.id
        await drained(app, app.signal("one", "go"))
        await drained(app, app.signal("three", "hello", "x"))
        await drained(app, app.signal("two", "go"))
        assert await it.result() == [2, 4, ["x"]]


async def test_a_failed_cancelled_or_impossible_child_is_callfailed(store: Store) -> None:
    seen: list[CallFailed] = []

    @workflow
    async def parent(ctx: FunctionContext) -> None:
        for definition, options in ((Waiter, {"id": "fails"}), (Waiter, {"id": "cancelled"}), ("Unheard", {})):
            try:
                await ctx.call(definition, **options)
            except CallFailed as error:
                seen.append(error)
        await ctx.wait_for_signal("go")

    async with parked(store, parent, Waiter) as (app, it):
        await drained(app, app.signal("fails", "hello", "die"))
        await drained(app, app.cancel("cancelled", "not today"))
        await drained(app, it.signal("go"))
        assert (await it.get()).status == "done"
    texts = [str(error) for error in seen[-3:]]
    assert "told to" in texts[0]
    assert "not today" in texts[1]
    assert "Unheard" in texts[2]
    assert seen[-3].id == "fails"


# -- gather and first ------------------------------------------------------------------------------


async def test_gather_runs_side_by_side_and_keeps_the_order_of_its_arguments(store: Store) -> None:
    together = asyncio.Event()
    inside: list[int] = []

    async def meet(n: int) -> int:
        inside.append(n)
        if len(inside) == 3:
            together.set()
        await together.wait()
        return n

    @workflow
    async def crowd(ctx: FunctionContext) -> Any:
        return await ctx.gather(*(ctx.run(meet, n) for n in range(3)))

    async with Hark(store.url, **store.options) as app, app.worker():
        it = await app.start(crowd)
        assert await it.result(timeout=20) == [0, 1, 2]


async def test_branches_replay_in_the_same_order_in_which_they_finished(store: Store) -> None:
    """Two branches of several entries each; answers come in an order that interleaves them."""
    roads: list[list[Any]] = []
    calls = Calls()

    @workflow
    async def weave(ctx: FunctionContext) -> Any:
        road: list[Any] = []
        roads.append(road)

        async def branch(name: str) -> str:
            for n in range(3):
                signal = await ctx.wait_for_signal(f"{name}{n}")
                road.append(await ctx.run(calls.note, (name, n, signal.payload)))
            return name

        return await ctx.gather(branch("left"), branch("right"))

    async with parked(store, weave) as (app, it):
        order = ["right0", "left0", "left1", "right1", "right2", "left2"]
        for n, name in enumerate(order):
            await drained(app, it.signal(name, n))
        assert await it.result() == ["left", "right"]
    expected = [["right", 0, 0], ["left", 0, 1], ["left", 1, 2], ["right", 1, 3], ["right", 2, 4], ["left", 2, 5]]
    assert roads[-1] == expected
    assert [list(call) for call in calls] == expected
    assert all(road == expected[: len(road)] for road in roads)


async def test_gather_raises_the_first_error_and_withdraws_the_others(store: Store) -> None:
    @workflow
    async def both(ctx: FunctionContext) -> str:
        question = await ctx.awakeable()
        try:
            await ctx.gather(question, ctx.wait_for_signal("x", timeout=5))
        except SignalTimeout:
            return "gave up"
        return "no"

    async with parked(store, both) as (app, it):
        await drained(app, app.advance(5))
        assert await it.result() == "gave up"
        [question] = await app.awakeables()
        assert question.status == "CANCELLED"


async def test_first_gives_index_and_value_and_withdraws_the_losers(store: Store) -> None:
    @workflow
    async def race(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable(title="well?")
        index, value = await ctx.first(question, ctx.wait_for_signal("no"), ctx.call(Waiter, id="w"), ctx.sleep(10))
        await ctx.wait_for_signal("go")
        return [index, value]

    async with parked(store, race, Waiter) as (app, it):
        assert len((await it.get()).waits) == 4
        await drained(app, app.advance(10))
        [question] = await app.awakeables()
        assert question.status == "CANCELLED"
        assert (await app.get("w")).status == "cancelled"
        assert [wait.name for wait in (await it.get()).waits] == ["go"]
        await it.signal("no")
        assert await app.drain() == {"steps": 0}
        await drained(app, it.signal("go"))
        assert await it.result() == [3, None]


async def test_s6_a_signal_that_arrives_before_the_function_hears_of_the_timeout_wins(store: Store) -> None:
    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        return (await ctx.wait_for_signal("go", timeout=10)).payload

    async with parked(store, asks) as (app, it):
        await app.advance(10)
        await it.signal("go", 1)
        await app.drain()
        assert await it.result() == 1


async def test_a_function_that_ends_with_first_cancels_the_child_that_lost(store: Store) -> None:
    @workflow
    async def race(ctx: FunctionContext) -> int:
        return (await ctx.first(ctx.call(Waiter, id="w"), ctx.sleep(10)))[0]

    async with parked(store, race, Waiter) as (app, it):
        await app.advance(10)
        await app.drain()
        assert (await it.result(), (await app.get("w")).status) == (1, "cancelled")


async def test_a_run_that_ended_with_the_winner_of_first_is_skipped_by_a_replay(store: Store) -> None:
    @workflow
    async def race(ctx: FunctionContext) -> int:
        index, _ = await ctx.first(ctx.run(asyncio.sleep, 0), ctx.run(asyncio.sleep, 0))
        await ctx.wait_for_signal("go")
        return index

    async with harness(store, race, resident_functions=0) as app:
        it = await app.start(race)
        await app.drain()
        assert await query(store, "SELECT count(*) FROM journal WHERE kind = 'run'") == [(2,)]
        await it.signal("go")
        await app.drain()
        assert await it.result() == 0


async def test_first_over_branches_stops_the_loser_where_it_waits_and_it_requests_nothing_more(store: Store) -> None:
    calls = Calls()

    @workflow
    async def race(ctx: FunctionContext) -> Any:
        async def long() -> str:
            await ctx.run(calls.note, "long begins")
            try:
                await ctx.wait_for_signal("never")
            finally:
                await ctx.run(calls.note, "tidied")
            return "long"

        async def short() -> str:
            await ctx.sleep(1)
            return "short"

        won = await ctx.first(long(), short())
        await ctx.run(calls.note, "after")
        return won

    async with parked(store, race) as (app, it):
        await drained(app, app.advance(1))
        assert await it.result() == [1, "short"]
    assert calls == ["long begins", "after"]


async def test_a_slow_run_does_not_delay_a_concurrent_deadline_or_answer(store: Store) -> None:
    """While a run executes, a concurrent wait is answered immediately."""
    never = asyncio.Event()
    begun: list[str] = []
    cancelled: list[str] = []

    async def slow(beside: str) -> None:
        begun.append(beside)
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.append(beside)
            raise

    @workflow
    async def race(ctx: FunctionContext) -> Any:
        timer = await ctx.first(ctx.run(slow, "timer"), ctx.sleep(0.2))
        signal = await ctx.first(ctx.run(slow, "signal"), ctx.wait_for_signal("x"))
        early = await ctx.first(ctx.run(slow, "early signal"), ctx.wait_for_signal("y"))
        question = await ctx.awakeable(timeout=0.2)
        try:
            answer: Any = await ctx.first(ctx.run(slow, "question"), question)
        except TimeoutError:
            answer = "timed out"
        child = await ctx.first(ctx.run(slow, "child"), ctx.call(Waiter, id="w"))
        return [timer[0], signal[0], signal[1].payload, early[1].payload, answer, child]

    async with Hark(store.url, **store.options) as app, app.worker():
        it = await app.start(race)
        await until(lambda: "signal" in begun, "the run beside the signal")
        await app.signal(it, "y", 6)
        await app.signal(it, "x", 5)
        await until(lambda: "child" in begun, "the run beside the child")
        await until(lambda: app.list(definition="Waiter", status="awaiting_signal"), "the child to wait")
        await app.signal("w", "hello", "there")
        assert await it.result(timeout=60) == [1, 1, 5, 6, "timed out", [1, ["there"]]]
    # One signal arrived before the concurrent run could start; on a slow machine the times may be over before, too.
    assert begun == cancelled == [one for one in ("timer", "signal", "question", "child") if one in begun]
    assert {"signal", "child"} <= set(begun)


async def test_a_signal_from_another_process_reaches_an_executing_function(store: Store) -> None:
    never = asyncio.Event()

    @workflow
    async def race(ctx: FunctionContext) -> Any:
        _, signal = await ctx.first(ctx.run(never.wait), ctx.wait_for_signal("x"))
        return signal.payload

    async with Hark(store.url, **store.options) as app, Hark(store.url, **store.options) as other, app.worker():
        it = await app.start(race)
        while not await app.waits(name="x"):
            await asyncio.sleep(0.01)
        await other.signal(it.id, "x", "from afar")
        assert await it.result(timeout=20) == "from afar"


async def test_continue_as_new_starts_with_an_empty_journal(store: Store) -> None:
    @workflow
    async def loop(ctx: FunctionContext, n: int = 0) -> Any:
        question = await ctx.awakeable()
        await ctx.run(str, question.id)
        signal = await ctx.wait_for_signal("tick")
        if n < 3:
            return ctx.continue_as_new({"n": n + 1})
        return [n, signal.payload, question.id]

    async with harness(store, loop) as app:
        it = await app.start(loop)
        for tick in range(4):
            await it.signal("tick", tick)  # those not taken yet stay
        assert await app.drain() == {"steps": 4, "done": 1, "next": 3}
        n, payload, question = await it.result()
        assert (n, payload) == (3, 3)
        ids = {awakeable.id for awakeable in await app.awakeables()}
        assert len(ids) == 4
        assert question in ids
        assert {awakeable.status for awakeable in await app.awakeables()} == {"CANCELLED"}


# -- errors ----------------------------------------------------------------------------------------


async def test_awaiting_a_foreign_awaitable_is_an_error_that_says_what_to_do(store: Store) -> None:
    @workflow
    async def stray(ctx: FunctionContext) -> None:
        await asyncio.sleep(0.001)

    async with parked(store, stray) as (_, it):
        assert "ctx.run" in str((await it.get()).error)


async def test_a_function_can_neither_catch_its_suspension_nor_run_anything_in_its_finally(store: Store) -> None:
    calls = Calls()

    @workflow
    async def greedy(ctx: FunctionContext) -> str:
        try:
            return str((await ctx.wait_for_signal("x")).payload)
        except Exception:
            calls.append("swallowed")
            return "wrong"
        finally:
            await ctx.run(calls.note, "tidied")

    async with parked(store, greedy) as (app, it):
        assert calls == []
        await drained(app, it.signal("x", "right"))
        assert await it.result() == "right"
    assert calls == ["tidied"]


async def test_a_function_that_blocks_the_loop_is_reported_with_its_line(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setattr(watchdog, "_INTERVAL", 0.02)  # the watchdog needs nine checks, and gets many more than that

    @workflow
    async def sleepy(ctx: FunctionContext) -> None:
        time.sleep(0.8)  # noqa: ASYNC251  # what it is about
        await ctx.sleep(1)

    async with parked(store, sleepy) as (_, it):
        error = str((await it.get()).error)
        assert "blocked the event loop" in error
        assert "test_functions.py" in error
        assert "ctx.run" in error


@pytest.mark.slow
@pytest.mark.parametrize("what", ["run", "question"])
async def test_a_long_replay_is_not_mistaken_for_code_that_blocks_the_loop(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Between two journal lines it is as quick as it was live; only all of them together take long."""
    import time

    monkeypatch.setattr(watchdog, "_INTERVAL", 0.05)  # nine checks: code that takes 0.01 s is not reported

    async def one() -> int:
        return 1

    @workflow
    async def thorough(ctx: FunctionContext) -> int:
        total = 0
        for _ in range(70):
            total += await (ctx.run(one) if what == "run" else await ctx.awakeable(title="How many?"))
            time.sleep(0.01)  # noqa: ASYNC251  # what it is about
        await ctx.wait_for_signal("go")
        return total

    async with harness(store, thorough) as app:
        if what == "question":
            monkeypatch.setattr(time, "sleep", lambda seconds: None)  # it is replayed at every answer
            app.answer("How many?", 1)
        it = await drained(app, app.start(thorough))
        monkeypatch.undo()
        monkeypatch.setattr(watchdog, "_INTERVAL", 0.05)
        await drained(app, it.signal("go"))
        assert (await it.get()).error is None
        assert await it.result() == 70


async def test_cancel_stops_what_runs_and_everything_below(store: Store) -> None:
    stopped = asyncio.Event()
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @workflow
    async def parent(ctx: FunctionContext) -> None:
        question = await ctx.awakeable()
        await ctx.gather(ctx.run(slow), ctx.call(Waiter, id="w"), question)

    async with Hark(store.url, **store.options) as app, app.worker():
        it = await app.start(parent)
        await begun.wait()
        await it.cancel("enough")
        await asyncio.wait_for(stopped.wait(), 20)
        assert (await app.get("w")).status == "cancelled"
        [question] = await app.awakeables()
        assert question.status == "CANCELLED"


async def test_malformed_arguments_raise_at_the_call(store: Store) -> None:
    seen: list[str] = []

    @workflow
    async def sloppy(ctx: FunctionContext) -> int:
        for wrong in (
            lambda: ctx.run(5),  # type: ignore[arg-type]
            lambda: ctx.run(print, retries=-1),
            lambda: ctx.run(print, retries="many"),  # type: ignore[arg-type]
            lambda: ctx.run(print, retries=False),
            lambda: ctx.run(print, retries=RetryPolicy(3), backoff=5),
            lambda: ctx.run(print, backoff=-1),
            lambda: ctx.run(print, kwargs=["a"]),  # type: ignore[arg-type]
            lambda: ctx.run(print, kwargs={1: "a"}),  # type: ignore[dict-item]
            lambda: ctx.run(print, timeout=0),
            lambda: ctx.run(print, timeout="5"),  # type: ignore[arg-type]
            lambda: ctx.sleep(-1),
            lambda: ctx.sleep(float("nan")),
            lambda: ctx.wait_for_signal(),
            lambda: ctx.wait_for_signal("x", timeout=0),
            lambda: ctx.wait_for_signal("x" * 300),
            lambda: ctx.signal("t", "n", object()),
            lambda: ctx.resolve("prom_1x", 1, by=5),  # type: ignore[arg-type]
            lambda: ctx.reject("prom_1x", "no", by="\0"),
            lambda: ctx.reject("prom_1x", "x" * (1 << 16)),
            lambda: ctx.first(),
        ):
            try:
                wrong()
            except InvalidInput as error:
                seen.append(str(error))
        for schema in (5, {"type": "nonsense"}):
            try:
                await ctx.awakeable(schema=schema)
            except InvalidInput as error:
                seen.append(str(error))
        for options in ({"timeout": 0}, {"title": 5}, {"assignees": "ann"}):
            try:
                await ctx.awakeable(**options)  # type: ignore[arg-type]
            except InvalidInput as error:
                seen.append(str(error))
        return len(seen)

    async with parked(store, sloppy) as (_, it):
        assert await it.result() == 25, seen


def test_workflow_requires_an_async_def_with_a_context_and_a_valid_version() -> None:
    from hark import InvalidDefinition

    with pytest.raises(InvalidDefinition, match="async def"):
        workflow(lambda ctx: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidDefinition, match="ctx"):

        @workflow
        async def bare() -> None: ...

    with pytest.raises(InvalidDefinition, match="Workflow late: version=-1: give a whole number from 0 to 2147483647"):

        @workflow(version=-1)
        async def late(ctx: FunctionContext) -> None: ...
