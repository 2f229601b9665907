"""`hark schedule`: start instances at given times."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import typer

from hark.doors.cli.commands import command, group
from hark.doors.cli.completion import definitions
from hark.doors.cli.engine import open_engine, read_up_to
from hark.doors.cli.options import Options, Wide, parse_json
from hark.doors.cli.output import ago, print_json, printable, when
from hark.doors.cli.tables import line_width, print_table
from hark.model.errors import InvalidInput

cli = group("Start instances at given times: by a cron expression, or at an interval.")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_COLUMNS = ("NAME", "DEFINITION", "WHEN", "NEXT", "LAST", "MISSED", "SKIPPED", "LAST INSTANCE", "ERROR")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule")]


@command(cli)
def create(
    options: Options,
    name: Name,
    definition: Annotated[
        str, typer.Argument(metavar="DEFINITION", help="The name of what to start", autocompletion=definitions)
    ],
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPRESSION", help="Five fields, or six with seconds first")
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="SECONDS", help="The interval: 90 (seconds), 5m, 12h or 7d")
    ] = None,
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="NAME", help="The time zone of --cron, such as Europe/Berlin")
    ] = "UTC",
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="WORD", help="While an earlier instance runs: skip, allow or queue"),
    ] = "skip",
    catch_up: Annotated[
        int, typer.Option("--catch-up", metavar="N", help="How many of the ticks that were missed to start later")
    ] = 1,
    input: Annotated[str | None, typer.Option("--input", metavar="JSON", help="The input of each instance")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The correlation key of each instance")
    ] = None,
) -> None:
    """Create a schedule, or replace the one of this name.

    hark schedule create report Report --cron '0 9 * * MON' --timezone Europe/Berlin
    """
    value = parse_json(input, "--input")
    interval = None if every is None else _parse_interval(every)
    # As for `hark start`: the store of an app may be new, a store that was named must exist.
    named = options.app is None or options.url is not None or options.schema is not None
    with open_engine(options, "write" if named else "migrate") as hark:
        made = hark.schedule(
            name,
            definition,
            value,
            cron=cron,
            every=interval,
            timezone=timezone,
            overlap=overlap,  # type: ignore[arg-type]  # it is checked there
            catch_up=catch_up,
            correlation_key=key,
        ).result()
    print_json(made) if options.json else print(_sentence(made))


def _parse_interval(text: str) -> float:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)([smhd]?)", text, re.ASCII)
    if match is None:
        raise InvalidInput(f"--every {text}: give seconds, or a number like 5m, 12h or 7d.")
    return float(match[1]) * _UNITS[match[2]]


@command(cli, "list")
def list_(options: Options, wide: Wide = False) -> None:
    """List the schedules, by name.

    hark schedule list
    """
    with open_engine(options, "read") as hark:
        found = read_up_to(10_000, None, hark.schedules)
    if options.json:
        print_json(found)
        return
    at = when if line_width(wide) is None else ago
    print_table(
        _COLUMNS,
        [_row(schedule, at) for schedule in found],
        "No schedules. `hark schedule create` makes one.",
        drop=("LAST INSTANCE", "SKIPPED", "MISSED", "ERROR", "LAST", "DEFINITION"),
        wide=wide,
    )


def _row(schedule: Any, at: Callable[[datetime | None], str]) -> tuple[str, ...]:
    return (
        schedule.name,
        schedule.definition,
        _timing(schedule),
        "paused" if schedule.paused else at(schedule.next_at),
        at(schedule.last_at),
        str(schedule.missed),
        str(schedule.skipped),
        schedule.last_id or "-",
        schedule.error or "-",
    )


def _timing(schedule: Any) -> str:
    if schedule.cron is None:
        return f"every {schedule.every:.6f}".rstrip("0").rstrip(".") + " s"
    return str(schedule.cron) if schedule.timezone == "UTC" else f"{schedule.cron} {schedule.timezone}"


@command(cli)
def pause(options: Options, name: Name) -> None:
    """Pause a schedule: it starts nothing until it is resumed.

    hark schedule pause report
    """
    with open_engine(options) as hark:
        schedule = hark.pause_schedule(name).result()
    print_json(schedule) if options.json else print(_sentence(schedule))


@command(cli)
def resume(options: Options, name: Name) -> None:
    """Resume a schedule, from its next tick on.

    hark schedule resume report
    """
    with open_engine(options) as hark:
        schedule = hark.resume_schedule(name).result()
    print_json(schedule) if options.json else print(_sentence(schedule))


@command(cli)
def trigger(options: Options, name: Name) -> None:
    """Start an instance of a schedule now, and print its id.

    hark schedule trigger report
    """
    with open_engine(options) as hark:
        handle = hark.trigger_schedule(name).result()
    print_json({"id": handle.id}) if options.json else print(handle.id)


@command(cli)
def delete(options: Options, name: Name) -> None:
    """Delete a schedule; the instances that it has started continue.

    hark schedule delete report
    """
    with open_engine(options) as hark:
        hark.unschedule(name).result()
    print_json({"name": name, "deleted": True}) if options.json else print(f"{printable(name)} is deleted.")


def _sentence(schedule: Any) -> str:
    name = printable(schedule.name)
    if schedule.paused:
        return f"{name} is paused."
    return f"{name} starts {printable(schedule.definition)} next {when(schedule.next_at)}."
