"""X4, at the engine: malformed input is refused at the call, with a next step, and nothing is stored."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hark import (
    Await,
    Context,
    Done,
    Hark,
    HarkError,
    InvalidDefinition,
    InvalidInput,
    Machine,
    NotFound,
    PayloadTooLarge,
    Rate,
    Start,
    step,
)
from hark.testing import Harness
from tests.support.harness import drained
from tests.support.inspect import everything
from tests.support.stores import Store

NAN, INFINITY = float("nan"), float("inf")
LIMIT = 1000


class Order(Machine):
    @dataclass
    class State:
        n: int
        note: str = ""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Loose(Machine):
    """Its state is plain JSON."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.start)


class Empty(Machine):
    pass


@pytest.fixture(scope="module")
def store(module_store: Store) -> Store:
    """One store for all tests of this file: a refused call leaves it unchanged."""
    return module_store


@pytest.fixture(scope="module")
def app(store: Store) -> Iterator[Harness]:
    limits = {"api": Rate(allowed=10, period=60), "small": Rate(allowed=10, period=60, burst=2, shards=2)}
    options = {**store.options, "rate_limits": limits, "max_payload": LIMIT}
    with Harness(Order, Loose, url=store.url, **options) as app:
        app.start(Loose, id="live", correlation_key="live-key").result()
        yield app


Call = Callable[[Hark], Any]

# What is wrong with a name, and what the message says about it.
NAMES: dict[str, tuple[Any, str]] = {
    "empty": ("", "empty"),
    "256 bytes": ("n" * 256, "255 bytes"),
    "256 bytes of UTF-8": ("é" * 128, "255 bytes"),
    "NUL": ("a\0b", "NUL"),
    "half a pair": ("a\ud800", "surrogate"),
    "a number": (5, "must be text"),
    "bytes": (b"x", "must be text"),
    "a list": (["x"], "must be text"),
}
NAMED: dict[str, Callable[[Hark, Any], Any]] = {
    "signal's target": lambda app, name: app.signal(name, "paid"),
    "signal's name": lambda app, name: app.signal("live", name),
    "signal's dedup key": lambda app, name: app.signal("live", "paid", dedup_key=name),
    "broadcast's name": lambda app, name: app.broadcast(name),
    "broadcast's dedup key": lambda app, name: app.broadcast("x", dedup_key=name),
    "message's name": lambda app, name: app.message(name, "key"),
    "message's key": lambda app, name: app.message("x", name),
    "resolved id": lambda app, name: app.resolve(name),
    "rejected id": lambda app, name: app.reject(name),
    "answerer": lambda app, name: app.resolve("prom_1x", by=name),
    "refuser": lambda app, name: app.reject("prom_1x", by=name),
    "awakeable's id": lambda app, name: app.awakeable(name),
    "awakeables' job": lambda app, name: app.awakeables(job=name),
    "awakeables' after": lambda app, name: app.awakeables(after=name),
    "got target": lambda app, name: app.get(name),
    "target whose result is asked": lambda app, name: app.result(name),
    "cancelled target": lambda app, name: app.cancel(name),
    "retried target": lambda app, name: app.retry(name),
    "events' target": lambda app, name: app.events(name),
    "listed definition": lambda app, name: app.list(definition=name),
    "listed after": lambda app, name: app.list(after=name),
    "waits' name": lambda app, name: app.waits(name=name),
    "correlation key": lambda app, name: app.start(Loose, correlation_key=name),
    "step": lambda app, name: app.start(Loose, step=name),
    "queue": lambda app, name: app.start(Loose, queue=name),
    "concurrency key": lambda app, name: app.start(Loose, concurrency_key=name),
    "key of signal_with_start": lambda app, name: app.signal_with_start(Loose, name, "paid"),
    "name of signal_with_start": lambda app, name: app.signal_with_start(Loose, "key", name),
    "dedup key of signal_with_start": lambda app, name: app.signal_with_start(Loose, "key", "paid", dedup_key=name),
}


