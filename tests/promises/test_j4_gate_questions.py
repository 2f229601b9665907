"""J4: a gate asks with a title, a description, assignees and a timeout; its timeout is a failure of its task."""

from datetime import timedelta
from typing import Any

import pytest

from hark import Dag, InvalidDefinition, NotAssigned, load_job
from tests.promises.support_jobs import handlers, one_task, ran, statuses
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


def asking(**question: Any) -> dict[str, Any]:
    return {"user_approval": question}


FILE = """\
name: release
inputs: {service: api}
tasks:
  - name: build
    handler: work
  - name: verify
    needs: [build]
    handler: work
    gate:
      user_approval:
        title: Release {{ inputs.service }} {{ output.draft }}?
        description: "Built: {{ tasks.build.output.draft }}"
        assignees: [ann, bob]
        timeout: 3600
"""


async def test_j4_a_gate_asks_with_its_title_description_assignees_and_timeout(store: Store) -> None:
    job = load_job(FILE)
    async with ran(store, job, {"service": "web"}, work=lambda task: {"draft": f"{task.name}-1"}) as (app, started):
        [asked] = await app.awakeables(job=started.id)
        assert (asked.title, asked.description) == ("Release web verify-1?", "Built: build-1")
        assert (asked.assignees, asked.timeout_at) == (("ann", "bob"), asked.created_at + timedelta(hours=1))
        assert (await started.get()).state["tasks"]["verify"]["status"] == "suspended"
        with pytest.raises(NotAssigned):
            await app.resolve(asked.id, {"action": "approve"}, by="eve")
        await drained(app, app.resolve(asked.id, {"action": "approve"}, by="bob"))
        assert (await started.get()).status == "done"


async def test_j4_what_a_gate_does_not_say_is_as_with_its_name_alone(store: Store) -> None:
    async with ran(store, one_task(gate=asking(timeout=5)), work=lambda task: [1]) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        assert (asked.title, asked.description, asked.assignees) == ("Approve work?", "[1]", ())


async def test_j4_a_timeout_of_a_gate_fails_the_attempt_and_the_retry_asks_again(store: Store) -> None:
    gate = asking(timeout=timedelta(seconds=10))
    async with ran(store, one_task(gate=gate, retry={"limit": 2, "delay": 5}), work=lambda task: task.attempt) as (
        app,
        job,
    ):
        [first] = await app.awakeables(job=job.id)
        await drained(app, app.advance(10))
        assert (await app.awakeable(first.id)).status == "TIMEOUT"
        assert statuses(await job.get()) == {"work": "pending"}
        await drained(app, app.advance(5))
        [second] = await app.awakeables(job=job.id, status="PENDING")
        assert second.timeout_at == second.created_at + timedelta(seconds=10)
        await drained(app, app.advance(10))
        ended = await job.get()
        timed_out = "timed out (gate user_approval): there was no answer in time"
        assert (ended.status, ended.error) == ("failed", f"Task 'work' failed: {timed_out}")
        events = [event.data for event in await app.events(f"{job.id}.0") if event.type == "gate"]
        assert [event["action"] for event in events] == ["timeout", "timeout"]


async def test_j4_a_timeout_of_a_gate_regresses_the_job(store: Store) -> None:
    dag = Dag("job")
    dag.task("build", "work")
    on_fail = {"regress_to": "build", "limit": 1}
    dag.task("verify", "work", after=["build"], gate=asking(timeout=10), on_fail=on_fail)
    made: list[str] = []
    async with ran(store, dag, work=lambda task: made.append(task.name)) as (app, job):
        await drained(app, app.advance(10))
        assert made == ["build", "verify", "build", "verify"]
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await drained(app, app.resolve(asked.id, {"action": "approve"}))
        assert (await job.get()).status == "done"


