"""`hark`: the verbs of the engine as commands, on a store or through a running server.

Exit codes: 0 ok, 1 failed, 2 usage (also a missing or invalid file), 3 not found, 4 conflict, 75 suspended,
130 interrupted, 141 the reader of the output ended. An error is one line that says what to do next, without a
traceback (HARK_TRACEBACK=1 shows it).
"""

import os
import sys
from collections.abc import Sequence

import typer

from hark.doors.cli import (
    awakeables,
    bpmn,
    check,
    definitions,
    doctor,
    events,
    init_and_demo,
    instances,
    jobs,
    migrate,
    migrate_and_fork,
    results,
    schedules,
    secrets,
    serve_and_worker,
    start_and_signal,
    timeouts,
    tokens,
    workers,
)
from hark.doors.cli.commands import command, group
from hark.doors.cli.options import Options
from hark.doors.cli.output import printable
from hark.doors.cli.usage_errors import usage_message
from hark.doors.errors import StillSuspended
from hark.model.errors import (
    Conflict,
    Duplicate,
    HarkError,
    InvalidDefinition,
    InvalidInput,
    InvalidMigration,
    MissingExtra,
    NoTarget,
    NotFound,
)
from hark.model.reasons import reason

_EXIT_CODES: dict[type[HarkError], int] = {
    InvalidInput: 2,
    InvalidDefinition: 2,
    InvalidMigration: 2,
    MissingExtra: 2,
    NotFound: 3,
    NoTarget: 3,
    Duplicate: 4,
    Conflict: 4,
    StillSuspended: 75,
}

cli = group("Durable workflows that wait for the outside world.", root=True)
for verb in (
    start_and_signal.start, results.result, start_and_signal.signal, start_and_signal.broadcast,
    start_and_signal.message, init_and_demo.init, init_and_demo.demo, doctor.doctor, events.events,
    workers.workers,
):  # fmt: skip
    command(cli)(verb)
for command_on_a_store in (
    check.check, check.export, serve_and_worker.serve, serve_and_worker.worker, migrate.migrate,
):  # fmt: skip
    command(cli, store_only=True)(command_on_a_store)
command(instances.cli)(migrate_and_fork.migrate)
command(instances.cli)(migrate_and_fork.fork)
cli.add_typer(instances.cli, name="instance")
cli.add_typer(awakeables.cli, name="awakeable")
cli.add_typer(jobs.cli, name="job")
cli.add_typer(bpmn.cli, name="bpmn")
cli.add_typer(definitions.cli, name="definition")
cli.add_typer(schedules.cli, name="schedule")
cli.add_typer(tokens.cli, name="token")
cli.add_typer(secrets.cli, name="secret")
cli.add_typer(timeouts.cli, name="timeout")


def main() -> None:
    """The console script."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process (`hark … >&-`, a service without a console)
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    try:
        given = Options(command_line=tuple(args))
        code = cli(args=list(args), prog_name="hark", standalone_mode=False, obj=given)
    except typer.TyperException as error:
        return _print_error(usage_message(error), 2)
    except HarkError as error:
        return _print_error(str(error), exit_code(error))
    except typer.Abort:
        return 130
    except Exception as error:
        if os.environ.get("HARK_TRACEBACK"):
            raise
        text = f"{type(error).__name__}: {reason(error)}"
        return _print_error(f"Unexpected error: {text}. Set HARK_TRACEBACK=1 to see where, and please report it.", 1)
    return code if isinstance(code, int) else 0


def exit_code(error: HarkError) -> int:
    return next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), 1)


def _print_error(message: str, code: int) -> int:
    sys.stdout.flush()
    print("hark:", printable(" ".join(message.split())), file=sys.stderr)
    return code
