"""V4: live jobs move to another version: tasks keep their state by name, and new ones start by the usual rules."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hark import InvalidMigration, load_job
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_migration import migrate_job
from hark.programs.jobs.job_state import load_job_state
from hark.testing import Harness
from hark.views import job_reporting, live
from tests.promises.support_jobs import statuses
from tests.support.harness import harness
from tests.support.stores import Store


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with harness(store) as app:

        @app.handler("echo")
        async def echo(task: Any) -> Any:
            return [task.name, task.input or None]

        @app.handler("flaky")
        async def flaky(task: Any) -> Any:
            raise ValueError("no")

        yield app


def ask(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    """A task that a person ends."""
    return {"name": name, "type": "approval", "title": name, "needs": list(needs), **more}


def echo(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    """A task that gives its name and its input."""
    return {"name": name, "handler": "echo", "needs": list(needs), **more}


def job(*tasks: dict[str, Any], **more: Any) -> str:
    return json.dumps({"name": "j", "tasks": list(tasks), **more})


async def start(app: Harness, text: str, **inputs: Any) -> None:
    await app.deploy(text)
    await app.start("j", inputs or None, id="i")
    await app.drain()


async def move(app: Harness, text: str) -> None:
    """Move the job to a new version with this text."""
    [(_, version)] = await app.deploy(text)
    await app.migrate("i", to_version=version)
    await app.drain()
    assert (await app.get("i")).version == version


async def refused(app: Harness, text: str) -> list[str]:
    """The reasons why the job cannot be moved to a new version with this text; it is as it was."""
    before = await app.get("i")
    [(_, version)] = await app.deploy(text)
    with pytest.raises(InvalidMigration) as caught:
        await app.migrate("i", to_version=version)
    await app.drain()
    after = await app.get("i")
    assert (after.version, after.state) == (before.version, before.state)
    return [f"{one.element}: {one.message}" for one in caught.value.problems]


async def answer(app: Harness, task: str, payload: Any = None) -> None:
    [one] = [one for one in await app.awakeables(status="PENDING") if one.task == task]
    await app.resolve(one.id, payload or {"action": "approve"})
    await app.drain()


async def tasks(app: Harness) -> dict[str, str]:
    return statuses(await app.get("i"))


async def output(app: Harness, task: str) -> Any:
    return (await app.get("i")).state["tasks"][task]["output"]


async def test_v4_a_task_that_is_put_before_others_runs_and_the_rest_keeps_its_state(app: Harness) -> None:
    await start(app, job(echo("a"), ask("b", "a"), echo("c", "b", input="{{ tasks.a.output }}")))
    both = ["{{ tasks.a.output }}", "{{ tasks.first.output }}"]
    await move(app, job(echo("first"), echo("a"), ask("b", "a"), echo("c", "b", "first", input=both)))
    assert await tasks(app) == {"first": "completed", "a": "completed", "b": "suspended", "c": "pending"}
    await answer(app, "b")
    ended = await app.get("i")
    assert (ended.status, ended.version) == ("done", 2)
    assert await output(app, "c") == ["c", [["a", None], ["first", None]]]
    assert list(ended.result) == ["first", "a", "b", "c"]


async def test_v4_a_task_that_runs_keeps_its_row_and_its_question(app: Harness) -> None:
    await start(app, job(ask("a"), echo("b", "a")))
    [before] = await app.awakeables(status="PENDING")
    await move(app, job(echo("x"), ask("a"), echo("b", "a", "x")))
    [after] = await app.awakeables(status="PENDING")
    assert after.id == before.id
    ids = {task.name: task.id for task in (await app._read(lambda store: job_reporting.report(store, "i", ()))).tasks}
    assert ids == {"x": "i.2", "a": "i.0", "b": None}
    await answer(app, "a")
    assert (await app.get("i")).status == "done"
    assert set((await output(app, "b"))[1]) == {"a", "x"}


async def test_v4_a_new_task_does_not_take_the_row_of_one_that_is_gone(app: Harness) -> None:
    await start(app, job(echo("a"), echo("gone"), ask("b")))
    await move(app, job(echo("a"), ask("b"), echo("x"), echo("y", "b")))
    assert await output(app, "x") == ["x", None]
    await move(app, job(ask("b"), echo("z"), echo("y", "b", "z")))
    assert await output(app, "z") == ["z", None]
    await answer(app, "b")
    ended = await app.get("i")
    assert (ended.status, sorted(ended.result)) == ("done", ["b", "y", "z"])


async def test_v4_pending_tasks_are_added_removed_and_changed(app: Harness) -> None:
    await start(app, job(ask("a"), echo("b", "a"), echo("c", "b")))
    await move(app, job(ask("a"), echo("c", "a", input="changed"), echo("d", "c")))
    assert await tasks(app) == {"a": "suspended", "c": "pending", "d": "pending"}
    await answer(app, "a")
    assert await output(app, "c") == ["c", "changed"]
    assert (await app.get("i")).status == "done"


async def test_v4_a_task_that_runs_has_to_stay_what_it_is(app: Harness) -> None:
    await start(app, job(ask("a"), echo("b", "a")))
    assert await refused(app, job(echo("b"))) == ["a: it runs, and the new version does not have it: let it end first"]
    assert await refused(app, job(echo("a"), echo("b", "a"))) == [
        "a: it runs, and its type is 'task' in the new version instead of 'approval': let it end first"
    ]
    final = json.dumps({"name": "j", "tasks": [echo("b")], "finally": [ask("a")]})
    assert await refused(app, final) == [
        "a: it has begun or ended, and is listed under `finally:` only in the new version"
    ]


async def test_v4_a_task_that_waits_at_its_gate_keeps_its_gate(app: Harness) -> None:
    await start(app, job(echo("a", gate="user_approval"), echo("b", "a")))
    [reason] = await refused(app, job(echo("a"), echo("b", "a")))
    assert reason == "a: it runs, and its gate is none in the new version instead of 'user_approval': let it end first"
    await move(app, job(echo("x"), echo("a", gate="user_approval"), echo("b", "a")))
    await answer(app, "a")
    assert (await app.get("i")).status == "done"


async def test_v4_a_handler_of_a_task_that_runs_does_not_change(app: Harness) -> None:
    def text(handler: str) -> str:
        return job({"name": "a", "handler": handler, "retry": {"limit": 9, "delay": 60}})

    await start(app, text("flaky"))
    [reason] = await refused(app, text("echo"))
    assert reason == "a: it runs, and its handler is 'echo' in the new version instead of 'flaky': let it end first"


async def test_v4_a_failed_task_runs_again_in_the_new_version(app: Harness) -> None:
    await start(app, job({"name": "a", "handler": "flaky"}, echo("b", "a")))
    assert await tasks(app) == {"a": "failed", "b": "skipped"}
    await move(app, job(echo("x"), echo("a", "x"), echo("b", "a")))
    assert (await app.get("i")).status == "failed"
    await app.retry("i")
    await app.drain()
    assert (await app.get("i")).status == "done"
    assert await output(app, "b") == ["b", ["a", ["x", None]]]


async def test_v4_a_regression_reads_the_rows_of_the_new_version(app: Harness) -> None:
    back = {"on_fail": {"regress_to": "a", "limit": 1}}
    await start(app, job(echo("a"), ask("b", "a", **back), echo("c", "b", input="{{ tasks.a.output }}")))
    await move(app, job(echo("x"), echo("a", "x"), ask("b", "a", **back), echo("c", "b", input="{{ tasks.a.output }}")))
    await answer(app, "b", {"action": "reject"})
    assert await output(app, "a") == ["a", ["x", None]]
    await answer(app, "b")
    assert await output(app, "c") == ["c", ["a", ["x", None]]]
    assert (await app.get("i")).status == "done"


async def test_v4_what_has_completed_is_undone_in_the_new_version(app: Harness) -> None:
    undone: list[Any] = []

    @app.handler("undo")
    async def undo(task: Any) -> None:
        undone.append((task.name, task.input))

    await start(app, job(echo("a", undo="undo"), ask("b", "a")))
    assert await refused(app, job(ask("b"))) == [
        "a: it has completed and would be undone, and the new version does not have it"
    ]
    await move(app, job(echo("x", undo="undo"), echo("a", undo="undo"), ask("b", "a")))
    await answer(app, "b", {"action": "reject"})
    assert (await app.get("i")).status == "failed"
    assert undone == [("x", ["x", None]), ("a", ["a", None])]


async def test_v4_a_cancel_runs_what_the_new_version_leaves_to_do(app: Harness) -> None:
    shown: list[str] = []

    @app.handler("show")
    async def show(task: Any) -> None:
        shown.append(task.name)

    await start(app, job(ask("a")))
    await move(app, job(ask("a"), **{"finally": [{"name": "clean", "handler": "show"}]}))
    await app.cancel("i")
    await app.drain()
    assert ((await app.get("i")).status, shown) == ("cancelled", ["clean"])


async def test_v4_no_task_is_added_once_the_finally_tasks_have_begun(app: Harness) -> None:
    final = {"finally": [ask("last")]}
    await start(app, job(echo("a"), **final))
    [reason] = await refused(app, job(echo("a"), echo("b"), **final))
    assert reason == (
        "b: it would start, and the finally tasks of the job have begun: let the job end, and start it again"
    )
    await move(app, job(echo("a", var="out"), **{"finally": [ask("last"), echo("more")]}))
    await answer(app, "last")
    assert (await app.get("i")).status == "done"
    assert (await output(app, "more"))[0] == "more"


async def test_v4_a_new_task_does_not_start_in_a_job_that_fails_fast(app: Harness) -> None:
    tasks_ = {"name": "bad", "handler": "flaky"}, ask("a", when="all_done")
    await start(app, job(*tasks_, fail_fast=True))
    await move(app, job(*tasks_, echo("b"), fail_fast=True))
    assert (await tasks(app))["b"] == "cancelled"


async def test_v4_new_inputs_have_their_defaults(app: Harness) -> None:
    await start(app, job(ask("a"), inputs={"size": 1}), size=2)
    await move(
        app,
        job(ask("a"), echo("b", "a", input="{{ inputs.size }} {{ inputs.color }}"), inputs={"size": 1, "color": "red"}),
    )
    await answer(app, "a")
    assert await output(app, "b") == ["b", "2 red"]


async def test_v4_the_deadline_of_a_job_begins_or_ends_with_its_version(app: Harness) -> None:
    await start(app, job(ask("a")))
    await move(app, job(ask("a"), timeout_sec=60))
    await move(app, job(ask("a")))
    await app.advance(100)
    await app.drain()
    assert await tasks(app) == {"a": "suspended"}
    await move(app, job(ask("a"), echo("b", "a"), timeout_sec=60))
    await app.advance(61)
    await app.drain()
    assert (await app.get("i")).status == "failed"


async def test_v4_a_map_that_runs_goes_on(app: Harness) -> None:
    each = {"name": "each", "type": "map", "over": [1, 2], "handler": "echo", "gate": "user_approval"}
    await start(app, job(each, echo("b", "each")))
    await move(app, job(echo("x"), each, echo("b", "each", "x")))
    await answer(app, "each")
    assert (await app.get("i")).status == "done"
    assert (await output(app, "b"))[1]["each"] == [["each", 1], ["each", 2]]


async def test_v4_a_second_migration_before_the_next_activation_keeps_the_rows(app: Harness) -> None:
    await start(app, job(echo("a"), ask("b", "a"), echo("c", "b", input="{{ tasks.a.output }}")))

    def graph(*new: dict[str, Any]) -> JobGraph:
        return JobGraph(load_job(json.loads(job(*new))).spec)

    old = graph(echo("a"), ask("b", "a"), echo("c", "b"))
    first = graph(echo("x"), echo("c", "b"), ask("b", "a"), echo("a"))
    second = graph(ask("b", "a"), echo("y"), echo("a"), echo("x"))
    [(claim, _)] = await app._read(lambda store: live.movable(store, ["i"]))
    claim.state = migrate_job(old, first, claim).state
    moved = migrate_job(first, second, claim)
    state = load_job_state(moved.state)
    assert [state.row_id("i", number) for number in range(4)] == ["i.1", "i.4", "i.0", "i.3"]
    assert (state.tasks, state.next_row, state.migrated, moved.control) == ("rpcp", 5, True, claim.waits[0].id)


async def test_v4_a_task_that_is_to_run_again_in_its_row_begins_anew_in_the_new_version(app: Harness) -> None:
    def text(handler: str, *before: dict[str, Any]) -> str:
        return job(*before, ask("first"), {"name": "late", "handler": handler, "needs": ["first"], "when": "all_done"})

    await start(app, text("flaky"))
    await answer(app, "first", {"action": "reject"})
    assert await tasks(app) == {"first": "failed", "late": "failed"}
    await app.retry("i")
    await app.drain()
    assert await tasks(app) == {"first": "suspended", "late": "pending"}
    await move(app, text("echo", echo("x")))
    await answer(app, "first")
    assert (await app.get("i")).status == "done"
    assert (await output(app, "late"))[0] == "late"
