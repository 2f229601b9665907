"""`hark serve` and `hark worker`: the processes that run until they are told to stop."""

import gc
import os
import sys
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hark.doors.cli.options import Options, command, local_only_app
from hark.model.errors import InvalidInput
from hark.model.extras import import_extra

if TYPE_CHECKING:
    from hark.app import Hark


def add_commands(cli: typer.Typer) -> None:
    command(cli)(serve)
    command(cli)(worker)


Queue = Annotated[list[str] | None, typer.Option("--queue", help="name=concurrency, as often as needed")]
Grace = Annotated[float, typer.Option("--grace", help="Seconds running steps get at a stop")]


def serve(
    options: Options,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; beyond loopback only with tokens")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one")] = 4097,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Only the HTTP API; workers run elsewhere")] = False,
    require_token: Annotated[bool, typer.Option("--require-token", help="Also on loopback")] = False,
    queue: Queue = None,
    grace: Grace = 10.0,
) -> None:
    """Serve the HTTP API, with a worker and timers in the same process, until SIGTERM or Ctrl-C.

    hark serve --app shop:app --port 4097
    """
    app, queues = local_only_app(options, "serve"), _queues(queue)
    # Imported here: the server is a third of the time that `hark --help` may take.
    server = import_extra("hark.doors.http.server", extra="server", needed_by="`hark serve`")
    _collect_less()
    server.run(app, host=host, port=port, worker=not no_worker, queues=queues, grace=grace, require_token=require_token)
    _leave_steps_behind()


def worker(options: Options, queue: Queue = None, grace: Grace = 10.0) -> None:
    """Run the steps of an app until SIGTERM or Ctrl-C.

    hark worker --app shop:app --queue default=100 --queue billing=5
    """
    if options.app is None:
        raise InvalidInput("A worker runs somebody's code: say whose with --app module:app.")
    app, queues = local_only_app(options, "worker"), _queues(queue)
    _collect_less()
    _run(_work(app, queues, grace))
    _leave_steps_behind()


def _queues(given: list[str] | None) -> dict[str, int] | None:
    queues: dict[str, int] = {}
    for item in given or []:
        name, _, size = item.partition("=")
        if not (size.isascii() and size.isdecimal() and len(size) < 10):
            raise InvalidInput(f"--queue {item}: write it as name=concurrency, for example default=100.")
        queues[name] = int(size)
    return queues or None


def _run(work: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is made for the platform: a twentieth of a busy worker's time."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        asyncio.run(work)
    else:
        uvloop.run(work)


def _collect_less() -> None:
    """This process is ours: what is loaded stays, and hundreds of steps in flight are not walked every few hundred
    allocations. Measured: a tenth of a worker's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _leave_steps_behind() -> None:
    """A plain step that would not end was handed back: it must not run on beside its successor."""
    if any(thread.name.startswith("hark-step") for thread in threading.enumerate()):
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
