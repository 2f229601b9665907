"""`hark events`: the history of all instances, or of one."""

import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from hark.doors.cli.engine import Engine, find_target, open_engine, read_up_to
from hark.doors.cli.options import Job, Limit, Options, Wide
from hark.doors.cli.output import print_json, printable, shorten
from hark.doors.cli.tables import cut_line, line_width, shown_ids

_POLL_INTERVAL = 0.5


def events(
    options: Options,
    job: Job = None,
    limit: Limit = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new events until Ctrl-C")] = False,
    wide: Wide = False,
) -> None:
    """Print the latest events, newest last.

    hark events --job order:42 --limit 100
    """
    with open_engine(options, "read") as hark:
        job = None if job is None else find_target(hark, job)
        found = read_up_to(limit, None, partial(hark.events, job))
        if options.json and not follow:
            print_json(found)
            return
        print_events(options, found, wide)
        if not follow:
            print("No events.") if not found else None
            return
        _follow(options, hark, None if job is None else hark.get(job).result().id, found, wide)


def _follow(options: Options, hark: Engine, id: str | None, seen: Sequence[Any], wide: bool) -> None:
    """Print new events: none is skipped, also if its turn commits late."""
    cursor = seen[0].cursor if seen else (0, 0)
    printed = {event.cursor for event in seen}
    while True:
        new = hark.events(id, after=cursor, limit=1000).result()
        if new:
            cursor = new[-1].cursor
        print_events(options, (event for event in new if event.cursor not in printed), wide)
        sys.stdout.flush()  # into a pipe too
        if not new:
            time.sleep(_POLL_INTERVAL)


def print_events(options: Options, found: Iterable[Any], wide: bool = False) -> None:
    found, limit = list(found), line_width(wide)
    ids = shown_ids((event.instance_id for event in found), wide)
    steps = [shorten(event.step or "-", 30) for event in found]
    width = min(max(map(len, steps), default=0), 20)
    for event, step in zip(found, steps, strict=True):
        if options.json:
            print_json(event)
        else:
            data = "" if event.data is None else printable(event.data) if wide else _summary(event.data)
            line = f"{event.at:%Y-%m-%d %H:%M:%S}  {ids[event.instance_id]}  {event.type:<12} {step:<{width}}  {data}"
            print(cut_line(line.rstrip(), limit))


def _summary(data: Any) -> str:
    """The data of an event on one line. Of a failed attempt: its error, which the JSON has behind other things."""
    if isinstance(data, dict) and isinstance(data.get("message"), str):
        kind = data.get("type")
        data = f"{kind}: {data['message']}" if kind else data["message"]
    return shorten(data, 100)
