"""Deliver the signals of a run: one queue per name, from which the waits of its tasks take (J6).

A run is a job or a process. Its tasks receive its signals, the run itself does not: the oldest open wait for the name
gets one, as a row of the inbox of its task that is directed to that wait. Without such a wait it stays in the inbox
of the run, for the next one. So a run never has both a signal that no wait has received and an open wait for its name.
Whatever would change that is done under the lock of the run: a delivery, a new wait, a signal that is given back. The
row of the task is locked too, as that of every receiver (invariant 4).

Which tasks wait is known only after the run is locked. Their rows are then locked if they are free, without waiting
(invariant 3); if one is not, the requests run again, and the next turn locks it with all others. A wait that is gone by
the time its task is locked is noticed when it is to be fired: then the turn runs again.

A signal belongs to a task once the task has consumed it. What it has not consumed when its wait is gone, because it
ended or began another attempt, is given back to the run, and keeps its place in the queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hark.kernel.inbox import load_waits
from hark.kernel.requests import Deliver, Publish, SignalWithStart
from hark.kernel.rows import LockedRow
from hark.model.activation import WaitRow
from hark.model.lanes import INTERPRETED
from hark.store import statements as sql
from hark.store.protocol import Conflicted

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_Name = tuple[str, str]  # a run, and the name of a signal
_Waits = dict[_Name, deque[tuple[str, str]]]  # the oldest open waits: id of the wait, id of its task
Delivered = Deliver | SignalWithStart | Publish


class RunQueues:
    """The changes of one turn to the signals of runs."""

    def __init__(self) -> None:
        self.waits: _Waits = {}  # for the signals that this turn delivers
        self.fired: list[str] = []  # waits that have received one
        self.seen: list[tuple[str, str, str]] = []  # dedup keys: run, name, key
        self.armed: list[tuple[LockedRow, WaitRow]] = []  # new waits, which may take a signal that is there
        self.dropped_waits: set[str] = set()  # tasks that may have signals whose waits are gone


def queues(turn: Turn) -> RunQueues:
    """The RunQueues of this turn, made at the first use: most turns have nothing to do with a run."""
    if turn.runs is None:
        turn.runs = RunQueues()
    return turn.runs


# -- deliver -----------------------------------------------------------------------------------------


async def prepare(
    turn: Turn, deliveries: list[Delivered], target: Mapping[Delivered, LockedRow | None]
) -> list[Delivered]:
    """Lock the tasks that wait for these signals. Returns the deliveries of this turn. The others run again, all those
    to one run together, so that they keep their order."""
    wanted = Counter(
        (row.id, request.name)
        for request, row in target.items()
        if row is not None and row.kind in INTERPRETED and not isinstance(request, Publish)
    )
    if not wanted:
        return deliveries
    waits, held = await _open_waits(turn, wanted)
    queues(turn).waits = waits
    if not held:
        return deliveries
    kept: list[Delivered] = []
    for request in deliveries:
        row = target.get(request)
        if row is None or row.id not in held:
            kept.append(request)
            continue
        assert not isinstance(request, Publish)
        if isinstance(request, Deliver) and request.sender is not None:
            request.sender.also_lock |= held[row.id]
            raise Conflicted("another transaction holds a task that waits for this signal")
        request.also_lock |= held[row.id]
        turn.result.again.append(request)
    return kept


async def _open_waits(turn: Turn, wanted: Mapping[_Name, int]) -> tuple[_Waits, dict[str, set[str]]]:
    """The oldest open waits for these signals, as many as there are signals, with their tasks locked. Also the tasks
    that another transaction holds, by run."""
    rows = [(run, name, size) for (run, name), size in sorted(wanted.items())]
    waits: _Waits = {name: deque() for name in wanted}
    held: dict[str, set[str]] = {}
    locked: list[LockedRow] = []
    for run, name, wait, task, *columns in await turn.tx.fetch(sql.run_waits, rows, most=max(wanted.values())):
        if len(waits[run, name]) == wanted[run, name]:
            continue
        waits[run, name].append((wait, task))
        if task not in turn.rows:
            if columns[0] is None:
                held.setdefault(run, set()).add(task)
            else:
                locked.append(turn.locks.add_locked(task, *columns))
    await load_waits(turn.tx, [row for row in locked if row.parked])
    return waits, held


async def _lock_free(turn: Turn, ids: Iterable[str]) -> None:
    locked = await turn.locks.acquire_free(ids)
    await load_waits(turn.tx, [row for row in locked if row.parked])


def deliver(turn: Turn, row: LockedRow, name: str, payload: str, dedup_key: str | None) -> bool:
    """Deliver a signal to a run. Returns True when a wait of one of its tasks receives it."""
    mine = queues(turn)
    if dedup_key is not None:
        mine.seen.append((row.id, name, dedup_key))
    waits = mine.waits.get((row.id, name))
    if not waits:
        turn.inbox.post(row, "signal", name, payload)
        return False
    wait, task = waits.popleft()
    turn.inbox.post(turn.rows[task], "signal", name, payload, wait_id=wait)
    _fire(turn, turn.rows[task], wait)
    return True


def _fire(turn: Turn, task: LockedRow, wait: str) -> None:
    """Fire a wait that has received its signal: it gets no other, and does not time out."""
    queues(turn).fired.append(wait)
    for armed in task.waits:
        if armed.id == wait:
            armed.fired_at = turn.now


async def write(turn: Turn) -> None:
    """Write the deliveries: dedup keys, and waits that were fired."""
    mine = turn.runs
    if mine is None:
        return
    if mine.seen:
        seen, mine.seen = mine.seen, []
        await turn.tx.fetch(sql.insert_seen, seen)
    if mine.fired:
        fired, mine.fired = mine.fired, []
        if len(await turn.tx.fetch(sql.fire_open_waits, ids=fired)) < len(fired):
            raise Conflicted("a wait for this signal ended before its task was locked")


def _keeps_signals(run: LockedRow) -> bool:
    """Return True if the signals of a run still count. Those of a failed one do, for a retry and for running tasks."""
    return not run.terminal or run.status == "failed"


# -- arm ---------------------------------------------------------------------------------------------


async def take_signals(turn: Turn) -> set[str]:
    """Give the waits that were just armed the signals that their runs have, the oldest first. Returns the ids of the
    tasks that have received one."""
    mine = turn.runs
    if mine is None or not mine.armed:
        return set()
    armed, mine.armed = mine.armed, []
    wanted: Counter[_Name] = Counter()
    for _, wait in armed:
        run = turn.rows.get(wait.key or "")
        if run is not None and run.has_inbox_rows and _keeps_signals(run):
            wanted[run.id, wait.name or ""] += 1
    if not wanted:
        return set()
    rows = [(run, name, size) for (run, name), size in sorted(wanted.items())]
    signals: dict[_Name, deque[int]] = {}
    for run, name, seq in await turn.tx.fetch(sql.run_signals, rows, most=max(wanted.values())):
        signals.setdefault((run, name), deque()).append(seq)
    moves: list[tuple[int, str, str | None]] = []
    for task, wait in armed:
        left = signals.get((wait.key or "", wait.name or ""))
        if left:
            moves.append((left.popleft(), task.id, wait.id))
            wait.fired_at = turn.now
            mine.fired.append(wait.id)
            turn.inbox.mark(task)
    if moves:
        await turn.tx.fetch(sql.move_signals, moves)
        await write(turn)
    return {task for _, task, _ in moves}


# -- give back ---------------------------------------------------------------------------------------


def drop_waits(turn: Turn, task: LockedRow) -> None:
    """Note that waits of a task are gone: signals that they received and the task did not consume are given back."""
    if task.has_inbox_rows:
        queues(turn).dropped_waits.add(task.id)


async def give_back(turn: Turn) -> None:
    """Return to their runs the signals whose waits are gone: to the next wait for them, or to the queue."""
    mine = turn.runs
    if mine is None or not mine.dropped_waits:
        return
    tasks, mine.dropped_waits = sorted(mine.dropped_waits), set()
    for task in tasks:
        turn.inbox.complete.pop(task, None)  # a claim of this turn must not get signals that the task loses
    unused = await turn.tx.fetch(sql.unreceived, ids=tasks)
    if not unused:
        return
    await _lock_free(turn, {run for _, run, _ in unused})
    if any(run not in turn.rows for _, run, _ in unused):
        # The job of an item of a map is not its parent, which its end locks. The turn runs again after a short while.
        raise Conflicted("another transaction holds the job that a signal is given back to")
    unused = [(seq, run, name) for seq, run, name in unused if _keeps_signals(turn.rows[run])]
    if not unused:
        return
    waits, held = await _open_waits(turn, Counter((run, name) for _, run, name in unused))
    if held:
        raise Conflicted("another transaction holds a task that waits for a signal that is given back")
    back: list[tuple[int, str, str | None]] = []
    passed_on: list[tuple[int, str, str | None]] = []
    for seq, run, name in unused:
        if waits[run, name]:
            wait, task = waits[run, name].popleft()
            passed_on.append((seq, task, wait))
            _fire(turn, turn.rows[task], wait)
            turn.inbox.move(turn.rows[task], "signal", name, wait)
        else:
            back.append((seq, run, None))
            turn.inbox.mark(turn.rows[run])
    if back:
        await turn.tx.fetch(sql.move_signals, back)
    if passed_on:
        await turn.tx.fetch(sql.pass_on_signals, passed_on)
    await write(turn)
    await turn.inbox.flush()
