"""M5: a real process that ends inside a step is one crash, not an exception; one that a signal ends is none."""

import json
import subprocess
import sys
from typing import Any

import pytest

from hark import Context, Done, Machine, Stop, step
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store

WORKER = """
import asyncio, json, os, signal, sys, threading
from hark import Done, Hark, Machine, Stop, step

class Fatal(Machine):
    @step
    async def start(self, ctx):
        match ctx.state["how"]:
            case "kill -9":
                os.kill(os.getpid(), signal.SIGKILL)
            case "os._exit":
                os._exit(3)
            case "sys.exit in a child that it forks":
                if (child := os.fork()) == 0:
                    sys.exit(3)  # ends the child, and nothing but that
                os._exit(10 + os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            case "SIGTERM, whose handler calls sys.exit":
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
                signal.raise_signal(signal.SIGTERM)
            case "SIGINT twice":
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

    def handle(self, error, ctx):
        return Stop(f"handle was called with {error!r}")

class Beside(Machine):
    @step
    async def start(self, ctx):
        await asyncio.sleep(60)

    def handle(self, error, ctx):
        return Stop(f"handle was called with {error!r}")

async def main(url, options):
    app = Hark(url, **options)
    app.register(Fatal, Beside)
    async with app, app.worker(grace=0.1):
        await asyncio.sleep(60)

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


class Fatal(Machine):
    """The same machine, without the exit."""

    @step
    async def start(self, ctx: Context) -> Done:
        return Done(ctx.attempt)

    def handle(self, error: BaseException, ctx: Context) -> Stop:
        return Stop(f"handle was called with {error!r}")


class Beside(Fatal):
    """Executes beside it."""


def run_worker(store: Store) -> int:
    command: list[Any] = [sys.executable, "-c", WORKER, store.url, json.dumps(store.options)]
    return subprocess.run(command, timeout=60, check=False, stderr=subprocess.DEVNULL).returncode


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("kill -9", -9), ("os._exit", 3), ("sys.exit in a child that it forks", 13)])
async def test_m5_a_process_that_exits_in_a_step_is_a_crash_not_an_exception(store: Store, how: str, code: int) -> None:
    async with harness(store, Fatal) as app:
        fatal = await app.start(Fatal, {"how": how})
        assert run_worker(store) == code
        await drained(app, app.advance(3600))
        assert await fatal.result(timeout=0) == 1
        assert [e.type for e in await app.events(fatal)] == ["started", "reclaimed", "done"]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("SIGTERM, whose handler calls sys.exit", 4), ("SIGINT twice", -2)])
async def test_m5_fault_76_a_signal_ends_the_process_in_a_step_and_what_executes_is_handed_back(
    store: Store, how: str, code: int
) -> None:
    async with harness(store, Fatal, Beside) as app:
        beside = await app.start(Beside, {"how": "beside"})
        fatal = await app.start(Fatal, {"how": how})
        assert run_worker(store) == code
        await app.drain()
        for one in (fatal, beside):
            assert await one.result(timeout=0) == 0, "a signal is not a crash"
            assert [e.type for e in await app.events(one)] == ["started", "handed_back", "done"]
