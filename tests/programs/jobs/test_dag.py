"""`Dag`: a job built in Python, with the checks of a job file."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hark import Dag, InvalidDefinition, load_job, workflow
from hark.programs.jobs.file import job_of


@dataclass
class Verdict:
    approved: bool


@workflow
async def ship(ctx: Any) -> None:
    """Nothing."""


def test_j1_a_dag_gives_the_job_of_the_file_with_the_same_words() -> None:
    dag = Dag("j", inputs={"n": 1}, defaults={"retry": {"limit": 2}}, schedule={"every": 5}, fail_fast=True)
    build = dag.task("build", run="make {{ inputs.n }}", var="image", timeout_sec=timedelta(minutes=1))
    check = dag.task("check", "verify", after=[build], gate="user_approval", on_fail={"regress_to": build})
    dag.loop("fix", "llm-fix", max_iterations=10, max_duration=60, loop_delay=1, after=check)
    dag.approval("ask", "Ship {{ tasks.build.output }}?", schema=Verdict, assignees=["ann"], timeout=5, after=[build])
    dag.wait_for_event("wait", "paid", match="event.id == inputs.n", timeout=3)
    dag.sleep("nap", 1.5, condition="inputs.n > 1")
    dag.workflow("sub", ship, {"n": "{{ inputs.n }}"}, when="all_done", after=["nap", "wait"])
    dag.map("each", "h", "{{ tasks.build.output }}", as_="x", concurrency=2, after=build)
    dag.finally_("clean", run="rm")
    same = load_job(
        """\
name: j
inputs: {n: 1}
defaults: {retry: {limit: 2}}
schedule: {every: 5}
fail_fast: true
tasks:
  - {name: build, run: "make {{ inputs.n }}", var: image, timeout_sec: 60}
  - {name: check, handler: verify, needs: [build], gate: user_approval, on_fail: {regress_to: build}}
  - {name: fix, type: loop, handler: llm-fix, max_iterations: 10, max_duration: 60, loop_delay: 1, needs: [check]}
  - name: ask
    type: approval
    title: Ship {{ tasks.build.output }}?
    schema: {title: Verdict, type: object, properties: {approved: {type: boolean}}, required: [approved]}
    assignees: [ann]
    timeout: 5
    needs: build
  - {name: wait, type: wait_for_event, event: paid, match: event.id == inputs.n, timeout: 3}
  - {name: nap, type: sleep, seconds: 1.5, if: inputs.n > 1}
  - {name: sub, type: workflow, definition: ship, input: {n: "{{ inputs.n }}"}, when: all_done, needs: [nap, wait]}
  - {name: each, type: map, handler: h, over: "{{ tasks.build.output }}", as: x, concurrency: 2, needs: build}
finally:
  - {name: clean, run: rm}
"""
    )
    found, expected = dag.spec, same.spec
    ask = next(task for task in found.tasks if task.name == "ask").schema
    assert ask is not None
    assert "approved" in str(ask)
    assert [task for task in found.tasks if task.name != "ask"] == [t for t in expected.tasks if t.name != "ask"]
    assert (found.inputs, found.schedule, found.fail_fast) == (expected.inputs, expected.schedule, expected.fail_fast)


def test_a_mistake_in_a_task_is_raised_by_the_call_that_makes_it() -> None:
    dag = Dag("j")
    dag.task("a", "h")
    with pytest.raises(InvalidDefinition, match="two tasks named 'a'"):
        dag.task("a", "h")
    with pytest.raises(InvalidDefinition, match="does nothing"):
        dag.task("b")
    with pytest.raises(InvalidDefinition, match="whole number"):
        dag.loop("c", "h", max_iterations=0)
    with pytest.raises(InvalidDefinition, match="has no key 'after_all'"):
        dag.task("d", "h", after_all=1)  # type: ignore[call-arg]
    assert [task.name for task in dag.spec.tasks] == ["a"]
    with pytest.raises(InvalidDefinition, match="mapping of names"):
        Dag("j", inputs=["a"])  # type: ignore[arg-type]


def test_mistakes_of_the_whole_are_raised_when_the_job_is_asked_for() -> None:
    dag = Dag("j")
    with pytest.raises(InvalidDefinition, match="at least one task"):
        dag.job()
    dag.task("a", "h", after=["later"])
    with pytest.raises(InvalidDefinition) as caught:
        dag.job()
    assert [(one.element, one.line) for one in caught.value.problems] == [("a", None)]
    dag.task("later", "h")
    assert job_of(dag) is dag.job()  # the same object until a task is added
    assert job_of(dag.job()) is dag.job()
    assert job_of("j") is None
