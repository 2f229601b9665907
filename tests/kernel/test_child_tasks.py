"""Tasks: children in lanes of their own, whose every end answers one wait of their parent, and which it can run again.

The tests run the turns themselves, in the place of the interpreter of jobs and of the handlers.
"""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from hark.kernel.requests import (
    Cancel,
    Capacity,
    Commit,
    DefinitionRow,
    Deliver,
    Publish,
    Register,
    Request,
    RetryInstance,
    StartInstances,
)
from hark.kernel.result import TurnResult
from hark.model.activation import Claim, Traits
from hark.model.decisions import (
    Advance,
    Arm,
    CancelChild,
    Decision,
    DecisionEvent,
    Effect,
    Finish,
    NewAwakeable,
    NewInstance,
    NewTask,
    Park,
    Redo,
    RetryChild,
)
from hark.model.errors import Conflict
from hark.model.lanes import ENGINE_QUEUE, JOB
from tests.promises.support_signals import Turns, outcome, rows
from tests.support.stores import Store

CHARGE = "task:charge"
ENDS = Arm("children", "w-ends", "ends", answers_each=True)


def task(id: str, **options: Any) -> NewInstance:
    options = {"lane": CHARGE, "kind": "task", "version": 1, "step": "charge", **options}
    return NewInstance("J", "{}", id, named=True, **options)


def tasks(*ids: str) -> list[Effect]:
    return [NewTask(task(id), "w-ends") for id in ids]


def ends(claim: Claim) -> list[tuple[str, str]]:
    """The ends that a claim of the job was given: id and status."""
    return [(row.name, json.loads(row.payload)["status"]) for row in claim.inbox if row.wait_id == "w-ends"]


