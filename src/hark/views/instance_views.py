"""Turn rows of the store into the values that callers get. Reads only, on the store's read connections."""

from __future__ import annotations

import builtins
import typing
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import Any

from hark.model import json
from hark.model.bpmn_state import control_wait
from hark.model.errors import NotFound, no_instance
from hark.model.links import Keys
from hark.model.names import from_micros, moment
from hark.model.page import Page
from hark.model.values import PARKED, Awakeable, Event, Instance, Token, Wait, WaitKind
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store
from hark.views import listing, run_events
from hark.views.event_rows import event, is_cut

_ALL = 2**63 - 1
_PAGE = 1000
_CLOCK_CHANGE = 86_400_000_000  # µs: the clock may have been set while an instance lived
_KINDS = typing.get_args(WaitKind)


def _time(at: int | None) -> Any:
    return None if at is None else from_micros(at)


def _value(text: str | None) -> Any:
    return None if text is None else json.load(text)


# -- instances -------------------------------------------------------------------------------------


def _instance(row: reads.InstanceRow, waits: Sequence[Wait], state: Any) -> Instance:
    return Instance(
        row.id, row.definition, row.kind, row.version, row.step, row.status, state, _value(row.result),
        row.error, row.traceback, row.attempt, row.queue, row.correlation_key, row.parent_id,
        from_micros(row.created_at), _time(row.finished_at), tuple(waits), row.cancel_reason, _value(row.progress),
        _value(row.tags) or {}, row.forked_from,
    )  # fmt: skip


async def find(store: Store, target: str) -> str:
    """The id of the instance that a target means: an id, or a correlation key."""
    found = next((str(id) for _, id in await store.read(sql.addresses, [(target,)]) if id is not None), None)
    if found is None:
        raise no_instance(target)
    return found


async def instances(store: Store, ids: Sequence[str]) -> dict[str, Instance]:
    """Instances by id; those that do not exist are left out."""
    rows = await store.read(reads.read_instances, ids=list(ids))
    parked = [row.id for row in rows if row.status in PARKED or row.status == "held"]
    waits: dict[str, builtins.list[Wait]] = {}
    if parked:
        for wait in await store.read(reads.open_waits_of, ids=parked):
            waits.setdefault(wait.instance_id, []).append(_wait(wait))
        for row in rows:  # the wait of a process for its children is always open
            if row.kind == "bpmn" and row.status == "awaiting_signal":
                waits[row.id] = [wait for wait in waits.get(row.id, ()) if wait.kind != "children"]
    jobs = [row for row in rows if row.kind == "job"]
    states = await _states_of_jobs(store, jobs) if jobs else {}
    if processes := [row for row in rows if row.kind == "bpmn"]:
        states |= _states_of_bpmn(processes)
    return {
        row.id: _instance(row, waits.get(row.id, ()), states[row.id] if row.id in states else _value(row.state))
        for row in rows
    }


async def _states_of_jobs(store: Store, rows: Sequence[reads.InstanceRow]) -> dict[str, Any]:
    from hark.views.job_view import job_states  # only processes with jobs need it

    return await job_states(store, rows)


def _states_of_bpmn(rows: Sequence[reads.InstanceRow]) -> dict[str, Any]:
    from hark.views.bpmn_view import bpmn_states  # only programs with processes need it

    return bpmn_states(rows)


async def get(store: Store, target: str) -> Instance:
    """Read an instance. `NotFound` when no instance has this id or key."""
    id = await find(store, target)
    found = await instances(store, [id])
    if id not in found:
        raise no_instance(target)  # removed by retention since its id was read
    return found[id]


async def instance_page(store: Store, filters: listing.Filters, limit: int, after: str | None) -> Page[Instance]:
    """Instances, newest first, after the one with the id `after`."""
    ids, more = await listing.page(store, filters, limit, after)
    found = await instances(store, ids)
    return Page((found[id] for id in ids if id in found), ids[-1] if more else None)


# -- waits -----------------------------------------------------------------------------------------


def _wait(row: reads.OpenWait) -> Wait:
    return Wait(row.instance_id, row.kind, row.name, row.place, _time(row.deadline), from_micros(row.since))


async def waits(
    store: Store, name: str | None, kind: str | None, limit: int | None, after: tuple[int, str]
) -> Page[Wait]:
    """Open waits, longest first, behind the one of this time and id."""
    kinds = [(one,) for one in (_KINDS if kind is None else (kind,))]
    since, last = after
    size = _ALL if limit is None else limit
    rows = await store.read(reads.read_waits, kinds, name=name, size=size, since=since, after=last)
    idle = await _idle(store, rows)
    next = f"{rows[-1].since}-{rows[-1].id}" if len(rows) == size else None
    return Page((_wait(row) for row in rows if row.id not in idle), next)


async def oldest_wait(store: Store) -> Wait | None:
    """The longest open wait. One for children only if there is no other: what the children wait for says more."""
    for kinds in ([(one,) for one in _KINDS if one != "children"], [("children",)]):
        if rows := await store.read(reads.read_waits, kinds, name=None, size=1, since=-1, after=""):
            return _wait(rows[0])
    return None


