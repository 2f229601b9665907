"""X4, inside a step: a bad outcome goes to `handle`, once; nothing of it is written, and it never loops."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pydantic
import pytest

from hark import (
    Await,
    Broadcast,
    Child,
    Context,
    Done,
    InvalidInput,
    InvalidOutcome,
    InvalidState,
    Machine,
    Next,
    PayloadTooLarge,
    Rate,
    Retry,
    Spawn,
    Start,
    Stop,
    step,
)
from hark.testing import Harness
from tests.support.harness import drained, held
from tests.support.inspect import Tables, everything
from tests.support.stores import Store

NAN, INFINITY = float("nan"), float("inf")
LIMIT = 2000
LIMITS = {"api": Rate(allowed=10, period=60)}


@dataclass
class Counted:
    n: int = 0


class Struct(msgspec.Struct):
    n: int = 0


class Model(pydantic.BaseModel):
    n: int = 0


def machine(name: str, body: Callable[[Context], Any]) -> type[Machine]:
    """A machine whose first step sends three effects and then does as `body` says."""

    class Odd(Machine, name=name):
        @step
        async def start(self, ctx: Context) -> Any:
            ctx.signal("bystander", "hello")
            ctx.broadcast("everybody")
            ctx.start(Bystander, id="effect")
            return body(ctx)

        @step
        async def other(self, ctx: Context) -> Done:
            return Done("other")

    return Odd


class Bystander(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("hello", Broadcast("everybody"), then=self.start)


async def others(store: Store, ids: set[str]) -> Tables:
    """All rows that belong to other instances."""
    return {
        table: [row for row in rows if table not in ("instances", "events") or ids.isdisjoint(row)]
        for table, rows in (await everything(store)).items()
    }


def _raise(error: BaseException) -> Any:
    raise error


OUTCOMES: dict[str, tuple[Callable[[Context], Any], str]] = {
    # not an outcome at all
    "nothing": (lambda ctx: None, r"returned None, which is not an outcome\. Return Next, Retry, Await"),
    "text": (lambda ctx: "done", "InvalidOutcome.*is not an outcome"),
    "a dict": (lambda ctx: {"done": True}, "is not an outcome"),
    "the class instead of an outcome": (lambda ctx: Done, "is not an outcome"),
    "an exception returned": (lambda ctx: ValueError("x"), "is not an outcome"),
    "several outcomes": (lambda ctx: (Next("other"), Done()), "is not an outcome"),
    # steps that do not exist
    "a next that is not there": (lambda ctx: Next("no" + "where"), "no step 'nowhere'. It has: other, start"),
    "a then that is not there": (lambda ctx: Await("x", then="no" + "where"), "no step 'nowhere'"),
    "a then of a spawn that is not there": (lambda ctx: Spawn([], then="no" + "where"), "no step 'nowhere'"),
    "a step that is no step": (lambda ctx: Next(len), "InvalidInput.*@step missing"),
    "a step of another machine": (lambda ctx: Await("x", then=Elsewhere.away), "no step 'away'"),
    # results and states
    "an unserialisable result": (lambda ctx: Done(object()), "InvalidInput: The result contains object.*has no JSON"),
    "NaN as a result": (lambda ctx: Done({"x": NAN}), r"NaN.*\$\.x"),
    "NUL in a result": (lambda ctx: Done("a\0"), "NUL"),
    "half a pair in a result": (lambda ctx: Done("\ud800"), "surrogate"),
    "a circle as a result": (lambda ctx: Done(_circle()), "contains itself"),
    "a result over the limit": (lambda ctx: Done("x" * LIMIT), "PayloadTooLarge.*store it elsewhere"),
    "an unserialisable state": (lambda ctx: Next("other", state={"x": object()}), "InvalidState.*has no JSON"),
    "a state over the limit": (lambda ctx: Next("other", state="x" * LIMIT), "PayloadTooLarge"),
    "an unserialisable state that was left": (lambda ctx: ctx.state.update(x=object()) or Done(), "has no JSON"),
    "an unserialisable reason": (lambda ctx: Stop(object()), "has no JSON"),
    # durations
    "a negative delay": (lambda ctx: Retry(-1), "InvalidInput.*Retry delay is negative"),
    "NaN as a delay": (lambda ctx: Retry(NAN), "finite"),
    "an endless delay": (lambda ctx: Retry(INFINITY), "finite"),
    "a huge delay": (lambda ctx: Retry(1e18), "100 years"),
    "a timeout of zero": (lambda ctx: Await("x", then="other", timeout=0), "Await timeout is zero"),
    "a negative timeout": (lambda ctx: Await("x", then="other", timeout=-1), "negative"),
    "NaN as a timeout": (lambda ctx: Await("x", then="other", timeout=NAN), "finite"),
    "a huge timeout": (lambda ctx: Await("x", then="other", timeout=timedelta.max), "100 years"),
    "a naive deadline": (lambda ctx: Await("x", then="other", deadline=datetime(2030, 1, 1)), "no time zone"),
    "a number as a deadline": (lambda ctx: Await("x", then="other", deadline=5), "must be a datetime"),
    # names and limits
    "an await for nothing": (lambda ctx: Await(then="other"), "a name, timeout= or deadline= would wait forever"),
    "an await for NUL": (lambda ctx: Await("a\0", then="other"), "NUL"),
    "an await for a long name": (lambda ctx: Await("x" * 256, then="other"), "255 bytes"),
    "an await for a number": (lambda ctx: Await(5, then="other"), "must be text"),
    "a long concurrency key": (lambda ctx: Next("other", concurrency_key="x" * 256), "255 bytes"),
    "an unknown rate limit": (lambda ctx: Next("other", rate_limit="nope"), r"'nope' \(configured: api\)"),
    "a weight above the burst": (lambda ctx: Next("other", rate_limit="api", weight=11), "Lower the weight"),
    "a weight of NaN": (lambda ctx: Next("other", rate_limit="api", weight=NAN), "above zero"),
    "a weight that is none": (lambda ctx: Next("other", weight="heavy"), "weight='heavy'"),
    # children
    "a child that is none": (lambda ctx: Spawn([5], then="other"), "Spawn takes Child"),
    "children that are no list": (lambda ctx: Spawn(Child(Bystander), then="other"), "takes a list of Child"),
    "more to join than there are": (lambda ctx: Spawn([Child(Bystander)], then="other", join=2), "Use 1…1, or 'all'"),
    "none to join": (lambda ctx: Spawn([Child(Bystander)], then="other", join=0), "not possible with 1 children"),
    "a child of no definition": (lambda ctx: Spawn([Child(5)], then="other"), "not a definition"),
    "a child with an unknown option": (lambda ctx: Spawn([Child(Bystander, prio=1)], then="other"), "no option prio"),
    "a child with an unknown limit": (lambda ctx: Spawn([Child(Bystander, rate_limit="no")], then="other"), "no rate"),
    "a child with the wrong input": (lambda ctx: Spawn([Child(Elsewhere, {"n": "x"})], then="other"), "not match"),
    # effects
    "a signal to an empty name": (lambda ctx: ctx.signal("", "x") or Done(), "empty"),
    "a signal without a name": (lambda ctx: ctx.signal("bystander", "") or Done(), "empty"),
    "a signal that cannot be stored": (lambda ctx: ctx.signal("bystander", "x", NAN) or Done(), "NaN"),
    "a signal over the limit": (lambda ctx: ctx.signal("bystander", "x", "x" * LIMIT) or Done(), "PayloadTooLarge"),
    "a broadcast without a name": (lambda ctx: ctx.broadcast("") or Done(), "empty"),
    "a start with a bad id": (lambda ctx: ctx.start(Bystander, id="a b") and Done(), "not an id"),
    "a start with a bad delay": (lambda ctx: ctx.start(Bystander, delay=-1) and Done(), "negative"),
    "an answer to no name": (lambda ctx: ctx.resolve("") or Done(), "empty"),
    "an answer that cannot be stored": (lambda ctx: ctx.resolve("prom_1x", {1, object()}) or Done(), "has no JSON"),
    "an error that is no text": (lambda ctx: ctx.reject("prom_1x", 5) or Done(), "must be text"),
    # whatever a step may raise
    "an error": (lambda ctx: _raise(ValueError("mine")), "ValueError: mine"),
    "an error without words": (lambda ctx: _raise(KeyError()), "KeyError"),
    "an error with NUL in it": (lambda ctx: _raise(ValueError("a\0b")), "ValueError"),
    "an error with half a pair in it": (lambda ctx: _raise(ValueError("a\ud800b")), "ValueError"),
    "a very long error": (lambda ctx: _raise(ValueError("x" * 5_000_000)), "ValueError"),
    "an error that cannot be shown": (lambda ctx: _raise(Unspeakable()), "Unspeakable"),
    "the end of an iteration": (lambda ctx: _raise(StopIteration(5)), "StopIteration"),
    "a cancellation of its own": (lambda ctx: _raise(asyncio.CancelledError()), "CancelledError"),
    "the end of a generator": (lambda ctx: _raise(GeneratorExit()), "GeneratorExit"),
}  # fmt: skip


class Elsewhere(Machine):
    @dataclass
    class State:
        n: int = 0

    @step
    async def start(self, ctx: Context) -> Done:
        return Done()

    @step
    async def away(self, ctx: Context) -> Done:
        return Done()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


async def test_x4_a_bad_outcome_fails_the_instance_once_and_writes_nothing_else(store: Store) -> None:
    """One worker runs all of them: none affects the worker, or another instance."""
    ids = {what: what.replace(" ", "-").replace("'", "") for what in OUTCOMES}
    machines = {what: machine(what, body) for what, (body, _) in OUTCOMES.items()}
    app = Harness(Bystander, Elsewhere, url=store.url, rate_limits=LIMITS, max_payload=LIMIT, **store.options)
    async with app, app.worker({"default": 50}):
        await (await app.start(Bystander, id="bystander")).wait_for("awaiting_signal", timeout=30)
        await app.register(*machines.values())
        before = await others(store, {*ids.values()})
        for instance in await app.start_many([Start(machines[what], id=id) for what, id in ids.items()]):
            await instance.wait_for("failed", timeout=30)
        assert await others(store, {*ids.values()}) == before
        for what, (_, message) in OUTCOMES.items():
            assert [event.type for event in await app.events(ids[what])] == ["started", "stop"], what
            failed = await app.get(ids[what])
            assert (failed.step, failed.state, failed.attempt) == ("start", {}, 0), what
            assert re.search(message, failed.error), (what, failed.error[:1000])
            assert len(failed.error) < 100_000, what


async def test_x4_what_handle_gets_is_the_specific_error(store: Store) -> None:
    seen: list[type] = []

    class Handled(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return {0: None, 1: Done(object()), 2: Retry(-1) if ctx.attempt == 2 else None, 3: Done("x" * LIMIT)}[
                ctx.attempt
            ]

        def handle(self, error: Exception, ctx: Context) -> Retry | Done:
            seen.append(type(error))
            return Retry() if ctx.attempt < 3 else Done("enough")

    async with Harness(Handled, url=store.url, max_payload=LIMIT, **store.options) as app:
        handled = await app.start(Handled)
        assert await app.drain() == {"steps": 4, "retry": 3, "done": 1}
        assert await handled.result() == "enough"
    assert seen == [InvalidOutcome, InvalidInput, InvalidInput, PayloadTooLarge]


@pytest.mark.parametrize("shape", [Counted, Struct, Model])
@pytest.mark.parametrize("how", ["left", "returned"])
async def test_x4_a_state_of_the_wrong_type_goes_to_handle(store: Store, shape: type, how: str) -> None:
    seen: list[Exception] = []

    class Wrong(Machine, state=shape):
        @step
        async def start(self, ctx: Context) -> Any:
            if how == "left":
                ctx.state = {"n": 1}
                return Next(self.end)
            return Next(self.end, state="something else")

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

        def handle(self, error: Exception, ctx: Context) -> Stop:
            seen.append(error)
            assert isinstance(ctx.state, shape)  # as it was before the step
            return Stop(error)

    async with Harness(Wrong, url=store.url, **store.options) as app:
        wrong = await app.start(Wrong, {"n": 5})
        assert await app.drain() == {"steps": 1, "stop": 1}
        failed = await wrong.get()
    assert failed.state == {"n": 5}
    [error] = seen
    assert isinstance(error, InvalidState)
    assert f"The state must be {shape.__name__}" in str(error)


@pytest.mark.parametrize("shape", [Counted, Struct])
async def test_x4_a_field_of_the_wrong_type_goes_to_handle(store: Store, shape: type) -> None:
    class Wrong(Machine, state=shape):
        @step
        async def start(self, ctx: Context) -> Done:
            ctx.state.n = "not a number"
            return Done()

    async with Harness(Wrong, url=store.url, **store.options) as app:
        wrong = await app.start(Wrong, {"n": 5})
        assert await app.drain() == {"steps": 1, "stop": 1}
        failed = await wrong.get()
    assert failed.status == "failed"
    assert "InvalidState" in failed.error
    assert "Expected `int`" in failed.error
    assert failed.state == {"n": 5}


async def test_x4_v3_an_instance_whose_step_was_removed_from_the_code_is_held(store: Store) -> None:
    class Before(Machine, name="Changing"):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.removed)

        @step
        async def removed(self, ctx: Context) -> Done:
            return Done()

    class After(Machine, name="Changing"):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done()

    async with Harness(Before, url=store.url, **store.options) as app:
        await drained(app, app.start(Before, id="old"))
    async with Harness(After, url=store.url, **store.options) as app:
        await app.signal("old", "go")
        error = str((await held(app, "old")).error)
    assert "no step 'removed'. It has: start." in error


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("what", ["result", "state"])
async def test_fault_64_what_is_as_large_as_the_limit_is_accepted_and_one_byte_more_is_refused(
    store: Store, what: str, extra: int
) -> None:
    class Big(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done(**{what: "x" * (LIMIT - 2 + extra)})

    async with Harness(Big, url=store.url, max_payload=LIMIT, **store.options) as app:
        big = await drained(app, app.start(Big))
        assert (await big.get()).status == ("failed" if extra else "done")
