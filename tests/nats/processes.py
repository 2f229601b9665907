"""Real worker processes on a store and a NATS server: started, killed, paused."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.inspect import until
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

ROOT = Path(__file__).parents[2]
HARK = [sys.executable, "-c", "from hark.doors.cli import main; main()"]


class Worker:
    """One process; what it has logged is in a file."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def until_logged(self, text: str) -> None:
        await until(lambda: text in self.log or self.process.poll() is not None, f"{text!r} in the log", 60)
        assert text in self.log, self.log

    async def until_reads(self) -> None:
        await self.until_logged("Reading signals from the NATS bucket")


def start_worker(command: list[str], log: Path, environment: dict[str, str] | None = None) -> Worker:
    """Start a worker process that logs into this file."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, env=environment)
    return Worker(process, log)


class Workers:
    """The worker processes of one test; none outlives it."""

    def __init__(self, store: Store, server: NatsServer, folder: Path, **environment: str) -> None:
        self._environment = {
            **os.environ,
            "HARK_TEST_URL": store.url,
            "HARK_TEST_SCHEMA": store.options.get("schema", "hark"),
            "HARK_TEST_NATS": server.url,
            **environment,
        }
        self._folder = folder
        self._workers: list[Worker] = []

    def start(self, *arguments: str, verb: str = "worker") -> Worker:
        log = self._folder / f"worker-{len(self._workers)}.log"
        command = [*HARK, verb, "--app", "tests.nats.worker:app", *arguments]
        self._workers.append(start_worker(command, log, self._environment))
        return self._workers[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, worker in enumerate(self._workers):
            worker.process.send_signal(signal.SIGCONT)
            worker.process.kill()
            worker.process.wait(30)
            if error is not None:
                error.add_note(f"worker {number}:\n{worker.log}")
