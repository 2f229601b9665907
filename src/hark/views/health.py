"""Health: the facts about a store that `hark doctor` shows. What is wrong about them is decided in doors/cli."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from hark.model.lanes import how_to_run, what_runs
from hark.model.names import from_micros
from hark.model.outside import OWNER
from hark.model.values import Wait
from hark.programs.misfits import reason_alone
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import VersionRow, WorkerRow
from hark.views import definition_views, instance_views
from hark.views.definition_views import chosen, lane_of_version, lanes_of
from hark.views.worker_info import heartbeat

_MOST_FAILED = 1000
_LATE = 10_000_000  # µs: a live worker fires what is due within 50 ms


async def facts(store: Store) -> dict[str, Any]:
    """Read the facts with a constant number of reads; the counts include all unfinished instances."""
    before = time.time_ns() // 1000
    now = await store.time()
    skew = now - (before + time.time_ns() // 1000) // 2
    leases = await store.read(reads.all_workers)
    workers = [row for row in leases if not row.id.startswith(OWNER)]  # a fetched task has a lease, and is not a worker
    unfinished = await store.read(reads.count_unfinished)
    [[late, since]] = await store.read(reads.count_overdue, before=now - _LATE)
    [[schema]] = await store.read(reads.schema_version)
    [[abandoned]] = await store.read(reads.abandoned_count, now=now)
    scheduled = await store.read(reads.count_scheduled, before=now - _LATE)
    versions = await store.read(reads.all_versions) if scheduled else []
    oldest = await instance_views.oldest_wait(store)
    server = await store.server()
    live = [worker for worker in workers if worker.until >= now]
    [[failed, failed_since]] = await store.read(reads.count_failed, most=_MOST_FAILED)
    held = await store.read(reads.held_by_lane)
    causes = dict(await store.read(reads.errors_of, ids=[lane.sample for lane in held]))
    two_codes = [*definition_views.codes_that_differ(live), *await definition_views.older_instances(store)]
    beats = [beat for worker in live if (beat := heartbeat(worker, now)) is not None]
    silent = [beat for beat in beats if beat.overdue]
    return {
        "schema": schema,
        "database": server.name,
        "database_problem": server.problem,
        "durable": store.durable,
        "skew": skew / 1_000_000,
        "workers": len(live),
        "dead_workers": len(workers) - len(live),
        "heard_of": max((beat.ago for beat in beats), default=None),
        "silent_workers": len(silent),
        "silent_until": max((beat.left for beat in silent), default=None),
        "abandoned": abandoned,
        "failed": failed,
        "failed_since": None if failed_since is None else from_micros(failed_since),
        "late": late,
        "late_since": None if since is None else from_micros(since),
        "oldest_wait": None if oldest is None else _wait(oldest),
        "living": sum(count for _, _, count in unfinished),
        "runnable": sum(count for _, status, count in unfinished if status == "runnable"),
        "held": [
            {
                "what": what_runs(group.lane),
                "instances": group.instances,
                "cause": reason_alone(causes[group.sample]),
            }
            for group in held
        ],
        "two_codes": [f"{what}: {text}" for what, text in two_codes],
        "codeless": _without_code(unfinished, [row.definitions for row in leases if row.until >= now]),
        "schedules": sum(row.schedules for row in scheduled),
        "next_tick": from_micros(min(row.next_due for row in scheduled)) if scheduled else None,
        "late_schedules": sum(row.late for row in scheduled),
        "refused_schedules": sum(row.refused for row in scheduled),
        "codeless_schedules": _codeless_schedules(scheduled, versions, live),
    }


def _wait(wait: Wait) -> dict[str, Any]:
    return {"instance_id": wait.instance_id, "kind": wait.kind, "name": wait.name, "since": wait.since}


def _codeless_schedules(
    scheduled: Sequence[reads.ScheduledRow], versions: Sequence[VersionRow], live: Sequence[WorkerRow]
) -> list[dict[str, Any]]:
    """The definitions that schedules start and no live worker can run."""
    found = []
    for row in scheduled:
        startable = [one for one in versions if one.name == row.definition and one.undeployed_at is None]
        if not startable:
            found.append({"missing": f"the definition {row.definition!r}", "schedules": row.schedules})
            continue
        lane = lane_of_version(chosen(startable, live))
        if not any(lane in lanes_of(worker) for worker in live):
            found.append({"missing": what_runs(lane), "schedules": row.schedules})
    return found


def _without_code(unfinished: Any, live: list[str]) -> list[dict[str, Any]]:
    """Lanes that have unfinished instances and no live worker that can run them."""
    counts: dict[str, int] = {}
    for lane, _, count in unfinished:
        if not any(f",{lane}," in f",{lanes}," for lanes in live):
            counts[lane] = counts.get(lane, 0) + count
    return [
        {"missing": what_runs(lane), "instances": number, "start": how_to_run(lane)}
        for lane, number in sorted(counts.items())
    ]
