"""`hark serve` and `hark worker`: the processes that run until they get SIGTERM or Ctrl-C.

With `--processes`, the same function runs in the supervisor and in each process that the supervisor starts. In the
supervisor it ends before the app is loaded.
"""

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hark.doors.cli.engine import local_only_app, use_agents, use_nats
from hark.doors.cli.options import Agents, NatsUrl, Options, parse_agents
from hark.doors.http.listening import address, inherited, listen
from hark.model.errors import InvalidInput
from hark.model.extras import import_extra
from hark.model.masking import masked

if TYPE_CHECKING:
    from hark.app import Hark
    from hark.doors.cli.supervised import Supervised

Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="NAME=N",
        help="Run N instances of this queue at a time, in each process; may be repeated",
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        max=256,
        help="Run in N processes of the operating system; one that dies is started again",
    ),
]
_QUEUES_OF_JOBS = {"default": 100}
Grace = Annotated[
    float,
    typer.Option("--grace", metavar="SECONDS", help="How long running steps may continue after Ctrl-C or SIGTERM"),
]


def serve(
    options: Options,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="The address to listen on; any address but loopback needs tokens (`hark token`)",
        ),
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
        typer.Option(
            "--max-connections",
            metavar="N",
            help="Open connections per process; by default `ulimit -n` less 100",
        ),
    ] = None,
    max_connections_per_client: Annotated[
        int | None,
        typer.Option(
            "--max-connections-per-client",
            metavar="N",
            help="Connections from one address; by default half of --max-connections",
        ),
    ] = None,
    queue: Queues = None,
    grace: Grace = 10.0,
    processes: Processes = 1,
    nats: NatsUrl = None,
    agent: Agents = None,
) -> None:
    """Serve the HTTP API and run a worker.

    Both run in this process, until Ctrl-C or SIGTERM. With --processes they run in each of N processes, which
    accept connections on the same port.

    hark serve --app shop:app --port 4097
    """
    agents = parse_agents(agent)
    if no_worker and agents:
        raise InvalidInput("--agent: --no-worker runs no tasks. Give --agent to `hark worker`.")
    stopping = f"stopping: {'open requests finish' if no_worker else 'running steps finish or are handed back'}"
    supervised = _join_supervisor(processes, grace)
    if processes > 1 and supervised is None:
        listener = listen(host, port)
        running = f"serving on {address(listener)}"
        _supervise(options, [listener] * processes, grace, running=running, stopping=stopping)
    app, queues = local_only_app(options, "serve"), _parse_queues(queue)
    use_nats(app, nats)
    use_agents(app, agents)
    say, before_work = _set_up_log(supervised), None
    if supervised is not None:
        _refuse_store_in_memory(app, processes)
        say, before_work = _say_nothing, supervised.report_ready
    _collect_garbage_less_often()
    server = import_extra("hark.doors.http.server", extra="server", needed_by="hark serve")
    _run(
        server.serve(
            app, host=host, port=port, worker=not no_worker, queues=queues, grace=grace, require_token=require_token,
            max_connections=max_connections, max_connections_per_client=max_connections_per_client, say=say,
            inherited=_inherited(supervised, host), before_work=before_work,
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
            help="Serve /metrics and /health on this port; 0 is any free port. With --processes, each further process "
            "has the next port",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            "--metrics-host",
            metavar="ADDRESS",
            help="The address for --metrics-port; any address but loopback needs tokens (`hark token`)",
        ),
    ] = "127.0.0.1",
    processes: Processes = 1,
    nats: NatsUrl = None,
    agent: Agents = None,
) -> None:
    """Run steps: of your app, of jobs and of BPMN processes.

    Without --app it runs what needs no Python code of yours: commands, approvals and waits of jobs, and processes
    except their service tasks. --agent adds agents.
    It runs until Ctrl-C or SIGTERM.

    hark worker --app shop:app --queue default=100 --queue billing=5
    """
    agents = parse_agents(agent)
    supervised = _join_supervisor(processes, grace)
    if processes > 1 and supervised is None:
        listeners = _metrics_listeners(metrics_host, metrics_port, processes)
        stopping = "stopping: running steps finish or are handed back"
        _supervise(options, listeners, grace, running="working", stopping=stopping, of_each="metrics")
    app, queues = local_only_app(options, "worker"), _parse_queues(queue)
    use_nats(app, nats)
    use_agents(app, agents)
    if options.app is None:
        queues = queues or _QUEUES_OF_JOBS
    say, before_work = _set_up_log(supervised), None
    if supervised is not None:
        _refuse_store_in_memory(app, processes)
        say, before_work = _say_nothing, supervised.report_ready
    _collect_garbage_less_often()
    if metrics_port is None:
        _run(_work(app, queues, grace, say, before_work))
    else:
        server = import_extra("hark.doors.http.server", extra="server", needed_by="--metrics-port")
        _run(
            server.serve(
                app, host=metrics_host, port=metrics_port, worker=True, queues=queues, grace=grace,
                require_token=False, say=say, metrics_only=True, inherited=_inherited(supervised, metrics_host),
                before_work=before_work,
            )
        )  # fmt: skip
    _exit_without_running_steps()


