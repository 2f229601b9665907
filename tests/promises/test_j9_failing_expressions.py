"""J9: an expression of a job fails, wherever one may stand: its task fails, and nothing is half done.

Each expression that a job evaluates fails once, in a job of its own. After a retry, the job ends as one in which none
has failed, and the task before it has run once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hark import Rate, load_job
from hark.programs.expressions import ExpressionError, templates
from hark.testing import Harness
from tests.promises.support_jobs import handlers

TASKS: dict[str, dict[str, Any]] = {
    "if": {"handler": "work", "if": "{{ tasks.first.output > 1 }}"},
    "input": {"handler": "work", "input": {"a": "{{ inputs.n }}", "b": ["x {{ tasks.first.output }}"]}},
    "limits": {"handler": "work", "concurrency_key": "key-{{ inputs.n }}", "rate_limit": ["calls", "{{ inputs.n }}"]},
    "command": {"run": "echo {{ tasks.first.output }}-{{ inputs.n }}"},
    "gate": {"handler": "work", "gate": "{{ output == 7 }}"},
    "undo": {"handler": "work", "input": "{{ inputs.n }}", "undo": "undo"},
    "loop": {"type": "loop", "handler": "turn", "input": "{{ iteration }}", "loop_delay": 1},
    "approval": {"type": "approval", "title": "{{ inputs.n }}?", "description": "of {{ inputs.n }}",
                 "assignees": ["ada"]},
    "event": {"type": "wait_for_event", "event": "paid-{{ inputs.n }}", "match": "{{ event.n == inputs.n }}"},
    "sleep": {"type": "sleep", "seconds": "{{ inputs.n }}"},
    "workflow": {"type": "workflow", "definition": "inner", "input": {"n": "{{ inputs.n }}"}},
    "map": {"type": "map", "over": "{{ inputs.items }}", "as": "one", "handler": "work", "concurrency": 1},
    "map of commands": {"type": "map", "over": "{{ inputs.items }}", "as": "one", "run": "echo {{ one }}"},
}  # fmt: skip
INNER = {"name": "inner", "inputs": {"n": 0}, "tasks": [{"name": "in", "handler": "last", "input": "{{ inputs.n }}"}]}
INPUTS = {"n": 3, "items": [1, 2]}


class Faults:
    """Counts what jobs evaluate, and fails one of the evaluations."""

    def __init__(self) -> None:
        self.found = 0
        self.fails_at = 0

    def evaluation(self, text: str, variables: Mapping[str, Any]) -> Any:
        if "{{" in text:
            self.found += 1
            if self.found == self.fails_at:
                raise ExpressionError("it is broken", text, 0)
        return EVALUATION(text, variables)


EVALUATION = templates.Evaluation


async def _end(app: Harness, id: str) -> tuple[list[str], Any]:
    """Let a job end, and retry it if it fails. Gives its errors, and its result."""
    errors: list[str] = []
    for _ in range(20):
        await app.drain()
        found = await app.get(id)
        if found.status == "done":
            return errors, found.result
        if found.status == "failed":
            errors.append(str(found.error))
            assert not await app.awakeables(status="PENDING")
            assert not [wait for wait in await app.waits() if wait.instance_id.startswith(id)]
            await app.retry(id)
        elif asked := await app.awakeables(status="PENDING"):
            assert (asked[0].title, asked[0].description) == ("3?", "of 3")
            await app.resolve(asked[0].id, {"action": "approve"})
        else:
            await app.broadcast("paid-3", {"n": 4})
            await app.broadcast("paid-3", {"n": 3})
            await app.advance(3)
    raise AssertionError(f"{id} does not end: {found}")


@pytest.mark.parametrize("task", TASKS)
async def test_j9_an_expression_that_fails_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    faults = Faults()
    monkeypatch.setattr(templates, "Evaluation", faults.evaluation)
    first = {"name": "first", "handler": "first"}
    last = {"name": "last", "handler": "last", "needs": ["task"], "input": "{{ tasks.task.status }}"}
    job = load_job(
        {"name": "j", "inputs": INPUTS, "tasks": [first, {"name": "task", "needs": ["first"], **TASKS[task]}, last]}
    )
    called: list[Any] = []

    def called_with(result: Any) -> Any:
        def call(task: Any) -> Any:
            called.append((task.name, task.input))
            return result

        return call

    def turn(task: Any) -> Any:
        called.append((task.name, task.input))
        return task.complete(task.input) if task.iteration > 1 else task.continue_()

    async with Harness(job, load_job(INNER), rate_limits={"calls": Rate(100, 1)}) as app:
        handlers(
            app, first=called_with(2), last=called_with("ended"), work=called_with(7), turn=turn, undo=lambda task: None
        )

        async def outcome(fails_at: int) -> Any:
            called.clear()
            faults.found, faults.fails_at = 0, fails_at
            errors, result = await _end(app, (await app.start(job)).id)
            assert len(errors) == (fails_at > 0) or task == "event", (
                errors
            )  # an event that cannot be compared is not it
            assert all("it is broken" in error for error in errors), errors
            return result, called.copy()

        expected = await outcome(0)
        count = faults.found
        for number in range(1, count + 1):
            result, calls = await outcome(number)
            assert result == expected[0], f"expression {number} of {count} has failed"
            assert calls.count(("first", INPUTS)) == 1
            assert set(map(repr, calls)) == set(map(repr, expected[1]))