async def test_j4_the_deadline_of_a_gate_is_kept_by_the_store(store: Store) -> None:
    job = one_task(gate=asking(timeout=60))
    async with harness(store, job) as app:
        handlers(app, work=lambda task: 1)
        started = await drained(app, app.start(job))
        [asked] = await app.awakeables(job=started.id)
        assert [wait.deadline for wait in (await app.why(f"{started.id}.0")).waits] == [asked.timeout_at]
        await app.advance(59)
        assert (await app.awakeable(asked.id)).status == "PENDING"
        await drained(app, app.advance(1))
        assert (await started.get()).status == "failed"


async def test_j4_the_question_of_a_map_sees_the_whole_list(store: Store) -> None:
    dag = Dag("mapped")
    dag.map("work", "double", [1, 2], gate=asking(title="Sum of {{ output }}?"))
    async with ran(store, dag, double=lambda task: 2 * task.input) as (app, job):
        assert [asked.title for asked in await app.awakeables(job=job.id)] == ["Sum of [2,4]?"]


async def test_j4_a_question_that_cannot_be_rendered_fails_the_attempt() -> None:
    async with ran(None, one_task(gate=asking(title="{{ output.a.b }}")), work=lambda task: {"a": 1}) as (_, job):
        task = (await job.get()).state["tasks"]["work"]
        assert task["status"] == "failed"
        assert "output" in task["error"]


async def test_j4_a_gate_asks_again_when_its_job_is_retried_after_a_cancel(store: Store) -> None:
    dag = Dag("job", fail_fast=True)
    dag.task("verify", "work", gate=asking(title="Ok?"))
    dag.task("bad", "bad", after=[dag.sleep("moment", 5)])
    failures = [ValueError("no")]

    def bad(task: Any) -> int:
        if failures:
            raise failures.pop()
        return 1

    async with ran(store, dag, work=lambda task: 1, bad=bad) as (app, job):
        await drained(app, app.advance(5))
        assert (await job.get()).status == "failed"
        await drained(app, app.retry(job))
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await drained(app, app.resolve(asked.id, {"action": "approve"}))
        assert (await job.get()).status == "done"


@pytest.mark.parametrize(
    ("gate", "line", "message"),
    [
        (
            "{user_approval: {titel: x}}",
            5,
            "gate.user_approval has no key 'titel'. Did you mean 'title'?",
        ),
        ("{user_approval: {timeout: soon}}", 5, "timeout must be a number of seconds, not the text 'soon'."),
        ("{user_approval: yes}", 5, "gate.user_approval must be a mapping, not the text 'yes'."),
        (
            "{lint: {title: x}}",
            5,
            "gate as a mapping has one key, user_approval, with the question. Any other gate is just its name.",
        ),
        (
            "{user_approval: {}, lint: {}}",
            5,
            "gate as a mapping has one key, user_approval, with the question. Any other gate is just its name.",
        ),
        ("{}", 5, "gate as a mapping has one key, user_approval, with the question. Any other gate is just its name."),
        (
            "{user_approval: {title: '{{ inputs.x }}', description: '{{ tasks.b.output }}'}}",
            5,
            "gate.user_approval.description: there is no task 'b'.",
        ),
        (
            "{user_approval: {title: '{{ outputs }}'}}",
            5,
            "gate.user_approval.title: there is no variable 'outputs' here.",
        ),
        ("{user_approval: {assignees: [ann, ann]}}", 5, "assignees lists 'ann' twice."),
    ],
)
def test_j4_a_wrong_question_is_refused_with_the_line_and_the_reason(gate: str, line: int, message: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        load_job(f"name: j\ntasks:\n  - name: a\n    handler: work\n    gate: {gate}\n")
    [problem] = refused.value.problems
    assert (problem.element, problem.line) == ("a", line)
    assert problem.message.startswith(message)


def test_j4_a_dag_checks_the_question_of_a_gate_at_once() -> None:
    dag = Dag("job")
    with pytest.raises(InvalidDefinition, match="has no key 'timeoutt'"):
        dag.task("work", "work", gate=asking(timeoutt=3))
    dag.loop("fix", "work", gate=asking(title="Round {{ iteration }}?"))
    assert dag.spec.tasks[0].gate == "user_approval"
