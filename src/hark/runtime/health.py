"""How a store is, in plain facts: for `hark doctor`. What is wrong about them is judged where they are shown."""

from __future__ import annotations

import time
from typing import Any

from hark.model.names import from_micros
from hark.store import reads
from hark.store.protocol import Store

_LATE = 10_000_000  # µs: a worker that is alive fires within 50 ms


async def facts(store: Store) -> dict[str, Any]:
    """Reads only, a constant number of them; the counts go over all living instances."""
    before = time.time_ns() // 1000
    now = await store.time()
    skew = now - (before + time.time_ns() // 1000) // 2
    workers = await store.read(reads.all_workers)
    living = await store.read(reads.count_unfinished)
    [[late, since]] = await store.read(reads.count_overdue, before=now - _LATE)
    oldest = await store.read(reads.oldest_wait)
    server = await store.server()
    live = [names for _, until, names, _ in workers if until >= now]
    return {
        "schema": (await store.read(reads.schema_version))[0][0],
        "database": server.name,
        "database_problem": server.problem,
        "durable": store.durable,
        "skew": skew / 1_000_000,
        "workers": len(live),
        "dead_workers": len(workers) - len(live),
        "abandoned": (await store.read(reads.abandoned_count, now=now))[0][0],
        "late": late,
        "late_since": None if since is None else from_micros(since),
        "oldest_wait": None if not oldest else _wait(oldest[0]),
        "living": sum(row[3] for row in living),
        "runnable": sum(row[3] for row in living if row[2] == "runnable"),
        "codeless": _codeless(living, live),
    }


def _wait(row: Any) -> dict[str, Any]:
    return {"instance_id": row[0], "kind": row[1], "name": row[2], "since": from_micros(row[3])}


def _codeless(living: Any, live: list[str]) -> list[dict[str, Any]]:
    """Definitions with living instances and no worker that is alive and has their code."""
    counts: dict[tuple[str, int], int] = {}
    for definition, version, _, count in living:
        if not any(f",{definition}@{version}," in f",{names}," for names in live):
            counts[(definition, version)] = counts.get((definition, version), 0) + count
    return [{"definition": name, "version": version, "instances": n} for (name, version), n in sorted(counts.items())]
