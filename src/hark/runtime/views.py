"""Reading: rows of the store as the values people see. Runs beside the turns, on read connections."""

from __future__ import annotations

import builtins
import typing
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import Any

from hark.model import json
from hark.model.errors import NotFound
from hark.model.links import Keys
from hark.model.names import from_micros, moment
from hark.model.values import Awakeable, Event, Instance, Status, Token, Wait, WaitKind
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store
from hark.store.sql import Sql

_ALL = 2**63 - 1
_PAGE = 1000
_SET_BACK = 86_400_000_000  # µs: the clock may have been set while they lived
_KINDS = typing.get_args(WaitKind)
_STATUSES = typing.get_args(Status)


def _time(at: int | None) -> Any:
    return None if at is None else from_micros(at)


def _value(text: str | None) -> Any:
    return None if text is None else json.load(text)


def _wait(row: Sequence[Any]) -> Wait:
    instance_id, kind, name, place, deadline, since = row[:6]
    return Wait(instance_id, kind, name, place, _time(deadline), from_micros(since))


def _instance(row: Sequence[Any], waits: Sequence[Wait] = ()) -> Instance:
    (
        id,
        definition,
        kind,
        version,
        step,
        status,
        state,
        result,
        error,
        attempt,
        queue,
        key,
        parent,
        created,
        finished,
    ) = row[:15]
    return Instance(
        id, definition, kind, version, step, status, _value(state), _value(result), error, attempt, queue, key, parent,
        from_micros(created), _time(finished), tuple(waits),
    )  # fmt: skip


async def _address(store: Store, target: str) -> str | None:
    return next((str(id) for _, id in await store.read(sql.addresses, [(target,)]) if id is not None), None)


async def find(store: Store, target: str) -> str:
    """The id a target means."""
    id = await _address(store, target)
    if id is None:
        raise not_found(target)
    return id


def not_found(target: str) -> NotFound:
    return NotFound(f"There is no instance {target!r}. Check the id or key; finished ones go after retention.")


async def instances(store: Store, ids: Sequence[str]) -> dict[str, Instance]:
    rows = await store.read(reads.read_instances, ids=list(ids))
    parked = [row[0] for row in rows if row[5] in ("awaiting_signal", "awaiting_children")]
    waits: dict[str, builtins.list[Wait]] = {}
    if parked:
        for row in await store.read(sql.waits_of, ids=parked):
            if row[9] is None:
                waits.setdefault(row[1], []).append(_wait((row[1], row[3], row[4], row[2], row[6], row[8])))
    return {row[0]: _instance(row, waits.get(row[0], ())) for row in rows}


async def get(store: Store, target: str) -> Instance:
    id = await find(store, target)
    found = await instances(store, [id])
    if id not in found:
        raise NotFound(f"There is no instance {target!r} any more: retention removed it.")
    return found[id]


async def _place(store: Store, read: Sql[Any], created_at: int, after: str | None) -> tuple[int, str]:
    """Where a page begins: the time and the id of the last one seen."""
    if after is None:
        return _ALL, ""
    for row in await store.read(read, ids=[after]):
        return row[created_at], after
    raise NotFound(f"There is no {after!r} to go on after; retention took it. List from the beginning.")


async def _in_use(store: Store, kind: str | None) -> builtins.list[str]:
    """The definitions with instances, perhaps only those that can be of a kind."""
    names = [row[0] for row in await store.read(reads.definitions_in_use)]
    if kind is None:
        return names
    kinds: dict[str, builtins.set[str]] = {}
    for name, _, of, *_ in await store.read(sql.definitions):
        kinds.setdefault(name, builtins.set()).add(of)
    return [name for name in names if kind in kinds.get(name, (kind,))]  # a child nobody could start has no definition


async def listing(
    store: Store, status: str | None, definition: str | None, kind: str | None, limit: int, after: str | None
) -> builtins.list[Instance]:
    at, last = await _place(store, reads.read_instances, 13, after)
    names = [definition] if definition is not None else await _in_use(store, kind)
    lanes = [(name, one) for name in names for one in (_STATUSES if status is None else (status,))]
    rows = await store.read(reads.list_instances, lanes, kind=kind, at=at, after=last, size=limit)
    found = await instances(store, [row[0] for row in rows])
    return [found[row[0]] for row in rows if row[0] in found]


async def waits(
    store: Store, name: str | None, kind: str | None, limit: int = _ALL, after: tuple[int, str] = (-1, "")
) -> tuple[builtins.list[Wait], tuple[int, str] | None]:
    """What is open, longest first, and where a full page ended."""
    kinds = _KINDS if kind is None else (kind,)
    since, last = after
    rows = await store.read(reads.read_waits, [(one,) for one in kinds], name=name, size=limit, since=since, after=last)
    return [_wait(row) for row in rows], (rows[-1][5], rows[-1][6]) if len(rows) == limit else None


def _event(row: Sequence[Any]) -> Event:
    seq, instance_id, type, step, data, at, tx = row
    return Event(seq, instance_id, type, step, _value(data), from_micros(at), (tx, seq))


async def events(
    store: Store, target: str | None, limit: int, before: tuple[int, int] = (_ALL, _ALL)
) -> builtins.list[Event]:
    if target is None:
        rows = await store.read(reads.latest_events, size=limit, tx=before[0], seq=before[1])
    else:
        rows = await store.read(reads.events_of, id=await find(store, target), size=limit, seq=before[1])
    return [_event(row) for row in reversed(rows)]


