"""`hark events` and `hark timeout check`: what happened, and making happen what is due."""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from hark.doors.cli.options import Engine, Given, Limit, access_of, command, group, opened
from hark.doors.cli.output import emit, short

timeout = group("Deadlines.")
_LOOK = 0.5
_FIRED = {"timeout", "reclaimed"}


def declare(cli: typer.Typer) -> None:
    command(cli)(events)


def events(
    given: Given,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only of this job or instance")] = None,
    limit: Limit = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and print what happens")] = False,
) -> None:
    """What happened, newest last.

    hark events --job order:42 --limit 100
    """
    with opened(given) as hark:
        found = hark.events(job, limit=limit).result()
        if given.json and not follow:
            emit(found)
            return
        _print(given, found)
        if not follow:
            print("No events.") if not found else None
            return
        _follow(given, hark, None if job is None else hark.get(job).result().id, found)


def _follow(given: Given, hark: Engine, job: str | None, seen: Sequence[Any]) -> None:
    """What comes after: of one by its own numbers, of all by the cursor, which waits for who commits late."""
    cursor = seen[0].cursor if seen else (0, 0)
    shown = {event.cursor for event in seen}
    while True:
        if job is None:
            news = hark.events_after(cursor).result()
        else:
            news, _ = access_of(hark).follow({job: cursor[1]}, limit=1000).result()
        if news:
            cursor = news[-1].cursor
        _print(given, (event for event in news if event.cursor not in shown))
        sys.stdout.flush()  # into a pipe too
        if not news:
            time.sleep(_LOOK)


def _print(given: Given, found: Iterable[Any]) -> None:
    for event in found:
        if given.json:
            emit(event)
        else:
            data = "" if event.data is None else short(event.data, 100)
            step = short(event.step or "-", 30)
            print(f"{event.at:%Y-%m-%d %H:%M:%S}  {event.instance_id}  {event.type:<12} {step:<20} {data}".rstrip())


@command(timeout)
def check(given: Given) -> None:
    """Fire what is due now: timeouts, delays, and work of dead workers. Prints what fired.

    hark timeout check
    """
    with opened(given) as hark:
        before = hark.events(limit=1).result()
        last = before[-1].cursor if before else (0, 0)
        hark.sweep().result()
        fired = [event for event in hark.events(limit=10_000).result() if event.cursor > last and _is_due(event)]
    if given.json:
        emit(fired)
        return
    _print(given, fired)
    print(f"{len(fired)} fired." if fired else "Nothing was due.")


def _is_due(event: Any) -> bool:
    return event.type in _FIRED or (event.type == "awakeable" and event.data.get("status") == "TIMEOUT")
