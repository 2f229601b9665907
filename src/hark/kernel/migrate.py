"""Move instances to another version of their definition (V4): all of an instance in one commit, or nothing.

What becomes of an instance was computed beside the turns, from what it had committed. It is written only if the
instance has had no transition since, and does not execute: the epoch tells (invariant 2). A signal or an answer that
has arrived meanwhile stays in the inbox, and finds the waits under the same ids. The epoch changes, so that no worker
goes on with the earlier version in its memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import definitions
from hark.kernel.requests import InstanceMove, Migrate
from hark.kernel.rows import LockedRow, status_of
from hark.model.errors import Conflict, HarkError, NotFound
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan(turn: Turn) -> None:
    for request in turn.batch.of(Migrate):
        turn.locks.ids.update(one.id for one in request.moves)


async def apply(turn: Turn) -> None:
    requests = turn.batch.of(Migrate)
    if not requests:
        return
    await definitions.refresh(turn)
    moving: list[tuple[Migrate, InstanceMove, LockedRow]] = []
    for request in requests:
        request.result = []
        for one in request.moves:
            row = turn.rows.get(one.id)
            refusal = _refusal(turn, one, row)
            request.result.append(one.id if refusal is None else refusal)
            if refusal is None and row is not None:
                row.epoch = one.epoch + 1  # a second migration in this turn finds another epoch
                moving.append((request, one, row))
    if not moving:
        return
    await turn.tx.fetch(sql.migrate, [_row(turn, one) for _, one, _ in moving])
    dropped = {id for _, one, _ in moving for id in one.migrated.dropped_waits}
    places = {id: place for _, one, _ in moving for id, place in one.migrated.moved_waits}
    questions = [question for _, one, _ in moving for question in one.migrated.moved_questions]
    if dropped:
        await turn.tx.fetch(sql.delete_waits, ids=sorted(dropped))
    if places:
        await turn.tx.fetch(sql.move_waits, sorted(places.items()))
    if questions:
        await turn.tx.fetch(sql.move_awakeables, questions)
    for request, one, row in moving:
        _move(turn, request, one, row, dropped, places)
    await turn.inbox.flush()


def _move(
    turn: Turn, request: Migrate, one: InstanceMove, row: LockedRow, dropped: set[str], places: dict[str, str]
) -> None:
    row.waits = [wait for wait in row.waits if wait.id not in dropped]
    for wait in row.waits:
        wait.place = places.get(wait.id, wait.place)
    if row.status == "held":
        row.status = "runnable"
    asked_by = {} if request.by is None else {"by": request.by}
    turn.history.event(
        row.id, "migrated", one.migrated.step,
        earlier=one.earlier, version=one.version, bulk=request.bulk, **asked_by,
    )  # fmt: skip
    lane = turn.catalog[one.definition][one.version].lane
    turn.result.pending.lanes.add((one.queue, lane))
    turn.result.pending.made_claimable = True
    if one.migrated.control is not None:
        turn.inbox.post(row, "control", "migrated", "null", wait_id=one.migrated.control)


def _row(turn: Turn, one: InstanceMove) -> tuple[object, ...]:
    target = turn.catalog[one.definition][one.version]
    return one.id, one.version, target.lane, one.migrated.step, one.migrated.state, target.kind, target.on_cancel


def _refusal(turn: Turn, one: InstanceMove, row: LockedRow | None) -> HarkError | None:
    if row is None or row.status in ("done", "cancelled"):
        return Conflict(f"{one.id!r} is {status_of(row)}: there is nothing to move.", status=status_of(row))
    target = turn.catalog.get(one.definition, {}).get(one.version)
    if target is None or target.kind != one.kind:
        return NotFound(f"There is no version {one.version} of {one.definition!r} that is a {one.kind}.")
    if row.status == "executing" or row.epoch != one.epoch:
        return Conflict(f"{one.id!r} has gone on meanwhile: try again.", status=row.status)
    return None
