"""Jobs and tasks for tests of the kernel, without an interpreter: rows of these kinds, and notes by hand."""

from __future__ import annotations

from typing import Any

from hark.kernel.requests import Capacity, CommitNote, StartInstances
from hark.model.activation import Claim, Traits
from hark.model.decisions import Arm, NewInstance
from hark.model.lanes import ENGINE_QUEUE, JOB
from hark.model.notes import (
    NoteAwakeable,
    NoteEvents,
    NoteInbox,
    NoteParent,
    NoteRun,
    NoteRuns,
    NoteState,
    NoteTimeout,
    NoteWait,
)
from tests.support.turns import DEFINITION, spawn

LANE = "task:t"
_TRAITS = Traits(creates_awakeables=True, waits_while_executing=True)


def workers(owner: str = "worker", room: int = 10) -> Capacity:
    """What a worker with room for jobs and tasks can claim."""
    return Capacity(owner, {ENGINE_QUEUE: room, "default": room}, {JOB: _TRAITS, LANE: _TRAITS})


def job(id: str) -> StartInstances:
    return StartInstances(items=[NewInstance(DEFINITION, "{}", id, True, 1, "run", ENGINE_QUEUE, lane=JOB, kind="job")])


def tasks(job: Claim, *ids: str) -> Any:
    """The job starts these tasks and waits for all of them."""
    items = [NewInstance(DEFINITION, "{}", id, True, 1, "work", "default", lane=LANE, kind="task") for id in ids]
    return spawn(job, items)


async def running(run: Any, job_id: str, *ids: str) -> list[Claim]:
    """Start a job with these tasks; `run` runs a turn. Returns the claims of the tasks, which execute."""
    await run(job(job_id))
    [claim] = (await run(claim=workers())).claims
    started = await run(tasks(claim, *ids), claim=workers(room=max(10, len(ids))))
    claims = {claim.id: claim for claim in started.claims}
    for claim in claims.values():
        claim.traits = _TRAITS
    return [claims[id] for id in ids]


def on_run(name: str, id: str, job_id: str = "run", **options: Any) -> Arm:
    """A wait for a signal of the run."""
    return Arm("signal", id, place=id, name=name, run=job_id, **options)


def note_wait(task: Claim, arm: Arm) -> CommitNote:
    return CommitNote(note=NoteWait(task.id, task.epoch, arm))


def note_inbox(task: Claim, after: int = 0) -> CommitNote:
    return CommitNote(note=NoteInbox(task.id, task.epoch, after))


def note_state(task: Claim, state: str, **options: Any) -> CommitNote:
    return CommitNote(note=NoteState(task.id, task.epoch, state, **options))


def note_events(task: Claim, *events: Any, **options: Any) -> CommitNote:
    return CommitNote(note=NoteEvents(task.id, task.epoch, events, **options))


def note_run(task: Claim, seq: int, value: str = "1", *, period: int = 0, is_first: bool = False) -> CommitNote:
    note = NoteRun(task.id, task.epoch, period=period, seq=seq, name="call", value=value, is_first=is_first)
    return CommitNote(note=note)


def note_runs(task: Claim, period: int = 0) -> CommitNote:
    return CommitNote(note=NoteRuns(task.id, task.epoch, period=period))


def note_timeout(task: Claim, wait_id: str) -> CommitNote:
    return CommitNote(note=NoteTimeout(task.id, task.epoch, wait_id))


def note_awakeable(claim: Claim, place: str, job_id: str = "run", **options: Any) -> CommitNote:
    return CommitNote(note=NoteAwakeable(claim.id, claim.epoch, job_id, place, **options))


def note_parent(task: Claim, payload: str = "{}") -> CommitNote:
    return CommitNote(
        note=NoteParent(task.id, task.epoch, task.parent_id or "", task.parent_wait or "", payload=payload)
    )
