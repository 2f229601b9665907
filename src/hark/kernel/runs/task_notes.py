"""Commit notes: the writes of executing tasks before their outcome (model/notes.py).

Each note is fenced like an outcome (invariant 2) and changes neither the epoch nor the slot. Any number of them cost a
constant number of statements. They come after the deliveries and settlements of the same turn, so a wait that is armed
here finds what those have stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, assert_never

from hark.kernel import children, expire, settle
from hark.kernel.inbox import load_inboxes, read_waits
from hark.kernel.park import new_wait, wait_columns
from hark.kernel.requests import CommitNote
from hark.kernel.rows import LockedRow, status_of
from hark.kernel.runs import run_awakeables, run_signals, task_streams
from hark.kernel.wait_kinds import WAIT_KINDS
from hark.model.activation import InboxRow, JournalRow, WaitRow
from hark.model.errors import NotFound, task_lost
from hark.model.notes import (
    NoteAwakeable,
    NotedEvent,
    NoteEvents,
    NoteInbox,
    NoteParent,
    NoteRun,
    NoteRuns,
    NoteState,
    NoteTimeout,
    NoteWait,
)
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_BEYOND = (1 << 31) - 1  # above the number of every line
_Waiting = tuple[CommitNote, NoteWait, LockedRow]


def plan(turn: Turn) -> None:
    for request in turn.batch.of(CommitNote):
        note = request.note
        turn.locks.ids.add(note.task_id)
        match note:
            case NoteWait(arm=arm) if arm.run is not None:
                turn.locks.ids.add(arm.run)
            case NoteAwakeable(run_id=run) | NoteState(run_id=run) if run is not None:
                turn.locks.ids.add(run)
            case NoteParent():
                turn.locks.ids.add(note.parent_id)
            case _:
                pass


async def apply(turn: Turn) -> None:
    requests = turn.batch.of(CommitNote)
    if not requests:
        return
    states: list[NoteState] = []
    asked: list[tuple[CommitNote, NoteAwakeable]] = []
    waiting: list[_Waiting] = []
    late: list[tuple[CommitNote, NoteTimeout, LockedRow]] = []
    reading: list[tuple[CommitNote, NoteInbox]] = []
    telling: list[tuple[CommitNote, NoteParent]] = []
    ran: list[NoteRun] = []
    replaying: list[tuple[CommitNote, NoteRuns]] = []
    progress: dict[str, str] = {}
    room = await task_streams.room(turn, [request.note for request in requests])
    for request in requests:
        note, row = request.note, turn.rows.get(request.note.task_id)
        request.result = None
        if row is None or row.status != "executing" or row.epoch != note.epoch:
            request.result = task_lost(note.task_id, status_of(row))
            continue
        match note:
            case NoteEvents():
                kept, request.result = task_streams.kept(turn, note, room)
                _write_events(turn, note.task_id, note.step, kept)
                if note.progress is not None:
                    progress[note.task_id] = note.progress
            case NoteState():
                _write_events(turn, note.task_id, note.step, note.events)
                states.append(note)
            case NoteAwakeable():
                asked.append((request, note))
            case NoteWait():
                waiting.append((request, note, row))
            case NoteTimeout():
                late.append((request, note, row))
            case NoteInbox():
                reading.append((request, note))
            case NoteParent():
                _write_events(turn, note.task_id, note.step, note.events)
                telling.append((request, note))
            case NoteRun():
                ran.append(note)
            case NoteRuns():
                replaying.append((request, note))
            case _ as never:
                assert_never(never)
    if progress:
        await turn.tx.fetch(sql.set_progress, sorted(progress.items()))
    await _checkpoint(turn, states)
    await run_awakeables.create(turn, asked)
    await _arm(turn, waiting)
    await _time_out(turn, late)
    await _record(turn, ran)
    await _replay(turn, replaying)
    news = [children.ChildNews(note.parent_id, note.parent_wait, note.task_id, note.payload) for _, note in telling]
    for (request, _), told in zip(telling, await children.post_news(turn, news), strict=True):
        request.result = told
    if reading:
        after: dict[str, int] = {}
        for _, inbox in reading:
            after[inbox.task_id] = min(inbox.after, after.get(inbox.task_id, inbox.after))
        inboxes = await load_inboxes(turn.tx, after)
        for request, inbox in reading:
            request.result = [row for row in inboxes[inbox.task_id] if row.seq > inbox.after]


def _write_events(turn: Turn, task: str, step: str | None, events: Iterable[NotedEvent]) -> None:
    turn.history.events += [(task, event.type, step, event.data) for event in events]


async def _checkpoint(turn: Turn, notes: list[NoteState]) -> None:
    if not notes:
        return
    states = {note.task_id: (note.task_id, note.state) for note in notes if note.state is not None}
    if states:
        await turn.tx.fetch(sql.set_states, list(states.values()))
    consumed = [seq for note in notes for seq in note.consume]
    if consumed:
        await turn.tx.fetch(sql.consume, seqs=consumed)
    disarmed = [wait for note in notes for wait in note.disarm]
    if disarmed:
        await turn.tx.fetch(sql.delete_waits, ids=disarmed)
        for note in notes:
            run_signals.drop_waits(turn, turn.rows[note.task_id])


async def _record(turn: Turn, notes: list[NoteRun]) -> None:
    """Record runs in the journals of their tasks. Its `visit` is the period, so those of earlier periods do not count;
    the first line of a period deletes them."""
    cuts = [(note.task_id, note.period, _BEYOND) for note in notes if note.is_first]
    if cuts:
        await turn.tx.fetch(sql.cut_journal, cuts)
    if notes:
        await turn.tx.fetch(
            sql.insert_journal,
            [(n.task_id, n.period, n.seq, n.seq, "run", n.name, n.value, n.error, 1) for n in notes],
        )


async def _replay(turn: Turn, notes: list[tuple[CommitNote, NoteRuns]]) -> None:
    if not notes:
        return
    lines: dict[int, list[JournalRow]] = {}
    asked = [(note.task_id, note.period) for _, note in notes]
    for nth, seq, entry, kind, name, value, error in await turn.tx.fetch(sql.journal_of, asked):
        lines.setdefault(nth, []).append(JournalRow(seq, entry, kind, name, value, error))
    for nth, (request, _) in enumerate(notes, start=1):
        request.result = lines.get(nth, [])


# -- waits -------------------------------------------------------------------------------------------


async def _arm(turn: Turn, notes: list[_Waiting]) -> None:
    if not notes:
        return
    questions = await _questions(turn, [note for _, note, _ in notes])
    armed: list[tuple[CommitNote, LockedRow, WaitRow]] = []
    known: set[str] = set()  # waits for awakeables that are settled
    for request, note, row in notes:
        wait = new_wait(turn, note.arm)
        if WAIT_KINDS[wait.kind].has_awakeable:
            question = questions.get(wait.name or "")
            if question is None or question.task_id != row.id:
                request.result = NotFound(f"Task {row.id} has no awakeable {wait.name!r}. Check the id.")
                continue
            wait.deadline = question.timeout_at
            if question.status != "PENDING":
                known.add(wait.id)
        note.arm.deadline = wait.deadline
        WAIT_KINDS[wait.kind].armed(turn, row, wait)
        if WAIT_KINDS[wait.kind].has_awakeable:
            turn.history.waits_executing(row.id, wait)
        armed.append((request, row, wait))
    if not armed:
        return
    await turn.tx.fetch(sql.insert_waits, [wait_columns(row.id, wait) for _, row, wait in armed])
    receivers = await run_signals.take_signals(turn)
    settled = [(row, wait) for _, row, wait in armed if wait.id in known]
    if settled:
        await _answer_settled(turn, settled)
        receivers |= {row.id for row, _ in settled}
    if receivers:
        await turn.inbox.flush()
        inboxes = await load_inboxes(turn.tx, dict.fromkeys(receivers, 0))
        for request, row, wait in armed:
            request.result = _answer(wait, inboxes.get(row.id, ()))


def _answer(wait: WaitRow, inbox: Iterable[InboxRow]) -> InboxRow | None:
    return next((row for row in inbox if wait.answered_by(row.kind, row.name, row.wait_id)), None)


async def _questions(turn: Turn, notes: list[NoteWait]) -> dict[str, sql.AwakeableState]:
    ids = sorted({note.arm.name or "" for note in notes if WAIT_KINDS[note.arm.kind].has_awakeable})
    return {state.id: state for state in (await turn.tx.fetch(sql.awakeable_states, ids=ids) if ids else ())}


async def _answer_settled(turn: Turn, settled: list[tuple[LockedRow, WaitRow]]) -> None:
    """Answer waits for settled awakeables. The answer is in the inbox, unless a checkpoint has consumed it: then it
    is posted once more."""
    await turn.tx.fetch(sql.fire_waits, ids=[wait.id for _, wait in settled])
    inboxes = await load_inboxes(turn.tx, {row.id: 0 for row, _ in settled if row.has_inbox_rows})
    unanswered = [(row, wait) for row, wait in settled if _answer(wait, inboxes.get(row.id, ())) is None]
    if unanswered:
        ids = sorted({wait.name or "" for _, wait in unanswered})
        answers = {answer.awakeable: answer for answer in await turn.tx.fetch(sql.settled_answers, ids=ids)}
        for row, wait in unanswered:
            settle.post(turn, row, answers[wait.name or ""])


async def _time_out(turn: Turn, notes: list[tuple[CommitNote, NoteTimeout, LockedRow]]) -> None:
    """Fire the deadlines of executing tasks, which the sweep leaves alone."""
    if not notes:
        return
    waits = {wait.id: wait for _, wait in await read_waits(turn.tx, {note.task_id for _, note, _ in notes})}
    tasks = {row.id: row for _, _, row in notes}
    inboxes = await load_inboxes(turn.tx, {id: 0 for id, row in tasks.items() if row.has_inbox_rows})
    before = {id: row.waits for id, row in tasks.items()}
    for row in tasks.values():
        row.waits = []  # those to fire
    for _, note, row in notes:
        wait = waits.get(note.wait_id)
        if wait is not None and _answer(wait, inboxes.get(row.id, ())) is None:
            row.waits.append(wait)
    unanswered = [row for row in tasks.values() if row.waits]
    await expire.fire_deadlines(turn, unanswered)
    for id, row in tasks.items():
        row.waits = before[id]
    if unanswered:
        inboxes = await load_inboxes(turn.tx, {id: 0 for id, row in tasks.items() if row.has_inbox_rows})
    for request, note, row in notes:
        wait = waits.get(note.wait_id)
        request.result = None if wait is None else _answer(wait, inboxes.get(row.id, ()))
