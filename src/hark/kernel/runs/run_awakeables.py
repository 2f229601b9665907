"""Create and cancel the awakeables of tasks: under the address of the run, answered in the inbox of the task (A3).

The id of an awakeable contains the id of its instance (A2), which is the job or process; `task_id` is the task that
asked. Numbers are taken from the row of the run, under its lock. A process has awakeables of its own, too, its user
tasks: its interpreter counts those from 0 on, so the tasks have other numbers. The turn that settles one holds both
rows, see settle.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hark.kernel.requests import CommitNote
from hark.model.lanes import BPMN
from hark.model.names import awakeable_id
from hark.model.notes import NoteAwakeable, TaskAwakeable
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_Place = tuple[str, str]  # a task, and the place of a question in it
_FIRST_OF_PROCESS: Final = 1 << 30  # the lowest number of a question of the tasks of a process


async def create(turn: Turn, asked: Sequence[tuple[CommitNote, NoteAwakeable]]) -> None:
    """Create awakeables; a question that the task has asked before is the same awakeable."""
    if not asked:
        return
    places = sorted({(note.task_id, note.place) for _, note in asked})
    known: dict[_Place, TaskAwakeable] = {}
    for task, place, *columns in await turn.tx.fetch(sql.task_awakeables, places):
        known[task, place] = TaskAwakeable(*columns)
    new: dict[_Place, NoteAwakeable] = {}
    for _, note in asked:
        if (note.task_id, note.place) not in known:
            new.setdefault((note.task_id, note.place), note)
    if new:
        known |= await _insert(turn, new)
    for request, note in asked:
        request.result = known[note.task_id, note.place]


async def _insert(turn: Turn, new: dict[_Place, NoteAwakeable]) -> dict[_Place, TaskAwakeable]:
    sizes = Counter(note.run_id for note in new.values())
    following = {
        run: entries - sizes[run] + (_FIRST_OF_PROCESS if turn.rows[run].kind == BPMN else 0)
        for run, entries in await turn.tx.fetch(sql.take_entries, sorted(sizes.items()))
    }
    made: dict[_Place, TaskAwakeable] = {}
    rows: list[tuple[Any, ...]] = []
    for place, note in new.items():
        entry = following[note.run_id]
        following[note.run_id] += 1
        timeout_at = None if note.timeout is None else turn.now + note.timeout
        id = awakeable_id(note.run_id, entry)
        made[place] = TaskAwakeable(id, entry, note.nonce, timeout_at, "PENDING")
        turn.history.asked(note.task_id, id)
        rows.append((
            id, note.run_id, note.task_id, note.task, note.place, entry, timeout_at, note.nonce, note.title,
            note.description, note.schema, note.assignees,
        ))  # fmt: skip
    await turn.tx.fetch(sql.insert_task_awakeables, rows)
    return made


async def ask_anew(turn: Turn, tasks: Sequence[str]) -> None:
    """Cancel the questions of tasks that run again, and let them ask again in the same places."""
    await cancel(turn, tasks)
    await turn.tx.fetch(sql.forget_cancelled, ids=sorted(tasks))


async def cancel(turn: Turn, tasks: Sequence[str]) -> None:
    """Cancel the open questions of tasks that have ended (A4)."""
    if tasks:
        turn.history.withdrawn(await turn.tx.fetch(sql.cancel_task_awakeables, ids=sorted(tasks)))
