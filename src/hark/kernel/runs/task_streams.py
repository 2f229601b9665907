"""Limit what tasks stream: the bytes of their chunks and heartbeats, per task and per run (J8).

A stream is a part of the history. Without a limit, a handler in a loop or one token of a worker outside could fill the
disk. The bytes of a task, and of all tasks of a run, are counted by one statement for all notes of a turn. What is
above a limit is not stored; the chunk that meets it is replaced by a mark, which everything that shows the stream
shows.

The newest chunks are left out, and not the oldest: to delete events takes reads and writes in proportion to what is
streamed, which is what the limit is against, and it would change pages of the history that were read already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from hark.model.errors import PayloadTooLarge
from hark.model.notes import AnyNote, NotedEvent, NoteEvents
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

Room = dict[str, int]  # the bytes that are left, by task and run; below 0: a limit was met, and the mark is written


async def room(turn: Turn, notes: Iterable[AnyNote]) -> Room:
    """Count what these notes stream. Return how much of it their tasks and runs may store."""
    sizes: dict[str, int] = {}
    limits: dict[str, int] = {}
    for note in notes:
        if not isinstance(note, NoteEvents):
            continue
        row = turn.rows.get(note.task_id)
        if row is None or row.status != "executing" or row.epoch != note.epoch:
            continue  # it is refused
        size = sum(map(_size, note.events))
        limits[note.task_id] = turn.rules.max_stream
        sizes[note.task_id] = sizes.get(note.task_id, 0) + size
        if note.run_id is not None:
            limits[note.run_id] = turn.rules.max_run_stream
            sizes[note.run_id] = sizes.get(note.run_id, 0) + size
    if not sizes:
        return {}
    found = await turn.tx.fetch(sql.count_streams, sorted(sizes.items()))
    return {id: limits[id] - (total - sizes[id]) for id, total in found}


def kept(turn: Turn, note: NoteEvents, room: Room) -> tuple[list[NotedEvent], PayloadTooLarge | None]:
    """The events of a note that are stored. With them, if the note asks for it, the error of a chunk that is not."""
    events: list[NotedEvent] = []
    error: PayloadTooLarge | None = None
    owners = [id for id in (note.task_id, note.run_id) if id is not None]
    for event in note.events:
        size = _size(event)
        full = [id for id in owners if room[id] < size]
        if not full:
            for id in owners:
                room[id] -= size
            events.append(event)
            continue
        text, limit = _told(turn, note, full)
        if any(room[id] >= 0 for id in full):
            events.append(_mark(note, text))
        for id in full:
            room[id] = min(room[id], -1)
        if event.type == "stream" and note.refuses_stream:
            error = PayloadTooLarge(text, size=size, limit=limit)
    return events, error


def _size(event: NotedEvent) -> int:
    data = event.data or ""
    return len(data) if data.isascii() else len(data.encode())


def _told(turn: Turn, note: NoteEvents, full: list[str]) -> tuple[str, int]:
    if note.task_id in full:
        what, option, limit = f"task {note.step!r}", "max_stream", turn.rules.max_stream
    else:
        what, option, limit = f"all tasks of {note.run_id}", "max_run_stream", turn.rules.max_run_stream
    text = (
        f"The stream of {what} has reached its limit of {limit} bytes: this and what follows is not stored. Stream "
        f"less, write large output elsewhere, or raise Hark({option}=…)."
    )
    return text, limit


def _mark(note: NoteEvents, text: str) -> NotedEvent:
    return NotedEvent("stream", msgspec.json.encode({"task": note.step, "chunk": f"[{text}]"}).decode())
