"""J4: gates decide whether the output of a task is accepted."""

from typing import Any

import pytest

from hark import Dag, InvalidAnswer, InvalidDefinition, InvalidInput
from hark.testing import Harness
from tests.promises.support_jobs import handlers, one_task, ran
from tests.promises.support_machines import harness, neighbour
from tests.support.harness import drained
from tests.support.stores import Store


class Drafts:
    """A handler that makes a draft per attempt."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __call__(self, task: Any) -> Any:
        self.made.append(task.attempt)
        return {"draft": task.attempt}


async def test_j4_a_task_with_an_output_is_suspended_until_its_gate_is_approved(store: Store) -> None:
    drafts = Drafts()
    async with ran(store, one_task(gate="user_approval"), work=drafts) as (app, job):
        state = (await job.get()).state["tasks"]["work"]
        assert state["status"] == "suspended"
        [asked] = await app.awakeables(job=job.id)
        assert (asked.task, asked.instance_id, asked.status, asked.title) == (
            "work", job.id, "PENDING", "Approve work?",
        )  # fmt: skip
        assert asked.description == '{"draft":1}'
        await drained(app, app.resolve(asked.id, {"action": "approve", "comment": "fine"}, by="ann"))
        assert await job.result(timeout=10) == {"work": {"draft": 1}}
        assert drafts.made == [1], "the handler does not run again"
        [decided] = [event.data for event in await app.events(f"{job.id}.0") if event.type == "gate"]
        assert decided == {"gate": "user_approval", "action": "approve", "by": "ann", "comment": "fine"}
        assert (await app.get(f"{job.id}.0")).state["decided"] == decided


async def test_j4_a_rejected_output_is_a_failed_attempt_and_a_retry_of_the_job_asks_again(store: Store) -> None:
    drafts = Drafts()
    async with ran(store, one_task(gate="user_approval", retry={"limit": 2, "delay": 5}), work=drafts) as (app, job):
        [first] = await app.awakeables(job=job.id)
        await drained(app, app.resolve(first.id, {"action": "reject", "reason": "typos"}, by="ann"))
        await drained(app, app.advance(5))
        [second] = await app.awakeables(job=job.id, status="PENDING")
        assert second.entry_index == first.entry_index + 1
        assert drafts.made == [1, 2]
        await drained(app, app.reject(second.id, "no time", by="bob"))
        state = (await job.get()).state["tasks"]["work"]
        assert (state["status"], state["error"]) == ("failed", "rejected by bob (gate user_approval): no time")
        assert (await job.get()).status == "failed"
        await drained(app, app.retry(job))
        [third] = await app.awakeables(job=job.id, status="PENDING")
        await drained(app, app.resolve(third.id, {"action": "approve"}))
        assert await job.result(timeout=10) == {"work": {"draft": 1}}
        assert drafts.made == [1, 2, 1]


async def test_j4_an_approval_may_replace_the_output_and_any_worker_decides(store: Store) -> None:
    async with ran(store, one_task(gate="user_approval"), work=Drafts()) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        async with neighbour(app, store) as other:  # has no handler
            await drained(other, other.resolve(asked.id, {"action": "approve", "output": ["edited"]}))
            assert await job.result(timeout=10) == {"work": ["edited"]}


@pytest.mark.parametrize(
    "answer",
    [
        None, True, "approve", {}, {"action": "maybe"}, {"approved": True}, ["approve"], {"action": ["approve"]},
        {"action": "approve", "comment": 3}, {"action": "reject", "reason": None},
    ],
)  # fmt: skip
async def test_j4_any_other_answer_is_refused_and_changes_nothing(answer: Any) -> None:
    async with ran(None, one_task(gate="user_approval"), work=Drafts()) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        with pytest.raises(InvalidAnswer):
            await app.resolve(asked.id, answer)
        assert (await app.awakeable(asked.id)).status == "PENDING"


@pytest.mark.parametrize(
    ("score", "ended"),
    [(4, ("done", None)), (3, ("failed", "rejected (gate {{ output.score > 3 }}): the expression does not hold"))],
)
async def test_j4_an_expression_decides(store: Store, score: int, ended: Any) -> None:
    job = one_task(gate="{{ output.score > 3 }}")
    async with ran(store, job, {"score": score}, work=lambda task: task.inputs) as (app, started):
        task = await app.get(f"{started.id}.0")
        assert (task.status, task.error) == ended


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (True, None),
        (False, "rejected by lint (gate lint)"),
        ("3 warnings", "rejected by lint (gate lint): 3 warnings"),
        (None, "InvalidOutcome: Gate 'lint' returned None."),
        (ValueError("boom"), "ValueError: boom"),
    ],
)
async def test_j4_a_registered_gate_decides_with_the_output_and_the_inputs(verdict: Any, error: str | None) -> None:
    async with Harness() as app:
        handlers(app, work=Drafts())
        given: list[Any] = []

        @app.gate("lint")
        def lint(output: Any, inputs: Any) -> Any:
            given.append((output, inputs))
            if isinstance(verdict, Exception):
                raise verdict
            return verdict

        job = await drained(app, app.start(one_task(gate="lint"), {"level": 3}))
        assert given == [({"draft": 1}, {"level": 3})]
        task = await app.get(f"{job.id}.0")
        assert (task.status, task.result) == (("done", {"draft": 1}) if error is None else ("failed", None))
        assert (task.error or "").startswith(error or "")


async def test_j4_an_async_gate_runs_on_the_worker_that_has_it(store: Store) -> None:
    async with harness(store) as app, neighbour(app, store) as other:
        handlers(app, work=Drafts())

        @other.gate("elsewhere")
        async def elsewhere(output: Any, inputs: Any) -> bool:
            return bool(output)

        async with other.worker():  # recorded in the store, so the job may start
            job = await app.start(one_task(gate="elsewhere"))
            async with app.worker():
                assert await job.result(timeout=60) == {"work": {"draft": 1}}


async def test_j4_hark_has_gates_of_its_own() -> None:
    app = Harness()
    for name in ("user_approval", "{{ output }}", "a@1", ""):
        with pytest.raises(InvalidInput):
            app.gate(name)


async def test_j4_an_unknown_gate_is_refused_before_the_job_starts(store: Store) -> None:
    job = one_task(gate="size-limit")
    async with harness(store, job) as app:
        with pytest.raises(InvalidDefinition, match="size-limit") as refused:
            await app.start(job)
        assert [problem.element for problem in refused.value.problems] == ["work"]
        assert await app.list() == []
        app.gate("size-limit")(lambda output, inputs: True)
        handlers(app, work=Drafts())
        started = await drained(app, app.start(job))
        assert (await started.get()).result == {"work": {"draft": 1}}


async def test_j4_the_gate_of_a_map_decides_on_the_whole_list(store: Store) -> None:
    dag = Dag("mapped")
    dag.map("work", "double", [1, 2], gate="user_approval", retry={"limit": 3, "delay": 0})
    doubled = []

    async def double(task: Any) -> Any:
        doubled.append(task.input)
        return 2 * task.input

    async with ran(store, dag, double=double) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        assert (asked.task, asked.description) == ("work", "[2,4]")
        await drained(app, app.resolve(asked.id, {"action": "reject", "reason": "no"}))
        assert (await job.get()).state["tasks"]["work"]["error"] == "rejected (gate user_approval): no"
        await drained(app, app.retry(job))
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await drained(app, app.resolve(asked.id, {"action": "approve", "output": [2, 5]}))
        assert await job.result(timeout=10) == {"work": [2, 5]}
        assert sorted(doubled) == [1, 2], "items that are completed do not run again"


async def test_j4_a_registered_gate_decides_on_a_map() -> None:
    dag = Dag("mapped")
    dag.map("work", "double", [1, 2], gate="sum")
    async with Harness(dag) as app:
        app.handler("double")(lambda task: 2 * task.input)
        app.gate("sum")(lambda output, inputs: sum(output) == 6)
        job = await drained(app, app.start(dag))
        assert await job.result(timeout=10) == {"work": [2, 4]}
