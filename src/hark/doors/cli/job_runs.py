"""`hark job run|status|list|cancel|retry|logs`: run a job here or on a server, and watch jobs."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hark.doors.cli.engine import Engine, door_access, find_target, open_engine, read_up_to
from hark.doors.cli.instances import cancel as cancel_instance
from hark.doors.cli.job_display import JobView, job_view, print_answers, print_report
from hark.doors.cli.job_files import JobFile, parse_job, read_bytes
from hark.doors.cli.options import (
    After,
    Agents,
    Limit,
    NatsUrl,
    Options,
    Tags,
    Wide,
    parse_agents,
    parse_tags,
    parse_values,
)
from hark.doors.cli.output import ago, colored, print_json, print_next_page, printable, shorten
from hark.doors.cli.tables import print_table, shown_ids
from hark.doors.errors import StillSuspended
from hark.model.errors import HarkError, InvalidInput

if TYPE_CHECKING:
    from hark.app.job_files import Job
    from hark.model.job_report import JobReport

_POLL_INTERVAL = 0.2
# Reports in a row that must agree that only waits are left: a report is not one snapshot of the store.
_IDENTICAL_REPORTS = 2
# After so many reports in which nothing runs but handlers that wait in their slots, their tasks are parked: this
# process is about to end.
_LINGERING_REPORTS = 5
_GRACE = 2.0  # seconds that handlers get to finish after Ctrl-C

JobTarget = Annotated[str, typer.Argument(metavar="JOB", help="The id or the correlation key of a job")]


def run(
    options: Options,
    file: JobFile,
    input: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=VALUE", help="An input: JSON if it parses, otherwise text; repeatable"),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Only start the job and print its id")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay while the job waits for answers and signals")] = False,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The id; by default a new one is made")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The correlation key, for example release:42")
    ] = None,
    tag: Tags = None,
    nats: NatsUrl = None,
    agent: Agents = None,
) -> None:
    """Run a job file and show its progress.

    A worker in this process runs the tasks; with --server, the workers of the server do. It ends with the job, or when
    the job only waits: then it exits with 75 and prints how to answer.

    hark job run release.yaml --input service=api
    """
    data = read_bytes(file)
    job = parse_job(file, data)
    inputs = parse_values(input, "--input") or None
    agents = parse_agents(agent)
    if agents and (detach or options.remote is not None):
        here = "--detach runs" if detach else "with --server, this process runs"
        raise InvalidInput(f"--agent: {here} no worker. Give --agent to the worker that runs the job: `hark worker`.")
    more = {"id": id, "correlation_key": key, "tags": parse_tags(tag)}
    started: str | None = None
    with open_engine(options, "create", False if detach else nats, agents) as hark:
        if detach:
            started = _start(hark, job, data, inputs, more)
            print_json({"id": started}) if options.json else print(started)
            return
        _silence_log()
        try:
            with _sigterm_interrupts(), hark.worker(_queues(hark, job), grace=_GRACE):
                started = _start(hark, job, data, inputs, more)
                with job_view(options) as view:
                    report = _watch(hark, started, view, wait)
        except KeyboardInterrupt as interrupt:
            print(
                "hark:",
                options.add_to_commands(_interrupted(started, _how_to_continue(options, hark))),
                file=sys.stderr,
            )
            raise typer.Exit(143 if isinstance(interrupt, _Terminated) else 130) from None
        further = _how_to_continue(options, hark)
    _end(options, report, further)


class _Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM stop the worker as Ctrl-C does: a killed worker keeps its tasks until its lease ends."""

    def interrupt(*_: object) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _silence_log() -> None:
    """Turn the log off: the command shows failures itself, and lines of the log would be written into the table."""
    import logging

    logging.getLogger("hark").addHandler(logging.NullHandler())