@asynccontextmanager
async def unchanged(store: Store) -> AsyncIterator[None]:
    """Check that the block changes no table."""
    before = await everything(store)
    yield
    assert await everything(store) == before


@pytest.mark.parametrize("what", NAMED)
async def test_x4_an_invalid_name_is_refused_wherever_a_name_is_accepted(app: Harness, store: Store, what: str) -> None:
    async with unchanged(store):
        for name, message in NAMES.values():
            with pytest.raises(InvalidInput, match=message):
                await NAMED[what](app, name)


async def test_x4_an_unknown_status_or_kind_is_refused(app: Harness, store: Store) -> None:
    filters: list[tuple[Any, str, str]] = [
        (app.list, "status", "awaiting_signal"),
        (app.list, "kind", "workflow"),
        (app.waits, "kind", "broadcast"),
        (app.awakeables, "status", "PENDING"),
    ]
    async with unchanged(store):
        for wrong in ("", "DONE", "asleep", "pending", "x" * 300, "a\0", 5, ["done"]):
            for read, filter, known in filters:
                with pytest.raises(InvalidInput, match=f"give one of .*{known}"):
                    await read(**{filter: wrong})


async def test_x4_names_of_255_bytes_are_accepted(app: Harness) -> None:
    name = "é" * 127 + "x"
    await app.start(Loose, id="longest", correlation_key=name, queue=name, concurrency_key=name)
    assert (await app.signal(name, name, dedup_key=name)).status == "stored"
    assert (await app.get(name)).id == "longest"
    assert await app.broadcast(name, dedup_key=name) == 0


async def test_x4_an_id_is_1_to_128_of_a_few_characters(app: Harness, store: Store) -> None:
    ids: list[Any] = ["", "a b", "a/b", "a:b", "é", "x" * 129, "a\0", "a\n", 5, b"x"]
    async with unchanged(store):
        for id in ids:
            with pytest.raises(InvalidInput, match="is not an id; use 1 to 128"):
                await app.start(Loose, id=id)


async def test_x4_ids_of_1_and_128_characters_are_accepted(app: Harness) -> None:
    for id in ("x", "A-z_0.9", "x" * 128):
        assert (await app.start(Loose, id=id)).id == id


DURATIONS: dict[str, tuple[Any, str]] = {
    "negative": (-1, "negative"),
    "a little negative": (-1e-9, "negative"),
    "NaN": (NAN, "finite"),
    "infinite": (INFINITY, "finite"),
    "less than all": (-INFINITY, "finite"),
    "huge": (1e300, "100 years"),
    "a huge whole number": (10**400, "100 years"),
    "text": ("5", "must be seconds"),
    "a bool": (True, "must be seconds"),
    "a negative timedelta": (timedelta(days=-1), "negative"),
    "the longest timedelta": (timedelta.max, "100 years"),
}
LASTING: dict[str, Callable[[Hark, Any], Any]] = {
    "delay": lambda app, span: app.start(Loose, delay=span),
    "timeout of a result": lambda app, span: app.result("live", span),
    "grace": lambda app, span: app.worker(grace=span),
}


@pytest.mark.parametrize("what", LASTING)
async def test_x4_an_invalid_duration_is_refused_wherever_one_is_accepted(
    app: Harness, store: Store, what: str
) -> None:
    async with unchanged(store):
        for span, message in DURATIONS.values():
            with pytest.raises(InvalidInput, match=message):
                await LASTING[what](app, span)


async def test_x4_a_time_is_an_aware_datetime(app: Harness, store: Store) -> None:
    times: list[tuple[Any, str]] = [
        (5, "must be a datetime"), ("2030-01-01", "must be a datetime"), (datetime(2030, 1, 1), "no time zone"),
    ]  # fmt: skip
    async with unchanged(store):
        for at, message in times:
            with pytest.raises(InvalidInput, match=message):
                await app.start(Loose, at=at)


