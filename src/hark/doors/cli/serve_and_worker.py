"""`hark serve` and `hark worker`: the processes that run until they get SIGTERM or Ctrl-C."""

import gc
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hark.doors.cli.commands import command
from hark.doors.cli.engine import local_only_app
from hark.doors.cli.options import Options
from hark.model.errors import InvalidInput
from hark.model.extras import import_extra

if TYPE_CHECKING:
    from hark.app import Hark

Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME=N", help="Run N instances of this queue at a time; may be repeated"),
]
_QUEUES_OF_JOBS = {"default": 100}
Grace = Annotated[
    float, typer.Option("--grace", metavar="SECONDS", help="How long running steps may continue after a stop")
]


def add_commands(cli: typer.Typer) -> None:
    command(cli)(serve)
    command(cli)(worker)


def serve(
    options: Options,
    host: Annotated[
        str,
        typer.Option("--host", metavar="ADDRESS", help="The address to listen on; other than loopback needs tokens"),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port to listen on; 0 is any free port")
    ] = 4097,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Serve the HTTP API only; workers run in other processes")
    ] = False,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Require a token also for requests from this machine")
    ] = False,
    max_connections: Annotated[
        int | None,
        typer.Option("--max-connections", metavar="N", help="Connections at a time; by default `ulimit -n` less 100"),
    ] = None,
    max_connections_per_client: Annotated[
        int | None,
        typer.Option("--max-connections-per-client", metavar="N", help="Those of one address; by default half of them"),
    ] = None,
    queue: Queues = None,
    grace: Grace = 10.0,
) -> None:
    """Serve the HTTP API and run a worker.

    Both run in this process, until Ctrl-C or SIGTERM.

    hark serve --app shop:app --port 4097
    """
    app, queues = local_only_app(options, "serve"), _parse_queues(queue)
    say = _set_up_log()
    _collect_garbage_less_often()
    _run(
        app.serve(
            host=host, port=port, worker=not no_worker, queues=queues, grace=grace, require_token=require_token,
            max_connections=max_connections, max_connections_per_client=max_connections_per_client, say=say,
        )
    )  # fmt: skip
    _exit_without_running_steps()


def worker(
    options: Options,
    queue: Queues = None,
    grace: Grace = 10.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /metrics and /health on this port; 0 is any free port",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            "--metrics-host",
            metavar="ADDRESS",
            help="The address for --metrics-port; other than loopback needs tokens",
        ),
    ] = "127.0.0.1",
) -> None:
    """Run the steps of an app, jobs and processes.

    Without --app it runs what needs no Python code of yours: commands, approvals and waits of jobs, and processes
    except their service tasks.
    It runs until Ctrl-C or SIGTERM.

    hark worker --app shop:app --queue default=100 --queue billing=5
    """
    app, queues = local_only_app(options, "worker"), _parse_queues(queue)
    if options.app is None:
        queues = queues or _QUEUES_OF_JOBS
    say = _set_up_log()
    _collect_garbage_less_often()
    if metrics_port is None:
        _run(_work(app, queues, grace, say))
    else:
        server = import_extra("hark.doors.http.server", extra="server", needed_by="--metrics-port")
        _run(
            server.serve(
                app, host=metrics_host, port=metrics_port, worker=True, queues=queues, grace=grace,
                require_token=False, say=say, metrics_only=True,
            )
        )  # fmt: skip
    _exit_without_running_steps()


def _set_up_log() -> Callable[[str], None]:
    from hark.doors.cli.log_output import set_up_log  # loads the engine, which `--help` must not

    return set_up_log()


def _parse_queues(items: list[str] | None) -> dict[str, int] | None:
    queues: dict[str, int] = {}
    for item in items or []:
        name, _, size = item.partition("=")
        if not (size.isascii() and size.isdecimal() and len(size) < 10):
            raise InvalidInput(f"--queue {item}: write it as NAME=N, for example default=100.")
        queues[name] = int(size)
    return queues or None


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where there is one for the platform: it saves a twentieth of a busy worker's time."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        asyncio.run(work)
    else:
        uvloop.run(work)


def _collect_garbage_less_often() -> None:
    """Freeze what is loaded, and raise the thresholds: with hundreds of steps in flight the default collects every few
    hundred allocations. Measured: a tenth of a worker's time. Only in processes that are ours alone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _exit_without_running_steps() -> None:
    """Exit without waiting for threads of synchronous steps that outlasted the grace period.

    They were handed back, so another worker may run them again: they must not continue beside it.
    """
    if any(thread.name.startswith("hark-step") for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(0)


async def _work(app: "Hark", queues: dict[str, int] | None, grace: float, say: Callable[[str], None]) -> None:
    import asyncio
    import signal as signals

    from hark.app.opening import open_when_reachable

    await open_when_reachable(app)  # a signal ends the process until then: there is nothing to hand back
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signals.SIGTERM, signals.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        stack.push_async_exit(app)
        await stack.enter_async_context(app.worker(queues, grace=grace))
        say("working; press Ctrl-C or send SIGTERM to stop")
        await stop.wait()
        say("stopping: running steps finish or are handed back")
