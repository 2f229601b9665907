"""B1: a broadcast wakes every current subscriber and returns the count, all or nothing.

`LIMITS` runs a test both ways: in one transaction, and marked first and delivered in chunks of ten.
"""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from hark import Await, Broadcast, Context, Done, HarkError, InvalidInput, Machine, Next, Stop, step
from hark.kernel.requests import Cancel, DefinitionRow, Deliver, Publish, Register
from hark.model.decisions import Arm, Park
from hark.store import statements
from hark.store.protocol import StoreFault
from tests.promises.support_signals import (
    Gate,
    Pack,
    Turns,
    Waiter,
    count,
    harness,
    rows,
    seen,
    statuses,
    until_blocked,
)  # fmt: skip
from tests.support.harness import drained, parked
from tests.support.inspect import query, until
from tests.support.stores import Store

LIMITS = pytest.mark.parametrize("limit", [50_000, 10], ids=["whole", "chunked"])
PER_INSTANCE = "SELECT count(*) FROM inbox WHERE kind = 'broadcast' GROUP BY instance_id"


def names(number: int) -> list[str]:
    return [f"s-{n:04}" for n in range(number)]


def subscribing(id: str, broadcast: str = "x") -> Park:
    return Park((Arm("broadcast", f"wait-{id}", name=broadcast),))


async def subscribe(store: Store, clock: Any, ids: Sequence[str]) -> None:
    """Park many subscribers at once, without a worker."""
    async with Turns(store, clock) as turns:
        await turns.park_all("Waiter", ids, subscribing, "woken")


@LIMITS
async def test_b1_every_current_subscriber_is_woken_and_counted(store: Store, limit: int) -> None:
    async with harness(store, Waiter, broadcast_limit=limit) as app:
        await subscribe(store, app.clock, names(25))
        await app.start(Waiter, {"names": ["x"]}, id="signal-waiter")
        await drained(app, app.start(Waiter, {"broadcasts": ["y"]}, id="other"))
        assert await app.broadcast("x", {"at": 9}) == 25
        assert await app.drain() == {"steps": 25, "done": 25}
        assert (await app.result("s-0007"))["awaited"] == [["x", {"at": 9}]]
        assert await rows(store, PER_INSTANCE) == [(1,)] * 25
        assert await statuses(app, "signal-waiter", "other") == ["awaiting_signal"] * 2


async def test_b1_a_signal_is_never_a_broadcast_and_a_broadcast_never_a_signal(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["x"]}, id="s")
        await drained(app, app.start(Waiter, {"broadcasts": ["x"]}, id="b"))
        assert (await app.signal("b", "x", "signal")).status == "stored"
        assert await app.broadcast("x", "broadcast") == 1
        assert (await app.signal("s", "x", "signal")).status == "woke"
        await app.drain()
        assert (await app.result("s"))["all"] == [["x", "signal"]]
        assert (await app.result("b"))["awaited"] == [["x", "broadcast"]]
        assert (await app.result("b"))["all"] == [["x", "signal"], ["x", "broadcast"]]


