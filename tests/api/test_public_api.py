"""The public API, checked from outside: only through `import hark`.

Names, signatures, defaults and attributes, so that a change of any of them fails a test. What each method
promises is tested in tests/promises and tests/doors (docs/promises.md).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import timedelta
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest

import hark
from hark import Await, Child, Done, Hark, Next, Rate, Retry, Spawn, Stop, workflow
from hark.testing import Harness
from tests.support.harness import drained
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


@workflow(name="ask", version=2, queue="ops")
async def ask_anything(ctx):  # type: ignore[no-untyped-def]
    return await (await ctx.awakeable())


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(ask_anything, url=store.url, **store.options) as app:
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
        "url": "sqlite:///hark.db", "schema": "hark", "lease": 30.0, "max_crashes": 5,
        "max_family": 100_000, "linger": 60.0, "max_signal_wait": 3600, "max_payload": 1 << 20, "retention": 7 * 86400,
        "retention_failed": 90 * 86400, "rate_limits": None,
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


def test_engine_errors_have_these_attributes() -> None:
    assert issubclass(hark.PayloadTooLarge, hark.InvalidInput)
    assert issubclass(hark.SignalTimeout, TimeoutError)
    assert issubclass(hark.AwakeableTimedOut, TimeoutError)
    assert not issubclass(hark.InvalidInput, hark.InvalidDefinition)


VALUES: dict[type[Any], str] = {
    hark.Instance: "id definition kind version step status state result error traceback progress tags attempt queue "
    "correlation_key parent_id waits created_at finished_at",
    hark.Awakeable: "id instance_id task entry_index status payload error timeout_at created_at resolved_at title "
    "description schema assignees answered_by url",
    hark.Wait: "instance_id kind name place deadline since",
    hark.Event: "seq instance_id type step data at",
    hark.Signal: "id kind name payload at",
}


@pytest.mark.parametrize("value", VALUES)
def test_engine_a_value_has_these_attributes(value: Any) -> None:
    """They are the keys over HTTP, too."""
    assert {field.name for field in fields(value)} >= set(VALUES[value].split())


async def test_engine_a_job_is_an_id_a_key_or_a_handle(app: Harness) -> None:
    job = await app.start(ask_anything, correlation_key="ask:1")
    await drained(app, app.start(ask_anything))
    for name in (job.id, "ask:1", job):
        assert [one.instance_id for one in await app.awakeables(job=name)] == [job.id]


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


# -- Testing -----------------------------------------------------------------------------------------


def test_testing_a_harness_takes_definitions_a_url_and_options() -> None:
    assert options(Harness)["url"] == "sqlite://"
    assert isinstance(Harness(retention=5, max_payload=10), Hark)
