"""`hark workers`: the worker processes on a store."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hark.doors.cli.engine import open_engine
from hark.doors.cli.options import Options, Wide
from hark.doors.cli.output import age, ago, print_json, printable
from hark.doors.cli.tables import print_table

if TYPE_CHECKING:
    from hark.model.values import WorkerInfo

_COLUMNS = ("HOST", "PID", "VERSION", "FREE SLOTS", "LEASE", "RUNNING FOR", "ID")


def workers(options: Options, wide: Wide = False) -> None:
    """List the worker processes, their queues and their leases.

    FREE SLOTS is as of the last lease renewal, at most a third of a lease ago.

    hark workers
    """
    with open_engine(options, "read") as hark:
        found = hark.workers().result()
    if options.json:
        print_json(found)
        return
    print_table(
        _COLUMNS,
        [_row(worker) for worker in found],
        "No worker is running. `hark worker` starts one.",
        drop=("ID", "VERSION", "RUNNING FOR", "LEASE"),
        wide=wide,
    )
    for line in _two_codes(found):
        print(printable(line))


def _two_codes(workers: Sequence["WorkerInfo"]) -> list[str]:
    """Name what live workers run with different code, in one line each."""
    found: dict[str, dict[str, str]] = {}
    for worker in workers:
        if worker.live:
            for what, code in worker.fingerprints.items():
                found.setdefault(what, {}).setdefault(code, f"{worker.host} {worker.pid}")
    return [
        f"{what} has other code on other workers: "
        + ", ".join(f"{code} on {place}" for code, place in codes.items())
        + ". Restart those with old code, or give the new code a new version."
        for what, codes in sorted(found.items())
        if len(codes) > 1
    ]


def _row(worker: "WorkerInfo") -> tuple[str, ...]:
    free = " ".join(f"{queue} {worker.free.get(queue, 0)}/{size}" for queue, size in sorted(worker.queues.items()))
    lease = f"ends {ago(worker.lease_until)}" if worker.live else f"ended {ago(worker.lease_until)}"
    host, pid = worker.host or "-", str(worker.pid or "-")
    return host, pid, worker.version or "-", free or "-", lease, age(worker.since), worker.id
