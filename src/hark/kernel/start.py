"""Start instances: asked for, as effects, or as the children of a Spawn.

The only code that inserts into `instances`. Starters of the same name meet at a reserved number
(M11), so the look is exact and two batches with the same keys in another order cannot deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hark.kernel.requests import Request, SignalWithStart, StartInstances
from hark.kernel.rows import Locked
from hark.model.decisions import NewInstance
from hark.model.errors import Duplicate, HarkError, NotFound
from hark.model.names import new_id
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan(turn: Turn) -> None:
    for request in turn.starts:
        for item in request.items:
            _reserve(turn, item)
    for joint in turn.joint:
        _reserve(turn, joint.item)
        assert joint.item.correlation_key is not None
        turn.targets.add(joint.item.correlation_key)


def _reserve(turn: Turn, item: NewInstance) -> None:
    if item.correlation_key is not None:
        turn.reserve(item.correlation_key)
    if item.named:
        turn.reserve(item.id)


async def apply(turn: Turn) -> None:
    asked: list[tuple[NewInstance, StartInstances | SignalWithStart]] = []
    for request in turn.starts:
        request.answer = []
        if request.sender is None or not request.sender.fenced:
            asked.extend((item, request) for item in request.items)
    asked.extend((joint.item, joint) for joint in turn.joint if _must_start(turn, joint))
    if not asked:
        return
    if any(item.version is None or _entry(turn, item) is None for item, _ in asked):
        # The newest is asked for, and another process may have registered one since.
        for name, version, kind, queue, initial in await turn.tx.fetch(sql.definitions):
            turn.catalog.setdefault(name, {})[version] = (kind, queue, initial)
    holders = await _holders(turn, [item for item, _ in asked])
    rows: list[tuple[Any, ...]] = []
    unknown = _unknown(turn, asked)
    for item, asker in asked:
        error = unknown.get(asker) or _refusal(turn, item, holders)
        if error is None:
            rows.append(_row(turn, item, asker))
            holders[item.id] = item.id
            if item.correlation_key is not None:
                holders[item.correlation_key] = item.id
                turn.started[item.correlation_key] = item.id
            turn.started[item.id] = item.id
        elif isinstance(asker, StartInstances) and asker.parent_wait is not None:
            rows.append(_stillborn(turn, item, asker, error))
        _tell(turn, item, asker, error)
    if rows:
        await turn.tx.fetch(sql.insert_instances, rows)
        turn.tx.position += len(rows)  # each has its own place in line
        turn.runnable = True


def _unknown(
    turn: Turn, asked: list[tuple[NewInstance, StartInstances | SignalWithStart]]
) -> dict[Request, HarkError | None]:
    """A start_many with a definition nobody knows starts nothing: its caller gets an error, and no handles."""
    alone = [(item, asker) for item, asker in asked if isinstance(asker, StartInstances) and asker.sender is None]
    return {asker: _refusal(turn, item, {}) for item, asker in alone if _entry(turn, item) is None}


def _must_start(turn: Turn, joint: SignalWithStart) -> bool:
    """S9: only when nobody live has the key, and no kept holder has seen this dedup key (deliver looks)."""
    assert joint.item.correlation_key is not None
    row = turn.find(joint.item.correlation_key)
    return (row is None or row.terminal) and joint not in turn.known


def _entry(turn: Turn, item: NewInstance) -> tuple[int, tuple[str, str, str]] | None:
    versions = turn.catalog.get(item.definition)
    if not versions:
        return None
    version = max(versions) if item.version is None else item.version
    return (version, versions[version]) if version in versions else None


async def _holders(turn: Turn, items: list[NewInstance]) -> dict[str, str]:
    names = {item.correlation_key for item in items if item.correlation_key is not None}
    names |= {item.id for item in items if item.named}
    if not names:
        return {}
    return {name: holder for name, holder in await turn.tx.fetch(sql.taken, names=sorted(names))}


def _refusal(turn: Turn, item: NewInstance, holders: dict[str, str]) -> HarkError | None:
    if _entry(turn, item) is None:
        known = turn.catalog.get(item.definition)
        if known and item.version is not None:
            have = ", ".join(str(version) for version in sorted(known))
            return NotFound(
                f"{item.definition!r} has no version {item.version}; known are {have}. "
                "Register that version, or start without version= for the newest."
            )
        return NotFound(
            f"Nobody ever registered {item.definition!r}. Register it with app.register(…), "
            "or start a worker that has its code, then start again."
        )
    for name, what in ((item.correlation_key, "correlation key"), (item.id if item.named else None, "id")):
        if name is not None and name in holders and not (what == "correlation key" and holders[name] == item.id):
            return Duplicate(
                f"The {what} {name!r} is taken by instance {holders[name]}. Signal that one, wait for its end, "
                "or use another name.",
                holder=holders[name],
            )
    return None


def _row(turn: Turn, item: NewInstance, request: StartInstances | SignalWithStart) -> tuple[Any, ...]:
    entry = _entry(turn, item)
    assert entry is not None
    version, (kind, queue, initial) = entry
    due = None
    if item.delay:
        due = turn.now + item.delay
    if item.at is not None and item.at > turn.now:
        due = item.at if due is None else min(due, item.at)
    if due is not None:
        turn.due(due)
    turn.rows[item.id] = Locked(item.id, "runnable", 0, False)
    turn.made.add((item.queue or queue, item.definition, version))
    step = item.step or initial
    turn.event(item.id, "started", step, definition=item.definition, version=version)
    parent = (
        request.sender.claim.id
        if isinstance(request, StartInstances) and request.parent_wait and request.sender
        else None
    )
    wait = request.parent_wait if isinstance(request, StartInstances) else None
    return (
        item.id, item.definition, version, kind, item.correlation_key, item.scope, item.queue or queue, item.priority,
        "runnable", step, item.state, None, due, item.concurrency_key, item.rate_limit, item.weight, parent, wait,
    )  # fmt: skip


def _stillborn(turn: Turn, item: NewInstance, request: StartInstances, error: HarkError) -> tuple[Any, ...]:
    """A child that cannot start is there as failed, and counts (M8)."""
    assert request.sender is not None
    assert request.parent_wait is not None
    id = new_id() if item.named else item.id  # its own keeps its place among the children
    turn.failed_children[request.parent_wait] = turn.failed_children.get(request.parent_wait, 0) + 1
    turn.event(id, "failed", item.step, error=str(error))
    return (
        id, item.definition, item.version or 0, "machine", None, "live", item.queue or "default", item.priority,
        "failed", item.step or "", item.state, str(error), None, None, None, 1.0, request.sender.claim.id,
        request.parent_wait,
    )  # fmt: skip


def _tell(turn: Turn, item: NewInstance, request: StartInstances | SignalWithStart, error: HarkError | None) -> None:
    if isinstance(request, SignalWithStart):
        request.answer = error or item.id
        return
    request.answer.append(error or item.id)
    if error is not None and request.sender is not None and request.parent_wait is None:
        claim = request.sender.claim
        turn.event(claim.id, "start_refused", claim.step, definition=item.definition, error=str(error))