class Stage:
    """The job `j`, whose tasks start against the wait `w-ends`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 1_000_000_000
        self.turns = Turns(store, lambda: self.now)

    async def run(
        self, *requests: Request, room: int = 0, jobs: int = 0, lanes: Sequence[str] = (CHARGE,), **how: Any
    ) -> TurnResult:
        """A turn that claims up to `jobs` jobs and `room` tasks of these lanes."""
        self.now += 1000
        capacity = Capacity("by-hand", {"default": room, ENGINE_QUEUE: jobs}, dict.fromkeys((*lanes, JOB), Traits()))
        return await self.turns.run(*requests, capacity=capacity if room or jobs else None, **how)

    async def job(self, *requests: Request) -> Claim:
        [claim] = (await self.run(*requests, jobs=1)).claims
        return claim

    async def tasks(self, *requests: Request, room: int = 100, lanes: Sequence[str] = (CHARGE,)) -> dict[str, Claim]:
        return {claim.id: claim for claim in (await self.run(*requests, room=room, lanes=lanes)).claims}

    async def parked(self, *ids: str) -> dict[str, Claim]:
        """The job has started these tasks and is parked; they execute."""
        await self.run(park(await self.job(), arm=(ENDS,), effects=tasks(*ids)))
        return await self.tasks()

    async def row(self, id: str, columns: str) -> Any:
        found = await rows(self.store, f"SELECT {columns} FROM instances WHERE id = '{id}'")
        return tuple(found[0]) if found else None

    async def nothing_runs(self) -> bool:
        return not (await self.run(room=10, jobs=10)).claims


def park(claim: Claim, *, arm: tuple[Arm, ...] = (), effects: Sequence[Effect] = ()) -> Commit:
    """The job takes all ends it was given, and waits for more."""
    return outcome(claim, Park(arm, disarm=()), consume=[row.seq for row in claim.inbox], effects=effects)


def done(claim: Claim) -> Commit:
    return outcome(claim, Finish("done", result="1"))


def failed(claim: Claim) -> Commit:
    return outcome(claim, Finish("failed", error="it broke"))


@pytest.fixture
async def stage(store: Store) -> AsyncIterator[Stage]:
    stage = Stage(store)
    async with stage.turns:
        await stage.run(
            Register(
                rows=[DefinitionRow("J", 1, JOB, "default", "start"), DefinitionRow("M", 1, "machine", "default", "s")]
            ),
            StartInstances(items=[NewInstance("J", "{}", "j", named=True)]),
        )
        yield stage


# -- lanes -----------------------------------------------------------------------------------------


async def test_a_job_is_in_the_queue_of_the_interpreters_whatever_queue_it_was_started_with(stage: Stage) -> None:
    await stage.run(StartInstances(items=[NewInstance("J", "{}", "k", named=True, queue="gpu")]))
    assert await stage.row("j", "queue, lane, kind, step") == (ENGINE_QUEUE, JOB, "job", "start")
    assert await stage.row("k", "queue, lane") == (ENGINE_QUEUE, JOB)


async def test_a_task_is_claimed_by_a_worker_with_its_handler_only(stage: Stage) -> None:
    await stage.run(park(await stage.job(), arm=(ENDS,), effects=tasks("j.0")))
    assert await stage.tasks(lanes=("task:ship", "J@1")) == {}
    assert await stage.tasks(room=0) == {}
    claim = (await stage.tasks())["j.0"]
    assert (claim.lane, claim.kind, claim.definition, claim.version) == (CHARGE, "task", "J", 1)
    assert (claim.step, claim.queue, claim.parent_id, claim.parent_wait) == ("charge", "default", "j", "w-ends")


async def test_a_worker_without_a_free_slot_in_its_queues_still_runs_jobs(stage: Stage) -> None:
    result = await stage.run(room=0, jobs=1)
    assert [claim.id for claim in result.claims] == ["j"]


async def test_a_lane_that_this_worker_does_not_have_is_announced_to_others(stage: Stage) -> None:
    starting = park(await stage.job(), arm=(ENDS,), effects=tasks("j.0"))
    assert (await stage.run(starting, room=1, lanes=("task:ship",))).pending.for_other_workers


# -- every end is an answer --------------------------------------------------------------------------


async def test_each_end_of_a_task_wakes_the_job_with_that_end_and_no_children(stage: Stage) -> None:
    executing = await stage.parked("j.0", "j.1", "j.2")
    job = await stage.job(done(executing["j.1"]))
    assert (ends(job), job.children) == ([("j.1", "done")], [])
    await stage.run(park(job))
    assert await stage.nothing_runs()
    job = await stage.job(failed(executing["j.2"]), done(executing["j.0"]))
    assert sorted(ends(job)) == [("j.0", "done"), ("j.2", "failed")]
    [error] = [json.loads(row.payload)["error"] for row in job.inbox if row.name == "j.2"]
    assert error == "it broke"
    assert [wait.id for wait in job.waits] == ["w-ends"]


async def test_an_end_while_the_job_executes_is_not_lost(stage: Stage) -> None:
    executing = await stage.parked("j.0", "j.1")
    job = await stage.job(done(executing["j.0"]))
    await stage.run(done(executing["j.1"]))
    job = await stage.job(park(job))
    assert ends(job) == [("j.1", "done")]


async def test_a_job_starts_more_tasks_against_the_wait_it_has(stage: Stage) -> None:
    executing = await stage.parked("j.0")
    job = await stage.job(done(executing["j.0"]))
    executing = await stage.tasks(park(job, effects=tasks("j.1")))
    assert list(executing) == ["j.1"]
    assert ends(await stage.job(done(executing["j.1"]))) == [("j.1", "done")]


@pytest.mark.parametrize("armed_before", [True, False])
async def test_a_task_whose_id_is_taken_ends_as_refused_under_the_id_that_the_job_knows(
    stage: Stage, armed_before: bool
) -> None:
    await stage.run(StartInstances(items=[NewInstance("M", "{}", "j.0", named=True)]))
    job = await stage.job()
    if armed_before:
        executing = await stage.tasks(park(job, arm=(ENDS,), effects=tasks("j.9")))
        job = await stage.job(done(executing["j.9"]))
    woken = await stage.job(park(job, arm=() if armed_before else (ENDS,), effects=tasks("j.0", "j.1")))
    assert ends(woken) == [("j.0", "refused")]
    assert "exists already" in woken.inbox[0].payload
    assert list(await stage.tasks()) == ["j.1"]


async def test_a_job_cannot_cancel_the_instance_that_has_the_id_of_its_task(stage: Stage) -> None:
    await stage.run(StartInstances(items=[NewInstance("M", "{}", "j.0", named=True)]))
    job = await stage.job(park(await stage.job(), arm=(ENDS,), effects=tasks("j.0", "j.1")))
    cancels = [CancelChild("j.0", "not needed"), CancelChild("j.1", "not needed")]
    await stage.run(park(job, effects=cancels))
    assert await stage.row("j.0", "status") == ("runnable",)
    assert await stage.row("j.1", "status") == ("cancelled",)


async def test_a_job_is_given_the_ends_of_its_tasks_and_not_the_signals_of_its_run(stage: Stage) -> None:
    """Thousands of them may wait for a task that asks; an activation of the job costs what is new for it."""
    executing = await stage.parked("j.0", "j.1")
    await stage.run(*[Deliver(target="j", name="a", payload=str(n)) for n in range(3)])
    job = await stage.job(done(executing["j.0"]))
    assert [row.name for row in job.inbox] == ["j.0"]
    job = await stage.job(park(job), done(executing["j.1"]))
    assert [row.name for row in job.inbox] == ["j.1"]
    kept = await rows(stage.store, "SELECT payload FROM inbox WHERE kind = 'signal' AND consumed_at IS NULL")
    assert [payload for (payload,) in kept] == ["0", "1", "2"]


async def test_a_cancelled_task_is_an_end_too(stage: Stage) -> None:
    executing = await stage.parked("j.0", "j.1")
    job = await stage.job(Cancel(target="j.0", reason="enough"))
    assert ends(job) == [("j.0", "cancelled")]
    job = await stage.job(park(job, effects=[CancelChild("j.1", "not needed")]))
    assert ends(job) == [("j.1", "cancelled")]
    late = done(executing["j.1"])
    await stage.run(late)
    assert late.fenced


async def test_what_ends_after_the_job_has_failed_is_in_its_inbox_when_it_is_retried(stage: Stage) -> None:
    executing = await stage.parked("j.0", "j.1")
    job = await stage.job(failed(executing["j.0"]))
    await stage.run(outcome(job, Finish("failed", error="a task failed"), consume=[row.seq for row in job.inbox]))
    await stage.run(done(executing["j.1"]))
    job = await stage.job(RetryInstance(target="j"))
    assert ends(job) == [("j.1", "done")]
    assert [wait.id for wait in job.waits] == ["w-ends"]


# -- running a child again ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["failed", "done", "cancelled"])
async def test_an_ended_task_runs_again_in_its_row_and_its_next_end_counts(stage: Stage, how: str) -> None:
    executing = await stage.parked("j.0", "j.1")
    ending: Request = Cancel(target="j.0")
    if how != "cancelled":
        ending = done(executing["j.0"]) if how == "done" else failed(executing["j.0"])
    job = await stage.job(ending)
    assert ends(job) == [("j.0", how)]
    again = RetryChild("j.0", state='{"attempt":2}', lane="task:ship", queue="gpu", version=2)
    await stage.run(park(job, effects=[again]))
    assert await stage.row("j.0", "status, result, error, finished_at, queue") == ("runnable", None, None, None, "gpu")
    [claim] = (await stage.turns.run(capacity=Capacity("by-hand", {"gpu": 1}, {"task:ship": Traits()}))).claims
    assert (claim.id, claim.state, claim.attempt, claim.step) == ("j.0", '{"attempt":2}', 0, "charge")
    assert claim.version == 2
    assert ends(await stage.job(done(claim))) == [("j.0", "done")]


async def test_a_task_that_runs_again_has_none_of_the_waits_answers_and_questions_it_had(stage: Stage) -> None:
    executing = await stage.parked("j.0")
    parking = Park(
        (Arm("broadcast", "w-go", "", name="go"), Arm("awakeable", "w-ask", "", name="prom_1j0")),
        awakeables=(NewAwakeable("prom_1j0", 0),),
    )
    await stage.run(outcome(executing["j.0"], parking))
    [claim] = (await stage.run(Publish(name="go"), room=1)).claims
    await stage.run(failed(claim))
    await rows(stage.store, "UPDATE inbox SET wait_id = 'w-go' WHERE instance_id = 'j.0'")
    await stage.run(park(await stage.job(), effects=[RetryChild("j.0")]))
    [claim] = (await stage.run(room=1)).claims
    assert (claim.waits, claim.inbox) == ([], [])
    assert await rows(stage.store, "SELECT status FROM awakeables") == [("CANCELLED",)]


async def test_a_task_that_runs_again_still_waits_for_its_own_children(stage: Stage) -> None:
    """A map: its items end, and are answers, whatever happens to itself meanwhile."""
    mapped = (await stage.parked("j.0"))["j.0"]
    items = [NewTask(task(f"j.0.{n}"), "w-items") for n in range(2)]
    arm = Arm("children", "w-items", "", answers_each=True)
    executing = await stage.tasks(outcome(mapped, Park((arm,), disarm=()), effects=items))
    [mapped] = (await stage.run(done(executing["j.0.0"]), room=1)).claims
    await stage.run(outcome(mapped, Finish("failed", error="no"), consume=[row.seq for row in mapped.inbox]))
    await stage.run(done(executing["j.0.1"]))
    await stage.run(park(await stage.job(), effects=[RetryChild("j.0")]))
    [mapped] = (await stage.run(room=1)).claims
    assert [(wait.id, wait.answers_each) for wait in mapped.waits] == [("w-items", True)]
    assert [row.name for row in mapped.inbox] == ["j.0.1"]


async def test_a_task_that_still_runs_begins_again(stage: Stage) -> None:
    executing = await stage.parked("j.0", "j.1")
    job = await stage.job(done(executing["j.1"]))
    first = executing["j.0"]
    result = await stage.run(park(job, effects=[RetryChild("j.0")]), room=1)
    assert "j.0" in result.cancelled  # its worker stops the attempt that runs
    [second] = result.claims
    late = done(first)
    await stage.run(late)
    assert late.fenced
    assert ends(await stage.job(done(second))) == [("j.0", "done")]


@pytest.mark.parametrize("id", ["j.7", "other"])
async def test_a_child_that_is_gone_or_not_its_own_is_refused(stage: Stage, id: str) -> None:
    executing = await stage.parked("j.0")
    await stage.run(StartInstances(items=[NewInstance("M", "{}", "other", named=True)]))
    job = await stage.job(done(executing["j.0"]))
    job = await stage.job(park(job, effects=[RetryChild(id, parent_wait="w-ends")]))
    assert ends(job) == [(id, "refused")]
    assert await stage.row("other", "status, epoch") == ("runnable", 0)


async def test_a_cancel_in_the_same_turn_comes_before_the_second_run(stage: Stage) -> None:
    executing = await stage.parked("j.0", "j.1")
    job = await stage.job(failed(executing["j.0"]))
    again = park(job, effects=[RetryChild("j.0")])
    await stage.run(Cancel(target="j"), again)
    assert again.fenced
    assert await stage.row("j.0", "status") == ("failed",)
    assert await stage.row("j.1", "status") == ("cancelled",)


async def test_an_outcome_that_is_fenced_runs_nothing_again(stage: Stage) -> None:
    executing = await stage.parked("j.0", "j.1")
    job = await stage.job(failed(executing["j.0"]))
    job.epoch -= 1
    again = park(job, effects=[RetryChild("j.0")])
    await stage.run(again)
    assert again.fenced
    assert await stage.row("j.0", "status") == ("failed",)


# -- what a task's outcome can say -------------------------------------------------------------------


@pytest.mark.parametrize("move", [Redo(0), Park((Arm("broadcast", "w-go", "", name="go"),))])
async def test_a_task_continues_in_another_lane_and_queue(stage: Stage, move: Redo | Park) -> None:
    claim = (await stage.parked("j.0"))["j.0"]
    decision = Decision("retry", "gate", "{}", move, lane=JOB, queue=ENGINE_QUEUE)
    await stage.run(Commit(claim=claim, decision=decision))
    assert await stage.row("j.0", "lane, queue") == (JOB, ENGINE_QUEUE)
    if isinstance(move, Park):
        await stage.run(Publish(name="go"))
    assert await stage.tasks() == {}
    [claim] = (await stage.run(jobs=1)).claims
    assert (claim.id, claim.lane, claim.queue, claim.kind) == ("j.0", JOB, ENGINE_QUEUE, "task")


async def test_a_lane_that_no_worker_here_has_is_announced(stage: Stage) -> None:
    claim = (await stage.parked("j.0"))["j.0"]
    commit = Commit(claim=claim, decision=Decision("retry", "gate", "{}", Redo(0), lane="gate:legal"))
    assert (await stage.run(commit, room=1)).pending.for_other_workers
    assert await stage.row("j.0", "lane, queue") == ("gate:legal", "default")


@pytest.mark.parametrize("label", ["retry", "next"])
async def test_events_of_a_decision_come_before_the_event_of_its_outcome(stage: Stage, label: Any) -> None:
    claim = (await stage.parked("j.0"))["j.0"]
    events = (DecisionEvent("error", "charge", '{"message":"one"}'), DecisionEvent("timeout", None, None))
    move = Redo(0) if label == "retry" else Advance()
    commit = Commit(claim=claim, decision=Decision(label, "charge", "{}", move, events=events))
    await stage.run(commit, room=1)
    found = await rows(stage.store, "SELECT type, step, data FROM events WHERE instance_id = 'j.0' ORDER BY seq")
    assert [tuple(row) for row in found[1:3]] == [("error", "charge", '{"message":"one"}'), ("timeout", None, None)]
    assert found[3][0] == label


@pytest.mark.parametrize("drop", [True, False])
async def test_a_new_attempt_starts_without_the_waits_of_the_last_one_if_it_says_so(stage: Stage, drop: bool) -> None:
    claim = (await stage.parked("j.0"))["j.0"]
    await stage.run(outcome(claim, Park((Arm("broadcast", "w-go", "", name="go"),))))
    [claim] = (await stage.run(Publish(name="go"), room=1)).claims
    assert [wait.id for wait in claim.waits] == ["w-go"]
    await stage.run(outcome(claim, Redo(0, drop_waits=drop), consume=[row.seq for row in claim.inbox]))
    left = await rows(stage.store, "SELECT id FROM waits WHERE instance_id = 'j.0'")
    assert len(left) == (0 if drop else 1)


async def test_a_task_is_retried_with_its_job_and_not_alone(stage: Stage) -> None:
    """Its job has taken the failed end, and would not notice that the task runs again."""
    executing = await stage.parked("j.0")
    retry = RetryInstance(target="j.0")
    await stage.run(failed(executing["j.0"]))
    await stage.run(retry)
    assert isinstance(retry.result, Conflict)
    assert "retry 'j'" in str(retry.result)
    assert await stage.row("j.0", "status") == ("failed",)
