"""J4: gates decide whether the output of a task is accepted."""

from typing import Any

import pytest

from hark import Dag, InvalidAnswer, InvalidDefinition, InvalidInput
from hark.testing import Harness
from tests.promises.support_machines import harness, neighbour
from tests.support.stores import Store


def one_task(gate: str, **options: Any) -> Dag:
    dag = Dag("job")
    dag.task("work", "work", gate=gate, **options)
    return dag


def drafts(app: Harness) -> list[int]:
    """A handler that makes a draft per attempt."""
    made: list[int] = []

    @app.handler("work")
    async def work(task: Any) -> Any:
        made.append(task.attempt)
        return {"draft": task.attempt}

    return made


async def test_j4_a_task_with_an_output_is_suspended_until_its_gate_is_approved(store: Store) -> None:
    async with harness(store) as app:
        made = drafts(app)
        job = await app.start(one_task("user_approval"))
        await app.drain()
        state = (await job.get()).state["tasks"]["work"]
        assert state["status"] == "suspended"
        [asked] = await app.awakeables(job=job.id)
        assert (asked.task, asked.instance_id, asked.status, asked.title) == (
            "work", job.id, "PENDING", "Approve work?",
        )  # fmt: skip
        assert asked.description == '{"draft":1}'
        await app.resolve(asked.id, {"action": "approve", "comment": "fine"}, by="ann")
        await app.drain()
        assert await job.result(timeout=10) == {"work": {"draft": 1}}
        assert made == [1], "the handler does not run again"
        [decided] = [event.data for event in await app.events(f"{job.id}.0") if event.type == "gate"]
        assert decided == {"gate": "user_approval", "action": "approve", "by": "ann", "comment": "fine"}
        assert (await app.get(f"{job.id}.0")).state["decided"] == decided


async def test_j4_a_rejected_output_is_a_failed_attempt(store: Store) -> None:
    async with harness(store) as app:
        made = drafts(app)
        job = await app.start(one_task("user_approval", retry={"limit": 2, "delay": 5}))
        await app.drain()
        [first] = await app.awakeables(job=job.id)
        await app.resolve(first.id, {"action": "reject", "reason": "typos"}, by="ann")
        await app.drain()
        await app.advance(5)
        await app.drain()
        [second] = await app.awakeables(job=job.id, status="PENDING")
        assert second.entry_index == first.entry_index + 1
        assert made == [1, 2]
        await app.reject(second.id, "no time", by="bob")
        await app.drain()
        state = (await job.get()).state["tasks"]["work"]
        assert (state["status"], state["error"]) == ("failed", "rejected by bob (gate user_approval): no time")


async def test_j4_an_approval_may_replace_the_output_and_any_worker_decides(store: Store) -> None:
    async with harness(store) as app:
        drafts(app)
        job = await app.start(one_task("user_approval"))
        await app.drain()
        [asked] = await app.awakeables(job=job.id)
        async with neighbour(app, store) as other:  # has no handler
            await other.resolve(asked.id, {"action": "approve", "output": ["edited"]})
            await other.drain()
            assert await job.result(timeout=10) == {"work": ["edited"]}


@pytest.mark.parametrize(
    "answer",
    [
        None, True, "approve", {}, {"action": "maybe"}, {"action": "approve", "reason": "x"}, {"approved": True},
        {"action": "reject", "output": 1}, {"action": "approve", "comment": 3}, {"action": "approve", "other": 1},
    ],
)  # fmt: skip
async def test_j4_any_other_answer_is_refused_and_changes_nothing(answer: Any) -> None:
    async with Harness() as app:
        drafts(app)
        job = await app.start(one_task("user_approval"))
        await app.drain()
        [asked] = await app.awakeables(job=job.id)
        with pytest.raises(InvalidAnswer):
            await app.resolve(asked.id, answer)
        assert (await app.awakeable(asked.id)).status == "PENDING"