CALLS: dict[str, tuple[Call, type[HarkError], str]] = {
    # definitions
    "unknown definition": (lambda app: app.start("Nobody"), NotFound, "There is no definition 'Nobody'.*register"),
    "unknown version": (lambda app: app.start("Order", version=7), NotFound, "no version 7; registered versions: 1"),
    "unknown version of a class": (
        lambda app: app.start(Order, {"n": 1}, version=7), NotFound, "registered versions: 1",
    ),
    "unknown definition of signal_with_start": (
        lambda app: app.signal_with_start("Nobody", "key", "paid"), NotFound, "register",
    ),
    "one unknown among many": (
        lambda app: app.start_many([(Loose, None), ("Nobody", None), (Loose, None)]), NotFound, "register",
    ),
    "no definition": (lambda app: app.start(5), InvalidInput, "not a definition.*Machine class"),
    "no definition at all": (lambda app: app.start(None), InvalidInput, "not a definition"),
    "a machine instead of its class": (lambda app: app.start(Loose()), InvalidInput, "not a definition"),
    "a machine without steps": (lambda app: app.start(Empty), InvalidDefinition, "no steps.*@step"),
    "registered number": (lambda app: app.register(5), InvalidInput, "not a definition"),
    "version as text": (lambda app: app.start(Loose, version="1"), InvalidInput, "version='1'.*whole number"),
    "negative version": (lambda app: app.start(Loose, version=-1), InvalidInput, "whole number"),
    "version beyond the column": (lambda app: app.start(Loose, version=2**31), InvalidInput, "0 to 2147483647, or"),
    "unknown step": (lambda app: app.start(Loose, step="nope"), InvalidInput, "no step 'nope'. It has: start"),
    # input
    "input of the wrong type": (lambda app: app.start(Order, {"n": "one"}), InvalidInput, r"Expected `int`.*\$\.n"),
    "input with a field missing": (lambda app: app.start(Order, {}), InvalidInput, "missing required field `n`"),
    "input that is no object": (lambda app: app.start(Order, [1]), InvalidInput, "does not match"),
    "input of signal_with_start": (
        lambda app: app.signal_with_start(Order, "key", "paid", input={"n": None}), InvalidInput, "Expected `int`",
    ),
    "input of one of many": (
        lambda app: app.start_many([(Order, {"n": 1}), (Order, {"n": "x"})]), InvalidInput, "Expected `int`",
    ),
    "unserialisable input": (lambda app: app.start(Loose, {"x": object()}), InvalidInput, r"has no JSON.*use dicts"),
    "unserialisable payload": (lambda app: app.signal("live", "paid", {1, object()}), InvalidInput, "has no JSON"),
    "NaN in a payload": (lambda app: app.signal("live", "paid", {"x": NAN}), InvalidInput, r"NaN.*\$\.x"),
    "an infinity in a broadcast": (lambda app: app.broadcast("x", [INFINITY]), InvalidInput, "infinity"),
    "NUL in a payload": (lambda app: app.signal("live", "paid", "a\0b"), InvalidInput, "NUL"),
    "half a pair in a payload": (lambda app: app.signal("live", "paid", "\ud800"), InvalidInput, "surrogate"),
    "keys that become one": (lambda app: app.signal("live", "paid", {1: 1, "1": 2}), InvalidInput, "str keys"),
    "NUL in a message": (lambda app: app.message("x", "key", "\0"), InvalidInput, "NUL"),
    "NaN in an answer": (lambda app: app.resolve("prom_1x", NAN), InvalidInput, "NaN"),
    "NUL in an error": (lambda app: app.reject("prom_1x", "a\0"), InvalidInput, "NUL"),
    "an error that is no text": (lambda app: app.reject("prom_1x", ValueError("x")), InvalidInput, "must be text"),
    "NUL in a reason": (lambda app: app.cancel("live", "a\0"), InvalidInput, "NUL"),
    "a reason that is no text": (lambda app: app.cancel("live", 5), InvalidInput, "must be text"),
    # options of start
    "priority as a float": (lambda app: app.start(Loose, priority=1.5), InvalidInput, "lower numbers run first"),
    "no priority": (lambda app: app.start(Loose, priority=None), InvalidInput, "lower numbers run first"),
    "priority beyond the column": (lambda app: app.start(Loose, priority=2**31), InvalidInput, "whole number"),
    "unknown scope": (lambda app: app.start(Loose, correlation_scope="never"), InvalidInput, "'live' or 'forever'"),
    "unknown option": (
        lambda app: app.start_many([Start(Loose, prioritty=1)]), InvalidInput, "no option prioritty.*help",
    ),
    # limits
    "unknown rate limit": (
        lambda app: app.start(Loose, rate_limit="nope"), InvalidInput, r"'nope' \(configured: api, small\)",
    ),
    "unknown rate limit with a partition": (
        lambda app: app.start(Loose, rate_limit=("nope", "x")), InvalidInput, "no rate limit 'nope'",
    ),
    "weight above the burst": (
        lambda app: app.start(Loose, rate_limit="api", weight=11), InvalidInput, "more than.*Lower the weight",
    ),
    "weight above one shard's burst": (
        lambda app: app.start(Loose, rate_limit="small", weight=1.5), InvalidInput, "raise its burst",
    ),
    "weight zero": (lambda app: app.start(Loose, rate_limit="api", weight=0), InvalidInput, "above zero"),
    "weight NaN": (lambda app: app.start(Loose, rate_limit="api", weight=NAN), InvalidInput, "above zero"),
    "weight infinite": (lambda app: app.start(Loose, rate_limit="api", weight=INFINITY), InvalidInput, "above zero"),
    "weight as a bool": (lambda app: app.start(Loose, rate_limit="api", weight=True), InvalidInput, "above zero"),
    "weight as text": (lambda app: app.start(Loose, rate_limit="api", weight="1"), InvalidInput, "above zero"),
    "three parts of a rate limit": (
        lambda app: app.start(Loose, rate_limit=("api", "a", "b")), InvalidInput, r"\(name, partition\)",
    ),
    "a list as a rate limit": (lambda app: app.start(Loose, rate_limit=["api"]), InvalidInput, "configured name"),
    "a partition without a name": (lambda app: app.start(Loose, rate_limit=("api", "")), InvalidInput, "empty"),
    "a partition that is too long": (
        lambda app: app.start(Loose, rate_limit=("api", "x" * 256)), InvalidInput, "255 bytes",
    ),
    # lists and numbers
    "many that are none": (lambda app: app.start_many(5), InvalidInput, "takes a list"),
    "many as text": (lambda app: app.start_many("Loose"), InvalidInput, "takes a list"),
    "one of many that is none": (lambda app: app.start_many([(Loose, None), 5]), InvalidInput, "for each, not 5"),
    "one of many with three parts": (lambda app: app.start_many([(Loose, None, 1)]), InvalidInput, "for each"),
    "limit zero": (lambda app: app.list(limit=0), InvalidInput, "from 1 to"),
    "limit as text": (lambda app: app.events(limit="5"), InvalidInput, "from 1 to"),
    "limit beyond all": (lambda app: app.awakeables(limit=10**9), InvalidInput, "from 1 to"),
    "a cursor that is none": (lambda app: app.events_after(5), InvalidInput, r"\.cursor"),
    "a cursor of text": (lambda app: app.events_after(("a", "b")), InvalidInput, r"\.cursor"),
    "a cursor beyond the column": (lambda app: app.events_after((2**70, 0)), InvalidInput, r"\.cursor"),
    "time to forget": (lambda app: app.forget(before=5), InvalidInput, "must be a datetime"),
    # workers
    "a queue without room": (lambda app: app.worker({"default": 0}), InvalidInput, "whole number from 1"),
    "a queue with a bool as room": (lambda app: app.worker({"default": True}), InvalidInput, "whole number from 1"),
    "a queue with half a seat": (lambda app: app.worker({"default": 1.5}), InvalidInput, "whole number from 1"),
    "a queue without a name": (lambda app: app.worker({"": 1}), InvalidInput, "empty"),
    "queues as a list": (lambda app: app.worker(["default"]), InvalidInput, "give a dict"),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
async def test_x4_a_malformed_call_is_refused_with_a_next_step(app: Harness, store: Store, what: str) -> None:
    call, error, message = CALLS[what]
    async with unchanged(store):
        with pytest.raises(error, match=message):
            await call(app)


# -- size ------------------------------------------------------------------------------------------

TEXT = "x" * (LIMIT - 2)  # with its quotes exactly at the limit
WIDE = "é" * (LIMIT // 2 - 1)  # bytes count, not characters
SIZED: dict[str, Callable[[Hark, Any], Any]] = {
    "signal": lambda app, payload: app.signal("live", "other", payload),
    "broadcast": lambda app, payload: app.broadcast("x", payload),
    "input": lambda app, payload: app.start(Loose, payload),
    "input by name": lambda app, payload: app.start("Loose", payload),
    "one of many": lambda app, payload: app.start_many([(Loose, None), (Loose, payload)]),
    "signal_with_start": lambda app, payload: app.signal_with_start(Loose, "live-key", "other", payload),
    "input of signal_with_start": lambda app, payload: app.signal_with_start(Loose, "k", "other", input=payload),
}


@pytest.mark.parametrize("what", SIZED)
async def test_fault_64_a_payload_at_the_limit_is_accepted_and_one_byte_more_is_refused(
    app: Harness, store: Store, what: str
) -> None:
    for text in (TEXT, WIDE):
        await SIZED[what](app, text)
        async with unchanged(store):
            with pytest.raises(PayloadTooLarge, match="store it elsewhere") as refused:
                await SIZED[what](app, text + "x")
        assert (refused.value.size, refused.value.limit) == (LIMIT + 1, LIMIT)


async def test_fault_64_the_limit_is_a_mebibyte_unless_configured() -> None:
    async with Harness(Loose) as app:
        live = await app.start(Loose)
        await live.signal("other", "x" * ((1 << 20) - 2))
        with pytest.raises(PayloadTooLarge):
            await live.signal("other", "x" * ((1 << 20) - 1))


async def test_x4_excessive_nesting_is_refused(app: Harness, store: Store) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    async with unchanged(store):
        for payload, message in ((deep, "nests"), (circle, "contains itself")):
            with pytest.raises(InvalidInput, match=message):
                await app.signal("live", "paid", payload)


async def test_x4_a_refused_call_does_not_affect_others_in_its_turn(app: Harness) -> None:
    good = [app.signal("live", "other", n) for n in range(5)]
    with pytest.raises(InvalidInput):
        app.signal("live", "")
    good += [app.signal("live", "other", n) for n in range(5)]
    assert [(await reply).status for reply in good] == ["stored"] * 10


async def test_x4_a_page_after_an_unknown_id_is_an_error_not_an_empty_page(app: Harness) -> None:
    """Retention may have removed it: an empty page would mean that everything has been seen."""
    with pytest.raises(NotFound, match=r"no 'gone' to continue after.*from the beginning"):
        await app.list(after="gone")


async def test_x4_a_time_in_the_far_future_is_accepted(app: Harness) -> None:
    await app.start(Loose, id="far", at=datetime(9999, 12, 31, tzinfo=UTC))
    await drained(app, app.start(Loose, id="past", at=datetime(1, 1, 1, tzinfo=UTC)))
    assert (await app.get("far")).status == "runnable"
    assert (await app.get("past")).status == "awaiting_signal"
