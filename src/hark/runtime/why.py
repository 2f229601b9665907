"""Why an instance is where it is (D7): what it waits for, what would wake it, what is in its way, what almost did.

Reads only, beside the turns, and a constant number of statements. Near misses come from four places: its own
inbox (came, and is not what it waits for), `misses` (reached nobody), the latest signals of others and the
broadcasts since it was started. The commands named here are those of doors/cli.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hark.kernel.wait_kinds import WAIT_KINDS, UnfinishedChild, WaitContext
from hark.model.activation import WaitRow
from hark.model.names import from_micros
from hark.model.values import PARKED, TERMINAL, Blocker, NearMiss, Waiting, Why
from hark.runtime import views
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store

_MOST = 20


class _Row:
    """The instance as it is in the store, times in µs."""

    def __init__(self, row: Sequence[Any]) -> None:
        (
            self.id, self.definition, self.version, self.status, self.step, self.key, self.holds_key, self.queue,
            self.since, self.due_at, self.blocked_on, self.lease_owner, self.created_at, self.updated_at,
            self.finished_at, self.error,
        ) = row  # fmt: skip

    @property
    def name(self) -> str:
        """How people would address it."""
        return str(self.key) if self.key is not None and self.holds_key else str(self.id)


async def explain(store: Store, target: str, here: Sequence[tuple[str, int]]) -> Why:
    """`here`: what a worker of this process can run, which the store may not have heard of yet."""
    id = await views.find(store, target)
    for found in await store.read(reads.why_instance, id=id):
        row = _Row(found)
        break
    else:
        raise views.not_found(target)
    now = await store.time()
    parked = row.status in PARKED
    armed = await _open_waits(store, id) if parked else []
    waits = [wait for wait, _ in armed]
    children, questions = await _children(store, waits), await _questions(store, waits)
    waiting = tuple(_waiting(row, wait, since, children, questions) for wait, since in armed)
    blockers = tuple(await _obstacles(store, row, now, here))
    since = min((since for _, since in armed), default=None) or _since(row)
    return Why(
        row.id, row.definition, row.version, row.status, row.step, row.key, from_micros(since),
        _summary(row, waits, blockers), waiting, blockers, tuple(await _misses(store, row, waits)),
    )  # fmt: skip


def _since(row: _Row) -> int:
    return int(row.finished_at or (row.since if row.status == "runnable" else row.updated_at))


def _summary(row: _Row, waits: Sequence[WaitRow], blockers: Sequence[Blocker]) -> str:
    if waits:
        wanted = dict.fromkeys(WAIT_KINDS[wait.kind].describe(wait) for wait in waits)
        return f"It waits for {' or '.join(wanted)}."
    return blockers[0].text if blockers else f"It is {row.status}."


# -- what it waits for ------------------------------------------------------------------------------


async def _open_waits(store: Store, id: str) -> list[tuple[WaitRow, int]]:
    """The waits that have neither been answered nor timed out, and since when they are armed."""
    return [
        (WaitRow(wait, place, kind, name, key, deadline, remaining, fired_at), since)
        for wait, _, place, kind, name, key, deadline, remaining, since, fired_at in await store.read(
            sql.waits_of, ids=[id]
        )
        if fired_at is None
    ]


async def _children(store: Store, waits: Sequence[WaitRow]) -> dict[str, list[UnfinishedChild]]:
    """The unfinished children of each wait."""
    ids = [wait.id for wait in waits if WAIT_KINDS[wait.kind].has_children]
    found: dict[str, list[UnfinishedChild]] = {}
    if ids:
        for wait, id, status, step in await store.read(reads.unfinished_children, waits=ids):
            found.setdefault(wait, []).append(UnfinishedChild(id, status, step))
    return found


async def _questions(store: Store, waits: Sequence[WaitRow]) -> dict[str, str]:
    """What the awakeables ask, and that an answer has to fit."""
    ids = [wait.name for wait in waits if WAIT_KINDS[wait.kind].has_awakeable]
    notes = {}
    for found in await store.read(reads.read_awakeables, ids=ids) if ids else ():
        id, title, schema = found[0], found[10], found[12]
        fit = f"the answer has to fit a schema: {_command('awakeable', 'show', id)}" if schema is not None else None
        notes[id] = "; ".join(part for part in (title, fit) if part)
    return notes


def _waiting(
    row: _Row,
    wait: WaitRow,
    since: int,
    children: dict[str, list[UnfinishedChild]],
    questions: dict[str, str],
) -> Waiting:
    kind = WAIT_KINDS[wait.kind]
    context = WaitContext(row.name, children.get(wait.id, []), questions.get(wait.name or "") or None)
    command = kind.wake_command(wait, context)
    return Waiting(
        wait.kind,
        wait.name,
        wait.key,
        wait.place,
        from_micros(since),
        None if wait.deadline is None else from_micros(wait.deadline),
        None if command is None else _command(*command),
        kind.note(wait, context),
    )


def _command(*words: str) -> str:
    return " ".join(["hark", *map(shlex.quote, words)])


# -- what is in its way -----------------------------------------------------------------------------


async def _obstacles(store: Store, row: _Row, now: int, here: Sequence[tuple[str, int]]) -> list[Blocker]:
    if row.status in TERMINAL:
        return [_finished(row)]
    live = {id: names for id, names in await store.read(reads.live_workers, now=now)}
    if row.status == "executing":
        if row.lease_owner in live or not store.durable:
            return [Blocker("executing", f"Step {row.step!r} is running now, on worker {row.lease_owner}.")]
        text = f"It was running on worker {row.lease_owner}, which is gone; "
        return [Blocker("lease_lost", text + "any other worker takes it over, and so does `hark timeout check`.")]
    able = [id for id, names in live.items() if f",{row.definition}@{row.version}," in f",{names},"]
    found = [] if row.status in PARKED else [await _blocked(store, row, now, len(able))]
    if not able and store.durable and (row.definition, row.version) not in here:
        text = f"No worker that is alive has the code of {row.definition} version {row.version}: start one with "
        found.insert(0, Blocker("no_worker", text + "`hark worker --app module:app`."))
        return [blocker for blocker in found if blocker.reason != "in_line"]
    return found


def _finished(row: _Row) -> Blocker:
    if row.status == "failed":
        text = f"It has failed: {row.error}. When the cause is mended: {_command('instance', 'retry', row.id)}"
    elif row.status == "cancelled":
        text = f"It was cancelled: {row.error or 'no reason was given'}."
    else:
        text = "It is done; there is nothing left to wait for."
    return Blocker("finished", text)


async def _blocked(store: Store, row: _Row, now: int, able: int) -> Blocker:
    if row.due_at is not None:
        return Blocker("delayed", "It is not to run before its time.", from_micros(row.due_at))
    if row.blocked_on is None:
        return Blocker("in_line", f"It can run, and is in line in queue {row.queue!r}; workers with its code: {able}.")
    kind, _, key = row.blocked_on.partition(":")
    due = (await store.read(reads.bucket_due, kind=kind, key=key))[0][0]
    until = None if due is None or due < now else from_micros(due)
    if kind == "rate":
        return Blocker("rate_limit", f"It is in line for tokens of the rate limit {key!r}.", until)
    held = [f"{id} (step {step!r})" for id, step, _ in await store.read(reads.slot_holders, key=key)]
    text = f"It is in line for the concurrency key {key!r}, held by {', '.join(held) or 'nobody any more'}."
    return Blocker("concurrency", text, until)


# -- what almost woke it ----------------------------------------------------------------------------


async def _misses(store: Store, row: _Row, waits: Sequence[WaitRow]) -> list[NearMiss]:
    asked: set[tuple[str, str]] = {(wait.kind, wait.name) for wait in waits if wait.name is not None}
    names = sorted({name for _, name in asked})
    keys = {wait.key for wait in waits if wait.key is not None}
    mine = {row.id, *keys} | ({row.key} if row.key is not None else set())
    found = [*await _inbox(store, row, asked)]
    for miss in await store.read(reads.misses_of, targets=sorted(mine), id=row.id):
        found += _own(row, asked, keys, miss)
    if names:
        found += await _elsewhere(store, row, asked, names, mine)
    return _grouped(found)


def _grouped(found: Iterable[NearMiss]) -> list[NearMiss]:
    """Alike ones once, with their number; the latest first."""
    groups: dict[tuple[str, ...], NearMiss] = {}
    for miss in sorted(found, key=lambda miss: miss.at, reverse=True):
        like = (miss.reason, miss.kind, miss.name, miss.target)
        first = groups.get(like)
        groups[like] = miss if first is None else replace(first, count=first.count + 1)
    return list(groups.values())[:_MOST]


async def _inbox(store: Store, row: _Row, asked: set[tuple[str, str]]) -> list[NearMiss]:
    """It is there, and it is not what is waited for: another name, or the right name the wrong way."""
    if not asked:
        return []
    found = []
    for kind, name, at in await store.read(reads.unconsumed_signals, id=row.id):
        if (kind, name) in asked or kind not in ("signal", "broadcast", "message"):
            continue
        wanted = sorted(other for other, same in asked if same == name)
        if wanted:
            text = f"{kind} {name!r} is in its inbox, but it waits for {_article(wanted[0])} of that name."
            found.append(NearMiss("other_kind", kind, name, row.name, from_micros(at), text))
        else:
            text = f"{kind} {name!r} is in its inbox, but that is not what it waits for now; it stays for later."
            found.append(NearMiss("other_name", kind, name, row.name, from_micros(at), text))
    return found


def _own(row: _Row, asked: set[tuple[str, str]], keys: set[str], miss: Sequence[Any]) -> list[NearMiss]:
    """Addressed to it, and it left no row: too early, too late, twice, or a message nobody had asked for yet."""
    _, at, kind, target, name, reason, instance = miss
    when = from_micros(at)
    if reason == "duplicate" and instance == row.id:
        text = f"{kind} {name!r} came again with a dedup key it had seen; it counts once."
        return [NearMiss("duplicate", kind, name, target, when, text)]
    if reason == "finished" and instance == row.id:
        return [NearMiss("too_late", kind, name, target, when, f"{kind} {name!r} came after its end, for {target!r}.")]
    if kind == "message" and target in keys and (kind, name) not in asked:
        text = f"message {name!r} came with its key {target!r}; it waits for another name."
        return [NearMiss("other_name", kind, name, target, when, text)]
    early = reason != "duplicate" and at <= row.created_at
    if early or kind == "message":
        text = (
            f"{kind} {name!r} for {target!r} came before it {'was there' if early else 'waited for it'}; send it again."
        )
        return [NearMiss("too_early", kind, name, target, when, text)]
    return []


async def _elsewhere(
    store: Store, row: _Row, asked: set[tuple[str, str]], names: list[str], mine: set[str]
) -> list[NearMiss]:
    """The right name, to somebody else, or to everybody."""
    found = []
    for _, at, kind, target, name, _, instance in await store.read(
        reads.misses_named, names=names, since=row.created_at
    ):
        if target not in mine and instance != row.id and (kind, name) in asked:
            text = f"{kind} {name!r} was sent to {target!r}, and reached nobody. Was it meant for {row.name!r}?"
            found.append(NearMiss("other_target", kind, name, target, from_micros(at), text))
    if any(kind == "signal" for kind, _ in asked):
        for name, at, id, key, taken in await store.read(
            reads.signals_to_others, names=names, id=row.id, since=row.created_at
        ):
            fate = "which took it" if taken is not None else "where it has not been taken"
            text = f"signal {name!r} went to {key or id}, {fate}. It waits under {row.name!r}."
            if ("signal", name) in asked:
                found.append(NearMiss("other_target", "signal", name, key or id, from_micros(at), text))
    for name, at, count in await store.read(reads.broadcasts_named, names=names, since=row.created_at):
        if ("broadcast", name) in asked:
            text = f"broadcast {name!r} reached {count}, before it waited for it; broadcasts are not kept for later."
            found.append(NearMiss("too_early", "broadcast", name, "*", from_micros(at), text))
        else:
            wanted = sorted(kind for kind, same in asked if same == name)
            text = f"broadcast {name!r} reached {count}, but it waits for {_article(wanted[0])} of that name."
            found.append(NearMiss("other_kind", "broadcast", name, "*", from_micros(at), text))
    return found


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "awakeable" else f"a {kind}"