async def test_b1_the_step_can_tell_them_apart(store: Store) -> None:
    class Both(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("x", Broadcast("x"), then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([[signal.kind, signal.name, signal.payload] for signal in ctx.awaited])

    async with parked(store, Both) as (app, handle):
        assert await app.broadcast("x", 1) == 1
        await drained(app, app.signal(handle, "x", 2))
        assert await handle.result() == [["broadcast", "x", 1], ["signal", "x", 2]]


async def test_b1_without_subscribers_the_count_is_zero_and_nothing_is_kept(store: Store) -> None:
    async with harness(store, Waiter) as app:
        assert await app.broadcast("x", 1) == 0
        await app.start(Waiter, {"broadcasts": ["x"]}, id="late")
        assert await app.broadcast("x", 2) == 0  # started, but not subscribed yet
        await app.drain()
        assert (await app.get("late")).status == "awaiting_signal"
        assert await count(store, "inbox") == 0
        assert await app.broadcast("x", 3) == 1
        await app.drain()
        assert (await app.result("late"))["all"] == [["x", 3]]


async def test_b1_two_waits_for_one_name_are_one_subscriber(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        arms = tuple(Arm("broadcast", f"wait-{place}", place=place, name="x") for place in ("left", "right"))
        await turns.start("M", "m")
        await turns.commit(await turns.claim("M"), Park(arms), step="woken")
        publish = Publish(name="x")
        await turns.run(publish)
        assert publish.result == 1
        claim = await turns.claim("M")
        assert [row.name for row in claim.inbox] == ["x"]
        assert [wait.place for wait in claim.waits] == ["left", "right"]


async def test_b1_any_kind_of_workflow_subscribes(store: Store) -> None:
    kinds = ["machine", "workflow", "job", "task", "bpmn"]
    async with Turns(store) as turns:
        await turns.run(Register(rows=[DefinitionRow(kind, 1, kind, "default", "start") for kind in kinds]))
        for kind in kinds:
            await turns.park_all(kind, [f"the-{kind}"], subscribing, "woken")
        publish = Publish(name="x")
        turn = await turns.run(publish, lanes=kinds, room=10)
        assert publish.result == len(turn.claims) == len(kinds)


async def test_b1_a_subscriber_whose_step_runs_is_still_one(store: Store) -> None:
    """A wait lives until the outcome that replaces it, so a broadcast during the step is stored."""
    gate = Gate()

    class Slow(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", Broadcast("x"), then=self.work)

        @step
        async def work(self, ctx: Context) -> Await:
            await gate.hold()
            return Await(Broadcast("x"), then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx)["awaited"])

    async with harness(store, Slow) as app:
        handle = await app.start(Slow)
        await app.signal(handle, "go")
        draining = asyncio.create_task(app.drain())
        await gate.reached.wait()
        assert await app.broadcast("x", "during") == 1
        gate.open.set()
        assert await draining == {"steps": 3, "await": 2, "done": 1}
        assert await handle.result() == [["x", "during"]]


class Fails(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", Broadcast("x"), then=self.end)

    @step
    async def end(self, ctx: Context) -> Stop:
        return Stop(f"{len(ctx.all)} in the inbox")


@LIMITS
async def test_b1_finished_instances_are_not_subscribers(store: Store, limit: int) -> None:
    async with harness(store, Fails, Waiter, broadcast_limit=limit) as app:
        await subscribe(store, app.clock, names(12))
        for id in ("failed", "cancelled"):
            await app.start(Fails, id=id)
        await app.drain()
        await drained(app, app.signal("failed", "go"))
        await app.cancel("cancelled")
        assert await app.broadcast("x") == 12
        await app.drain()
        assert await statuses(app, "failed", "cancelled", "s-0000") == ["failed", "cancelled", "done"]
        await drained(app, app.retry("failed"))
        assert (await app.get("failed")).error == "1 in the inbox"  # it did not receive what was broadcast meanwhile


async def test_b1_two_broadcasts_in_a_row_are_two(store: Store) -> None:
    async with parked(store, Pack, input={"broadcasts": ["x"], "size": 3}, id="p") as (app, _):
        assert [await reply for reply in [app.broadcast("x", n) for n in range(3)]] == [1, 1, 1]
        await app.drain()
        assert (await app.result("p"))["payloads"] == [0, 1, 2]


@LIMITS
async def test_b1_a_duplicate_reaches_no_subscriber_and_returns_the_first_count(store: Store, limit: int) -> None:
    async with harness(store, Waiter, broadcast_limit=limit) as app:
        await subscribe(store, app.clock, names(12))
        assert await app.broadcast("x", 1, dedup_key="monday") == 12
        await app.drain()
        await subscribe(store, app.clock, ["late"])
        assert await app.broadcast("x", 1, dedup_key="monday") == 12
        assert await app.drain() == {"steps": 0}
        # Dedup keys are scoped to the name, and a count of zero is remembered too.
        assert await app.broadcast("y", 1, dedup_key="monday") == 0
        assert await app.broadcast("x", 2, dedup_key="tuesday") == 1
        assert await rows(store, PER_INSTANCE) == [(1,)] * 13
        await drained(app, app.start(Waiter, {"broadcasts": ["y"]}, id="y"))
        assert await app.broadcast("y", 1, dedup_key="monday") == 0


async def test_b1_the_same_key_many_times_at_once_is_one_broadcast(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await subscribe(store, app.clock, names(3))
        replies = [app.broadcast("x", n, dedup_key="once") for n in range(10)]
        assert [await reply for reply in replies] == [3] * 10
        assert await rows(store, PER_INSTANCE) == [(1,)] * 3


async def test_b1_two_connections_with_the_same_dedup_key_broadcast_once(pg_store: Store) -> None:
    async with Turns(pg_store) as one, Turns(pg_store) as two:
        await one.register("Waiter")
        await one.park_all("Waiter", names(3), subscribing, "woken")
        await two.run()
        first, second = (Publish(name="x", dedup_key="once") for _ in range(2))
        turn = await one.open_turn(first)
        meeting = asyncio.create_task(two.run(second))
        await until_blocked(pg_store, two)
        await turn.tx.commit()
        await meeting
        assert first.result == second.result == 3
        assert await rows(pg_store, PER_INSTANCE) == [(1,)] * 3


POISON = {
    "sqlite": ["""CREATE TRIGGER poison BEFORE INSERT ON inbox WHEN NEW.instance_id = 's-0003'
                  BEGIN SELECT RAISE(ABORT, 'poisoned'); END"""],
    "postgres": ["""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE EXCEPTION 'poisoned'; END $$""",
                 """CREATE TRIGGER poison BEFORE INSERT ON inbox FOR EACH ROW
                    WHEN (NEW.instance_id = 's-0003') EXECUTE FUNCTION refuse()"""],
}  # fmt: skip
CURE = {"sqlite": "DROP TRIGGER poison", "postgres": "DROP TRIGGER poison ON inbox"}


async def test_b1_a_delivery_that_fails_rolls_back_the_whole_broadcast(store: Store) -> None:
    """All or nothing: not even subscribers before the bad one have it, and its dedup key is not used up."""
    async with harness(store, Waiter) as app:
        await subscribe(store, app.clock, names(6))
        for statement in POISON[store.name]:
            await query(store, statement)
        with pytest.raises((HarkError, StoreFault), match="poisoned"):
            await app.broadcast("x", 1, dedup_key="once")
        assert await count(store, "inbox") == 0
        assert set(await statuses(app, *names(6))) == {"awaiting_signal"}
        await query(store, CURE[store.name])
        assert await app.broadcast("x", 1, dedup_key="once") == 6
        await app.drain()
        assert await rows(store, PER_INSTANCE) == [(1,)] * 6


@LIMITS
async def test_b1_fault_57_one_subscriber_fails_and_the_others_continue(store: Store, limit: int) -> None:
    class Fragile(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await(Broadcast("x"), then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            if ctx.id == "s-0003":
                raise RuntimeError("fragile")
            return Done(seen(ctx)["awaited"])

    async with harness(store, Fragile, broadcast_limit=limit) as app:
        async with Turns(store, app.clock) as turns:
            await turns.park_all("Fragile", names(15), subscribing, "end")
        assert await app.broadcast("x", 1) == 15
        assert await app.drain() == {"steps": 15, "done": 14, "stop": 1}
        assert (await app.get("s-0003")).status == "failed"
        await drained(app, app.retry("s-0003"))
        assert "fragile" in (await app.get("s-0003")).error


class Thrower(Machine):
    """Subscribes, is woken by something else, and broadcasts what it subscribes to."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", Broadcast("x"), then=self.throw)

    @step
    async def throw(self, ctx: Context) -> Await | Next:
        ctx.broadcast("x", "mine")
        match ctx.state["then"]:
            case "await":
                return Await(Broadcast("x"), then=self.caught)
            case "next":
                return Next(self.caught)
            case _:
                return Next(self.caught, concurrency_key="new")

    @step
    async def caught(self, ctx: Context) -> Done:
        return Done(seen(ctx))


@LIMITS
async def test_b1_fault_54_a_thrower_catches_itself(store: Store, limit: int) -> None:
    async with harness(store, Thrower, Waiter, broadcast_limit=limit) as app:
        await subscribe(store, app.clock, names(12))
        await drained(app, app.start(Thrower, {"then": "await"}, id="thrower"))
        await app.signal("thrower", "go")
        assert await app.drain() == {"steps": 14, "await": 1, "done": 13}
        assert (await app.result("thrower"))["awaited"] == [["x", "mine"]]
        assert await rows(store, PER_INSTANCE) == [(1,)] * 13


@pytest.mark.parametrize("way", ["next", "next with a key"])
async def test_b1_fault_54_a_thrower_that_continues_has_it_in_the_inbox_but_was_not_handed_it(
    store: Store, way: str
) -> None:
    async with parked(store, Thrower, input={"then": way}, id="thrower") as (app, _):
        await drained(app, app.signal("thrower", "go"))
        assert await app.result("thrower") == {
            "awaited": [], "all": [["x", "mine"]], "timed_out": False, "attempt": 0,
        }  # fmt: skip


async def test_b1_fault_58_a_crash_in_the_middle_of_a_thousand(store: Store) -> None:
    """After the marks, in a chunk and between chunks: the rest is delivered, and no subscriber receives it twice."""
    ids = names(1000)
    async with harness(store, Waiter, broadcast_limit=100) as app:
        await subscribe(store, app.clock, ids)
        assert await app.broadcast("x", 1) == 1000  # no worker: the process marks, and dies
        assert await count(store, "inbox") == 0
        assert await count(store, "deliveries") == 1000
    async with Turns(store, broadcast_limit=100) as crashing:
        await crashing.run(pending_deliveries=True)
        chunk = await crashing.open_turn(pending_deliveries=True)
        await chunk.tx.rollback()  # dies in the middle of a chunk
        await crashing.run(pending_deliveries=True)
        assert await count(store, "inbox") == 200
    async with harness(store, Waiter, broadcast_limit=100) as app:
        async with app.worker({"default": 100}):
            await asyncio.gather(*(app.result(id, timeout=60) for id in ids))
        assert await count(store, "deliveries") == 0
        assert await rows(store, PER_INSTANCE) == [(1,)] * 1000
        assert await app.drain() == {"steps": 0}


async def test_b1_during_chunked_delivery_marked_instances_receive_it_and_later_waits_do_not(store: Store) -> None:
    async with Turns(store, broadcast_limit=10) as turns:
        await turns.register("Waiter", "Busy")
        await turns.park_all("Waiter", names(25), subscribing, "woken")
        both = Park((Arm("broadcast", "wait-busy", name="x"), Arm("signal", "wait-go", name="go")))
        await turns.park_all("Busy", ["busy"], lambda id: both, "woken")
        publish = Publish(name="x", payload="1")
        await turns.run(publish)
        assert publish.result == 26
        # Marked, and before its chunk: one is woken and continues, one ends, and another subscribes only now.
        await turns.run(Deliver(target="busy", name="go"))
        claim = await turns.claim("Busy")
        await turns.commit(claim, subscribing("again"), step="later", consume=[row.seq for row in claim.inbox])
        await turns.run(Cancel(target="s-0024"))
        await turns.park_all("Waiter", ["late"], subscribing, "woken")
        left = 26
        while (await turns.run(pending_deliveries=True)).pending.pending_deliveries:
            left -= 10
            assert await count(store, "deliveries") == left
        assert await count(store, "deliveries") == 0
        assert await rows(store, PER_INSTANCE) == [(1,)] * 25
        assert [row.kind for row in (await turns.claim("Busy")).inbox] == ["broadcast"]
        assert await rows(store, "SELECT status FROM instances WHERE id IN ('late', 's-0024') ORDER BY id") == [
            ("awaiting_signal",), ("cancelled",),
        ]  # fmt: skip


async def test_b1_marks_made_during_a_scan_for_marks_are_not_lost(store: Store) -> None:
    """The poll reads that there are no marks, a broadcast marks, and only then does the poll get its result."""
    asked, answer, heard = threading.Event(), threading.Event(), threading.Event()
    async with harness(store, Waiter, broadcast_limit=10) as app:
        await subscribe(store, app.clock, names(25))
        read = app._clerk.store.read

        async def slow(sql: Any, *args: Any, **values: Any) -> Any:
            found = await read(sql, *args, **values)
            if sql is statements.news and not asked.is_set():
                asked.set()
                while not answer.is_set():
                    await asyncio.sleep(0.001)
                asyncio.get_running_loop().call_soon(heard.set)  # when the poll has continued
            return found

        app._clerk.store.read = slow
        await subscribe(store, app.clock, ["one-more"])  # the poll reads when another process has written
        await until(asked.is_set, "the poll to look")
        assert await app.broadcast("x", 1) == 26
        answer.set()
        await until(heard.is_set, "the poll to hear")
        assert await app.drain() == {"steps": 26, "done": 26}


async def test_b1_the_count_of_a_large_broadcast_is_all_or_nothing(store: Store) -> None:
    async with Turns(store, broadcast_limit=10) as turns:
        await turns.register("Waiter")
        await turns.park_all("Waiter", names(25), subscribing, "woken")
        publish = Publish(name="x", payload="1")
        turn = await turns.open_turn(publish)
        await turn.tx.rollback()
        assert await count(store, "deliveries") == await count(store, "broadcasts") == 0
        await turns.run(publish)
        assert publish.result == 25
        assert await count(store, "deliveries") == 25


@pytest.mark.parametrize("name", ["", "n\0", "n" * 256, 5])
async def test_b1_malformed_broadcasts_are_refused(sqlite_store: Store, name: Any) -> None:
    async with harness(sqlite_store) as app:
        with pytest.raises(InvalidInput):
            app.broadcast(name)
        with pytest.raises(InvalidInput):
            app.broadcast("x", float("nan"))


class Recorder(Machine):
    """Records the order in which the steps after a broadcast run."""

    ran: list[str]

    @step
    async def start(self, ctx: Context) -> Await | Done:
        if ctx.state == "subscriber":
            return Await(Broadcast("open"), then=self.end)
        self.ran.append(ctx.state)
        return Done()

    @step
    async def end(self, ctx: Context) -> Done:
        self.ran.append(ctx.state)
        return Done()


class Elsewhere(Recorder, queue="elsewhere"):
    """A recorder in a queue of its own."""


async def test_m10_a_broadcast_delays_neither_more_urgent_work_nor_another_queue(store: Store) -> None:
    """Within a queue the first come is the first served: what is started after the broadcast waits behind all of it."""
    Recorder.ran = ran = []
    async with harness(store, Recorder, Elsewhere) as app:
        for _ in range(20):
            await app.start(Recorder, "subscriber")
        await app.drain()
        assert await app.broadcast("open") == 20
        await app.start(Recorder, "later")
        await app.start(Recorder, "urgent", priority=-1)
        await app.start(Elsewhere, "elsewhere")
        async with app.worker({"default": 1, "elsewhere": 1}):
            await until(lambda: len(ran) == 23, "all to run")
    assert sorted(ran[:2]) == ["elsewhere", "urgent"]
    assert ran[2:] == ["subscriber"] * 20 + ["later"]
