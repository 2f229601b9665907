"""Schedules: start an instance at each tick, and only one, however many processes sweep (T2).

The sweep reads which schedules are due before the turn locks anything, to reserve the correlation keys it needs and to
lock the instances that may still run. It then locks the rows that are still due, skipping those that another process
holds, and moves each to its next tick in the transaction that inserts the instance.

Rows of `triggers` are locked after the instance rows and before the buckets; a sweep and the end of an instance never
wait for one. A tick that waits for an instance cannot miss its end: the turn that lets it wait holds the lock of that
instance, so the end comes later and sees `blocker`; and every other turn that holds the row makes it due again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from hark.kernel import start
from hark.kernel.requests import ChangeSchedule, StartInstances
from hark.model import json
from hark.model.cron import Timing
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidInput, NotFound
from hark.model.names import new_id
from hark.model.trigger import MAX_CATCH_UP, Trigger
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_BATCH = 500  # schedules of one sweep; the next turn continues
_MAX_TICKS = 5000  # of a turn, about 0.1 s: schedules that were late for a week must not stop the clerk
_ON_TIME = 60_000_000  # µs: a tick that is fired later than this was missed
_RETRY = 60_000_000  # µs until a schedule is tried again whose time zone this process does not have


class _Fired(NamedTuple):
    """A tick, or a trigger, and the request that starts its instance."""

    id: str
    tick: int
    request: StartInstances
    trigger: ChangeSchedule | None = None


class Schedules:
    """The triggers that one turn changes or fires."""

    def __init__(self) -> None:
        self.deployed: dict[str, tuple[tuple[Trigger, ...], int]] = {}  # by definition: its triggers, its version
        self.due: list[str] = []
        self.planned: dict[str, sql.TriggerRow] = {}  # as they were before the lock
        self.reserved: set[str] = set()  # correlation keys
        self.rows: dict[str, sql.TriggerRow] = {}  # locked, as this turn leaves them
        self.touched: set[str] = set()  # to write
        self.removed: set[str] = set()
        self.fired: list[_Fired] = []
        self.triggered: set[str] = set()
        self.ticks_left = _MAX_TICKS
        self.decided: set[str] = set()  # fired with the instances locked that they may have to wait for
        self.unreadable: set[str] = set()  # this process cannot compute their ticks
        self.ended: list[str] = []  # instances that a schedule started and that this turn has ended

    def put(self, row: sql.TriggerRow) -> None:
        self.rows[row.id] = row
        self.touched.add(row.id)
        self.removed.discard(row.id)

    def remove(self, id: str) -> None:
        del self.rows[id]
        self.touched.discard(id)
        self.removed.add(id)


def _id(name: str) -> str:
    return f"schedule:{name}"


# -- before the lock ------------------------------------------------------------------------------


async def plan(turn: Turn, *, sweep: bool) -> None:
    """Find the triggers that are due, reserve their keys, and lock the instances that they may have to wait for."""
    changes = turn.batch.of(ChangeSchedule)
    rows = await turn.tx.fetch(sql.due_triggers, size=_BATCH) if sweep else []
    if not changes and not rows:
        return
    state = turn.schedules
    triggered = []
    for change in changes:
        turn.locks.reserve(f"schedule\0{change.name}")
        if change.start is not None:
            _reserve(turn, change.start.correlation_key)
        elif change.verb == "trigger":
            triggered.append(_id(change.name))
    state.due = [row.id for row in rows]
    turn.result.pending.more = turn.result.pending.more or len(rows) == _BATCH
    if triggered:
        rows = rows + await turn.tx.fetch(sql.triggers_by_id, ids=sorted(set(triggered)))
    for row in rows:
        state.planned[row.id] = row
        _reserve(turn, row.correlation_key)
        turn.locks.ids.update(_started_by(row))


def _reserve(turn: Turn, key: str | None) -> None:
    if key is not None:
        turn.locks.reserve(key)
        turn.schedules.reserved.add(key)


def _started_by(row: sql.TriggerRow) -> set[str]:
    """The instances that a new one must not overlap with, if they still run. The last one may have been retried."""
    if row.overlap == "allow":
        return set()
    return {*_load(row.running), *([] if row.last_id is None else [row.last_id])}


# -- under the lock -------------------------------------------------------------------------------


async def apply(turn: Turn) -> None:
    """Lock the rows, carry out the changes and fire due triggers. The instances are started after this."""
    if not turn.has_schedules:
        return
    state = turn.schedules
    changes = turn.batch.of(ChangeSchedule)
    if changes or state.deployed:
        ids = {_id(change.name) for change in changes}
        ids |= {one.id(name) for name, (triggers, _) in state.deployed.items() for one in triggers}
        found = await turn.tx.fetch(sql.lock_triggers, ids=sorted(ids), definitions=sorted(state.deployed))
        state.rows = {row.id: _typed(row) for row in found}
        _deploy(turn)
        await _change(turn, changes)
        turn.result.pending.scheduled = True
    if state.due:
        # The least late come first: a schedule with many ticks to count does not hold up the others.
        rows = await turn.tx.fetch(sql.lock_due_triggers, ids=sorted(state.due))
        for row in sorted(rows, key=lambda row: row.due_at or 0, reverse=True):
            if row.id not in state.removed:
                _fire(turn, state.rows.get(row.id) or _typed(row))
    for fired in sorted(state.fired, key=lambda fired: fired.tick):
        turn.batch.add(fired.request)


def _typed(row: sql.TriggerRow) -> sql.TriggerRow:
    return structs.replace(row, paused=bool(row.paused))


def _deploy(turn: Turn) -> None:
    state = turn.schedules
    for definition, (triggers, version) in state.deployed.items():
        kept = {one.id(definition) for one in triggers}
        for row in [row for row in state.rows.values() if row.deployed_by == definition and row.id not in kept]:
            state.remove(row.id)
        for one in triggers:
            _put(turn, one, definition, version, deployed_by=definition)


async def _change(turn: Turn, changes: Iterable[ChangeSchedule]) -> None:
    state = turn.schedules
    puts = [change for change in changes if change.verb == "put"]
    items = [NewInstance(definition=change.definition, state=_state(change), id="") for change in puts]
    unknown = dict(zip(puts, await start.find_unknown(turn, items), strict=True)) if puts else {}
    for change in changes:
        row = state.rows.get(_id(change.name))
        change.result = None  # an attempt of this turn that was rolled back may have set it
        if change.start is not None:
            change.result = unknown[change] or _put(turn, change.start, change.definition, None, deployed_by=None)
            continue
        if row is None:
            change.result = NotFound(
                f"There is no schedule {change.name!r}. `hark schedule list` shows those there are."
            )
            continue
        match change.verb:
            case "pause":
                state.put(structs.replace(row, paused=True, waiting=None))
            case "resume":
                try:
                    state.put(_resumed(row, turn.now))
                except InvalidInput as error:
                    change.result = error
                    continue
            case "delete":
                state.remove(row.id)
                continue
            case "trigger":
                if row.correlation_key is not None and row.correlation_key not in state.reserved:
                    turn.result.again.append(change)  # it was replaced meanwhile: once more, with its key reserved
                else:
                    state.triggered.add(row.id)
                    _start(turn, row, turn.now, change)
                continue
        change.result = _look_again(state.rows[row.id], turn.now)


def _state(change: ChangeSchedule) -> str:
    return "" if change.start is None or change.start.state is None else change.start.state


def _resumed(row: sql.TriggerRow, now: int) -> sql.TriggerRow:
    """Resume a schedule: ticks of the pause are neither started nor missed, and an interval keeps its rhythm."""
    if not row.paused:
        return row
    after = row.next_at
    if row.cron is not None or (row.every is not None and after is not None):
        after = _timing(row).next(now, now if after is None else after)
    return structs.replace(row, paused=False, next_at=after)


def _put(turn: Turn, new: Trigger, definition: str, version: int | None, deployed_by: str | None) -> sql.TriggerRow:
    """Create or replace a trigger. With the same timing it keeps its next tick: a program that makes its
    schedules whenever it starts must neither lose nor repeat one."""
    state, timing = turn.schedules, new.timing
    id = new.id(definition)
    old = state.rows.get(id)
    first = new.at
    if first is None and (timing.cron or timing.every):
        first = timing.next(turn.now, turn.now)
    row = sql.TriggerRow(
        id=id, kind=new.kind, name=new.name, definition=definition, version=version, element=new.element,
        state=new.state, correlation_key=new.correlation_key, cron=timing.cron, every=timing.every,
        timezone=timing.timezone, overlap="allow" if new.kind == "timer" else new.overlap, catch_up=new.catch_up,
        remaining=new.remaining, next_at=first, due_at=None, paused=False, missed=0, skipped=0, last_at=None,
        last_id=None, waiting=None, running=None, blocker=None, error=None, deployed_by=deployed_by,
        created_at=turn.now,
    )  # fmt: skip
    if old is not None:
        row = structs.replace(
            row, paused=old.paused, missed=old.missed, skipped=old.skipped, last_at=old.last_at, last_id=old.last_id,
            running=old.running, created_at=old.created_at,
        )  # fmt: skip
        if _timing(old) == timing and (new.at is None or old.version == version):
            waiting = None if new.overlap == "allow" else old.waiting
            row = structs.replace(row, remaining=old.remaining, next_at=old.next_at, waiting=waiting, error=old.error)
    state.put(row)
    return _look_again(row, turn.now)


def _timing(row: sql.TriggerRow) -> Timing:
    return Timing(row.cron, row.every, row.timezone)


# -- ticks ----------------------------------------------------------------------------------------


class _Ticks(NamedTuple):
    """The ticks of a schedule that are due."""

    total: int
    latest: list[int]  # the last of them, at least as many as may be started
    next_at: int | None
    cut: bool  # more ticks are due: none of these may be the last


def _ticks(row: sql.TriggerRow, now: int, limit: int) -> _Ticks:
    """The ticks of a schedule that are due at `now`. At most `limit` are computed, which is above MAX_CATCH_UP."""
    first, most = row.next_at, row.remaining
    if first is None or first > now or most == 0:
        return _Ticks(0, [], first, False)
    keep = max(row.catch_up, 1)
    if row.every is not None:
        count = (now - first) // row.every + 1
        count = count if most is None else min(count, most)
        latest = [first + n * row.every for n in range(max(0, count - keep), count)]
        return _Ticks(count, latest, None if count == most else first + count * row.every, False)
    if row.cron is None:
        return _Ticks(1, [first], None, False)
    later, cut = _timing(row).due(first, now, limit)
    ticks = [first, *later] if most is None else [first, *later][:most]
    if cut and most is None:
        return _Ticks(len(ticks) - keep, [], ticks[-keep], True)
    after = None if len(ticks) == most else _timing(row).next(ticks[-1], ticks[-1])
    return _Ticks(len(ticks), ticks[-keep:], after, False)


def _fire(turn: Turn, row: sql.TriggerRow) -> None:
    state, now = turn.schedules, turn.now
    if row.paused:
        return
    planned = state.planned[row.id]
    key = row.correlation_key
    if _started_by(row) != _started_by(planned) or (key is not None and key not in state.reserved):
        turn.result.pending.more = True  # the row was changed before the lock: the next turn plans it again
        return
    if state.ticks_left <= MAX_CATCH_UP:
        turn.result.pending.more = True
        return
    try:
        ticks = _ticks(row, now, state.ticks_left)
    except InvalidInput as error:
        state.put(structs.replace(row, error=str(error)))
        state.unreadable.add(row.id)
        return
    state.ticks_left -= len(ticks.latest) if row.cron is None else ticks.total
    remaining = None if row.remaining is None else row.remaining - ticks.total
    row = structs.replace(row, next_at=ticks.next_at, remaining=remaining)
    if ticks.cut:
        turn.result.pending.more = True
        turn.result.counts.happened["tick_missed"] += ticks.total
        state.put(structs.replace(row, missed=row.missed + ticks.total))
        return
    on_time = bool(ticks.latest) and now - ticks.latest[-1] <= _ON_TIME
    started = min(ticks.total, max(row.catch_up, 1 if on_time else 0))
    chosen = ticks.latest[len(ticks.latest) - started :]
    missed, skipped = ticks.total - started, 0
    running: list[str] = []
    waiting: list[int] = _load(row.waiting)
    begin: list[int] = []
    if row.overlap == "allow":
        begin, waiting = chosen, []
    else:
        running = sorted(id for id in _started_by(row) if id in turn.rows and not turn.rows[id].terminal)
        busy = bool(running) or row.id in state.triggered
        if waiting and not busy:
            begin, busy = [waiting.pop(0)], True
        if chosen and not busy:
            # Ticks that are caught up run one after the other.
            begin, waiting = chosen[:1], chosen[1:]
        elif chosen and row.overlap == "queue" and not waiting:
            waiting, skipped = chosen[-1:], len(chosen) - 1
        else:
            skipped = len(chosen)
    turn.result.counts.happened["tick_missed"] += missed
    turn.result.counts.happened["tick_skipped"] += skipped
    row = structs.replace(
        row, missed=row.missed + missed, skipped=row.skipped + skipped, running=_dump(running), waiting=_dump(waiting)
    )
    state.put(row)
    state.decided.add(row.id)
    for tick in begin:
        _start(turn, row, tick)


def _start(turn: Turn, row: sql.TriggerRow, tick: int, trigger: ChangeSchedule | None = None) -> None:
    item = NewInstance(
        definition=row.definition,
        state=row.state or "{}",
        id=new_id(),
        version=row.version,
        step=row.element or None,
        correlation_key=row.correlation_key,
        scheduled_at=tick,
        schedule=row.name,
    )
    turn.schedules.fired.append(_Fired(row.id, tick, StartInstances(items=[item]), trigger))


# -- after the starts -----------------------------------------------------------------------------


async def record(turn: Turn) -> None:
    """Set the results of triggers and ticks, and write the schedules that this turn has touched."""
    if not turn.has_schedules:
        return
    state = turn.schedules
    for fired in state.fired:
        [answer] = fired.request.result
        if fired.trigger is not None:
            fired.trigger.result = answer
        row = state.rows.get(fired.id)
        if row is None:
            continue  # deleted in this turn
        if isinstance(answer, Exception):
            if fired.trigger is None:
                turn.result.counts.happened["tick_skipped"] += 1
                state.put(structs.replace(row, skipped=row.skipped + 1, error=str(answer)))
            continue
        turn.result.counts.happened["tick_started"] += fired.trigger is None
        running = None if row.overlap == "allow" else _dump([*_unfinished(turn, row), answer])
        state.put(structs.replace(row, last_at=fired.tick, last_id=answer, running=running, error=None))
    rows = []
    for id in sorted(state.touched):
        row = state.rows[id]
        if id in state.decided and row.waiting is not None and (running_ids := _load(row.running)):
            row = structs.replace(row, blocker=running_ids[0], due_at=row.next_at)
        else:
            row = _look_again(row, turn.now)
        if id in state.unreadable:
            row = structs.replace(row, due_at=turn.now + _RETRY)
        if row.due_at is not None:
            turn.result.pending.more = turn.result.pending.more or row.due_at <= turn.now
            turn.result.pending.due(row.due_at)
        rows.append(structs.astuple(row))
    if state.removed:
        await turn.tx.fetch(sql.delete_triggers, ids=sorted(state.removed))
    if rows:
        await turn.tx.fetch(sql.save_triggers, rows)


def _unfinished(turn: Turn, row: sql.TriggerRow) -> list[str]:
    """The instances of `running` without those that this turn has found finished or removed: of a schedule that is only
    triggered, no tick looks at them."""
    return [
        id for id in _load(row.running) if id not in turn.locks.ids or (id in turn.rows and not turn.rows[id].terminal)
    ]


def _look_again(row: sql.TriggerRow, now: int) -> sql.TriggerRow:
    """The row with the time at which the sweep must look at it: a waiting tick at once, since the end of the instance
    it waits for may have come while this turn held the row."""
    due = None if row.paused else row.next_at if row.waiting is None else now
    return structs.replace(row, due_at=due, blocker=None)


async def release(turn: Turn) -> None:
    """Make the schedules due that have a tick waiting for an instance that this turn has ended."""
    ended = turn.schedules.ended if turn.has_schedules else ()
    if ended and await turn.tx.fetch(sql.release_triggers, ids=sorted(ended)):
        turn.result.pending.due(turn.now)
        turn.result.pending.more = True


def _load(text: str | None) -> list[Any]:
    """The ids of `running`, or the ticks of `waiting`."""
    return [] if text is None else list(json.load(text))


def _dump(items: list[str] | list[int]) -> str | None:
    return json.dump(items) if items else None
