"""Show the versions of definitions, and name two codes under one version (V8)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from hark.model.lanes import INTERPRETED, lane_of, what_runs
from hark.model.page import Page
from hark.model.processes import is_gone
from hark.model.values import DefinitionView
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import VersionRow, WorkerRow
from hark.views.worker_info import codes_of, name_of, process_of


async def versions(store: Store, name: str | None, size: int, after: str | None) -> Page[DefinitionView]:
    """The versions that are not undeployed, by name and version. `after` is the name and version of the last one."""
    rows = [row for row in await _not_undeployed(store) if name is None or row.name == name]
    if after is not None:
        last, _, version = after.rpartition("@")
        rows = [row for row in rows if (row.name, row.version) > (last, int(version) if version.isdecimal() else 0)]
    page = rows[:size]
    following = f"{page[-1].name}@{page[-1].version}" if len(rows) > size else None
    return Page(await _views(store, page, name, await _live_workers(store)), following)


async def startable(store: Store, name: str | None, size: int, after: str | None) -> Page[DefinitionView]:
    """The versions that starts by name choose, by name."""
    workers = await _live_workers(store)
    by_name: dict[str, list[VersionRow]] = {}
    for row in await _not_undeployed(store):
        if (name is None or row.name == name) and (after is None or row.name > after):
            by_name.setdefault(row.name, []).append(row)
    rows = [chosen(versions, workers) for versions in by_name.values()]
    page = rows[:size]
    return Page(await _views(store, page, name, workers), page[-1].name if len(rows) > size else None)


def chosen(versions: Sequence[VersionRow], workers: Sequence[WorkerRow]) -> VersionRow:
    """The version of these, of one name, that a start by name chooses (V9); the newest, if all are retired."""
    startable = [row for row in versions if row.retired_at is None] or versions
    live = [row for row in startable if _is_live(row, workers)]
    return max(live or startable, key=lambda row: row.version)


def _is_live(row: VersionRow, workers: Sequence[WorkerRow]) -> bool:
    return row.kind in INTERPRETED or any(lane_of_version(row) in lanes_of(worker) for worker in workers)


def lane_of_version(row: VersionRow) -> str:
    return lane_of(row.kind, row.name, row.version)


async def _not_undeployed(store: Store) -> list[VersionRow]:
    return [row for row in await store.read(reads.all_versions) if row.undeployed_at is None]


async def _live_workers(store: Store) -> list[WorkerRow]:
    now = await store.time()
    rows = await store.read(reads.all_workers)
    return [row for row in rows if row.until >= now and not is_gone(process_of(row))]


async def _views(
    store: Store, rows: Sequence[VersionRow], name: str | None, workers: Sequence[WorkerRow]
) -> list[DefinitionView]:
    live = {
        (definition, version): count
        for definition, version, count in await store.read(reads.count_live, name=name or "")
    }
    changed = {(row.name, row.version): row for row in await store.read(reads.changed_versions)}
    found = []
    for row in rows:
        lane = lane_of_version(row)
        codes = [code for worker in workers if (code := codes_of(worker).get(lane)) is not None]
        older = changed.get((row.name, row.version))
        if older is not None and older.instances:
            codes.append(older.earlier_code)
        if row.fingerprint is not None:
            codes.append(row.fingerprint)
        found.append(
            DefinitionView(
                row.name, row.kind, row.version, tuple(dict.fromkeys(codes)), row.retired_at is not None,
                live.get((row.name, row.version), 0), sum(lane in lanes_of(worker) for worker in workers),
            )
        )  # fmt: skip
    return found


def lanes_of(worker: WorkerRow) -> Collection[str]:
    return worker.definitions.split(",")


class TwoCodes(NamedTuple):
    """Different codes under one version, or one name."""

    what: str
    """The definition with its version, or the handler."""
    text: str
    """The codes, with the workers that have them."""


def codes_that_differ(workers: Sequence[WorkerRow]) -> list[TwoCodes]:
    """Find what live workers run with different code."""
    found: dict[str, dict[str, WorkerRow]] = {}
    for worker in workers:
        for lane, code in codes_of(worker).items():
            found.setdefault(lane, {}).setdefault(code, worker)
    return [
        TwoCodes(what_runs(lane), " and ".join(f"{code} on {name_of(worker)}" for code, worker in codes.items()))
        for lane, codes in sorted(found.items())
        if len(codes) > 1
    ]


async def older_instances(store: Store) -> list[TwoCodes]:
    """Find the versions with unfinished instances that are older than the last change of their code."""
    return [
        TwoCodes(
            f"{row.name} version {row.version}",
            f"unfinished instances that are older than the last change of its code, from {row.earlier_code} to "
            f"{row.fingerprint}: {row.instances}{'+' if row.instances >= 1000 else ''}",
        )
        for row in await store.read(reads.changed_versions)
        if row.instances
    ]


async def changes(store: Store, changed: Collection[tuple[str, int]], here: Mapping[str, str]) -> list[str]:
    """The lines of the log about versions that were registered with other code than before. `here`: the fingerprints
    of the codes in this process, by lane."""
    workers = await _live_workers(store)
    texts = []
    for row in await store.read(reads.changed_versions):
        if (row.name, row.version) not in changed:
            continue
        lane = lane_of("workflow", row.name, row.version)
        others = [worker for worker in workers if codes_of(worker).get(lane) not in (None, here.get(lane))]
        if not others and not row.instances:
            continue  # the two codes do not meet
        parts = [f"{row.fingerprint} here, {row.earlier_code} before"]
        if others:
            parts.append(f"{codes_of(others[0])[lane]} on {name_of(others[0])}")
        if row.instances:
            parts.append(f"unfinished instances that are older than the change: {row.instances}")
        texts.append(
            f"{row.name} version {row.version} has other code than before: {'; '.join(parts)}. `hark check` says "
            "whether what is live continues with it; a new version= keeps both apart."
        )
    return texts
