"""Show a job: as a block of lines, a line per change, or a live table on a terminal."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from hark.doors.cli.help import on_terminal
from hark.doors.cli.options import Options
from hark.doors.cli.output import ago, colored, printable, shorten
from hark.model.durations import short_duration

if TYPE_CHECKING:
    from hark.model.job_report import JobReport, TaskReport

_MARKS = {
    "pending": "·", "running": "▸", "suspended": "‖", "completed": "✓", "failed": "✗", "skipped": "-", "cancelled": "⊘",
}  # fmt: skip
_STYLES = {
    "running": "cyan", "suspended": "yellow", "completed": "green", "failed": "red", "skipped": "dim",
    "cancelled": "dim",
}  # fmt: skip
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_MOST_TASKS = 40  # rows of the live table; of a larger job those that need attention


class JobView(Protocol):
    """Shows the progress of a job."""

    def show(self, report: "JobReport") -> None: ...


# -- lines -----------------------------------------------------------------------------------------


def mark(task: "TaskReport") -> str:
    """The sign before a task. A task that waits for its gate has done its work."""
    return "✓" if task.at_gate else _MARKS.get(task.status, "?")


def task_line(task: "TaskReport") -> str:
    """A task on one line: `✓ verify [suspended] [gate: user_approval]`."""
    gate = f" [gate: {task.gate}]" if task.gate is not None and task.is_open else ""
    more = [f"attempt {task.attempt}"] if task.attempt > 1 else []
    if (seconds := _seconds(task)) is not None:
        more.append(short_duration(seconds))
    state = colored(task.status, _STYLES.get(task.status))
    detail = f" ({', '.join(more)})" if more else ""
    return f"{mark(task)} {printable(task.name)} [{state}]{printable(gate)}{detail}"


def task_details(options: Options, task: "TaskReport") -> Iterator[str]:
    """The lines below a task: its error, what it waits for, and how to answer it."""
    if task.error is not None and task.status in ("failed", "cancelled"):
        yield colored(printable(task.error), "red" if task.status == "failed" else "dim")
    if task.note is not None:
        yield printable(options.add_to_commands(task.note))
    for wait in task.waits:
        if not wait.ended_from_outside:
            if wait.deadline is not None:
                yield f"until {wait.deadline:%Y-%m-%d %H:%M:%S} UTC ({ago(wait.deadline)})"
            continue
        until = f", until {wait.deadline:%Y-%m-%d %H:%M:%S} UTC" if wait.deadline is not None else ""
        yield f"waits for {printable(wait.title or f'{wait.kind} {wait.name}')}{until}"
        if wait.wake is None and wait.deadline is not None:
            yield options.add_to_commands("its time is over: a worker, or `hark timeout check`, ends the wait")
        if wait.wake is not None:
            yield colored(f"{printable(wait.wake)}{options.as_given()}", "bold")


def print_report(options: Options, report: "JobReport") -> None:
    job = report.job
    print(f"{printable(job.definition)} {job.id} {colored(job.status)} (started {ago(job.created_at)})")
    for task in report.tasks:
        print(task_line(task))
        for line in task_details(options, task):
            print(f"    {line}")
    if job.error is not None:
        print(colored(f"{printable(job.error)}", "red"))


def print_answers(options: Options, report: "JobReport") -> None:
    """Print what the job waits for, and the commands that answer it."""
    for task in report.tasks:
        if task.is_open:
            for line in task_details(options, task):
                print(f"{printable(task.name)}: {line}")


def _seconds(task: "TaskReport") -> float | None:
    if task.started_at is None or task.status in ("pending", "skipped"):
        return None
    return max(0.0, ((task.finished_at or datetime.now(UTC)) - task.started_at).total_seconds())


# -- the progress of a run -------------------------------------------------------------------------


@contextmanager
def job_view(options: Options) -> Iterator[JobView]:
    """A live table on a terminal; a line per change elsewhere; nothing with --json."""
    if options.json:
        yield SilentView()
    elif on_terminal():
        with LiveView(options) as view:
            yield view
    else:
        yield LineView(options)


class SilentView:
    """Shows nothing: the output is for a program."""

    def show(self, report: "JobReport") -> None:
        pass


class LineView:
    """Prints a line when the state, the attempt or the wait of a task has changed."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._shown: dict[str, object] = {}

    def show(self, report: "JobReport") -> None:
        for task in report.tasks:
            if task.status == "pending" and task.note is None and task.name not in self._shown:
                continue
            what = (task.status, task.attempt, task.at_gate, task.note, tuple(wait.name for wait in task.waits))
            if self._shown.get(task.name) == what:
                continue
            self._shown[task.name] = what
            print(task_line(task))
            for line in task_details(self._options, task):
                print(f"    {line}")
        sys.stdout.flush()  # into a pipe too


class LiveView:
    """A table that is drawn anew with each report; the last one stays on the screen."""

    def __init__(self, options: Options) -> None:
        from rich.console import Console
        from rich.live import Live

        self._options = options
        self._live = Live(console=Console(highlight=False), auto_refresh=False, transient=False)

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, report: "JobReport") -> None:
        self._live.update(self._table(report), refresh=True)

    def _table(self, report: "JobReport") -> Any:
        from rich.table import Table
        from rich.text import Text

        job = report.job
        table = Table(box=None, pad_edge=False, title_justify="left", expand=False)
        table.title = Text(f"{printable(job.definition)} {job.id}", style="bold")
        for name in ("", "TASK", "STATE", "ATTEMPT", "TIME", ""):
            table.add_column(Text(name, style="bold"), no_wrap=name != "", overflow="fold")
        shown = _most_important(report)
        for task in shown:
            seconds = _seconds(task)
            table.add_row(
                Text(mark(task)),
                Text(shorten(task.name, 40)),
                Text(task.status, style=_STYLES.get(task.status, "")),
                Text(str(task.attempt) if task.attempt else ""),
                Text("" if seconds is None else short_duration(seconds)),
                Text("\n".join(_plain_details(self._options, task))),
            )
        left = len(report.tasks) - len(shown)
        if left:
            table.caption = Text(f"and {left} more; see `hark job status {job.id}`")
        return table


def _plain_details(options: Options, task: "TaskReport") -> Iterator[str]:
    """The details without colors, which the table has by itself."""
    for line in task_details(options, task):
        yield _ANSI.sub("", line)


def _most_important(report: "JobReport") -> list["TaskReport"]:
    """Choose the rows of the table, in the order of the file: tasks that run, wait or failed before all others."""
    if len(report.tasks) <= _MOST_TASKS:
        return list(report.tasks)
    order = {"running": 0, "suspended": 0, "failed": 0, "pending": 2}
    ranked = sorted(range(len(report.tasks)), key=lambda number: order.get(report.tasks[number].status, 1))
    return [report.tasks[number] for number in sorted(ranked[:_MOST_TASKS])]