# -- several processes ------------------------------------------------------------------------------


def _join_supervisor(processes: int, grace: float) -> "Supervised | None":
    if processes == 1:
        return None
    from hark.doors.cli.supervised import join_supervisor

    return join_supervisor(grace)


def _supervise(
    options: Options,
    listeners: Sequence[socket.socket | None],
    grace: float,
    *,
    running: str,
    stopping: str,
    of_each: str | None = None,
) -> NoReturn:
    """Run the processes until they are stopped; then exit. This process loads neither the app nor the store.

    `running` and `stopping` are messages about all processes; `of_each` names the service on each own address, if any.
    """
    from hark.doors.cli.supervisor import Supervisor, child_command

    say, number = _set_up_log(), len(listeners)

    def say_address(process: int) -> None:
        listener = listeners[process - 1]
        if of_each is not None and listener is not None:
            say(f"process {process} of {number}: {of_each} on {address(listener)}")

    supervisor = Supervisor(
        child_command(options.command_line or ()),
        listeners,
        grace=grace,
        on_ready=say_address,
        on_all_ready=lambda: say(f"{running} in {number} processes; press Ctrl-C or send SIGTERM to stop"),
        on_stop=lambda: say(stopping),
    )
    raise typer.Exit(supervisor.run())


def _metrics_listeners(host: str, port: int | None, processes: int) -> list[socket.socket | None]:
    """Open the sockets for --metrics-port, one for each process: on a shared one, a scrape would reach any of them."""
    if port is None:
        return [None] * processes
    if port + processes > 65536:
        raise InvalidInput(
            f"--metrics-port {port} with --processes {processes}: each process has the next port, and that of the last "
            "would be above 65535. Choose a lower port."
        )
    return [listen(host, port + place if port else 0) for place in range(processes)]


def _inherited(supervised: "Supervised | None", host: str) -> socket.socket | None:
    if supervised is None or supervised.listener is None:
        return None
    return inherited(supervised.listener, host)


def _say_nothing(line: str) -> None:
    """Print nothing: the supervisor reports for all of its processes."""


def _refuse_store_in_memory(app: "Hark", processes: int) -> None:
    from hark.app.door_access import DoorAccess

    if not DoorAccess(app).is_shareable():
        raise InvalidInput(
            f"--processes {processes}: the store {masked(app.url)} is in the memory of one process. Give a file, for "
            "example --db sqlite:///hark.db, or a PostgreSQL database; or leave out --processes."
        )


# -- one process ------------------------------------------------------------------------------------


def _set_up_log(supervised: "Supervised | None" = None) -> Callable[[str], None]:
    from hark.doors.cli.log_output import set_up_log  # loads the engine, which `--help` must not

    return set_up_log(None if supervised is None else supervised.number)


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


async def _work(
    app: "Hark",
    queues: dict[str, int] | None,
    grace: float,
    say: Callable[[str], None],
    before_work: Callable[[], None] | None,
) -> None:
    import asyncio
    import signal as signals

    from hark.app.opening import open_when_reachable, start_unless_stopped

    await open_when_reachable(app)  # a signal ends the process until then: there is nothing to hand back
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signals.SIGTERM, signals.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        stack.push_async_exit(app)
        worker = app.worker(queues, grace=grace)
        if before_work is not None:
            before_work()
        if not await start_unless_stopped(worker, stop):
            return
        stack.push_async_exit(worker)
        say("working; press Ctrl-C or send SIGTERM to stop")
        await stop.wait()
        say("stopping: running steps finish or are handed back")
