"""The public API, checked from outside: only through `import hark`, HTTP and the command line.

Names, signatures, defaults, attributes and shapes, so that a change of any of them fails a test. What each method
promises is tested in tests/promises and tests/doors (docs/promises.md).
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import metadata
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

import hark
from hark import Await, Broadcast, Child, Done, Hark, Machine, Next, Rate, Retry, Spawn, Start, Stop, step, workflow
from hark.testing import Harness
from tests.doors.support_cli import run_cli, store_options
from tests.support.checkout import Checkout
from tests.support.http import lines_of, serving
from tests.support.stores import Store

EMPTY = inspect.Parameter.empty


def options(function: Any) -> dict[str, Any]:
    """The parameters that may be left out of a call, with their defaults."""
    return {name: one.default for name, one in inspect.signature(function).parameters.items() if one.default != EMPTY}


def needed(function: Any) -> list[str]:
    return [
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.default == EMPTY and name != "self" and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]


def keyword_only(function: Any) -> set[str]:
    return {name for name, one in inspect.signature(function).parameters.items() if one.kind == one.KEYWORD_ONLY}


@dataclass
class Verdict:
    approved: bool


class Listener(Machine):
    @step
    async def start(self, ctx):  # type: ignore[no-untyped-def]
        return Await(Broadcast("market-open"), then=self.end)

    @step
    async def end(self, ctx):  # type: ignore[no-untyped-def]
        return Done(ctx.awaited[0].payload)


async def build(ref: str) -> str:
    return f"image:{ref}"


@workflow
async def deploy(ctx, ref: str):  # type: ignore[no-untyped-def]
    image = await ctx.run(build, ref)
    approval = await ctx.awakeable(
        timeout=7200, title=f"Deploy {ref}?", description="Now.", schema=Verdict, assignees=["ann"]
    )
    verdict = await approval
    return [image, verdict.approved]


@workflow(name="ask", version=2, queue="ops")
async def ask_anything(ctx):  # type: ignore[no-untyped-def]
    return await (await ctx.awakeable())


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(Checkout, Listener, deploy, ask_anything, url=store.url, **store.options) as app:
        yield app


# -- the package -------------------------------------------------------------------------------------


def test_package_name_licence_types_and_python_version() -> None:
    package = metadata("hark")
    assert (package["Name"], package["Requires-Python"], package["License-Expression"]) == ("hark", ">=3.11", "MIT")
    assert (Path(hark.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(
    "name",
    [
        "Hark", "Handle", "Start", "Rate", "Machine", "step", "Next", "Retry", "Await", "Spawn", "Child", "Done",
        "Stop", "Broadcast", "workflow", "Delivery", "Awakeable", "Instance", "Wait", "Event", "Signal", "Duplicate",
        "NotFound", "InvalidInput", "PayloadTooLarge", "NoTarget", "AlreadySettled", "InvalidAnswer",
        "InstanceFailed", "InstanceCancelled", "Conflict", "InvalidDefinition", "SignalTimeout", "AwakeableTimedOut",
        "AwakeableRejected", "RunFailed", "CallFailed", "NonDeterministic",
    ],
)  # fmt: skip
def test_package_every_public_name_is_importable_from_hark(name: str) -> None:
    assert getattr(hark, name).__name__ == name


# -- Engine ------------------------------------------------------------------------------------------


def test_engine_the_options_of_hark_and_their_defaults() -> None:
    pinned = {
        "url": "sqlite:///hark.db", "schema": "hark", "lease": 30.0, "max_crashes": 5, "linger": 60.0,
        "max_signal_wait": 3600, "max_payload": 1 << 20, "retention": 7 * 86400, "rate_limits": None,
        "concurrency": None, "agents": None, "base_url": None, "secret": None, "nats": None,
    }  # fmt: skip
    assert pinned.items() <= options(Hark).items()
    assert keyword_only(Hark) >= set(pinned) - {"url"}
    assert options(Rate) == {"burst": None, "shards": 1}
    Hark("sqlite://", rate_limits={"stripe": {"allowed": 100, "period": 60}}, concurrency={"stripe": 100})
    Hark("sqlite://", lease=timedelta(seconds=30))  # type: ignore[arg-type]


VERBS: dict[str, tuple[list[str], dict[str, Any], set[str]]] = {
    "start": (
        ["definition"],
        {"input": None, "id": None, "correlation_key": None, "correlation_scope": "live", "step": None, "queue": None,
         "priority": 0, "delay": None, "at": None, "concurrency_key": None, "rate_limit": None, "weight": 1,
         "version": None},
        {"input"},
    ),
    "start_many": (["starts"], {}, set()),
    "signal": (["target", "name"], {"payload": None, "dedup_key": None}, {"payload"}),
    "signal_with_start": (
        ["definition", "correlation_key", "name"], {"payload": None, "input": None, "dedup_key": None}, {"payload"}
    ),
    "broadcast": (["name"], {"payload": None, "dedup_key": None}, {"payload"}),
    "message": (["name", "correlation_key"], {"payload": None}, {"payload"}),
    "resolve": (["awakeable_id"], {"payload": None, "by": None}, {"payload"}),
    "reject": (["awakeable_id"], {"error": "rejected", "by": None}, {"error"}),
    "awakeable": (["id"], {}, set()),
    "awakeables": ([], {"job": None, "status": None, "limit": 100, "after": None}, set()),
    "get": (["target"], {}, set()),
    "list": ([], {"status": None, "definition": None, "kind": None, "limit": 100, "after": None}, set()),
    "result": (["target"], {"timeout": None}, {"timeout"}),
    "events": ([], {"target": None, "limit": 50}, {"target"}),
    "waits": ([], {"name": None, "kind": None}, set()),
    "cancel": (["target"], {"reason": None}, {"reason"}),
    "retry": (["target"], {}, set()),
    "sweep": ([], {}, set()),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_engine_a_verb_takes_these_arguments(verb: str) -> None:
    required, optional, positional = VERBS[verb]
    function = getattr(Hark, verb)
    assert needed(function) == required
    assert optional.items() <= options(function).items()
    assert keyword_only(function) >= set(optional) - positional
    assert not keyword_only(function) & positional


async def test_engine_the_opening_example(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app, app.worker(queues={"default": 100, "checkout": 5}):
        order = await app.start(Checkout, {"order": 42}, correlation_key="order:42")
        delivery = await app.signal("order:42", "payment_confirmed", {"amount": 100}, dedup_key="evt-7")
        assert delivery.status in ("woke", "stored")
        assert await order.result(timeout=60) == {"order": 42, "paid": {"amount": 100}}
        assert (await app.signal("order:42", "payment_confirmed", dedup_key="evt-7")).status == "duplicate"
        with pytest.raises(hark.NoTarget):
            await app.signal("order:42", "payment_confirmed", dedup_key="evt-8")


def test_engine_the_opening_example_in_synchronous_code(store: Store) -> None:
    with Hark(store.url, **store.options) as app, app.worker():
        order = app.start(Checkout, {"order": 1}).result()
        assert app.signal(order, "payment_confirmed", 5).result().status in ("woke", "stored")
        assert order.result(timeout=60).result() == {"order": 1, "paid": 5}


async def test_engine_result_on_an_event_loop_is_refused() -> None:
    async with Harness() as app:
        with pytest.raises(hark.WouldBlockEventLoop, match="await"):
            app.list().result()
        with pytest.raises(hark.WouldBlockEventLoop), Hark("sqlite://"):
            pass


def test_engine_errors_have_these_attributes() -> None:
    assert issubclass(hark.PayloadTooLarge, hark.InvalidInput)
    assert issubclass(hark.SignalTimeout, TimeoutError)
    assert issubclass(hark.AwakeableTimedOut, TimeoutError)
    assert not issubclass(hark.InvalidInput, hark.InvalidDefinition)


async def test_engine_an_awakeable_has_these_attributes(app: Harness) -> None:
    job = await app.start(deploy, {"ref": "v1"}, correlation_key="deploy:v1")
    await app.drain()
    [one] = await app.awakeables(job=job.id)
    assert one == await app.awakeable(one.id)
    assert one.id == "prom_1" + base64.urlsafe_b64encode(f"{job.id}:{one.entry_index}".encode()).decode().rstrip("=")
    assert (one.instance_id, one.task, one.status, one.payload, one.error) == (job.id, None, "PENDING", None, None)
    assert (one.title, one.description, list(one.assignees)) == ("Deploy v1?", "Now.", ["ann"])
    assert one.timeout_at is not None
    assert one.timeout_at - one.created_at == timedelta(seconds=7200)
    assert (one.resolved_at, one.answered_by) == (None, None)
    assert one.created_at.tzinfo == UTC
    assert isinstance(one.schema, dict)
    assert one.url.startswith(f"/a/{one.id}?t=")
    assert (await app.get(job)).status == "awaiting_signal"
    [wait] = await app.waits(kind="awakeable")
    assert (wait.instance_id, wait.kind, wait.name, wait.deadline) == (job.id, "awakeable", one.id, one.timeout_at)

    with pytest.raises(hark.InvalidAnswer) as bad:
        await app.resolve(one.id, {"approved": "perhaps"}, by="ann")
    assert bad.value.problems
    settled = await app.resolve(one.id, {"approved": True}, by="ann")
    assert (settled.status, settled.payload, settled.answered_by) == ("RESOLVED", {"approved": True}, "ann")
    assert settled.resolved_at is not None
    with pytest.raises(hark.AlreadySettled) as late:
        await app.reject(one.id)
    assert (late.value.status, late.value.by, late.value.at) == ("RESOLVED", "ann", settled.resolved_at)
    await app.drain()
    assert await job.result() == ["image:v1", True]
    assert [kept.status for kept in await app.awakeables(job=job.id)] == ["RESOLVED"]
    assert await app.awakeables(status="PENDING") == []
    assert await app.awakeables(job="missing") == []


async def test_engine_a_job_is_an_id_a_key_or_a_handle(app: Harness) -> None:
    job = await app.start(ask_anything, correlation_key="ask:1")
    await app.start(ask_anything)
    await app.drain()
    for name in (job.id, "ask:1", job):
        assert [one.instance_id for one in await app.awakeables(job=name)] == [job.id]


async def test_engine_an_unknown_status_or_kind_is_refused_and_the_error_lists_the_known_ones(app: Harness) -> None:
    for look, word in [
        (lambda: app.list(status="bogus"), "awaiting_signal"),
        (lambda: app.list(kind="bogus"), "workflow"),
        (lambda: app.waits(kind="bogus"), "broadcast"),
        (lambda: app.awakeables(status="bogus"), "PENDING"),
    ]:
        with pytest.raises(hark.InvalidInput, match=word):
            await look()


async def test_engine_an_instance_an_event_and_a_wait_have_these_attributes(app: Harness) -> None:
    order = await app.start(Checkout, {"order": 42}, correlation_key="order:42")
    await app.drain()
    one = await order.get()
    assert (one.id, one.definition, one.kind, one.version) == (order.id, "Checkout", "machine", 1)
    assert (one.step, one.status, one.state) == ("ship", "awaiting_signal", {"order": 42, "n": 1})
    assert (one.result, one.error, one.attempt, one.queue) == (None, None, 0, "checkout")
    assert (one.correlation_key, one.parent_id, one.finished_at) == ("order:42", None, None)
    [wait] = one.waits
    assert [wait] == await app.waits(name="payment_confirmed", kind="signal")
    assert (wait.instance_id, wait.kind, wait.name) == (order.id, "signal", "payment_confirmed")
    assert wait.deadline == wait.since + timedelta(hours=1)
    assert isinstance(wait.place, str)

    events = await app.events(order)
    assert [event.type for event in events] == ["started", "await"]
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert {event.instance_id for event in events} == {order.id}
    assert all(event.at.tzinfo == UTC and hasattr(event, "data") and hasattr(event, "step") for event in events)
    assert [event.type for event in await app.events(order, limit=1)] == ["await"]

    await app.advance(3600)
    await app.drain()
    failed = await order.get()
    assert (failed.status, failed.error) == ("failed", "payment never came")
    assert failed.finished_at is not None
    with pytest.raises(hark.InstanceFailed):
        await order.result()
    with pytest.raises(hark.Conflict):
        await order.cancel()
    assert (await app.retry(order)).status == "runnable"


async def test_engine_start_many_takes_pairs_and_starts_and_returns_handles_or_duplicates(app: Harness) -> None:
    first, second, third = await app.start_many(
        [(Checkout, {"order": 1}), Start(Checkout, {"order": 2}, id="two"), Start("Checkout", {"order": 3}, id="two")]
    )
    assert isinstance(first, hark.Handle)
    assert second.id == "two"
    assert isinstance(third, hark.Duplicate)
    assert third.holder == "two"


@pytest.mark.parametrize("id", ["", "a b", "a/b", "x" * 129, "é", "a:b", "a\n", 5])
async def test_engine_an_id_outside_the_alphabet_is_refused(app: Harness, id: Any) -> None:
    with pytest.raises(hark.InvalidInput):
        await app.start(Checkout, {"order": 1}, id=id)


async def test_engine_malformed_arguments_raise_invalid_input(app: Harness) -> None:
    for wrong in (
        {"delay": -1}, {"delay": float("nan")}, {"at": datetime(2027, 1, 1)}, {"rate_limit": "unknown"}, {"weight": 0},
        {"correlation_key": ""}, {"correlation_key": "x" * 300}, {"correlation_key": "a\0b"}, {"queue": "\ud800"},
        {"correlation_scope": "sometimes"}, {"priority": "high"}, {"version": "one"}, {"step": "nowhere"},
    ):  # fmt: skip
        with pytest.raises(hark.InvalidInput):
            await app.start(Checkout, {"order": 1}, **wrong)
    with pytest.raises(hark.InvalidInput):
        await app.start(Checkout, {"order": "forty-two"})
    with pytest.raises(hark.PayloadTooLarge):
        await app.start(Checkout, "x" * (1 << 20))
    with pytest.raises(hark.NotFound):
        await app.start("not registered")
    assert await app.list() == []


async def test_engine_missing_targets_raise_not_found(app: Harness) -> None:
    for verb in (app.get, app.cancel, app.retry, app.events, app.result, app.awakeable):
        with pytest.raises(hark.NotFound):
            await verb("x")
    with pytest.raises(hark.NotFound):
        await app.resolve("prom_1am9vLWpvYi0xOjA=", 1)
    with pytest.raises(hark.NoTarget):
        await app.message("payment", "order-42", {"amount": 120})
    assert await app.broadcast("market-open") == 0


async def test_engine_a_result_that_times_out_does_not_stop_the_work(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app, app.worker():
        order = await app.start(Checkout, {"order": 42})
        with pytest.raises(TimeoutError):
            await app.result(order, timeout=0.05)
        await order.signal("payment_confirmed", 1)
        assert await app.result(order, 60) == {"order": 42, "paid": 1}


# -- Machines ----------------------------------------------------------------------------------------


def test_machines_the_outcomes_take_these_arguments() -> None:
    assert needed(Next) == ["step"]
    assert {"rate_limit": None, "weight": 1}.items() <= options(Next).items()
    assert keyword_only(Next) == {"rate_limit", "weight", "concurrency_key"}
    assert (needed(Retry), options(Retry)["delay"]) == ([], 0)
    assert needed(Await) == ["then"]
    assert {"timeout": None, "deadline": None}.items() <= options(Await).items()
    assert (needed(Spawn), options(Spawn)["join"]) == (["children", "then"], "all")
    assert (needed(Done), options(Done)["result"]) == ([], None)
    assert needed(Stop) == ["reason"]
    assert needed(Child) == ["definition"]
    for outcome in (Next, Retry, Await, Spawn, Done, Stop):
        assert "state" in options(outcome)
    for timeout in (0, -1, float("nan"), float("inf"), "1"):
        with pytest.raises(hark.InvalidInput):
            Await("x", then="y", timeout=timeout)  # type: ignore[arg-type]


async def test_machines_the_context_has_these_attributes(store: Store) -> None:
    seen: dict[str, Any] = {}

    class Looks(Machine, name="looks", initial="first"):
        @step("first")
        def begin(self, ctx):  # type: ignore[no-untyped-def]
            seen["input"] = ctx.state
            return Await("go", then=self.look)

        @step
        def look(self, ctx):  # type: ignore[no-untyped-def]
            for name in ("id", "step", "attempt", "correlation_key", "timed_out", "children"):
                seen[name] = getattr(ctx, name)
            seen["now"], seen["awaited"], seen["all"] = ctx.now(), list(ctx.awaited), list(ctx.all)
            return Spawn([Child(Listener), Child("not registered")], then=self.join, join=1)

        @step
        def join(self, ctx):  # type: ignore[no-untyped-def]
            seen["joined"] = list(ctx.children)
            ctx.start(Listener, id="another")
            return Done("ok", state={"kept": True})

    async with Harness(Looks, Listener, url=store.url, **store.options) as app:
        it = await app.start("looks", correlation_key="k")
        assert await app.drain() == {"steps": 1, "await": 1}
        await it.signal("other", 0)
        await it.signal("go", {"a": 1})
        assert await app.drain() == {"steps": 4, "spawn": 1, "done": 1, "await": 2}
        assert (await it.get()).state == {"kept": True}
        assert (await app.get("another")).parent_id in (None, it.id)
    assert (seen["input"], seen["id"], seen["step"], seen["attempt"]) == ({}, it.id, "look", 0)
    assert (seen["correlation_key"], seen["timed_out"]) == ("k", False)
    assert seen["now"].tzinfo == UTC
    [signal] = seen["awaited"]
    assert (signal.kind, signal.name, signal.payload) == ("signal", "go", {"a": 1})
    assert signal.at.tzinfo == UTC
    assert signal.id is not None
    assert [one.name for one in seen["all"]] == ["other", "go"]
    waiting, failed = sorted(seen["joined"], key=lambda child: child.definition != "Listener")
    assert (waiting.definition, waiting.result, waiting.error) == ("Listener", None, None)
    assert (failed.definition, failed.status) == ("not registered", "failed")
    assert failed.error
    assert {"id", "state"} <= set(dir(failed))


# -- Durable functions -------------------------------------------------------------------------------


def test_functions_the_context_takes_these_arguments() -> None:
    ctx = hark.FunctionContext
    assert {"name": None, "retries": 0, "backoff": 1.0}.items() <= options(ctx.run).items()
    assert set(options(ctx.awakeable)) >= {"timeout", "title", "description", "schema", "assignees"}
    assert options(ctx.wait_for_signal)["timeout"] is None
    assert needed(ctx.sleep) == ["seconds"]
    assert needed(ctx.call) == ["definition"]
    for name in ("now", "start", "signal", "broadcast", "gather", "first", "random", "uuid", "continue_as_new"):
        assert callable(getattr(ctx, name))


async def test_functions_have_a_name_a_version_and_a_queue(app: Harness) -> None:
    one = await (await app.start("ask")).get()
    assert (one.definition, one.kind, one.version, one.queue) == ("ask", "workflow", 2, "ops")


@pytest.mark.parametrize("end", ["resolve", "reject", "timeout", "cancel"])
async def test_functions_an_awakeable_ends_in_one_of_four_ways(store: Store, end: Literal["resolve"]) -> None:
    @workflow
    async def asks(ctx):  # type: ignore[no-untyped-def]
        question = await ctx.awakeable(timeout=60)
        try:
            return ["answer", await question]
        except hark.AwakeableRejected as refused:
            return ["rejected", str(refused)]
        except hark.AwakeableTimedOut:
            return ["timed out"]

    async with Harness(asks, url=store.url, **store.options) as app:
        it = await app.start(asks)
        await app.drain()
        [question] = await app.awakeables()
        match end:
            case "resolve":
                await app.resolve(question.id)
            case "reject":
                await app.reject(question.id)
            case "timeout":
                await app.advance(60)
            case "cancel":
                await it.cancel()
        await app.drain()
        status = (await app.awakeable(question.id)).status
        instance = await it.get()
        expected = {
            "resolve": ("RESOLVED", "done", ["answer", None]),
            "reject": ("REJECTED", "done", ["rejected", "rejected"]),
            "timeout": ("TIMEOUT", "done", ["timed out"]),
            "cancel": ("CANCELLED", "cancelled", None),
        }
        assert (status, instance.status, instance.result) == expected[end]


async def test_functions_failures_and_timeouts_raise_these_errors(store: Store) -> None:
    def fails() -> None:
        raise ZeroDivisionError("by zero")

    @workflow
    async def child(ctx, fail: bool):  # type: ignore[no-untyped-def]
        return await ctx.run(fails) if fail else "fine"

    @workflow
    async def parent(ctx):  # type: ignore[no-untyped-def]
        said = []
        try:
            await ctx.run(fails)
        except hark.RunFailed as error:
            said.append([error.type, error.message])
        try:
            await ctx.call(child, True)
        except hark.CallFailed:
            said.append("call failed")
        said.append(await ctx.call(child, {"fail": False}))
        try:
            await ctx.wait_for_signal("go", timeout=5)
        except hark.SignalTimeout:
            said.append("no signal")
        signal = await ctx.wait_for_signal("go")
        said.append(signal.payload)
        try:
            await ctx.signal("missing", "x")
        except hark.NoTarget:
            said.append("no target")
        return said

    async with Harness(child, parent, url=store.url, **store.options) as app:
        it = await app.start(parent)
        await app.drain()
        assert (await it.get()).status == "awaiting_signal"
        await app.advance(5)
        await app.drain()
        await it.signal("go", 7)
        await app.drain()
        assert await it.result() == [
            ["ZeroDivisionError", "by zero"], "call failed", "fine", "no signal", 7, "no target"
        ]  # fmt: skip


# -- Testing -----------------------------------------------------------------------------------------


async def test_testing_the_example() -> None:
    async with Harness(Checkout) as app:
        order = await app.start(Checkout, {"order": 42})
        assert await app.drain() == {"steps": 1, "await": 1}
        await app.advance(3600)
        await app.drain()
        assert (await order.get()).status == "failed"
        assert await app.drain() == {"steps": 0}


def test_testing_a_harness_takes_definitions_a_url_and_options() -> None:
    assert options(Harness)["url"] == "sqlite://"
    assert isinstance(Harness(retention=5, max_payload=10), Hark)


# -- HTTP --------------------------------------------------------------------------------------------


@asynccontextmanager
async def server(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    app = Hark(store.url, **store.options)
    app.register(Checkout, Listener, deploy, ask_anything)
    async with app, serving(app) as client:
        yield client


async def until(client: httpx.AsyncClient, path: str, seen: Any) -> Any:
    async with asyncio.timeout(60):
        while not seen(body := (await client.get(path)).json()):
            await asyncio.sleep(0.01)
    return body


async def test_http_every_route_returns_its_documented_shape(store: Store) -> None:
    async with server(store) as http:
        assert (await http.get("/health")).json()["status"] == "ok"
        body = {"definition": "Checkout", "input": {"order": 42}, "id": "o", "correlation_key": "order/42"}
        made = await http.post("/instances", json=body)
        assert (made.status_code, made.json()["id"]) == (201, "o")
        assert (await http.post("/instances", json=body)).status_code == 409
        parked = await until(http, "/instances/order%2F42", lambda one: one["status"] == "awaiting_signal")
        attributes = (
            "id definition kind version step status state result error attempt queue correlation_key parent_id waits "
            "created_at finished_at"
        )
        assert set(parked) >= set(attributes.split())
        [wait] = (await http.get("/waits")).json()["items"]
        assert set(wait) >= set(["instance_id", "kind", "name", "place", "deadline", "since"])

        path, key = "/instances/order%2F42/signals/payment_confirmed", {"Idempotency-Key": "evt-7"}
        sent = await http.post(path, json={"amount": 1}, headers=key)
        assert (sent.status_code, sent.json()) == (202, {"status": "woke"})
        assert (await http.post(path, headers=key)).json() == {"status": "duplicate"}
        await until(http, "/instances/o", lambda one: one["result"] == {"order": 42, "paid": {"amount": 1}})
        assert (await http.post(path)).status_code == 404
        for verb in ("cancel", "retry"):
            assert (await http.post(f"/instances/o/{verb}")).status_code == 409

        page = (await http.get("/instances?limit=1")).json()
        assert set(page) == {"items", "next"}
        assert page["next"] is None
        events = (await http.get("/instances/o/events")).json()["items"]
        assert set(events[0]) >= set(["seq", "instance_id", "type", "step", "data", "at"])
        assert events == (await http.get("/events?job=o&limit=50")).json()["items"]
        lines = [one for one in lines_of((await http.get("/instances/o/stream")).text) if "id" in one]
        assert [(one["id"], one["event"]) for one in lines] == [(str(one["seq"]), one["type"]) for one in events]
        assert all(isinstance(json.loads(one["data"]), dict) for one in lines)
        rest = lines_of((await http.get("/instances/o/stream", headers={"Last-Event-ID": lines[1]["id"]})).text)
        assert [one for one in rest if "id" in one] == lines[2:]

        for id in ("l1", "l2", "l3"):
            await http.post("/instances", json={"definition": "Listener", "id": id})
        await until(http, "/waits?name=market-open", lambda found: len(found["items"]) == 3)
        assert (await http.post("/signal", json={"SignalName": "market-open", "Payload": 5})).json() == {
            "DeliveredCount": 3
        }
        missed = await http.post("/message", json={"MessageName": "a", "CorrelationKey": "b", "Variables": {}})
        assert missed.status_code == 404
        assert "hark_" in (await http.get("/metrics")).text
        assert "/awakeables/{id}/resolve" in (await http.get("/openapi.json")).json()["paths"]


async def test_http_an_awakeable_is_answered_once_and_with_the_documented_status_codes(store: Store) -> None:
    async with server(store) as http:
        for id in ("a", "b", "c"):
            await http.post("/instances", json={"definition": "ask", "id": id})
        await http.post("/instances", json={"definition": "deploy", "id": "d", "input": {"ref": "v1"}})
        found = (await until(http, "/awakeables?status=PENDING", lambda found: len(found["items"]) == 4))["items"]
        asked = {one["instance_id"]: one["id"] for one in found}
        attributes = (
            "id instance_id task entry_index status payload error timeout_at created_at resolved_at title description "
            "schema assignees answered_by url"
        )
        assert set(found[0]) >= set(attributes.split())
        assert found[0]["url"].startswith(f"{http.base_url}/a/".replace("//a/", "/a/"))
        assert [one["id"] for one in (await http.get("/awakeables?job=a")).json()["items"]] == [asked["a"]]
        assert (await http.get(f"/awakeables/{asked['a']}")).json()["status"] == "PENDING"

        payload = {"action": "approve", "data": {"key": "value"}}
        answer = await http.post(f"/awakeables/{asked['a']}/resolve", json=payload)
        assert (answer.status_code, answer.json()) == (
            200,
            {
                "success": True,
                "awakeable_id": asked["a"],
                "payload": payload,
                "message": "Awakeable resolved successfully",
            },
        )
        null = await http.post(f"/awakeables/{asked['b']}/resolve")
        assert (null.status_code, null.json()["payload"]) == (200, None)
        no = await http.post(f"/awakeables/{asked['c']}/reject", json={"error": "denied"})
        assert no.status_code == 200
        assert (no.json()["success"], no.json()["awakeable_id"], no.json()["error"]) == (True, asked["c"], "denied")
        assert "message" in no.json()

        codes = {
            f"/awakeables/{asked['d']}/resolve": [(b"{", 400), (b'{"approved": 3}', 422), (b"[" * 9999, 400)],
            "/awakeables/prom_1am9vLWpvYi0xOjA=/resolve": [(b"1", 404)],
            f"/awakeables/{asked['a']}/resolve": [(b"1", 409), (b" " * (1 << 21), 413)],
            f"/awakeables/{asked['d']}/reject": [(b"{", 400), (b"[]", 422), (b'{"error": 3}', 422)],
            "/instances": [(b"{", 400), (b"[]", 422), (b'{"definition": "missing"}', 404)],
            "/signal": [(b"{", 400), (b"{}", 422)],
            "/message": [(b"{", 400), (b"{}", 422)],
        }
        for path, bodies in codes.items():
            for body, code in bodies:
                said = await http.post(path, content=body)
                assert said.status_code == code, (path, body[:20], said.text)
                assert isinstance(said.json()["error"], str)
        for path in ("/awakeables?status=bogus", "/instances?status=bogus", "/instances?kind=bogus", "/waits?kind=x"):
            assert (await http.get(path)).status_code == 422, path


# -- CLI ---------------------------------------------------------------------------------------------


@pytest.fixture
def asked(store: Store) -> str:
    """Park an order and create a pending awakeable; returns the id of the awakeable."""

    async def prepare() -> str:
        async with Harness(Checkout, ask_anything, url=store.url, **store.options) as app:
            await app.start(Checkout, {"order": 42}, id="o", correlation_key="order:42")
            await app.start(ask_anything, id="test-job-1")
            await app.drain()
            [question] = await app.awakeables()
            return question.id

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(prepare())


def test_cli_exit_codes_and_shapes(store: Store, asked: str, tmp_path: Path) -> None:
    db = store_options(store)

    def says(code: int, *words: str) -> str:
        said = run_cli(*words, *db)
        assert said.code == code, (words, said)
        assert "Traceback" not in said.err
        return said.out

    assert says(0, "awakeable", "list", "--job", "test-job-1").splitlines() == [
        f"[·] {asked}", "  Job: test-job-1", "  Task: -", "  Status: PENDING"
    ]  # fmt: skip
    for listing in ("awakeable", "instance"):
        assert isinstance(json.loads(says(0, listing, "list", "--json")), list)
    assert isinstance(json.loads(says(0, "events", "--json", "--job", "o", "--limit", "100")), list)
    assert json.loads(says(0, "awakeable", "show", asked, "--json"))["status"] == "PENDING"
    assert json.loads(says(0, "instance", "show", "order:42", "--json"))["id"] == "o"
    says(75, "awakeable", "await", asked)
    says(0, "instance", "why", "o")

    assert says(0, "start", "Checkout", "--input", '{"order": 1}', "--key", "order:1").strip()
    says(4, "start", "Checkout", "--input", '{"order": 1}', "--key", "order:1")
    says(3, "start", "missing")
    says(2, "start", "Checkout", "--input", "{")
    assert says(0, "signal", "o", "payment_confirmed", "--payload", '{"a": 1}', "--dedup-key", "k").split() == ["woke"]
    assert says(0, "signal", "o", "payment_confirmed", "--dedup-key", "k").split() == ["duplicate"]
    says(3, "signal", "missing", "x")
    assert says(0, "broadcast", "market-open").split() == ["0"]
    says(3, "message", "payment", "order-42")

    says(2, "awakeable", "resolve", asked, "--file", str(tmp_path / "missing.json"))
    says(2, "awakeable", "resolve", asked, "--nonsense")
    says(0, "awakeable", "resolve", asked, "--payload", "approved")
    assert says(0, "awakeable", "await", asked) == "approved\n"
    assert json.loads(says(0, "awakeable", "await", asked, "--json")) == "approved"
    says(4, "awakeable", "resolve", asked)
    says(4, "awakeable", "reject", asked, "--error", "approval denied")
    for verb in ("show", "resolve", "reject", "await"):
        says(3, "awakeable", verb, "prom_1am9vLWpvYi0xOjA=")

    says(0, "instance", "cancel", "order:1")
    says(4, "instance", "cancel", "order:1")
    says(4, "instance", "retry", "order:1")
    for verb in ("show", "cancel", "retry", "why"):
        says(3, "instance", verb, "missing")
    says(2, "instance", "list", "--status", "bogus")
    says(2, "awakeable", "list", "--status", "bogus")
    says(0, "timeout", "check")
    says(0, "migrate")
    says(1, "doctor")  # there is an unfinished instance and no worker


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], None),
        (["--payload", '{"action":"approve"}'], {"action": "approve"}),
        (["--payload", "approved"], "approved"),
        (["--payload", "5", "--text"], "5"),
        (["--payload", ""], ""),
        (["--file", "payload.json"], [1, 2]),
        (["--file", "payload.txt"], "no {JSON"),
    ],
)
def test_cli_a_payload_is_json_if_it_parses_else_text(
    store: Store, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], expected: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("payload.json").write_text("[1, 2]\n", "utf-8")
    Path("payload.txt").write_text("no {JSON", "utf-8")
    said = run_cli("--json", "awakeable", "resolve", asked, *flags, *store_options(store))
    assert said.json["payload"] == expected


def test_cli_every_documented_command_exists() -> None:
    for words in (
        "serve", "worker", "demo", "init", "migrate", "doctor", "start", "signal", "broadcast", "message",
        "instance list", "instance show", "instance cancel", "instance retry", "instance why", "awakeable resolve",
        "awakeable reject", "awakeable list", "awakeable show", "awakeable await", "token create", "token list",
        "token revoke", "timeout check", "events",
    ):  # fmt: skip
        said = run_cli(*words.split(), "--help")
        assert (said.code, said.err) == (0, "")
        for option in ("--db", "--app", "--json"):
            assert option in said.out