def _start(hark: Engine, job: "Job", data: bytes, inputs: Any, more: dict[str, Any]) -> str:
    """Deploy the job and start it. Returns the id of the instance."""
    from hark.app import Hark

    if isinstance(hark, Hark):
        return hark.start(job, inputs, **more).result().id
    from hark.app.job_files import with_name

    [(name, version)] = hark.deploy(with_name(data, job.name)).result()
    id: str = hark.start(name, inputs, version=version, **more).result().id
    return id


def _queues(hark: Engine, job: "Job") -> dict[str, int]:
    """The queues of the job's tasks, and those of the app's own definitions, which its tasks may start."""
    spec = job.spec
    names = {task.queue or spec.queue or "default" for task in spec.tasks} | door_access(hark).queues_of_app()
    return dict.fromkeys(sorted(names), 100)


def _watch(hark: Engine, id: str, view: JobView, wait: bool) -> "JobReport":
    """Show a job until it has ended or, unless `wait`, only waits."""
    from hark.app.door_access import DoorAccess

    access = door_access(hark)
    calm = lingering = 0
    while True:
        report = access.job_report(id).result()
        view.show(report)
        calm = calm + 1 if report.only_waits else 0
        if report.job.finished_at is not None or (calm >= _IDENTICAL_REPORTS and not wait):
            return report
        if not wait and isinstance(access, DoorAccess):
            lingering = lingering + 1 if report.only_waits_beside(access.lingering_tasks()) else 0
            if lingering == _LINGERING_REPORTS:
                access.park_lingering_tasks()
                lingering = 0
        time.sleep(_POLL_INTERVAL)


def _end(options: Options, report: "JobReport", further: str) -> None:
    job = report.job
    if options.json:
        print_json(job)
    elif job.finished_at is not None:
        print(f"{printable(job.definition)} {job.id} is {colored(job.status)}.")
        if job.status == "done" and job.result:
            for name, output in job.result.items():
                print(f"  {printable(name)}: {shorten(output, 100)}")
    if job.status == "done":
        return
    if job.finished_at is not None:
        raise JobEnded(f"{job.definition} {job.id} is {job.status}: {job.error or 'no reason was given'}")
    if not options.json and sys.stdout.isatty():
        print_answers(options, report)  # the table may have cut the commands
    raise StillSuspended(
        f"{job.definition} {job.id} waits for an answer, an event, a signal or a worker. {further} "
        f"See `hark job status {job.id}`."
    )


def _interrupted(job: str | None, further: str) -> str:
    if job is None:
        return "Interrupted: the job may not have been started. See `hark job list`."
    return f"Interrupted: the job {job} is not finished. {further} See `hark job status {job}`."


def _how_to_continue(options: Options, hark: Engine) -> str:
    """Say what continues a job when this process ends: a worker that runs already, or one that has to be started."""
    if options.remote is not None:
        return "The workers of the server continue it."
    if any(worker.live for worker in hark.workers().result()):
        return "A worker that runs continues it."
    return "`hark worker` continues it."


class JobEnded(HarkError):
    """The job of `hark job run` has failed or was cancelled."""


# -- jobs that were started --------------------------------------------------------------------------


def status(options: Options, target: JobTarget) -> None:
    """Show the tasks of a job.

    Prints their states, what they wait for, and the commands that answer it.

    hark job status release:42
    """
    with open_engine(options, "read") as hark:
        report = door_access(hark).job_report(find_target(hark, target)).result()
    print_json(report) if options.json else print_report(options, report)


def list_(
    options: Options,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only with this status, for example failed")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only jobs of this name")] = None,
    tag: Tags = None,
    limit: Limit = 50,
    after: After = None,
    wide: Wide = False,
) -> None:
    """List jobs, newest first.

    hark job list --status failed
    """
    filters: dict[str, Any] = {"status": status, "definition": name, "kind": "job", "tags": parse_tags(tag)}
    with open_engine(options, "read") as hark:
        found = read_up_to(limit, after, partial(hark.list, **filters))
    if options.json:
        print_json(found)
        return
    ids = shown_ids((one.id for one in found), wide)
    print_table(
        ("ID", "JOB", "STATUS", "TASKS", "KEY", "STARTED"),
        (
            [ids[one.id], one.definition, one.status, _tasks(one), one.correlation_key or "-", ago(one.created_at)]
            for one in found
        ),
        "No such jobs." if status or name or tag else "No jobs.",
        drop=("STARTED", "KEY", "TASKS"),
        wide=wide,
    )
    print_next_page(found)