async def _idle(store: Store, rows: Sequence[reads.OpenWait]) -> set[str]:
    """The waits for children that processes keep open while they have none: they are not shown."""
    kept = [row for row in rows if row.kind == "children" and row.id == control_wait(row.instance_id)]
    if not kept:
        return set()
    status: dict[str, str] = dict(await store.read(reads.statuses, ids=[row.instance_id for row in kept]))
    return {row.id for row in kept if status.get(row.instance_id) == "awaiting_signal"}


# -- events ----------------------------------------------------------------------------------------


async def events(store: Store, target: str | None, limit: int, before: tuple[int, int] = (_ALL, _ALL)) -> Page[Event]:
    """The latest events of one instance or of all, newest last, before a cursor. Those of a job include those of its
    tasks. The `next` of the page goes back in time."""
    tx, seq = before
    if target is None:
        rows = await store.read(reads.latest_events, size=limit + 1, tx=tx, seq=seq, bytes=listing.MAX_BYTES)
    else:
        id = await find(store, target)
        if await run_events.is_run(store, id):
            rows = list(await run_events.latest(store, id, limit + 1, before))
        else:
            rows = await store.read(reads.events_of, id=id, size=limit + 1, seq=seq, bytes=listing.MAX_BYTES)
    found = Page(event(row) for row in reversed(rows[:limit]))
    if len(rows) > limit or is_cut(rows):
        found.next = f"~{_text_of(found[0].cursor)}"
    return found


async def events_after(store: Store, cursor: tuple[int, int], limit: int) -> Page[Event]:
    """The events of all instances after a cursor, oldest first; none is ever skipped (invariant 17)."""
    [[horizon]] = await store.read(reads.horizon)
    tx, seq = cursor
    rows = await store.read(
        reads.events_after, tx=tx, seq=seq, size=limit + 1, horizon=horizon, bytes=listing.MAX_BYTES
    )
    return _forward([event(row) for row in rows[:limit]], more=len(rows) > limit or is_cut(rows))


async def history(store: Store, target: str | None, after: tuple[int, int], limit: int) -> Page[Event]:
    """The events of one instance or of all after a cursor, oldest first; those of a job include those of its tasks."""
    if target is None:
        return await events_after(store, after, limit)
    id = await find(store, target)
    if await run_events.is_run(store, id):
        found, _, more = await run_events.page(store, id, after, limit)
        return _forward(found, more=more)
    rows = await store.read(reads.follow, [(id, after[1])], size=limit + 1, bytes=listing.MAX_BYTES)
    return _forward([event(row) for row in rows[:limit]], more=len(rows) > limit or is_cut(rows))


def _forward(found: builtins.list[Event], *, more: bool) -> Page[Event]:
    """Events, oldest first, as a page whose `next` goes forward in time."""
    return Page(found, _text_of(found[-1].cursor) if more else None)


def _text_of(cursor: tuple[int, int]) -> str:
    return f"{cursor[0]}.{cursor[1]}"


async def follow(store: Store, positions: dict[str, int], limit: int) -> tuple[builtins.list[Event], builtins.set[str]]:
    """The events of each instance after its seq, and the instances that were finished before these were read: they have
    no more events than these."""
    unfinished = {id for (id,) in await store.read(reads.unfinished, ids=list(positions))}
    rows = await store.read(reads.follow, list(positions.items()), size=limit, bytes=listing.MAX_BYTES)
    return [event(row) for row in rows], set() if is_cut(rows) else positions.keys() - unfinished


# -- retention -------------------------------------------------------------------------------------


_OTHERS, _FAILED, _TASKS = 0, 1, 2  # the sorts of `finished_before`


async def expirable(store: Store, before: int, failed_before: int, *, tasks: bool) -> AsyncIterator[builtins.list[str]]:
    """The ids that retention may remove, in pages. With `tasks` also tasks, at the end, when their jobs are removed."""
    for sort in (_FAILED, _OTHERS, _TASKS) if tasks else (_FAILED, _OTHERS):
        async for page in _finished(store, before, failed_before, sort):
            yield [id for _, id in page]


async def oldest(store: Store, before: int, limit: int) -> builtins.list[str]:
    """The ids of those that finished first, whatever they are."""
    found: builtins.list[tuple[int, str]] = []
    for sort in (_FAILED, _OTHERS, _TASKS):
        count = 0
        async for page in _finished(store, before, before, sort):
            found += page
            count += len(page)
            if count >= limit:
                break
    return [id for _, id in sorted(found)[:limit]]


async def _finished(
    store: Store, before: int, failed_before: int, sort: int
) -> AsyncIterator[builtins.list[tuple[int, str]]]:
    """Times and ids of those that may be removed, oldest first, in pages; a page also counts those that must stay."""
    at, last = 0, ""
    while True:
        page = await store.read(
            sql.finished_before, before=before, failed_before=failed_before, sort=sort, at=at, after=last, size=_PAGE
        )
        yield [(finished_at, id) for id, finished_at, removable in page if removable]
        if len(page) < _PAGE:
            return
        last, at, _ = page[-1]


