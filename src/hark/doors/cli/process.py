"""`hark worker`: the process that runs until it is told to stop."""

import os
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from hark.doors.cli.given import Given, command, only_local
from hark.model.errors import InvalidInput

if TYPE_CHECKING:
    from hark.app import Hark


def declare(cli: typer.Typer) -> None:
    command(cli)(worker)


def worker(
    given: Given,
    queue: Annotated[list[str] | None, typer.Option("--queue", help="name=concurrency, as often as needed")] = None,
    grace: Annotated[float, typer.Option("--grace", help="Seconds running steps get at a stop")] = 10.0,
) -> None:
    """Run the steps of an app until SIGTERM or Ctrl-C.

    hark worker --app shop:app --queue default=100 --queue billing=5
    """
    if given.app is None:
        raise InvalidInput("A worker runs somebody's code: say whose with --app module:app.")
    queues: dict[str, int] = {}
    for item in queue or []:
        name, _, size = item.partition("=")
        if not (size.isascii() and size.isdecimal()):
            raise InvalidInput(f"--queue {item}: write it as name=concurrency, for example default=100.")
        queues[name] = int(size)
    import asyncio  # a third of what `hark --help` may take

    asyncio.run(_work(only_local(given, "worker"), queues or None, grace))
    if any(thread.name.startswith("hark-step") for thread in threading.enumerate()):
        # A plain step that would not end was handed back: it must not run on beside its successor.
        sys.stdout.flush()
        os._exit(0)


async def _work(app: "Hark", queues: dict[str, int] | None, grace: float) -> None:
    import asyncio
    import signal as signals

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signals.SIGTERM, signals.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with app, app.worker(queues, grace=grace):
        print("working; SIGTERM or Ctrl-C stops", flush=True)
        await stop.wait()
        print("stopping: running steps finish or are handed back", flush=True)