def _tasks(job: Any) -> str:
    """The progress of a job: `3/5, 1 suspended`."""
    tasks = _tasks_of(job)
    if not tasks:
        return "-"
    states = [task["status"] for task in tasks.values()]
    done = sum(state in ("completed", "skipped") for state in states)
    others = [f"{states.count(state)} {state}" for state in ("running", "suspended", "failed") if state in states]
    return ", ".join([f"{done}/{len(states)}", *others])


def _tasks_of(job: Any) -> dict[str, Any]:
    """The tasks of a job by name; none of an instance that is not a job."""
    tasks = job.state.get("tasks") if isinstance(job.state, dict) else None
    return tasks if isinstance(tasks, dict) else {}


def cancel(
    options: Options,
    target: JobTarget,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="The reason; it becomes the error of the job")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="End it now, without its `finally` tasks and undos")] = False,
) -> None:
    """Cancel a job and its tasks.

    Its `finally` tasks and the undos of its completed tasks run first, on a worker.

    hark job cancel release:42 --reason "not today"
    """
    cancel_instance(options, target, reason, force)


def retry(options: Options, target: JobTarget) -> None:
    """Run the failed tasks of a failed job again.

    Completed tasks keep their outputs, failed ones their checkpoints.

    hark job retry release:42
    """
    with open_engine(options) as hark:
        found = hark.retry(find_target(hark, target)).result()
        further = "" if options.json else _how_to_continue(options, hark)
    if options.json:
        print_json(found)
        return
    print(f"{found.id} is {colored(found.status)}.")
    print(options.add_to_commands(f"{further} `hark job status {found.id}` shows it."))


def logs(
    options: Options,
    target: JobTarget,
    task: Annotated[str | None, typer.Option("--task", metavar="NAME", help="Only those of this task")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print what comes until the job ends, or Ctrl-C")
    ] = False,
) -> None:
    """Print what the tasks of a job have streamed.

    These are the chunks of `put_stream` and the standard error of commands, each behind the name of its task.

    hark job logs release:42 -f
    """
    with open_engine(options, "read") as hark:
        job = hark.get(find_target(hark, target)).result()
        tasks = _tasks_of(job)
        if task is not None and tasks and task not in tasks:
            from hark.model.nearest import did_you_mean

            hint = did_you_mean(task, tasks) or f" See `hark job status {job.id}`."
            raise InvalidInput(f"The job {job.definition!r} has no task {task!r}.{hint}")
        for event in _streamed(hark, job.id, follow):
            data = event.data if isinstance(event.data, dict) else {}
            if task is not None and data.get("task") != task:
                continue
            if options.json:
                print_json(event)
            else:
                _print_chunk(data)
            sys.stdout.flush()  # into a pipe too


def _print_chunk(data: dict[str, Any]) -> None:
    chunk = data.get("chunk")
    lines = chunk.rstrip("\n").split("\n") if isinstance(chunk, str) else [chunk]
    for line in lines:
        print(f"{colored(printable(data.get('task') or '-'), 'cyan')} | {printable(line)}")


def _streamed(hark: Engine, job: str, follow: bool) -> Iterator[Any]:
    """The chunks that the tasks of a job have streamed, from the first; with `follow`, also those that come."""
    cursor = (0, 0)
    while True:
        # Read before the events: if the job has ended by now, all of its events are in the store.
        ended = not follow or hark.get(job).result().finished_at is not None
        new = hark.events(job, after=cursor, limit=1000).result()
        yield from (event for event in new if event.type == "stream")
        if new:
            cursor = new[-1].cursor
        elif ended:
            return
        else:
            time.sleep(_POLL_INTERVAL)
