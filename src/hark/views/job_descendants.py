"""Find what runs and waits below the tasks of a job: the items of a map, the instance of a `workflow` task, and what
those have started. Two reads per level."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hark.model.activation import KINDS
from hark.model.lanes import ENGINE_QUEUE, ON_EVERY_WORKER, how_to_run, what_runs
from hark.model.values import PARKED
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import Descendant, OpenWait, WorkerRow
from hark.views.worker_info import serves

_MOST_LEVELS = 8


class LiveWorkers:
    """The lanes and queues that the live workers on a store can run."""

    def __init__(self, live: Iterable[WorkerRow], here: Container[str]) -> None:
        """`here`: the lanes that a worker of this process can run, which may not be in the store yet."""
        self._workers = [(set(row.definitions.split(",")), row) for row in live]
        self._here = here

    def missing(self, lane: str, queue: str) -> str | None:
        """The reason why no worker claims what is in this lane and queue; None if one does."""
        if lane in self._here:
            return None
        able = [row for lanes, row in self._workers if lane in lanes]
        if not able:
            what = "No Hark worker is running." if lane in ON_EVERY_WORKER else f"No worker has {what_runs(lane)}."
            return f"{what} Start one with `{how_to_run(lane)}`."
        if queue != ENGINE_QUEUE and not any(serves(row, queue) for row in able):
            return f"No worker that has {what_runs(lane)} serves the queue {queue!r}."
        return None


async def live_workers(store: Store, here: Container[str]) -> LiveWorkers:
    """Read the live workers. A worker that was killed counts until its lease ends."""
    now = await store.time()
    return LiveWorkers((row for row in await store.read(reads.all_workers) if row.until >= now), here)


@dataclass
class Below:
    """The instances below one task.

    Attributes:
        waits: What its descendants wait for, besides their own children.
        missing: Which of them could run and do not, with the reason.
        goes_on: Whether one of them runs, or will by itself.
    """

    waits: list[OpenWait] = field(default_factory=list)
    missing: list[tuple[Descendant, str]] = field(default_factory=list)
    goes_on: bool = False


async def read_below(store: Store, waits: Mapping[str, Sequence[OpenWait]], workers: LiveWorkers) -> dict[str, Below]:
    """Find the instances below these tasks, by the id of the task; `waits` are their open waits. A task without
    unfinished children is not in the result."""
    found: dict[str, Below] = {}
    level = {wait.id: task for task, open in waits.items() for wait in open if wait.kind == "children"}
    for _ in range(_MOST_LEVELS):
        if not level:
            return found
        parked: dict[str, str] = {}  # the task that it is below, by id
        ended = dict(level)
        for one in await store.read(reads.unfinished_below, waits=sorted(level)):
            task = level[one.parent_wait]
            ended.pop(one.parent_wait, None)
            below = found.setdefault(task, Below())
            if one.status in PARKED:
                parked[one.id] = task
            elif one.status == "runnable" and (reason := workers.missing(one.lane, one.queue)) is not None:
                below.missing.append((one, reason))
            else:
                below.goes_on = True
        for task in ended.values():  # all children have finished: it is about to run
            found.setdefault(task, Below()).goes_on = True
        level = {}
        waited: dict[str, list[OpenWait]] = {id: [] for id in parked}
        for wait in await store.read(reads.open_waits_of, ids=sorted(parked)) if parked else ():
            waited[wait.instance_id].append(wait)
        for id, open in waited.items():
            below = found[parked[id]]
            level |= {wait.id: parked[id] for wait in open if wait.kind == "children"}
            below.waits += [wait for wait in open if wait.kind != "children"]
            if not any(KINDS[wait.kind].from_outside or wait.kind == "children" for wait in open):
                below.goes_on = True  # a timer, or its answer is there
    for task in level.values():  # not read any more: assume that it runs
        found[task].goes_on = True
    return found
