"""`hark check` and `hark export`: what the code of an app does to what is live, before it is deployed."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hark.doors.cli.completion import definitions
from hark.doors.cli.engine import local_only_app, open_store
from hark.doors.cli.options import Options
from hark.doors.cli.output import print_json, printable
from hark.doors.cli.progress import progress_bar
from hark.model.errors import HarkError, InvalidInput

if TYPE_CHECKING:
    from hark.model.report import Report

_NICE = 10

_Names = Annotated[
    list[str] | None,
    typer.Option("--definition", metavar="NAME", help="Only this one; repeatable", autocompletion=definitions),
]


def check(
    options: Options,
    names: _Names = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="A file of `hark export --live`, instead of the store"),
    ] = None,
) -> None:
    """Check new code against what is live, before a deploy.

    Functions are replayed from their journals; nothing is executed, and nothing is written. Exits with 0 if all of
    them go on with the code, with 1 if not, with 2 if it could not look.

    hark check --app shop:app
    """
    try:
        report = _check(options, names or [], export)
    except HarkError as error:
        print(f"hark: {printable(str(error))}", file=sys.stderr)
        raise typer.Exit(2) from error
    if options.json:
        print_json(report)
    else:
        print("\n".join(printable(line) for line in str(report).splitlines()))
    if names and not report.continues and not report.problems:
        print(f"hark: there is no unfinished instance of {printable(' or '.join(names))}.", file=sys.stderr)
    if report.problems:
        raise typer.Exit(1)


def _check(options: Options, names: Sequence[str], export: Path | None) -> "Report":
    from hark.app.door_access import DoorAccess

    if options.app is None:
        raise InvalidInput("Name the app whose code is checked: --app module:app.")
    app = local_only_app(options, "check")
    with _at_low_priority(), progress_bar("checked") as progress:
        if export is not None:
            return DoorAccess(app).check(names, export, progress).result()
        with open_store(app, options, "read") as app:
            return DoorAccess(app).check(names, None, progress).result()


def export(
    options: Options,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write")],
    live: Annotated[bool, typer.Option("--live", help="The unfinished instances, for `hark check --export`")] = False,
    names: _Names = None,
) -> None:
    """Write what is live into a file, for `hark check`.

    With it, CI checks where it cannot reach the store. The file has the states and journals of the instances: keep it
    as safe as the store. It has no secrets of links.

    hark export --live -o live.ndjson
    """
    from hark.app.door_access import DoorAccess

    if not live:
        raise InvalidInput("Say what to export: --live writes the unfinished instances.")
    app = local_only_app(options, "export")
    with progress_bar("written") as progress, open_store(app, options, "read") as app:
        count = DoorAccess(app).export_live(output, names or [], progress).result()
    if options.json:
        print_json({"file": str(output), "instances": count})
    else:
        command = f"hark check --app {options.app or 'module:app'}"
        print(f"{_count(count)} written to {output}. `{command} --export {output}` checks them.")


def _count(number: int) -> str:
    return f"{number} instance{'' if number == 1 else 's'}"


@contextmanager
def _at_low_priority() -> Iterator[None]:
    """Leave the processor to the workers beside this process."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.nice(_NICE)
    try:
        yield
    finally:
        with suppress(PermissionError):  # a command ends here anyway
            os.setpriority(os.PRIO_PROCESS, 0, before)