async def events_after(store: Store, cursor: tuple[int, int], limit: int) -> builtins.list[Event]:
    [[horizon]] = await store.read(reads.horizon)
    rows = await store.read(reads.events_after, tx=cursor[0], seq=cursor[1], size=limit, horizon=horizon)
    return [_event(row) for row in rows]


async def follow(store: Store, places: dict[str, int], limit: int) -> tuple[builtins.list[Event], builtins.set[str]]:
    """The events of each instance after its seq, and who was over before we looked: of those there are no more."""
    living = {row[0] for row in await store.read(reads.unfinished, ids=list(places))}
    rows = await store.read(reads.follow, list(places.items()), size=limit)
    return [_event(row) for row in rows], places.keys() - living


async def expirable(store: Store, before: int) -> AsyncIterator[builtins.list[str]]:
    """Who can be forgotten, oldest first, a page at a time; those who must stay were on the page too."""
    at, last = 0, ""
    while True:
        page = await store.read(sql.finished_before, before=before, at=at, after=last, size=_PAGE)
        yield [id for id, _, free in page if free]
        if len(page) < _PAGE:
            return
        last, at, _ = page[-1]


async def oldest(store: Store, before: int, limit: int) -> builtins.list[str]:
    found: builtins.list[str] = []
    async for ids in expirable(store, before):
        found += ids
        if len(found) >= limit:
            break
    return found[:limit]


async def export(store: Store, before: int, limit: int) -> builtins.list[dict[str, Any]]:
    """What retention would remove next, with all that happened to it: plain values, ready to be written as JSON."""
    ids = await oldest(store, before, limit)
    found = await instances(store, ids)
    histories = {id: {**asdict(found[id]), "events": [], "signals": []} for id in ids if id in found}
    for row in await store.read(reads.events_of_all, ids=list(histories)):
        event = asdict(_event(row))
        del event["instance_id"], event["cursor"]
        histories[row[1]]["events"].append(event)
    since = min((found[id].created_at for id in histories), default=from_micros(0))
    for id, kind, name, payload, dedup_key, at, consumed_at in await store.read(
        reads.signals_of_all, ids=list(histories), since=moment(since, "since") - _SET_BACK, before=before + _SET_BACK
    ):
        histories[id]["signals"].append(
            {"kind": kind, "name": name, "payload": _value(payload), "dedup_key": dedup_key, "at": from_micros(at),
             "consumed_at": _time(consumed_at)}
        )  # fmt: skip
    return list(histories.values())


Link = Callable[[str, str, int | None, int], str]
"""The link to an awakeable, from its id, its nonce, when it times out and when it was asked."""


async def awakeables(
    store: Store, link: Link, *, id: str | None = None, job: str | None = None, status: str | None = None,
    limit: int = 100, after: str | None = None,
) -> builtins.list[Awakeable]:  # fmt: skip
    if id is not None:
        return [awakeable(row, link) for row in await store.read(reads.read_awakeables, ids=[id])]
    at, last = await _place(store, reads.read_awakeables, 8, after)
    if job is not None and (job := await _address(store, job)) is None:
        return []  # nobody: nobody asks
    rows = await store.read(reads.list_awakeables, job=job, status=status, size=limit, at=at, after=last)
    return [awakeable(row, link) for row in rows]


def awakeable(row: Sequence[Any], link: Link) -> Awakeable:
    (id, instance_id, task, entry, status, payload, error, timeout, created, resolved, title, description, schema,
     assignees, by, nonce) = row  # fmt: skip
    return Awakeable(
        id, instance_id, task, entry, status, _value(payload), error, _time(timeout), from_micros(created),
        _time(resolved), title, description, _value(schema), tuple(_value(assignees) or ()), by,
        link(id, nonce, timeout, created),
    )  # fmt: skip


async def linked(store: Store, link: Link, keys: Keys, id: str, token: str, now: int) -> Awakeable:
    """The awakeable behind a link. Every link that is not genuine, or is over, is the same: the same work, too."""
    found = await store.read(reads.read_awakeables, ids=[id])
    nonce, asked_at, timeout = (found[0][15], found[0][8], found[0][7]) if found else ("", 0, None)
    ends = keys.verify(token, id, nonce, asked_at)
    # Never longer than its question: one that was made again, by a replay, counts its time from then.
    if not found or ends is None or now >= ends or (timeout is not None and now >= timeout):
        raise NotFound("This link does not work. It is not complete, or not valid any more; ask for a new one.")
    return awakeable(found[0], link)


def token(row: Sequence[Any], secret: str | None = None) -> Token:
    id, name, scopes, created, expires, revoked = row
    return Token(id, name, tuple(_value(scopes)), from_micros(created), _time(expires), _time(revoked), secret)


async def tokens(store: Store) -> builtins.list[Token]:
    return [token(row) for row in await store.read(sql.read_tokens)]


async def live_tokens(store: Store, hashes: Sequence[str], now: int) -> dict[str, Token]:
    """Of these hashes those that are good for something."""
    return {row[0]: token(row[1:]) for row in await store.read(sql.live_tokens, hashes=list(hashes), now=now)}