@pytest.mark.parametrize(("score", "error"), [(4, None), (3, "the expression does not hold")])
async def test_j4_an_expression_decides(store: Store, score: int, error: str | None) -> None:
    async with harness(store) as app:

        @app.handler("work")
        async def work(task: Any) -> Any:
            return {"score": task.inputs["score"]}

        job = await app.start(one_task("{{ output.score > 3 }}"), {"score": score})
        await app.drain()
        task = await app.get(f"{job.id}.0")
        assert task.status == ("done" if error is None else "failed")
        if error is not None:
            assert task.error == "rejected (gate {{ output.score > 3 }}): the expression does not hold"


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
        drafts(app)
        given = []

        @app.gate("lint")
        def lint(output: Any, inputs: Any) -> Any:
            given.append((output, inputs))
            if isinstance(verdict, Exception):
                raise verdict
            return verdict

        job = await app.start(one_task("lint"), {"level": 3})
        await app.drain()
        assert given == [({"draft": 1}, {"level": 3})]
        task = await app.get(f"{job.id}.0")
        assert (task.status, task.result) == (("done", {"draft": 1}) if error is None else ("failed", None))
        assert (task.error or "").startswith(error or "")


async def test_j4_an_async_gate_runs_on_the_worker_that_has_it(store: Store) -> None:
    async with harness(store) as app, neighbour(app, store) as other:
        drafts(app)

        @other.gate("elsewhere")
        async def elsewhere(output: Any, inputs: Any) -> bool:
            return bool(output)

        async with other.worker():  # recorded in the store, so the job may start
            job = await app.start(one_task("elsewhere"))
            async with app.worker():
                assert await job.result(timeout=60) == {"work": {"draft": 1}}


async def test_j4_hark_has_gates_of_its_own() -> None:
    app = Harness()
    for name in ("user_approval", "{{ output }}", "a@1", ""):
        with pytest.raises(InvalidInput):
            app.gate(name)


async def test_j4_a_gate_that_rejected_for_good_is_asked_again_after_a_retry_of_the_job(store: Store) -> None:
    async with harness(store) as app:
        made = drafts(app)
        job = await app.start(one_task("user_approval"))
        await app.drain()
        [asked] = await app.awakeables(job=job.id)
        await app.resolve(asked.id, {"action": "reject"})
        await app.drain()
        assert (await job.get()).status == "failed"
        await app.retry(job)
        await app.drain()
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await app.resolve(asked.id, {"action": "approve"})
        await app.drain()
        assert await job.result(timeout=10) == {"work": {"draft": 1}}
        assert made == [1, 1]


async def test_j4_an_unknown_gate_is_refused_before_the_job_starts(store: Store) -> None:
    async with harness(store) as app:
        drafts(app)
        with pytest.raises(InvalidDefinition, match="registered-nowhere"):
            await app.start(one_task("registered-nowhere"))
        assert await app.list() == []


async def test_j4_the_gate_of_a_map_decides_on_the_whole_list(store: Store) -> None:
    dag = Dag("mapped")
    dag.map("work", "double", [1, 2], gate="user_approval", retry={"limit": 3, "delay": 0})
    async with harness(store, dag) as app:
        doubled = []

        @app.handler("double")
        async def double(task: Any) -> Any:
            doubled.append(task.input)
            return 2 * task.input

        job = await app.start(dag)
        await app.drain()
        [asked] = await app.awakeables(job=job.id)
        assert (asked.task, asked.description) == ("work", "[2,4]")
        await app.resolve(asked.id, {"action": "reject", "reason": "no"})
        await app.drain()
        assert (await job.get()).state["tasks"]["work"]["error"] == "rejected (gate user_approval): no"
        await app.retry(job)
        await app.drain()
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await app.resolve(asked.id, {"action": "approve", "output": [2, 5]})
        await app.drain()
        assert await job.result(timeout=10) == {"work": [2, 5]}
        assert sorted(doubled) == [1, 2], "items that are completed do not run again"


async def test_j4_a_registered_gate_decides_on_a_map() -> None:
    dag = Dag("mapped")
    dag.map("work", "double", [1, 2], gate="sum")
    async with Harness(dag) as app:
        app.handler("double")(lambda task: 2 * task.input)
        app.gate("sum")(lambda output, inputs: sum(output) == 6)
        job = await app.start(dag)
        await app.drain()
        assert await job.result(timeout=10) == {"work": [2, 4]}
