"""Effects commit with every outcome (S8); an effect that cannot be applied is an event, not a failure."""

from typing import Any

import pytest

from hark import Await, Broadcast, Context, Done, InvalidInput, Machine, Next, Retry, Spawn, Stop, step
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.stores import Store


class Ear(Machine):
    """Collects the signals it receives."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("told", Broadcast("all"), then=self.hear)

    @step
    async def hear(self, ctx: Context) -> Next:
        return Next(self.start, [*ctx.state, *(signal.payload for signal in ctx.awaited)])


@pytest.mark.parametrize("outcome", ["next", "retry", "await", "spawn", "done", "stop"])
@pytest.mark.parametrize("plain", [False, True], ids=["async def", "def"])
async def test_api_effects_commit_with_whatever_outcome_the_step_returns(
    store: Store, outcome: str, plain: bool
) -> None:
    def act(ctx: Context) -> Any:
        if ctx.attempt:
            return Done()
        ctx.signal("ear", "told", f"to a key by {outcome}")
        ctx.broadcast("all", "to all")
        started = ctx.start(Ear, [], correlation_key="new")
        ctx.signal(started, "told", "to the new one")
        return {
            "next": lambda: Next("end"),
            "retry": lambda: Retry(),
            "await": lambda: Await("x", then="end"),
            "spawn": lambda: Spawn([], then="end"),
            "done": lambda: Done(started),
            "stop": lambda: Stop("no"),
        }[outcome]()

    class Acts(Machine):
        if plain:

            @step
            def start(self, ctx: Context) -> Any:
                return act(ctx)

        else:

            @step
            async def start(self, ctx: Context) -> Any:
                return act(ctx)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

    async with harness(store, Ear, Acts) as app:
        await app.start(Ear, [], correlation_key="ear")
        await app.drain()
        acts = await app.start(Acts)
        await app.drain()
        new = await app.get("new")
        assert (await app.get("ear")).state == [f"to a key by {outcome}", "to all"]
        assert new.state == ["to the new one"]
        assert new.parent_id is None, "an instance started by ctx.start is not a child"
        if outcome == "done":
            assert await acts.result(timeout=0) == new.id, "the id that ctx.start returned"


async def test_api_an_effect_that_cannot_be_applied_is_an_event_on_the_sender_not_a_failure(store: Store) -> None:
    class Tries(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            ctx.signal("nobody", "told")
            ctx.signal("finished", "told")
            ctx.start(Ear, [], id="finished")
            ctx.start("Unknown")
            ctx.resolve("prom_1unknown", 1)
            ctx.reject("prom_1unknown", "no")
            ctx.signal("ear", "told", "and this one arrives")
            return Done("done all the same")

    async with harness(store, Ear, Tries) as app:
        await app.cancel(await app.start(Ear, [], id="finished"))
        ear = await app.start(Ear, [], correlation_key="ear")
        await app.drain()
        tries = await app.start(Tries)
        await app.drain()
        assert await tries.result(timeout=0) == "done all the same"
        assert (await ear.get()).state == ["and this one arrives"]
        refused = [event for event in await app.events(tries) if "error" in (event.data or {})]
        assert sorted(event.type for event in refused) == [
            "start_refused", "start_refused", "undelivered", "undelivered", "unsettled", "unsettled",
        ]  # fmt: skip
        assert {event.step for event in refused} == {"start"}


@pytest.mark.parametrize(
    "act",
    [
        lambda ctx: ctx.signal("", "name"),
        lambda ctx: ctx.signal(None, "name"),
        lambda ctx: ctx.signal("x", "n" * 256),
        lambda ctx: ctx.signal("x", "name", object()),
        lambda ctx: ctx.signal("x", "name", float("nan")),
        lambda ctx: ctx.signal("x", "name", "p" * 2000),
        lambda ctx: ctx.signal("x", "name", dedup_key=""),
        lambda ctx: ctx.broadcast(""),
        lambda ctx: ctx.broadcast("name", {"a": "\0"}),
        lambda ctx: ctx.broadcast("name", dedup_key=5),
        lambda ctx: ctx.start(""),
        lambda ctx: ctx.start(42),
        lambda ctx: ctx.start("Ear", [], id="not an id"),
        lambda ctx: ctx.start("Ear", [], delay=-1),
        lambda ctx: ctx.start("Ear", [], bogus=1),
        lambda ctx: ctx.start("Ear", [], rate_limit="unknown"),
        lambda ctx: ctx.resolve("", 1),
        lambda ctx: ctx.resolve("prom_1x", object()),
        lambda ctx: ctx.reject("prom_1x", 5),
        lambda ctx: ctx.resolve("prom_1x", 1, by=5),
        lambda ctx: ctx.reject("prom_1x", "no", by="\0"),
    ],
)
async def test_api_malformed_arguments_of_an_effect_raise_at_the_call(act: Any) -> None:
    class Acts(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            with pytest.raises(InvalidInput):
                act(ctx)
            return Done("went on")

    async with Harness(Acts, Ear, max_payload=1000) as app:
        acts = await app.start(Acts)
        await app.drain()
        assert await acts.result(timeout=0) == "went on"
        assert [event.type for event in await app.events(acts)] == ["started", "done"], "and nothing was issued"
