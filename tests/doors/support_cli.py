"""Running `hark` from a test: in this process where only its words matter, as a process where more does."""

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
class Said:
    """How a command line ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def line(self, code: int) -> str:
        """The one line of a refusal; nothing else was printed."""
        assert (self.code, self.out) == (code, ""), self
        assert self.err.startswith("hark: ")
        assert self.err.count("\n") == 1, self.err
        assert "Traceback" not in self.err
        return self.err.strip()


def call(*args: str) -> Said:
    """In this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(args)
    return Said(code, out.getvalue(), err.getvalue())


def shell(*args: str, **options: Any) -> Said:
    """As a process of its own."""
    env = {**os.environ, **options.pop("env", {})}
    done = subprocess.run([HARK, *args], capture_output=True, timeout=60, env=env, check=False, **options)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def place(store: Store) -> list[str]:
    """The flags that name a store."""
    schema = store.options.get("schema")
    return ["--db", store.url, *(["--schema", schema] if schema else [])]


class Desk:
    """A store, and the command line on it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __call__(self, *args: str) -> Said:
        return call(*args, *place(self.store))

    def do(self, work: Callable[[Turns], Awaitable[Any]], clock: Callable[[], int] | None = None) -> Any:
        """Turns by hand, on a loop of our own."""

        async def whole() -> Any:
            async with Turns(self.store, clock) as turns:
                await turns.register("m")
                return await work(turns)

        # Not asyncio.run: it would unset the loop that pytest-asyncio keeps for the test.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(whole())

    def parked(self, *arms: Arm, id: str = "i", key: str | None = None, awakeables: Any = ()) -> None:
        """An instance that waits."""

        async def work(turns: Turns) -> None:
            await turns.start("m", id, correlation_key=key)
            await turns.commit(await turns.claim("m"), Park(arms, awakeables=tuple(awakeables)), step="woken")

        self.do(work)

    def asked(self, id: str = "prom_1abc123", *, of: str = "job-1", timeout: float | None = None, **more: Any) -> str:
        """A pending awakeable, as a task would make one."""
        micros = None if timeout is None else int(timeout * SECOND)
        arm = Arm("awakeable", f"w-{id}", "door", name=id, timeout=micros)
        made = NewAwakeable(id, 0, arm.id, **{"task": "verify", **more}, timeout=micros)
        self.parked(arm, id=of, awakeables=[made])
        return id


@pytest.fixture
def services(store: Store) -> Desk:
    """A store that is there, and empty; the command line works on it."""
    assert call("migrate", *place(store)).code == 0
    return Desk(store)
