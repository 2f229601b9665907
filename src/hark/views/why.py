"""Explain why an instance is where it is (D7): what it waits for, what would wake it, what blocks it, what almost woke
it.

Reads only, outside the turns, a constant number of statements. Near misses come from four places: its own inbox (a
signal it does not wait for), `misses` (signals that were not stored), the latest signals of other instances and the
broadcasts since it was started. The commands in the texts are those of doors/cli.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hark.kernel.wait_kinds import WAIT_KINDS, UnfinishedChild, WaitContext
from hark.model import json
from hark.model.activation import KINDS
from hark.model.errors import no_instance
from hark.model.lanes import BPMN, ENGINE_QUEUE, INTERPRETED, JOB, ON_EVERY_WORKER, how_to_run, what_runs
from hark.model.names import from_micros
from hark.model.schema import example_answer
from hark.model.values import PARKED, TERMINAL, Blocker, NearMiss, Waiting, Why
from hark.programs.jobs.job_state import DEADLINE
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import Miss, OpenWait, WhyInstance, WorkerRow
from hark.store.statements import AwakeableRow
from hark.views import instance_views, job_reporting, run_events
from hark.views.job_reporting import armed_wait, command_text
from hark.views.next_attempts import NextAttempt, next_attempts
from hark.views.worker_info import heartbeat, name_of, serves

if TYPE_CHECKING:
    from hark.views.bpmn_why import BpmnPosition

_MAX_SHOWN = 20  # near misses shown


async def explain(store: Store, target: str, here: Container[str]) -> Why:
    """Explain the instance with this id or key. `here`: the lanes that a worker of this process can run, which may not
    be in the store yet."""
    id = await instance_views.find(store, target)
    found = await store.read(reads.why_instance, id=id)
    if not found:
        raise no_instance(target)
    [row] = found
    now = await store.time()
    # A task may wait in its slot, too.
    joinable = (
        row.status in PARKED or row.status == "held" or (row.status == "executing" and row.task_state is not None)
    )
    waits = await store.read(reads.open_waits_of, ids=[id]) if joinable else []
    children, questions = await _children(store, waits), await _questions(store, waits)
    waits = [wait for wait in waits if not _is_answered(wait, questions)]
    if row.status == "held":  # what has come is kept until its code fits
        arrived = {(kind, name) for kind, name, _ in await store.read(reads.unconsumed_signals, id=id)}
        waits = [wait for wait in waits if (wait.kind, wait.name) not in arrived]
    if row.lane == BPMN:  # its wait for children is always open, whether it has some or not
        waits = [wait for wait in waits if wait.kind != "children" or wait.id in children]
    attempts = await _next_attempts(store, row, waits)
    waiting = tuple(
        _waiting(row, wait, children.get(wait.id, []), questions.get(wait.name), attempts.get(wait.place), now)
        for wait in waits
    )
    position = None
    of_children: list[Blocker] = []
    if row.lane == BPMN:
        position, of_children = await _position(store, row, children, here)
        waiting = tuple(map(position.located, waiting))
    of_tasks = await _waits_of_tasks(store, row)
    waiting += tuple(await _waiting_tasks(store, row, of_tasks, now))
    of_children += await _blockers_of_tasks(store, row, here)
    blockers = (*await _blockers(store, row, now, here, attempts.get(None)), *of_children)
    since = min((wait.since for wait in waits), default=None) or _since(row)
    text = _summary(row, waits, blockers, attempts, now) + _said_by_handler(row)
    if position is not None and row.status not in TERMINAL:
        text = f"{text} {position.text()}".rstrip()
    # The error of a process that has failed names the elements; its incidents are among the blockers.
    added = [] if row.status in TERMINAL else [one.text for one in of_children]
    return Why(
        row.id, row.definition, row.version, row.status, row.step, row.key, from_micros(since),
        " ".join([text, *added]), waiting, blockers,
        tuple(await _misses(store, row, [*waits, *(wait for _, wait in of_tasks)])),
        row.traceback or next((one.failure.traceback for one in attempts.values() if one.failure is not None), None),
    )  # fmt: skip


async def _position(
    store: Store, row: WhyInstance, children: Mapping[str, list[UnfinishedChild]], here: Container[str]
) -> tuple[BpmnPosition, list[Blocker]]:
    """The position of a process, and what keeps parts of it from going on."""
    from hark.views import bpmn_why  # only programs with processes need it

    position = await bpmn_why.read_position(store, row)
    started = [child for some in children.values() for child in some]
    blockers = bpmn_why.incident_blockers(row, position)
    return position, blockers + await bpmn_why.handler_blockers(store, position, started, here)


async def _next_attempts(store: Store, row: WhyInstance, waits: Sequence[OpenWait]) -> dict[str | None, NextAttempt]:
    """The attempts that it waits for, by the place of the wait; the step of a machine has no place."""
    places: set[str | None] = {wait.place for wait in waits if wait.name is None and wait.deadline is not None}
    if row.status == "runnable" and row.due_at is not None and row.attempt > 0:
        places.add(None)
    if not places:
        return {}
    return {place: one for place, one in (await next_attempts(store, row.id)).items() if place in places}


def _name(row: WhyInstance) -> str:
    """The name by which people address it."""
    return row.key if row.key is not None and row.holds_key else row.id


def _since(row: WhyInstance) -> int:
    return int(row.finished_at or (row.since if row.status == "runnable" else row.updated_at))


def _summary(
    row: WhyInstance,
    waits: Sequence[OpenWait],
    blockers: Sequence[Blocker],
    attempts: Mapping[str | None, NextAttempt],
    now: int,
) -> str:
    undo = ""
    if row.cancel_reason is not None and row.status not in TERMINAL:
        undo = f"It is being cancelled: undo runs ({row.cancel_reason.rstrip('.')}). "
    if row.status == "held":
        return f"{undo}It is held: {row.error}"
    if waits:
        retried = [f"{attempts[wait.place].text(now)}." for wait in waits if wait.place in attempts]
        wanted = dict.fromkeys(
            WAIT_KINDS[wait.kind].describe(armed_wait(wait))
            for wait in waits
            if wait.place not in attempts and not _is_deadline(row, wait)
        )
        others = [f"It waits for {' or '.join(wanted)}."] if wanted else []
        return undo + " ".join([*others, *retried])
    texts = [f"{attempts[None].text(now)}."] if None in attempts else []
    texts += [blocker.text for blocker in blockers[:1] if blocker.text not in texts]
    return undo + (" ".join(texts) or f"It is {row.status}.")


def _said_by_handler(row: WhyInstance) -> str:
    """The details of the last heartbeat of the handler of a task, and the reason of its pause."""
    if row.task_state is None or row.status in TERMINAL:
        return ""
    state = json.load(row.task_state)
    pause = state.get("paused") if row.status == "runnable" and isinstance(state, dict) else None
    paused = "" if pause is None else f" Its handler paused: {pause}."
    return paused + ("" if row.progress is None else f" Its last heartbeat said: {row.progress}.")


# -- what it waits for ------------------------------------------------------------------------------


async def _children(store: Store, waits: Sequence[OpenWait]) -> dict[str, list[UnfinishedChild]]:
    """The unfinished children, by the wait they belong to."""
    ids = [wait.id for wait in waits if WAIT_KINDS[wait.kind].has_children]
    found: dict[str, list[UnfinishedChild]] = {}
    if ids:
        for wait, *child in await store.read(reads.unfinished_children, waits=ids):
            found.setdefault(wait, []).append(UnfinishedChild(*child))
    return found


_TaskWaits = list[tuple[str, OpenWait]]  # with the name of the task


async def _waits_of_tasks(store: Store, row: WhyInstance) -> _TaskWaits:
    """The waits of the tasks of a job or a process; of any other instance nothing."""
    if row.lane not in INTERPRETED or row.task_state is not None or row.status in TERMINAL:
        return []
    low, high = run_events.task_range(row.id)
    found = await store.read(reads.open_waits_of_tasks, id=row.id, low=low, high=high, size=_MAX_SHOWN)
    return [(wait.task, OpenWait(*(getattr(wait, name) for name in OpenWait.__struct_fields__))) for wait in found]


async def _waiting_tasks(store: Store, row: WhyInstance, waits: _TaskWaits, now: int) -> list[Waiting]:
    questions = await _questions(store, [wait for _, wait in waits])
    explained = []
    for name, wait in waits:
        if _is_answered(wait, questions):
            continue
        one = _waiting(row, wait, [], questions.get(wait.name), None, now)
        task = f"task {name!r} waits for this"
        explained.append(replace(one, note=task if one.note is None else f"{task}: {one.note}"))
    return explained


async def _questions(store: Store, waits: Sequence[OpenWait]) -> dict[str | None, AwakeableRow]:
    ids = [wait.name for wait in waits if WAIT_KINDS[wait.kind].has_awakeable]
    return {asked.id: asked for asked in (await store.read(reads.read_awakeables, ids=ids) if ids else ())}


def _is_answered(wait: OpenWait, questions: Mapping[str | None, AwakeableRow]) -> bool:
    """Return True if this wait is for an awakeable that has its answer, which its instance has not read yet."""
    asked = questions.get(wait.name) if WAIT_KINDS[wait.kind].has_awakeable else None
    return asked is not None and asked.status != "PENDING"


def _is_deadline(row: WhyInstance, wait: OpenWait) -> bool:
    """Return True for the wait of a job for the end of its own time."""
    return row.lane == JOB and row.task_state is None and wait.place == DEADLINE


def _question(asked: AwakeableRow) -> str:
    """The question of an awakeable; it says so if an answer has to match a schema."""
    title = asked.title or ""
    if asked.schema is None:
        return title
    if title and title[-1] not in ".?!":
        title += "."
    return f"{title} The answer has to match a schema: {command_text('awakeable', 'show', asked.id)}".lstrip()


def _waiting(
    row: WhyInstance,
    wait: OpenWait,
    children: list[UnfinishedChild],
    asked: AwakeableRow | None,
    attempt: NextAttempt | None,
    now: int,
) -> Waiting:
    kind, armed, context = WAIT_KINDS[wait.kind], armed_wait(wait), WaitContext(_name(row), children)
    if asked is not None:
        context.question = _question(asked) or None
        context.example = None if asked.schema is None else example_answer(json.load(asked.schema))
    command, note = kind.wake_command(armed, context), kind.note(armed, context)
    if asked is not None and wait.deadline is not None and wait.deadline <= now:  # an answer would be refused
        command, note = None, f"its time is over: a worker, or `{command_text('timeout', 'check')}`, ends the wait"
    if _is_deadline(row, wait):
        note = "timeout_sec of the job: then its tasks are cancelled, and it fails"
    return Waiting(
        wait.kind,
        wait.name,
        armed.shown_key,
        wait.place,
        from_micros(wait.since),
        None if wait.deadline is None else from_micros(wait.deadline),
        None if command is None else command_text(*command),
        note if attempt is None else attempt.text(now),
    )


# -- what blocks it ---------------------------------------------------------------------------------


def _last_heard_of(worker: WorkerRow | None, now: int) -> str:
    """The age of the last news of a worker: one that was killed looks alive until its lease ends."""
    beat = heartbeat(worker, now) if worker is not None else None
    if beat is None:
        return ""
    if beat.overdue:
        return (
            f" The worker has not been heard of for {beat.ago:.0f} s and may be dead: if it is, others take over in "
            f"{beat.left:.0f} s."
        )
    return (
        f" The worker was last heard of {beat.ago:.0f} s ago; if it has died since, others take over in "
        f"{beat.left:.0f} s."
    )


async def _blockers(
    store: Store, row: WhyInstance, now: int, here: Container[str], attempt: NextAttempt | None
) -> list[Blocker]:
    if row.status in TERMINAL:
        return [await _finished(store, row)]
    if row.status == "held":
        text = "Its code does not fit what was committed. To try the same code again: "
        return [Blocker("held", text + command_text("instance", "retry", row.id))]
    workers = {worker.id: worker for worker in await store.read(reads.all_workers)}
    live = {worker.id: worker.definitions for worker in workers.values() if worker.until >= now}
    if row.status == "executing":
        owner = workers.get(row.lease_owner or "")
        where = f"worker {row.lease_owner}" if owner is None else name_of(owner)
        if row.lease_owner in live or not store.durable:
            text = f"Step {row.step!r} is running now, on {where}.{_last_heard_of(owner, now)}"
            return [Blocker("executing", text)]
        text = f"It was running on {where}, whose lease has expired; "
        return [Blocker("lease_lost", text + "any other worker reclaims it, and so does `hark timeout check`.")]
    able = [workers[id] for id, names in live.items() if f",{row.lane}," in f",{names},"]
    found = [] if row.status in PARKED else [await _blocked(store, row, now, able, attempt)]
    if not able and store.durable and row.lane not in here:
        what = (
            "No Hark worker is running" if row.lane in ON_EVERY_WORKER else f"No live worker has {what_runs(row.lane)}"
        )
        text = f"{what}: start one with `{how_to_run(row.lane)}`."
        found.insert(0, Blocker("no_worker", text))
        return [blocker for blocker in found if blocker.reason != "queued"]
    return found


async def _blockers_of_tasks(store: Store, row: WhyInstance, here: Container[str]) -> list[Blocker]:
    """The tasks of a job that could run and do not: no worker has what they need, or its code does not fit."""
    if row.lane != JOB or row.task_state is not None or row.status != "awaiting_children":
        return []
    found = await job_reporting.report(store, row.id, here)
    blockers = [
        Blocker("held" if task.is_held else "no_worker", f"Task {task.name!r}: {task.note}")
        for task in found.tasks
        if task.note is not None
    ]
    return blockers[:_MAX_SHOWN]


async def _finished(store: Store, row: WhyInstance) -> Blocker:
    if row.status == "failed":
        cause = (row.error or "").rstrip(".")
        run = None if row.task_state is None else json.load(row.task_state)["run"]  # a task runs again with its job
        again = f"Fix the cause, then run: {command_text('instance', 'retry', run or row.id)}"
        if run is not None:
            found = await store.read(reads.why_instance, id=run)
            if found and found[0].lane == JOB and found[0].status != "failed":  # it has regressed, or has not ended
                again = f"Its job goes on, or has ended since: {command_text('instance', 'why', run)}"
        text = f"It has failed: {cause}. {again}"
    elif row.status == "cancelled":
        given = row.error not in (None, "cancelled")  # kernel/cancel.py stores "cancelled" if no reason is given
        text = f"It was cancelled: {(row.error or '').rstrip('.')}." if given else "It was cancelled without a reason."
    else:
        text = "It is done; it waits for nothing any more."
    return Blocker("finished", text)


async def _blocked(
    store: Store, row: WhyInstance, now: int, able: Sequence[WorkerRow], attempt: NextAttempt | None
) -> Blocker:
    if row.due_at is not None:
        text = "It is delayed." if attempt is None else f"{attempt.text(now)}."
        return Blocker("delayed", text, from_micros(row.due_at))
    if row.blocked_on is None:
        if able and row.queue != ENGINE_QUEUE and not any(serves(worker, row.queue) for worker in able):
            text = f"It is in queue {row.queue!r}, which no worker with its code serves: start one with "
            return Blocker("queued", f"{text}`hark worker --queue {row.queue}=10 --app module:app`.")
        text = f"It waits for a free slot in queue {row.queue!r}; workers with its code: {len(able)}."
        return Blocker("queued", text)
    kind, _, key = row.blocked_on.partition(":")
    [[due]] = await store.read(reads.bucket_due, kind=kind, key=key)
    until = None if due is None or due < now else from_micros(due)
    if kind == "rate":
        return Blocker("rate_limit", f"It waits for tokens of the rate limit {key!r}.", until)
    held = [f"{id} (step {step!r})" for id, step, _ in await store.read(reads.slot_holders, key=key)]
    text = f"It waits for the concurrency key {key!r}, held by {', '.join(held) or 'no instance any more'}."
    return Blocker("concurrency", text, until)


# -- what almost woke it ----------------------------------------------------------------------------


async def _misses(store: Store, row: WhyInstance, waits: Sequence[OpenWait]) -> list[NearMiss]:
    asked: set[tuple[str, str]] = {(wait.kind, wait.name) for wait in waits if wait.name is not None}
    names = sorted({name for _, name in asked})
    keys = {key for wait in waits if (key := armed_wait(wait).shown_key) is not None}
    # A wait of a task receives the signals of its run, whose id is its key.
    runs = {wait.key for wait in waits if wait.kind == "signal" and wait.key is not None}
    mine = {row.id, *keys, *runs} | ({row.key} if row.key is not None else set())
    found = [*await _inbox(store, row, asked)]
    for miss in await store.read(reads.misses_of, targets=sorted(mine), id=row.id):
        found += _own(row, asked, keys, miss)
    if names:
        found += await _elsewhere(store, row, asked, names, mine, runs)
    return _grouped(found)


def _grouped(found: Iterable[NearMiss]) -> list[NearMiss]:
    """The near misses, one for all of the same reason, kind, name and target, with their number; the latest first."""
    groups: dict[tuple[str, ...], NearMiss] = {}
    for miss in sorted(found, key=lambda miss: miss.at, reverse=True):
        group = (miss.reason, miss.kind, miss.name, miss.target)
        first = groups.get(group)
        groups[group] = miss if first is None else replace(first, count=first.count + 1)
    return list(groups.values())[:_MAX_SHOWN]


async def _inbox(store: Store, row: WhyInstance, asked: set[tuple[str, str]]) -> list[NearMiss]:
    """Signals in its inbox that it does not wait for: another name, or the right name with another kind."""
    if not asked:
        return []
    found = []
    for kind, name, at in await store.read(reads.unconsumed_signals, id=row.id):
        if (kind, name) in asked or not KINDS[kind].sent:
            continue
        wanted = sorted(other for other, same in asked if same == name)
        if wanted:
            text = f"{kind} {name!r} is in its inbox, but it waits for {_article(wanted[0])} of that name."
            found.append(NearMiss("other_kind", kind, name, _name(row), from_micros(at), text))
        else:
            text = f"{kind} {name!r} is in its inbox, but it does not wait for that now; it stays there for later."
            found.append(NearMiss("other_name", kind, name, _name(row), from_micros(at), text))
    return found


def _own(row: WhyInstance, asked: set[tuple[str, str]], keys: set[str], miss: Miss) -> list[NearMiss]:
    """Signals that were sent to it and not stored: refused, too early, too late, twice, or a message it did not wait
    for yet."""
    kind, name, target, at = miss.kind, miss.name, miss.target, from_micros(miss.at)
    if miss.reason == "refused":
        text = f"{kind} {name!r} for {target!r} was refused: {miss.detail}."
        return [NearMiss("refused", kind, name, target, at, text)]
    if miss.reason == "duplicate" and miss.instance_id == row.id:
        text = f"{kind} {name!r} was sent again with the same dedup key; it counts once."
        return [NearMiss("duplicate", kind, name, target, at, text)]
    if miss.reason == "finished" and miss.instance_id == row.id:
        text = f"{kind} {name!r} for {target!r} was sent after the instance had finished."
        return [NearMiss("too_late", kind, name, target, at, text)]
    if kind == "message" and target in keys and (kind, name) not in asked:
        text = f"message {name!r} was sent with its key {target!r}, but it waits for another name."
        return [NearMiss("other_name", kind, name, target, at, text)]
    early = miss.reason != "duplicate" and miss.at <= row.created_at
    if early or kind == "message":
        before = "it was started" if early else "it waited for it"
        text = f"{kind} {name!r} for {target!r} was sent before {before}; send it again."
        return [NearMiss("too_early", kind, name, target, at, text)]
    return []


async def _elsewhere(
    store: Store, row: WhyInstance, asked: set[tuple[str, str]], names: list[str], mine: set[str], runs: set[str]
) -> list[NearMiss]:
    """The right name, sent to another target or as a broadcast."""
    found = []
    for miss in await store.read(reads.misses_named, names=names, since=row.created_at):
        kind, name, target = miss.kind, miss.name, miss.target
        if target not in mine and miss.instance_id != row.id and (kind, name) in asked:
            text = (
                f"{kind} {name!r} was sent to {target!r}, and no instance received it. Was it meant for {_name(row)!r}?"
            )
            found.append(NearMiss("other_target", kind, name, target, from_micros(miss.at), text))
    if any(kind == "signal" for kind, _ in asked):
        for name, at, id, key, taken in await store.read(
            reads.signals_to_others, names=names, id=row.id, since=row.created_at
        ):
            taken_text = "which took it" if taken is not None else "which has not taken it"
            text = f"signal {name!r} was sent to {key or id}, {taken_text}. This instance is {_name(row)!r}."
            of_run = any(run_events.is_part(id, run) for run in runs)  # another wait of the run has received it
            if ("signal", name) in asked and not of_run:
                found.append(NearMiss("other_target", "signal", name, key or id, from_micros(at), text))
    for name, at, count in await store.read(reads.broadcasts_named, names=names, since=row.created_at):
        if ("broadcast", name) in asked:
            text = f"broadcast {name!r} reached {count} subscribers before it subscribed; broadcasts are not stored."
            found.append(NearMiss("too_early", "broadcast", name, "*", from_micros(at), text))
        else:
            wanted = sorted(kind for kind, same in asked if same == name)
            text = (
                f"broadcast {name!r} reached {count} subscribers, but it waits for {_article(wanted[0])} of that name."
            )
            found.append(NearMiss("other_kind", "broadcast", name, "*", from_micros(at), text))
    return found


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
