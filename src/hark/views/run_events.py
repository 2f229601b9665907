"""Read the events of a run: of a job or process and of all its tasks, as one history and as one stream.

Its cursors are those of the events of all instances (invariant 17). A client that follows a run reads its past by the
run; new events are found by one scan of the newest events of all instances, for all runs that are followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hark.model.values import Event
from hark.store import reads
from hark.store.protocol import Store
from hark.views import listing
from hark.views.event_rows import event, is_cut

Cursor = tuple[int, int]
_LAST = 2**63 - 1
_SCAN = 5000  # events of all instances in one scan


async def is_run(store: Store, id: str) -> bool:
    return [kind for (kind,) in await store.read(reads.kind_of, id=id)] in (["job"], ["bpmn"])


def task_range(id: str) -> tuple[str, str]:
    """The ids of the tasks of a run are in this range: `{run}.` and a digit (programs/jobs/task_ids.py). The processes
    that a process has called are in it too, with their tasks."""
    return f"{id}.0", f"{id}.:"


def is_part(id: str, run: str) -> bool:
    """Return True if this is the id of the job, or can be that of one of its tasks."""
    low, high = task_range(run)
    return id == run or low <= id < high


def run_of(event: Event, runs: Iterable[str]) -> str | None:
    """The run out of these to which an event belongs that `scan` has found for them. If the id of a run is like that of
    a task of another one, the longer one has no such task: it has the id."""
    return max((run for run in runs if is_part(event.instance_id, run)), key=len, default=None)


async def latest(store: Store, id: str, limit: int, before: Cursor) -> Sequence[reads.EventRow]:
    """The latest events before a cursor, newest first."""
    low, high = task_range(id)
    tx, seq = before
    return await store.read(
        reads.latest_run_events, id=id, low=low, high=high, tx=tx, seq=seq, size=limit, bytes=listing.MAX_BYTES
    )


async def page(store: Store, id: str, after: Cursor, limit: int) -> tuple[list[Event], Cursor, bool]:
    """The events after a cursor, oldest first; where the next page begins; and whether that has events already."""
    [(to_tx, to_seq)] = await store.read(reads.head)
    low, high = task_range(id)
    tx, seq = after
    rows = await store.read(
        reads.run_events, id=id, low=low, high=high, tx=tx, seq=seq, to_tx=to_tx, to_seq=to_seq, size=limit + 1,
        bytes=listing.MAX_BYTES,
    )  # fmt: skip
    found = [event(row) for row in rows[:limit]]
    more = len(rows) > limit or is_cut(rows)
    return found, found[-1].cursor if more else max(after, (to_tx, to_seq)), more


async def follow(store: Store, id: str, after: Cursor, limit: int) -> tuple[list[Event], Cursor, bool]:
    """The events after a cursor, oldest first; where the next page begins; and whether there will be none."""
    ended = await _ended(store, [id])
    found, cursor, more = await page(store, id, after, limit)
    return found, cursor, bool(ended) and not more and not await _has_events(store, id, cursor)


async def scan(store: Store, runs: Iterable[str], after: Cursor) -> tuple[list[Event], Cursor, set[str], bool]:
    """The new events of all these runs after a cursor. Returns them, up to where this has read, the runs that will
    have no more events, and whether there is more to read now."""
    ids = sorted(runs)
    ended = await _ended(store, ids)
    [(to_tx, to_seq)] = await store.read(reads.head)
    tx, seq = after
    found: list[Event] = []
    cursor, more = after, False
    for end_tx, end_seq, size in await store.read(
        reads.scan_end, tx=tx, seq=seq, to_tx=to_tx, to_seq=to_seq, size=_SCAN
    ):
        rows = await store.read(
            reads.scan_runs, [(id, *task_range(id)) for id in ids], tx=tx, seq=seq, to_tx=end_tx, to_seq=end_seq,
            bytes=listing.MAX_BYTES,
        )  # fmt: skip
        found = [event(row) for row in rows]
        cut = is_cut(rows)
        cursor, more = found[-1].cursor if cut else (end_tx, end_seq), cut or size == _SCAN
    return found, cursor, {id for id in ended if not await _has_events(store, id, cursor)}, more


async def _ended(store: Store, ids: list[str]) -> set[str]:
    return set(ids) - {id for (id,) in await store.read(reads.unfinished, ids=ids)}


async def _has_events(store: Store, id: str, after: Cursor) -> bool:
    """Return True if a job that has ended has events behind this cursor: also those of turns that cannot be read yet,
    because an older one is still running."""
    low, high = task_range(id)
    tx, seq = after
    return bool(
        await store.read(
            reads.run_events, id=id, low=low, high=high, tx=tx, seq=seq, to_tx=_LAST, to_seq=_LAST, size=1, bytes=1
        )
    )
