"""`hark events` and `hark timeout check`: what happened, and making happen what is due."""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from hark.doors.cli.options import Engine, Limit, Options, command, door_access, group, open_engine
from hark.doors.cli.output import print_json, shorten

timeout = group("Deadlines.")
_LOOK = 0.5
_FIRED = {"timeout", "reclaimed"}


def add_commands(cli: typer.Typer) -> None:
    command(cli)(events)


def events(
    options: Options,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only of this job or instance")] = None,
    limit: Limit = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and print what happens")] = False,
) -> None:
    """What happened, newest last.

    hark events --job order:42 --limit 100
    """
    with open_engine(options) as hark:
        found = hark.events(job, limit=limit).result()
        if options.json and not follow:
            print_json(found)
            return
        _print(options, found)
        if not follow:
            print("No events.") if not found else None
            return
        _follow(options, hark, None if job is None else hark.get(job).result().id, found)


def _follow(options: Options, hark: Engine, job: str | None, seen: Sequence[Any]) -> None:
    """What comes after: of one by its own numbers, of all by the cursor, which waits for who commits late."""
    cursor = seen[0].cursor if seen else (0, 0)
    shown = {event.cursor for event in seen}
    while True:
        if job is None:
            news = hark.events_after(cursor).result()
        else:
            news, _ = door_access(hark).follow({job: cursor[1]}, limit=1000).result()
        if news:
            cursor = news[-1].cursor
        _print(options, (event for event in news if event.cursor not in shown))
        sys.stdout.flush()  # into a pipe too
        if not news:
            time.sleep(_LOOK)


def _print(options: Options, found: Iterable[Any]) -> None:
    for event in found:
        if options.json:
            print_json(event)
        else:
            data = "" if event.data is None else shorten(event.data, 100)
            step = shorten(event.step or "-", 30)
            print(f"{event.at:%Y-%m-%d %H:%M:%S}  {event.instance_id}  {event.type:<12} {step:<20} {data}".rstrip())


@command(timeout)
def check(options: Options) -> None:
    """Fire what is due now: timeouts, delays, and work of dead workers. Prints what fired.

    hark timeout check
    """
    with open_engine(options) as hark:
        before = hark.events(limit=1).result()
        last = before[-1].cursor if before else (0, 0)
        hark.sweep().result()
        fired = [event for event in hark.events(limit=10_000).result() if event.cursor > last and _is_due(event)]
    if options.json:
        print_json(fired)
        return
    _print(options, fired)
    print(f"{len(fired)} fired." if fired else "Nothing was due.")


def _is_due(event: Any) -> bool:
    return event.type in _FIRED or (event.type == "awakeable" and event.data.get("status") == "TIMEOUT")
