"""S8: effects commit with the outcome, exactly once, or not at all."""

from collections.abc import Callable
from typing import Any

import pytest

from hark import Await, Child, Context, Done, InvalidInput, Machine, Next, Retry, Spawn, Stop, step
from hark.kernel.requests import Reclaim
from hark.model.decisions import Finish, NewInstance, SendBroadcast, SendSignal
from hark.testing import Harness
from tests.promises.support_signals import Turns, Waiter, count, event_types, harness, outcome
from tests.support.harness import drained
from tests.support.inspect import everything
from tests.support.stores import Store


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


def sender(issue: Callable[[Context], Any], outcome: Callable[[Context], Any], handle: Any = None) -> type[Machine]:
    """Issues its effects in its first activation only, then returns the outcome under test."""

    class Sender(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            if ctx.attempt == 0:
                issue(ctx)
            return outcome(ctx)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

        def handle(self, error: Exception, ctx: Context) -> Any:
            return Stop(error) if handle is None else handle(error, ctx)

    return Sender


def three(ctx: Context) -> None:
    ctx.signal("receiver", "go", "signalled")
    ctx.broadcast("all", "broadcast")
    ctx.start(Leaf, id="started", correlation_key="leaf-key")


OUTCOMES: dict[str, Callable[[Context], Any]] = {
    "next": lambda ctx: Next("end"),
    "next_with_a_key": lambda ctx: Next("end", concurrency_key="k"),
    "retry": lambda ctx: Retry() if ctx.attempt == 0 else Done(),
    "await": lambda ctx: Await("never", then="end"),
    "spawn": lambda ctx: Spawn([Child(Leaf)], then="end"),
    "done": lambda ctx: Done(),
    "stop": lambda ctx: Stop("enough"),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_s8_effects_commit_once_with_whatever_the_step_returns(store: Store, outcome: str) -> None:
    machine = sender(three, OUTCOMES[outcome])
    async with harness(store, machine, Waiter, Leaf) as app:
        await app.start(Waiter, {"names": ["go"]}, id="receiver")
        await drained(app, app.start(Waiter, {"broadcasts": ["all"]}, id="subscriber"))
        await drained(app, app.start(machine, id="sender"))
        assert (await app.result("receiver"))["all"] == [["go", "signalled"]]
        assert (await app.result("subscriber"))["all"] == [["all", "broadcast"]]
        started = await app.get("leaf-key")
        assert (started.id, started.parent_id) == ("started", None), "it is not a child"
        assert await app.result("started") is None
        assert await count(store, "inbox", "kind IN ('signal', 'broadcast')") == 2


async def test_s8_no_effect_is_visible_before_the_outcome_commits(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        await turns.start("M", "sender", "receiver")
        claims = {c.id: c for c in (await turns.run(lanes=["M"], room=2)).claims}
        effects = [SendSignal("receiver", "go", "1"), SendBroadcast("all", "2"), NewInstance("M", "{}", "new")]
        before = await everything(store)
        turn = await turns.open_turn(outcome(claims["sender"], Finish("done"), effects=effects))
        await turn.tx.rollback()  # the crash
        assert await everything(store) == before
        await turns.commit(claims["sender"], Finish("done"), effects=effects)
        assert await count(store, "inbox") == 1
        assert await count(store, "instances") == 3


async def test_s8_a_step_that_raises_issues_nothing(store: Store) -> None:
    def fail(ctx: Context) -> Any:
        raise RuntimeError("after the effects")

    machine = sender(three, fail)
    async with harness(store, machine, Waiter, Leaf) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "broadcasts": ["all"]}, id="receiver"))
        await app.start(machine, id="sender")
        assert await app.drain() == {"steps": 1, "stop": 1}
        assert (await app.get("receiver")).status == "awaiting_signal"
        assert await count(store, "inbox") == 0
        assert await count(store, "instances") == 2


async def test_s8_handle_may_issue_its_own(store: Store) -> None:
    def fail(ctx: Context) -> Any:
        raise RuntimeError("broken")

    def handle(error: Exception, ctx: Context) -> Any:
        ctx.signal("receiver", "go", str(error))
        return Done()

    machine = sender(three, fail, handle)
    async with harness(store, machine, Waiter, Leaf) as app:
        await app.start(Waiter, {"names": ["go"]}, id="receiver")
        await drained(app, app.start(machine, id="sender"))
        assert (await app.result("receiver"))["all"] == [["go", "broken"]]
        assert await count(store, "instances") == 2


