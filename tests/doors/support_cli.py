"""Run `hark` in a test: in the process of the test, or in one of its own where that matters."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hark.doors.cli.main import run
from hark.model.decisions import Arm, NewAwakeable, Park
from tests.promises.support_signals import Turns
from tests.support.stores import Store

HARK = str(Path(sys.executable).parent / "hark")
SECOND = 1_000_000


@dataclass(frozen=True)
class CliResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def error_line(self, code: int) -> str:
        """The one line of an error with this exit code; nothing else was printed."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("hark: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.strip()


def run_cli(*args: str) -> CliResult:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(args)
    return CliResult(code, out.getvalue(), err.getvalue())


def run_process(*args: str, **options: Any) -> CliResult:
    """Run a command in a process of its own."""
    env = {**os.environ, **options.pop("env", {})}
    done = subprocess.run([HARK, *args], capture_output=True, timeout=60, env=env, check=False, **options)
    return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())


def store_options(store: Store) -> list[str]:
    """The options that name a store."""
    schema = store.options.get("schema")
    return ["--db", store.url, *(["--schema", schema] if schema else [])]


class Cli:
    """The command line on a store: `cli("instance", "list")`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __call__(self, *args: str) -> CliResult:
        return run_cli(*args, *store_options(self.store))

    def run_turns(self, work: Callable[[Turns], Awaitable[Any]], clock: Callable[[], int] | None = None) -> Any:
        """Execute turns by hand, on an event loop of its own."""

        async def whole() -> Any:
            async with Turns(self.store, clock) as turns:
                await turns.register("m")
                return await work(turns)

        # Not asyncio.run: it would unset the loop that pytest-asyncio keeps for the test.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(whole())

    def park(self, *arms: Arm, id: str = "i", key: str | None = None, awakeables: Any = ()) -> None:
        """Start an instance and park it on these waits."""

        async def work(turns: Turns) -> None:
            await turns.start("m", id, correlation_key=key)
            await turns.commit(await turns.claim("m"), Park(arms, awakeables=tuple(awakeables)), step="woken")

        self.run_turns(work)

    def ask(self, id: str = "prom_1abc123", *, of: str = "job-1", timeout: float | None = None, **more: Any) -> str:
        """Make a pending awakeable, as a task would."""
        micros = None if timeout is None else int(timeout * SECOND)
        arm = Arm("awakeable", f"w-{id}", "door", name=id, timeout=micros)
        made = NewAwakeable(id, 0, **{"task": "verify", **more}, timeout=micros)
        self.park(arm, id=of, awakeables=[made])
        return id


@pytest.fixture
def cli(store: Store) -> Cli:
    """The command line on an empty store that exists."""
    assert run_cli("migrate", *store_options(store)).code == 0
    return Cli(store)
