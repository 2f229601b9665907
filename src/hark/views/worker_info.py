"""Write what a worker records with its lease, and read the workers of a store for people (`hark workers`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from hark.model.lanes import INTERPRETED, handler_of
from hark.model.names import from_micros
from hark.model.page import Page
from hark.model.processes import this_process
from hark.model.values import WorkerInfo
from hark.model.version import VERSION
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import WorkerRow
from hark.store.statements import LeaseRow


class _Info(msgspec.Struct, omit_defaults=True):
    """The column `workers.info`. Every field has a default: the worker may be of another version of Hark."""

    host: str = ""
    pid: int = 0
    version: str = ""
    queues: dict[str, int] = {}
    free: dict[str, int] = {}
    lease: float = 0.0  # seconds
    codes: dict[str, str] = {}  # the fingerprint of the code of each lane; not of what Hark itself runs
    process: str = ""  # see model/processes.py


def describe_worker(queues: dict[str, int], free: dict[str, int], lease: float, codes: Mapping[str, str]) -> str:
    """The information that the worker of this process records: its place, slots and free slots, the seconds of its
    lease, and the fingerprints of its code by lane."""
    info = _Info(socket.gethostname(), os.getpid(), VERSION, queues, free, lease, dict(codes), this_process())
    return msgspec.json.encode(info).decode()


def describe_outside(name: str, lease: float) -> str:
    """The information that the lease of a task records that a worker outside has fetched: the name of that worker."""
    return msgspec.json.encode(_Info(host=name, lease=lease)).decode()


async def workers(store: Store) -> Page[WorkerInfo]:
    """The workers of a store, the longest running first."""
    now = await store.time()
    return Page(_worker(row, now) for row in await store.read(reads.all_workers))


def _worker(row: WorkerRow, now: int) -> WorkerInfo:
    info = _info(row.info)
    lanes = [lane for lane in row.definitions.split(",") if lane]
    return WorkerInfo(
        row.id, info.host, info.pid, info.version, info.queues, info.free,
        tuple(lane for lane in lanes if "@" in lane),
        handlers_in(lanes),
        from_micros(row.started_at), from_micros(row.until), row.until >= now,
        {handler_of(lane) or lane: code for lane, code in info.codes.items()},
    )  # fmt: skip


def handlers_in(lanes: Iterable[str]) -> tuple[str, ...]:
    """The handlers, agents and gates among these lanes, by the names that people know."""
    return tuple(handler_of(lane) or lane for lane in lanes if "@" not in lane and lane not in INTERPRETED)


def codes_of(row: WorkerRow) -> dict[str, str]:
    """The fingerprint of the code of each lane that the worker can run."""
    return _info(row.info).codes


def _info(text: str | None) -> _Info:
    try:
        return msgspec.json.decode(text or "{}", type=_Info)
    except msgspec.MsgspecError:  # written by a version whose columns mean something else
        return _Info()


class Heartbeat(NamedTuple):
    """The time since a worker with a valid lease was last heard of. The worker renews its lease three times in its
    length; a worker that was killed looks alive until the lease ends."""

    ago: float
    """Seconds since its last renewal."""
    left: float
    """Seconds until its lease ends: then others take its work, if it is not renewed."""
    overdue: bool
    """True if it should have renewed its lease by now."""


def heartbeat(row: WorkerRow, now: int) -> Heartbeat | None:
    """The heartbeat of a worker, None if it has not recorded how long its lease lasts."""
    lease, left = _info(row.info).lease, (row.until - now) / 1_000_000
    if not lease:
        return None
    ago = max(0.0, lease - left)
    return Heartbeat(ago, left, ago > lease / 2)


def lease_of(row: LeaseRow) -> float:
    """The seconds that a renewal of this lease lasts; 0 if the worker has not recorded it."""
    return _info(row.info).lease


def process_of(row: LeaseRow | WorkerRow) -> str:
    """The process of this worker; "" if it has not recorded it, or is a worker outside."""
    return _info(row.info).process


def name_of(row: WorkerRow) -> str:
    """A worker as text for people: where it runs, if it has recorded that, and its id."""
    info = _info(row.info)
    if info.host and not info.pid:
        return f"task worker {info.host!r} ({row.id})"  # outside: it has fetched a task over HTTP
    return f"worker {row.id} (process {info.pid} on host {info.host})" if info.host else f"worker {row.id}"


def serves(row: WorkerRow, queue: str) -> bool:
    """Return True if the worker works on this queue; assumed if it has not recorded its queues."""
    queues = _info(row.info).queues
    return not queues or queue in queues
