"""`hark timeout`: fire deadlines that are due."""

from typing import Any

from hark.doors.cli.commands import command, group
from hark.doors.cli.engine import open_engine
from hark.doors.cli.events import print_events
from hark.doors.cli.options import Options
from hark.doors.cli.output import print_json

cli = group("Fire timeouts that are due.")
_FIRED = {"timeout", "reclaimed"}


@command(cli, store_only=True)
def check(options: Options) -> None:
    """Fire the timeouts that are due now, and print them.

    It also ends delays that are over, and takes back the work of dead workers. A running worker does the same by
    itself.

    hark timeout check
    """
    with open_engine(options) as hark:
        before = hark.events(limit=1).result()
        last = before[-1].cursor if before else (0, 0)
        hark.sweep().result()
        fired = [event for event in hark.events(limit=10_000).result() if event.cursor > last and _has_fired(event)]
    if options.json:
        print_json(fired)
        return
    print_events(options, fired)
    print(f"{len(fired)} fired." if fired else "No timeout was due.")


def _has_fired(event: Any) -> bool:
    return event.type in _FIRED or (event.type == "awakeable" and event.data.get("status") == "TIMEOUT")