async def export(store: Store, before: int, limit: int) -> builtins.list[dict[str, Any]]:
    """The instances that retention would remove next, with all their events and signals, as values for JSON."""
    ids = await oldest(store, before, limit)
    found = await instances(store, ids)
    histories = {id: {**asdict(found[id]), "events": [], "signals": []} for id in ids if id in found}
    for row in await store.read(reads.events_of_all, ids=list(histories)):
        shown = asdict(event(row))
        del shown["instance_id"], shown["cursor"]
        histories[row.instance_id]["events"].append(shown)
    since = moment(min((found[id].created_at for id in histories), default=from_micros(0)), "since")
    for id, kind, name, payload, dedup_key, at, consumed_at in await store.read(
        reads.signals_of_all, ids=list(histories), since=since - _CLOCK_CHANGE, before=before + _CLOCK_CHANGE
    ):
        histories[id]["signals"].append(
            {"kind": kind, "name": name, "payload": _value(payload), "dedup_key": dedup_key, "at": from_micros(at),
             "consumed_at": _time(consumed_at)}
        )  # fmt: skip
    return list(histories.values())


# -- awakeables ------------------------------------------------------------------------------------

Link = Callable[[str, str, int | None, int], str]
"""Makes the link to an awakeable from its id, its nonce, when it times out and when it was created."""


async def awakeable_page(
    store: Store, link: Link, job: str | None, status: str | None, limit: int, after: str | None
) -> Page[Awakeable]:
    """Awakeables, newest first, after the one with the id `after`; `job` is the instance that asked, by id or key."""
    at, instance, entry = _ALL, "", 0
    if after is not None:
        last = await store.read(reads.read_awakeables, ids=[after])
        if not last:
            raise listing.no_position(after)
        at, instance, entry = last[0].created_at, last[0].instance_id, last[0].entry_index
    place: dict[str, Any] = {"status": status, "at": at, "instance": instance, "entry": entry, "size": limit + 1}
    if job is None:
        found = await store.read(reads.list_awakeables, **place)
    else:
        found = await store.read(reads.list_awakeables_of, job=await find(store, job), **place)
    ids = [row.id for row in listing.fitting(found[:limit], lambda row: row.bytes)]
    rows = {row.id: row for row in await store.read(reads.read_awakeables, ids=ids)} if ids else {}
    return Page((awakeable(rows[id], link) for id in ids if id in rows), ids[-1] if len(found) > len(ids) else None)


def awakeable(row: sql.AwakeableRow, link: Link) -> Awakeable:
    return Awakeable(
        row.id, row.instance_id, row.task, row.entry_index, row.status, _value(row.payload), row.error,
        _time(row.timeout_at), from_micros(row.created_at), _time(row.resolved_at), row.title, row.description,
        _value(row.schema), tuple(_value(row.assignees) or ()), row.answered_by,
        _sign_later(link, row), tuple(_value(row.groups) or ()), row.claimed_by,
        _time(row.due_at),
    )  # fmt: skip


def _sign_later(link: Link, row: sql.AwakeableRow) -> Any:
    """The link to an awakeable, made when it is read: a signature costs as much as all other fields together."""
    return lambda: link(row.id, row.nonce, row.timeout_at, row.created_at)


async def linked(store: Store, link: Link, keys: Keys, id: str, token: str, now: int) -> Awakeable:
    """The awakeable behind a link. Every link that is not valid raises the same error, after the same work."""
    found = await store.read(reads.read_awakeables, ids=[id])
    row = found[0] if found else None
    nonce, created_at = (row.nonce, row.created_at) if row is not None else ("", 0)
    expiry = keys.verify(token, id, nonce, created_at)
    # Never longer than the awakeable itself: one that a replay created again counts its time from then.
    timed_out = row is not None and row.timeout_at is not None and now >= row.timeout_at
    if row is None or expiry is None or now >= expiry or timed_out:
        raise NotFound("This link does not work: it is incomplete, or no longer valid. Ask for a new one.")
    return awakeable(row, link)


# -- tokens ----------------------------------------------------------------------------------------


def token(row: sql.TokenRow, secret: str | None = None) -> Token:
    return Token(
        row.id, row.name, tuple(_value(row.scopes)), from_micros(row.created_at), _time(row.expires_at),
        _time(row.revoked_at), secret,
    )  # fmt: skip


async def tokens(store: Store) -> Page[Token]:
    """All tokens, oldest first, also expired and revoked ones."""
    return Page(token(row) for row in await store.read(sql.read_tokens))


async def live_tokens(store: Store, hashes: Sequence[str], now: int) -> dict[str, Token]:
    """The tokens of these hashes that are valid now, by hash."""
    return {row.hash: token(row) for row in await store.read(sql.live_tokens, hashes=list(hashes), now=now)}
