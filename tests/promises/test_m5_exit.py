"""M5: a real process that ends inside a step. However it ends: not an exception, one crash, and the step runs again."""

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
import asyncio, json, os, signal, sys
from hark import Hark, Machine, Stop, step

class Fatal(Machine):
    @step
    async def start(self, ctx):
        match ctx.state["how"]:
            case "sys.exit":
                sys.exit(3)
            case "kill -9":
                os.kill(os.getpid(), signal.SIGKILL)
            case "os._exit":
                os._exit(3)

    @step
    def in_a_thread(self, ctx):
        sys.exit(3)

    def handle(self, error, ctx):
        return Stop(f"handle was called with {error!r}")

async def main(url, options):
    app = Hark(url, **options)
    app.register(Fatal)
    async with app, app.worker(grace=0.1):
        await asyncio.sleep(60)

asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
"""


class Fatal(Machine):
    """The same machine, without the exit."""

    @step
    async def start(self, ctx: Context) -> Done:
        return Done(ctx.attempt)

    @step
    def in_a_thread(self, ctx: Context) -> Done:
        return Done(ctx.attempt)

    def handle(self, error: BaseException, ctx: Context) -> Stop:
        return Stop(f"handle was called with {error!r}")


def run_worker(store: Store) -> int:
    command: list[Any] = [sys.executable, "-c", WORKER, store.url, json.dumps(store.options)]
    return subprocess.run(command, timeout=60, check=False, stderr=subprocess.DEVNULL).returncode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "first", "code"),
    [("kill -9", "start", -9), ("os._exit", "start", 3), ("sys.exit", "start", 3), ("sys.exit", "in_a_thread", 3)],
)
async def test_m5_a_process_that_exits_in_a_step_is_a_crash_not_an_exception(
    store: Store, how: str, first: str, code: int
) -> None:
    async with harness(store, Fatal) as app:
        fatal = await app.start(Fatal, {"how": how}, step=first)
        assert run_worker(store) == code
        await drained(app, app.advance(3600))
        assert await fatal.result(timeout=0) == 1
        assert [e.type for e in await app.events(fatal)] == ["started", "reclaimed", "done"]