async def test_s8_every_committed_outcome_has_its_own_effects(store: Store) -> None:
    class Insists(Machine):
        @step
        async def start(self, ctx: Context) -> Retry | Done:
            ctx.signal("receiver", "note", ctx.attempt)
            return Retry() if ctx.attempt < 3 else Done()

    async with harness(store, Insists, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="receiver")
        await drained(app, app.start(Insists))
        await drained(app, app.signal("receiver", "go"))
        assert (await app.result("receiver"))["all"] == [["note", n] for n in range(4)] + [["go", None]]


async def test_s8_a_step_that_crashed_and_reran_has_sent_once(store: Store) -> None:
    """At least once for the step, exactly once for its effects: the first run never committed."""
    async with Turns(store) as turns:
        await turns.register("M")
        await turns.start("M", "receiver")
        await turns.start("M", "sender", priority=-1)
        first = await turns.claim("M")
        await turns.run(Reclaim(owners=["by-hand"]))
        second = await turns.claim("M")
        assert first.id == second.id == "sender"
        late = outcome(first, Finish("done"), effects=[SendSignal("receiver", "go", '"first"')])
        await turns.run(late, outcome(second, Finish("done"), effects=[SendSignal("receiver", "go", '"second"')]))
        assert late.fenced
        assert await count(store, "inbox") == await count(store, "inbox", "payload = '\"second\"'") == 1


async def test_s8_effects_see_each_other_in_one_commit(store: Store) -> None:
    """A step starts an instance and signals it by the id it was given, and by its key."""

    def issue(ctx: Context) -> None:
        id = ctx.start(Waiter, {"names": ["go"]}, correlation_key="fresh")
        ctx.signal(id, "note", 1)
        ctx.signal("fresh", "go", 2)

    machine = sender(issue, lambda ctx: Done())
    async with harness(store, machine, Waiter) as app:
        await drained(app, app.start(machine))
        assert (await app.result("fresh"))["all"] == [["note", 1], ["go", 2]]


async def test_s8_an_instance_may_signal_itself(store: Store) -> None:
    class Selfish(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            ctx.signal(ctx.id, "go", 1)
            return Next(self.look)

        @step
        async def look(self, ctx: Context) -> Await:
            assert [signal.payload for signal in ctx.all] == [1]
            ctx.signal(ctx.id, "go", 2)
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([signal.payload for signal in ctx.awaited])

    async with harness(store, Selfish) as app:
        handle = await app.start(Selfish)
        assert await app.drain() == {"steps": 3, "await": 1, "done": 1, "next": 1}
        assert await handle.result() == [1, 2]


async def test_s8_an_undeliverable_signal_is_an_event_on_the_sender(store: Store) -> None:
    def issue(ctx: Context) -> None:
        ctx.signal("nobody", "go", 1)
        ctx.signal("finished", "go", 2)
        ctx.signal("receiver", "go", 3)

    machine = sender(issue, lambda ctx: Next("end"))
    async with harness(store, machine, Waiter, Leaf) as app:
        await app.start(Leaf, id="finished")
        await app.start(Waiter, {"names": ["go"]}, id="receiver")
        await drained(app, app.start(machine, id="sender"))
        assert await app.result("sender") is None
        missed = [event for event in await app.events("sender") if event.type == "undelivered"]
        assert [(event.step, event.data["target"], event.data["name"]) for event in missed] == [
            ("start", "nobody", "go"), ("start", "finished", "go"),
        ]  # fmt: skip
        assert "no such instance" in missed[0].data["error"]
        assert "done" in missed[1].data["error"]
        # The others of the same outcome are delivered.
        assert (await app.result("receiver"))["awaited"] == [["go", 3]]


async def test_s8_a_duplicate_signal_is_an_event_on_the_sender(store: Store) -> None:
    def issue(ctx: Context) -> None:
        for n in range(2):
            ctx.signal("receiver", "note", n, dedup_key="once")
            ctx.broadcast("all", n, dedup_key="once")

    machine = sender(issue, lambda ctx: Done())
    async with harness(store, machine, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "broadcasts": ["all"]}, id="receiver"))
        await drained(app, app.start(machine, id="sender"))
        assert (await app.result("receiver"))["all"] == [["note", 0], ["all", 0]]
        assert (await app.get("sender")).status == "done"
        missed = [event.data for event in await app.events("sender") if event.type == "undelivered"]
        assert [data["name"] for data in missed] == ["note", "all"]
        assert all("duplicate" in data["error"] for data in missed)


