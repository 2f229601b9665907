"""Start instances: requested by a caller, as effects, or as the children of a Spawn.

The only code that inserts into `instances`. Turns that start the same name serialise on a reserved number (M11), so
the read that checks the name is exact, and two batches with the same keys in another order cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hark.kernel import definitions, families
from hark.kernel.children import ChildEnd
from hark.kernel.effects import request_for
from hark.kernel.requests import Commit, Request, SignalWithStart, StartInstances
from hark.kernel.rows import LockedRow
from hark.kernel.runs import bpmn_starts
from hark.model import json
from hark.model.decisions import NewInstance, NewTask
from hark.model.errors import Duplicate, HarkError, InvalidInput, NotFound
from hark.model.lanes import BPMN, ENGINE_QUEUE, INTERPRETED, code_lane
from hark.model.names import from_micros, new_id
from hark.store import statements as sql
from hark.store.protocol import Conflicted, Taken

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_Start = tuple[NewInstance, StartInstances | SignalWithStart]
_Unknown = dict[tuple[str, int | None], NotFound]  # by definition and version
_Unfit = dict[str, InvalidInput]  # by the id of the instance


@request_for(NewInstance)
def _request(effect: NewInstance, sender: Commit) -> StartInstances:
    return StartInstances(items=[effect], sender=sender)


@request_for(NewTask)
def _request_task(effect: NewTask, sender: Commit) -> StartInstances:
    return StartInstances(items=[effect.item], parent_wait=effect.parent_wait, sender=sender)


def plan(turn: Turn) -> None:
    for request in turn.batch.of(StartInstances):
        for item in request.items:
            _reserve(turn, item)
    for with_signal in turn.batch.of(SignalWithStart):
        _reserve(turn, with_signal.item)
        assert with_signal.item.correlation_key is not None
        turn.locks.add_target(with_signal.item.correlation_key)


def _reserve(turn: Turn, item: NewInstance) -> None:
    if item.correlation_key is not None:
        turn.locks.reserve(item.correlation_key)
    if item.named and item.lane is None:
        turn.locks.reserve(item.id)


async def apply(turn: Turn, seen_before: dict[SignalWithStart, str]) -> None:
    """Start the requested instances. Requests in `seen_before`, whose dedup key was seen before, start nothing."""
    starts: list[_Start] = []
    for request in turn.batch.of(StartInstances):
        request.result = []
        if request.sender is None or not request.sender.fenced:
            starts.extend((item, request) for item in request.items)
    for with_signal in turn.batch.of(SignalWithStart):
        if _has_no_holder(turn, with_signal) and with_signal not in seen_before:  # S9
            starts.append((with_signal.item, with_signal))
    if starts:
        await begin(turn, starts)


async def begin(turn: Turn, starts: list[_Start]) -> None:
    """Insert these instances, and set the results of their requests."""
    unknown = await _unknown_definitions(turn, starts)
    unfit = await _unfit_starts(turn, starts)
    crowded = await families.crowded(turn, starts)
    holders = await _holders(turn, [item for item, _ in starts])
    rows: list[tuple[Any, ...]] = []
    traces: list[tuple[str, str]] = []
    tags: list[tuple[str, str, str, int]] = []
    scheduled: list[tuple[str, int]] = []
    refused = _refused_requests(starts, unknown, unfit) if unknown or unfit else {}
    for item, asker in starts:
        error = crowded.get(asker) or _refusal(item, holders)
        if refused or unknown or unfit:
            error = refused.get(asker) or _unstartable(item, unknown, unfit) or error
        if error is None:
            rows.append(_row(turn, item, asker))
            if item.trace is not None:
                traces.append((item.id, item.trace))
            if item.tags:
                tags.extend((item.id, name, value, len(rows)) for name, value in item.tags.items())
            if item.scheduled_at is not None:
                scheduled.append((item.id, item.scheduled_at))
            holders[item.id] = item.id
            if item.correlation_key is not None:
                holders[item.correlation_key] = item.id
                turn.locks.started[item.correlation_key] = item.id
            turn.locks.started[item.id] = item.id
        elif isinstance(asker, StartInstances) and asker.parent_wait is not None:
            rows.append(_failed_child_row(turn, item, asker, error))
        _set_result(turn, item, asker, error)
    if rows:
        await _insert(turn, rows, starts)
        if traces:
            await turn.tx.fetch(sql.set_traces, traces)
        if tags:
            await turn.tx.fetch(sql.insert_tags, tags)
        if scheduled:
            await turn.tx.fetch(sql.set_scheduled, scheduled)
        turn.tx.position += len(rows)  # each has a queue position of its own
        turn.result.pending.made_claimable = True


async def _insert(turn: Turn, rows: list[tuple[Any, ...]], starts: list[_Start]) -> None:
    """Insert instances. The ids of tasks are not reserved: they contain the id of their parent, so another start seldom
    has the same, and a job that starts a thousand tasks would make all other processes wait. If another transaction has
    just taken one, the turn runs again and finds it taken."""
    try:
        await turn.tx.fetch(sql.insert_instances, rows)
    except Taken as taken:
        if any(item.named for item, _ in starts):
            raise Conflicted(str(taken)) from taken
        raise


def _has_no_holder(turn: Turn, request: SignalWithStart) -> bool:
    assert request.item.correlation_key is not None
    row = turn.locks.find(request.item.correlation_key)
    return row is None or row.terminal


async def _unknown_definitions(turn: Turn, starts: list[_Start]) -> _Unknown:
    """The errors of definitions and versions that cannot be started. Many starts share few definitions."""
    wanted = {(item.definition, item.version): item for item, _ in starts if item.lane is None}
    if any(definitions.may_be_stale(turn.catalog, item) for item in wanted.values()):
        await definitions.refresh(turn)
    refusals = {which: _definition_refusal(turn, item) for which, item in wanted.items()}
    return {which: refusal for which, refusal in refusals.items() if refusal is not None}


async def _unfit_starts(turn: Turn, starts: list[_Start]) -> _Unfit:
    """The errors of refused starts of processes, by the id of the instance. Other definitions have none."""
    kinds = {item.definition for item, _ in starts if item.lane is None}
    processes = {name for name in kinds if any(one.kind == BPMN for one in turn.catalog.get(name, {}).values())}
    if not processes:
        return {}
    return await bpmn_starts.refusals(turn, (item for item, _ in starts if item.definition in processes))


def _unstartable(item: NewInstance, unknown: _Unknown, unfit: _Unfit) -> HarkError | None:
    """The error of a start that its definition does not allow, or None."""
    if item.lane is not None:
        return None
    return unknown.get((item.definition, item.version)) or unfit.get(item.id)


def _refused_requests(starts: list[_Start], unknown: _Unknown, unfit: _Unfit) -> dict[Request, HarkError]:
    """The errors of whole requests: a start_many with an unknown definition starts nothing."""
    return {
        asker: error
        for item, asker in starts
        if isinstance(asker, StartInstances)
        and asker.sender is None
        and (error := _unstartable(item, unknown, unfit)) is not None
    }  # fmt: skip


async def _holders(turn: Turn, items: list[NewInstance]) -> dict[str, str]:
    names = {item.correlation_key for item in items if item.correlation_key is not None}
    names |= {item.id for item in items if item.named}
    if not names:
        return {}
    return {name: holder for name, holder in await turn.tx.fetch(sql.taken, names=sorted(names))}


def _refusal(item: NewInstance, holders: dict[str, str]) -> HarkError | None:
    """The error of a start whose key or given id is taken, or None.

    `holders` has the id of the holder of each name that is taken; ids and keys are one namespace."""
    if item.named and item.id in holders:
        holder = holders[item.id]
        if holder == item.id:
            taken = f"An instance with the id {item.id!r} exists already, and its end does not free the id."
        else:
            taken = f"The id {item.id!r} is the correlation key of instance {holder}."
        return Duplicate(
            f"{taken} Use another id (without one, it is generated), or send a signal to that instance if it has not "
            "finished.",
            holder=holder,
        )
    key = item.correlation_key
    if key is not None and key in holders:
        return Duplicate(
            f"The correlation key {key!r} is taken by instance {holders[key]}. Send a signal to that instance, wait "
            "for its end (which does not free a key with the scope 'forever'), or use another key.",
            holder=holders[key],
        )
    return None


def _definition_refusal(turn: Turn, item: NewInstance) -> NotFound | None:
    """The error of a definition that is unknown or undeployed, or None."""
    found = definitions.find(turn.catalog, item)
    if found is not None:
        if not found[1].undeployed:
            return None
        return NotFound(
            f"{item.definition!r} was undeployed: its instances run on, and no more can be started. Deploy it again to "
            "start it again."
        )
    known = turn.catalog.get(item.definition)
    if known and item.version is None:
        return NotFound(
            f"All versions of {item.definition!r} are retired, so that it cannot be started by its name. Take one "
            f"back with `hark definition unretire {item.definition} VERSION`, or start one with version=."
        )
    if known and item.version is not None:
        have = ", ".join(str(version) for version in sorted(known))
        return NotFound(
            f"{item.definition!r} has no version {item.version}; registered versions: {have}. "
            "Register that version, or start without version= to get the newest."
        )
    return NotFound(
        f"There is no definition {item.definition!r}. Register it with app.register(…), start a worker that has its "
        "code, or deploy its file with app.deploy(…), then start again."
    )


def _row(turn: Turn, item: NewInstance, request: StartInstances | SignalWithStart) -> tuple[Any, ...]:
    found = definitions.find(turn.catalog, item)
    assert found is not None
    version, definition = found
    due = None
    if item.delay:
        due = turn.now + item.delay
    if item.at is not None and item.at > turn.now:
        due = item.at if due is None else min(due, item.at)
    if due is not None:
        turn.result.pending.due(due)
    # The queue of a job is that of its tasks; the job itself is in the queue of the interpreters.
    queue = ENGINE_QUEUE if definition.lane in INTERPRETED else item.queue or definition.queue
    step = item.step or definition.initial
    turn.rows[item.id] = LockedRow(item.id, "runnable", 0, False, definition.kind)
    turn.result.pending.lanes.add((queue, definition.lane))
    turn.result.counts.started[item.definition] += 1
    if item.schedule is None:
        turn.history.event(item.id, "started", step, definition=item.definition, version=version)
    else:
        turn.history.event(item.id, "started", step, definition=item.definition, version=version, **_tick_of(item))
    parent, parent_wait = None, None
    if isinstance(request, StartInstances) and request.parent_wait is not None and request.sender is not None:
        parent, parent_wait = request.sender.claim.id, request.parent_wait
    return (
        item.id, item.definition, version, definition.kind, item.correlation_key, item.scope, queue, item.priority,
        "runnable", step, item.state, None, due, item.concurrency_key, item.rate_limit, item.weight, parent,
        parent_wait, definition.on_cancel, json.dump(item.tags) if item.tags else None, definition.lane,
    )  # fmt: skip


def _tick_of(item: NewInstance) -> dict[str, Any]:
    """The data that the event of a scheduled start has in addition."""
    assert item.scheduled_at is not None
    return {"schedule": item.schedule, "scheduled_at": from_micros(item.scheduled_at)}


async def find_unknown(turn: Turn, items: list[NewInstance]) -> Sequence[HarkError | None]:
    """The error of each of these whose definition cannot be started, or None."""
    if any(definitions.may_be_stale(turn.catalog, item) for item in items):
        await definitions.refresh(turn)
    found: list[HarkError | None] = []
    for item in items:
        refusal: HarkError | None = _definition_refusal(turn, item)
        if refusal is None and (definition := definitions.find(turn.catalog, item)) and definition[1].kind == BPMN:
            refusal = (await bpmn_starts.refusals(turn, [item])).get(item.id)
        found.append(refusal)
    return found


def _failed_child_row(turn: Turn, item: NewInstance, request: StartInstances, error: HarkError) -> tuple[Any, ...]:
    """A child that cannot start gets a row that has failed, and counts as an ended child (M8)."""
    assert request.sender is not None
    assert request.parent_wait is not None
    version = item.version or 0
    id = new_id() if item.named else item.id  # a generated id keeps its position among the children
    end = ChildEnd(request.parent_wait, item.id, "refused", str(error))  # with the id that the parent knows
    if any(arm.id == request.parent_wait for arm in request.sender.decision.move.arm):
        turn.children.failed_to_start.setdefault(request.parent_wait, []).append(end)
    else:
        turn.children.ended.append(end)
    turn.result.counts.ended["failed", item.definition] += 1
    turn.history.failed(id, item.definition, item.step, 0, str(error))
    return (
        id, item.definition, version, item.kind or "machine", None, "live", item.queue or "default", item.priority,
        "failed", item.step or "", item.state, str(error), None, None, None, 1.0, request.sender.claim.id,
        request.parent_wait, None, None, item.lane or code_lane(item.definition, version),
    )  # fmt: skip


def _set_result(
    turn: Turn, item: NewInstance, request: StartInstances | SignalWithStart, error: HarkError | None
) -> None:
    if isinstance(request, SignalWithStart):
        request.result = error or item.id
        return
    request.result.append(error or item.id)
    if error is not None and request.sender is not None and request.parent_wait is None:
        claim = request.sender.claim
        turn.history.event(claim.id, "start_refused", claim.step, definition=item.definition, error=str(error))
