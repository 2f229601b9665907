"""Real worker processes on a store: started, stopped, killed, and traced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

from hark import Hark
from hark.store.sqlite import path_of
from tests.support.inspect import query, until
from tests.support.stores import Store

ROOT = Path(__file__).parents[2]
HARK = [sys.executable, "-c", "from hark.doors.cli import main; main()"]


@dataclass(frozen=True)
class Life:
    """One line of the trace: which process did what."""

    pid: int
    what: str


class Workers:
    """The worker processes of one test; none outlives it.

    >>> with Workers(store, folder, lease=1.0) as workers:
    ...     worker = workers.start()
    ...     worker.kill()
    """

    def __init__(self, store: Store, folder: Path, **options: Any) -> None:
        self.store = store
        self.folder = folder
        self.options = {**store.options, **options}
        self._processes: list[subprocess.Popen[str]] = []
        os.environ["HARK_TEST_FOLDER"] = str(folder)  # for machines that run in this process

    def start(
        self, *arguments: str, verb: str = "worker", role: str = "plain", deaf: bool = False
    ) -> subprocess.Popen[str]:
        command = [*HARK, verb, "--app", "tests.crash.worker:app", *arguments]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker"] if deaf else command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "HARK_TEST_URL": self.store.url,
                "HARK_TEST_OPTIONS": json.dumps(self.options),
                "HARK_TEST_ROLE": role,
            },
        )
        self._processes.append(process)
        return process

    def trace(self) -> list[Life]:
        file = self.folder / "trace"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Life(int(pid), what) for pid, _, what in (line.partition(" ") for line in lines)]

    def open_gate(self, name: str = "gate") -> None:
        (self.folder / name).touch()

    async def until_traced(self, what: str, pid: int | None = None, times: int = 1) -> None:
        await until(
            lambda: sum(life.what == what and pid in (None, life.pid) for life in self.trace()) >= times,
            f"{times} × {what!r} in the trace",
        )

    async def freeze(self, process: subprocess.Popen[str]) -> None:
        """SIGSTOP, but not while the process holds SQLite's only write lock: no other process could take over then."""
        for _ in range(100):
            process.send_signal(signal.SIGSTOP)
            if self.store.name == "postgres" or self._writable():
                return
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.01)
        raise TimeoutError("The process held the write lock whenever it was stopped.")

    def _writable(self) -> bool:
        db = apsw.Connection(path_of(self.store.url) or "")
        try:
            db.set_busy_timeout(100)
            db.execute("BEGIN IMMEDIATE; ROLLBACK")
            return True
        except apsw.BusyError:
            return False
        finally:
            db.close()

    async def bury(self) -> None:
        """Expire the leases of all processes, none of which runs, as short ones: no worker has to wait to be sure."""
        await query(self.store, """UPDATE workers SET until = 0, info = '{"lease": 0.01}'""")

    async def take_back(self, app: Hark) -> None:
        """Expire the leases of all processes, none of which runs, and reclaim their work."""
        await self.bury()
        if self.store.name == "postgres":
            app._clerk.store._quiet = 0  # the server has not just started

        async def reclaimed() -> bool:
            await app.sweep()  # the second one finds the leases as they were
            return not await leases(self.store)

        await until(reclaimed, "their work to be taken back")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            said = process.communicate()[0]
            if error is not None:
                print(f"--- worker {process.pid} said:\n{said}")


async def gone(process: subprocess.Popen[str]) -> int:
    """Wait for the process to end and return its exit code."""
    await until(lambda: process.poll() is not None, "the process to end")
    return process.returncode


async def leases(store: Store) -> dict[str, int]:
    return {id: until for id, until in await query(store, "SELECT id, until FROM workers")}


async def all_renewed(store: Store, begun: dict[str, int], seconds: float) -> bool:
    now = await leases(store)
    return all(now.get(id, 0) > until + seconds * 1_000_000 for id, until in begun.items())


async def has_workers(store: Store, number: int) -> bool:
    return len(await leases(store)) == number


def no_step_runs(*apps: Hark) -> bool:
    return not any(app._clerk.worker._activations._asyncio_tasks for app in apps)
