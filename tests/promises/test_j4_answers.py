"""J4: the answer of a gate keeps further keys, and a wrong answer is told what a right one looks like."""

import json
from typing import Any

import pytest

from hark import Dag, Handle, InvalidAnswer
from hark.testing import Harness
from tests.promises.support_jobs import one_task, ran
from tests.support.harness import drained
from tests.support.stores import Store

SEED = {"action": "approve", "data": {"key": "value"}}
WRONG = {
    '"approved"': 'answer: "approved" is not of type "object"',
    '{"action":"aprove"}': 'action: "aprove" is not one of "approve" or "reject"',
    "true": 'answer: true is not of type "object"',
    "null": 'answer: null is not of type "object"',
    "{}": "action: is required",
}


def approval(**options: Any) -> Dag:
    dag = Dag("job")
    dag.approval("work", "Ok?", **options)
    return dag


async def decided(app: Harness, job: Handle) -> list[Any]:
    return [event.data for event in await app.events(f"{job.id}.0") if event.type == "gate"]


async def test_j4_the_further_keys_of_an_answer_are_kept(store: Store) -> None:
    async with ran(store, one_task(gate="user_approval"), work=lambda task: 1) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        settled = await drained(app, app.resolve(asked.id, SEED, by="ann"))
        assert settled.payload == SEED == (await app.awakeable(asked.id)).payload
        assert await job.result(timeout=10) == {"work": 1}
        record = {"gate": "user_approval", "action": "approve", "by": "ann", "data": {"key": "value"}}
        assert await decided(app, job) == [record]
        assert (await app.get(f"{job.id}.0")).state["decided"] == record


async def test_j4_an_approval_task_keeps_the_further_keys_in_its_output(store: Store) -> None:
    async with ran(store, approval()) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        await drained(app, app.resolve(asked.id, SEED, by="ann"))
        assert await job.result(timeout=10) == {"work": {**SEED, "approved": True, "by": "ann"}}


async def test_j4_a_rejection_keeps_the_further_keys_too_and_an_output_in_it_replaces_nothing() -> None:
    async with ran(None, one_task(gate="user_approval"), work=lambda task: 1) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        await drained(app, app.resolve(asked.id, {"action": "reject", "reason": "no", "output": 2, "ticket": 7}))
        assert await decided(app, job) == [
            {"gate": "user_approval", "action": "reject", "reason": "no", "ticket": 7}
        ]  # fmt: skip
        assert (await app.get(f"{job.id}.0")).error == "rejected (gate user_approval): no"


async def test_j4_an_answer_cannot_say_by_whom_it_was_given() -> None:
    forged = {"action": "approve", "by": "the boss", "gate": "lint", "edited": True, "more": {"by": "x"}}
    async with ran(None, one_task(gate="user_approval"), work=lambda task: 1) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        await drained(app, app.resolve(asked.id, forged))
        assert await decided(app, job) == [{"gate": "user_approval", "action": "approve"}]
        assert (await app.awakeable(asked.id)).payload == forged


async def test_j4_large_further_keys_are_kept_in_the_awakeable_only() -> None:
    large = {"action": "approve", "data": "x" * 5000}
    async with ran(None, one_task(gate="user_approval"), work=lambda task: 1) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        await drained(app, app.resolve(asked.id, large))
        assert await decided(app, job) == [{"gate": "user_approval", "action": "approve"}]
        assert (await app.awakeable(asked.id)).payload == large


@pytest.mark.parametrize("job", [one_task(gate="user_approval"), approval()], ids=["gate", "approval"])
@pytest.mark.parametrize("no", [{"approved": False}, {"action": "approve", "approved": False}])
async def test_j4_an_answer_that_says_no_anywhere_never_approves(job: Dag, no: Any) -> None:
    async with ran(None, job, work=lambda task: 1) as (app, started):
        [asked] = await app.awakeables(job=started.id)
        if "action" in no:
            await drained(app, app.resolve(asked.id, no))
            assert (await started.get()).status == "failed"
        else:
            with pytest.raises(InvalidAnswer):
                await app.resolve(asked.id, no)


@pytest.mark.parametrize("job", [one_task(gate="user_approval"), approval()], ids=["gate", "approval"])
@pytest.mark.parametrize("answer", WRONG)
async def test_j4_a_wrong_answer_is_told_what_a_right_one_looks_like(store: Store, job: Dag, answer: str) -> None:
    async with ran(store, job, work=lambda task: 1) as (app, started):
        [asked] = await app.awakeables(job=started.id)
        with pytest.raises(InvalidAnswer) as refused:
            await app.resolve(asked.id, json.loads(answer))
        assert refused.value.problems == [WRONG[answer]]
        assert refused.value.examples == [{"action": "approve"}, {"action": "reject", "reason": "why not"}]
        assert 'looks like {"action":"approve"} or {"action":"reject","reason":"why not"}.' in str(refused.value)
        await drained(app, app.resolve(asked.id, refused.value.examples[0]))
        assert (await started.get()).status == "done"


async def test_j4_a_wrong_answer_to_a_schema_gets_an_example_of_that_schema() -> None:
    schema = {"type": "object", "properties": {"approved": {"type": "boolean"}, "n": {"minimum": 3, "type": "integer"}}}
    async with ran(None, approval(schema={**schema, "required": ["approved", "n"]})) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        with pytest.raises(InvalidAnswer, match="approved: is required") as refused:
            await app.resolve(asked.id, {"n": 4})
        assert refused.value.examples == [{"approved": True, "n": 3}]


async def test_j4_an_example_of_a_schema_that_repeats_itself_stays_small() -> None:
    many = {f"f{n}": {"$ref": "#"} for n in range(100)}
    async with ran(None, approval(schema={"type": "object", "properties": many})) as (app, job):
        [asked] = await app.awakeables(job=job.id)
        with pytest.raises(InvalidAnswer) as refused:
            await app.resolve(asked.id, 1)
        assert refused.value.examples == [], "it would not fit into an error"
