"""Read pages of instances, newest first: choose the index that drives a page, and the end of the page.

One filter drives the read of a page and the others are checked row by row, so a page costs as much as the driving
filter has rows. The filter with the fewest rows drives; to find it costs one bounded count for each.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from hark.model import json
from hark.model.errors import NotFound
from hark.model.names import NAME_BYTES
from hark.model.values import TERMINAL, Kind, Status
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store
from hark.store.reads import Listed

MAX_BYTES = 8 << 20
"""A page ends with the row that reaches this many bytes of text, so it has at least one row."""
_EVER = 2**63 - 1
_STATUSES = typing.get_args(Status)
_STARTED = tuple(kind for kind in typing.get_args(Kind) if kind != "task")
_FEW = 1000  # a filter with fewer rows is narrow: all of them can be checked
_WINDOW = 2000  # how many of the newest instances are tried before all keys with a prefix are read: 15 ms
_HIGHEST = "\U0010ffff"
_BEHIND_ALL = _HIGHEST * (NAME_BYTES // 4 + 1)  # longer than any key
T = TypeVar("T")
Read = Callable[[], Awaitable[Sequence[Listed]]]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of `list`, checked. Times in µs; both ends are exclusive.

    Without a kind, the tasks of jobs and processes do not match: a list shows what was started, and a task is seen with
    the job that it belongs to.
    """

    status: str | None = None
    definition: str | None = None
    kind: str | None = None
    tags: dict[str, str] | None = None
    key_prefix: str | None = None
    created_after: int = -_EVER
    created_before: int = _EVER
    only_live: bool = False  # unless a status is given: no finished ones


def fitting(rows: Sequence[T], size: Callable[[T], int]) -> Sequence[T]:
    """The first rows, up to the one that reaches MAX_BYTES."""
    total = 0
    for count, row in enumerate(rows, 1):
        total += size(row)
        if total >= MAX_BYTES:
            return rows[:count]
    return rows


Place = tuple[int, int, str]
"""The position of an instance in a list: when it was created, its number among those of that time, and its id."""


class LivePage(NamedTuple):
    """The ids of a page, and the place behind which the next one begins; None if this is the last one."""

    ids: list[str]
    place: Place | None


async def live_page(store: Store, filters: Filters, limit: int, after: Place | None) -> LivePage:
    """The page behind a place. A place outlives its instance, which an id as a cursor would not."""
    at = (filters.created_before, -_EVER, "") if after is None else min(after, (filters.created_before, -_EVER, ""))
    place = {"at": at[0], "nth": at[1], "after": at[2], "since": filters.created_after}
    found = await _listed(store, filters, limit, place)
    if len(found) < limit:
        return LivePage([row.id for row in found], None)
    ids = [row.id for row in found]
    for id in reversed(ids):
        for last in await store.read(reads.position, id=id):  # retention may have removed it meanwhile
            return LivePage(ids, (last.created_at, last.nth, last.id))
    return LivePage(ids, None)


async def page(store: Store, filters: Filters, limit: int, after: str | None) -> tuple[list[str], bool]:
    """The ids of a page, and whether there are more behind it."""
    found = await _listed(store, filters, limit + 1, await _place(store, filters, after))
    fit = fitting(found[:limit], lambda row: row.bytes)
    return [row.id for row in fit], len(found) > len(fit)


async def _place(store: Store, filters: Filters, after: str | None) -> dict[str, Any]:
    """The rows between which the page is: behind the last row of the page before, and between the two times."""
    at = (filters.created_before, -_EVER, "")
    if after is not None:
        rows = await store.read(reads.position, id=after)
        if not rows:
            raise no_position(after)
        at = min(at, (rows[0].created_at, rows[0].nth, rows[0].id))
    return {"at": at[0], "nth": at[1], "after": at[2], "since": filters.created_after}


def no_position(after: str) -> NotFound:
    """A cursor that is not in the store."""
    return NotFound(
        f"There is no {after!r} to continue after. Check the id; retention may have removed it. To list from the "
        "beginning, leave it out."
    )


async def _listed(store: Store, filters: Filters, size: int, place: dict[str, Any]) -> Sequence[Listed]:
    """The first `size` rows that match, by the narrowest filter."""
    lanes = await _lanes(store, filters)
    if filters.tags is None and filters.key_prefix is None:
        return await store.read(reads.list_instances, lanes, window=size, **place)
    low, high = prefix_range(filters.key_prefix)
    matching = {
        "status": filters.status, "definition": filters.definition, "kind": filters.kind, "low": low, "high": high,
        "tags": None if filters.tags is None else json.dump(filters.tags), "size": size, **place,
    }  # fmt: skip
    drivers: list[tuple[int, Read]] = []
    if filters.tags is not None:
        for name, value, count in await store.read(reads.count_tagged, [*filters.tags.items()], most=_FEW, **place):
            drivers.append((count, partial(store.read, reads.list_tagged, name=name, value=value, **matching)))
    if low is not None or not filters.status is filters.definition is filters.kind is None:
        [[count]] = await store.read(reads.count_lanes, lanes, most=_FEW, **place)
        drivers.append((count, partial(store.read, reads.list_newest, lanes, window=_EVER, **matching)))
    if low is not None:
        [[count]] = await store.read(reads.count_keyed, low=low, high=high, most=_FEW)
        drivers.append((count, partial(store.read, reads.list_keyed, **matching)))
    count, read = min(drivers, key=itemgetter(0))
    if count < _FEW or filters.tags is not None:
        return await read()
    # Many instances have the prefix, so the newest probably are among the newest of all.
    newest = await store.read(reads.list_newest, lanes, window=_WINDOW, **matching)
    return newest if len(newest) == size else await store.read(reads.list_keyed, **matching)


async def _lanes(store: Store, filters: Filters) -> list[tuple[str, str, str]]:
    """The definitions, statuses and kinds that may have instances that match."""
    statuses = _STATUSES if filters.status is None else (filters.status,)
    return [
        (name, status, kind)
        for name, kinds in (await _definitions(store, filters)).items()
        for status in statuses
        if filters.status is not None or status not in TERMINAL or not filters.only_live
        for kind in kinds
    ]


async def _definitions(store: Store, filters: Filters) -> dict[str, Sequence[str]]:
    """The definitions that may have instances that match, each with the kinds that these may have."""
    wanted = _STARTED if filters.kind is None else (filters.kind,)
    if filters.definition is not None:
        return {filters.definition: wanted}
    known: dict[str, set[str]] = {}
    for name, _, kind, *_ in await store.read(sql.definitions):
        # A task has the definition of its job.
        known.setdefault(name, set()).update((kind, "task") if kind in ("job", "bpmn") else (kind,))
    # A child of a definition that no process registered has failed, and its definition has no kind.
    names = [name for (name,) in await store.read(reads.definitions_in_use)]
    return {name: [kind for kind in wanted if kind in known.get(name, wanted)] for name in names}


def prefix_range(prefix: str | None) -> tuple[str | None, str | None]:
    """The first text with this prefix, and the first text behind all of them, in the order of UTF-8 bytes.

    That is the order of code points: the last one is increased, or, if it is the highest, left out and the one before
    is increased.
    """
    if prefix is None:
        return None, None
    kept = prefix.rstrip(_HIGHEST)
    if not kept:
        return prefix, _BEHIND_ALL
    following = ord(kept[-1]) + 1
    return prefix, kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # surrogates are not in UTF-8
