"""`hark result`, and the end of `hark start --wait`: wait until an instance has ended, and print its result alone."""

import shlex
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from hark.doors.cli.engine import Engine, find_target, open_engine
from hark.doors.cli.options import Options, Target
from hark.doors.cli.output import print_result
from hark.doors.errors import StillSuspended
from hark.model.errors import end_without_result
from hark.model.names import micros

if TYPE_CHECKING:
    from hark.model.values import Instance

_LONG_POLL = 30.0  # seconds of one request to a server, which answers at once when the instance ends
_FIRST_LOOK, _LAST_LOOK = 0.01, 0.2  # seconds between two reads of a store, growing

Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="Wait at most this long, then exit with 75")
]


def result(options: Options, target: Target, timeout: Timeout = None) -> None:
    """Wait until an instance has ended, and print its result.

    Prints nothing else: text as it is, any other value as JSON; with --json, text is JSON too. Exits with 1 if the
    instance failed or was cancelled, and with 75 when --timeout has passed.

    hark result order:42 --timeout 60
    """
    check_timeout(timeout)
    with open_engine(options, "read") as hark:
        print_end(options, hark, find_target(hark, target), timeout)


def check_timeout(timeout: float | None) -> None:
    """Check the option --timeout of a command that waits. With 0 it looks once."""
    if timeout is not None:
        micros(timeout, "--timeout", zero=True)


def print_end(options: Options, hark: Engine, target: str, timeout: float | None) -> None:
    """Wait until an instance has ended, and print its result.

    Raises:
        InstanceFailed: It has failed.
        InstanceCancelled: It was cancelled.
        StillSuspended: It has not ended in time. It continues.
    """
    try:
        found = _wait_for_end(hark, target, timeout)
    except KeyboardInterrupt:
        again = f"`hark result {shlex.quote(target)}`"
        said = f"Interrupted: {target} continues without this command. Wait for it again with {again}."
        print("hark:", options.add_to_commands(said), file=sys.stderr)
        raise typer.Exit(130) from None
    if found.status != "done":
        raise end_without_result(found.id, found.status, found.error)
    print_result(found.result, as_json=options.json)


def _wait_for_end(hark: Engine, target: str, timeout: float | None) -> "Instance":
    end = None if timeout is None else time.monotonic() + timeout
    found: Instance = hark.get(target).result()
    interval = _FIRST_LOOK
    while found.finished_at is None:
        left = _LONG_POLL if end is None else end - time.monotonic()
        if left <= 0:
            raise StillSuspended(
                f"Instance {found.id} has not ended within {timeout:g} s; it continues. Wait for it with `hark result "
                f"{found.id}`, or see what it waits for with `hark instance why {found.id}`."
            )
        # By its id: the key may belong to another instance by the time this one has ended.
        found = _look_again(hark, found.id, left, interval)
        interval = min(interval * 1.5, _LAST_LOOK)
    return found


def _look_again(hark: Engine, id: str, left: float, interval: float) -> "Instance":
    """Read an instance again: of a server when it has ended, of a store after the interval.

    A command that only looks gets no hints from other processes, because a role that may only read may not listen.
    """
    from hark.app import Hark

    found: Instance
    if isinstance(hark, Hark):
        time.sleep(min(left, interval))
        found = hark.get(id).result()
    else:
        found = hark.get(id, wait=min(left, _LONG_POLL)).result()
    return found