async def test_s8_a_start_that_fails_is_an_event_on_the_sender(store: Store) -> None:
    def issue(ctx: Context) -> None:
        ctx.start(Leaf, correlation_key="taken")
        ctx.start(Leaf, id="holder")
        ctx.start("NobodyKnowsThis")
        ctx.start(Leaf, id="fine")

    machine = sender(issue, lambda ctx: Done())
    async with harness(store, machine, Waiter, Leaf) as app:
        await app.start(Waiter, {"names": ["go"]}, id="holder", correlation_key="taken")
        await drained(app, app.start(machine, id="sender"))
        assert (await app.get("sender")).status == "done"
        refused = [event.data for event in await app.events("sender") if event.type == "start_refused"]
        assert [data["definition"] for data in refused] == ["Leaf", "Leaf", "NobodyKnowsThis"]
        assert "holder" in refused[0]["error"]
        assert (await app.get("fine")).status == "done"
        assert await count(store, "instances") == 3


MALFORMED: list[Callable[[Context], Any]] = [
    lambda ctx: ctx.signal("receiver", ""),
    lambda ctx: ctx.signal("", "go"),
    lambda ctx: ctx.signal("receiver", "go", object()),
    lambda ctx: ctx.signal("receiver", "go", dedup_key="x" * 256),
    lambda ctx: ctx.signal("receiver", "go", "p" * 2000),
    lambda ctx: ctx.broadcast("\0"),
    lambda ctx: ctx.broadcast("all", {"a": "\0"}),
    lambda ctx: ctx.broadcast("all", dedup_key=5),
    lambda ctx: ctx.start(""),
    lambda ctx: ctx.start(42),
    lambda ctx: ctx.start(Leaf, id="not an id"),
    lambda ctx: ctx.start(Leaf, delay=-1),
    lambda ctx: ctx.start(Leaf, nonsense=1),
    lambda ctx: ctx.start(Leaf, rate_limit="unknown"),
    lambda ctx: ctx.resolve(""),
    lambda ctx: ctx.resolve("prom_1x", float("inf")),
    lambda ctx: ctx.reject("prom_1x", 5),
    lambda ctx: ctx.resolve("prom_1x", 1, by=5),
    lambda ctx: ctx.reject("prom_1x", "no", by="\0"),
]


async def test_s8_malformed_arguments_raise_at_the_call() -> None:
    def issue(ctx: Context) -> None:
        for malformed in MALFORMED:
            with pytest.raises(InvalidInput):
                malformed(ctx)

    machine = sender(issue, lambda ctx: Done())
    async with Harness(machine, Leaf, max_payload=1000) as app:
        await drained(app, app.start(machine, id="sender"))
        assert await event_types(app, "sender") == ["started", "done"], "the code goes on, and nothing was issued"


async def test_s8_the_receivers_run_after_the_commit_and_see_all_of_it(store: Store) -> None:
    """Signal and broadcast to one instance from one step: both are in the one activation they cause."""

    def issue(ctx: Context) -> None:
        ctx.signal("receiver", "go", 1)
        ctx.broadcast("all", 2)

    machine = sender(issue, lambda ctx: Done())
    async with harness(store, machine, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "broadcasts": ["all"]}, id="receiver"))
        await app.start(machine)
        assert await app.drain() == {"steps": 2, "done": 2}
        assert (await app.result("receiver"))["awaited"] == [["go", 1], ["all", 2]]


async def test_s8_a_broadcast_without_subscribers_is_not_a_failure(store: Store) -> None:
    machine = sender(lambda ctx: ctx.broadcast("silence"), lambda ctx: Done())
    async with harness(store, machine) as app:
        await drained(app, app.start(machine, id="sender"))
        assert "undelivered" not in await event_types(app, "sender")


async def test_s8_plain_def_steps_issue_effects_too(store: Store) -> None:
    class InAThread(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            ctx.signal("receiver", "go", "from a thread")
            return Done()

    async with harness(store, InAThread, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="receiver")
        await drained(app, app.start(InAThread))
        assert (await app.result("receiver"))["awaited"] == [["go", "from a thread"]]
