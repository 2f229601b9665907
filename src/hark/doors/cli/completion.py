"""Complete values in the shell: statuses, kinds, and the definitions of a store.

A key press must neither fail, nor print, nor wait for a database that does not answer: nothing is completed then.
"""

import contextlib
from typing import get_args

import typer

from hark.doors.cli.options import DEFAULT_DB, Options

_LEASE = 3.0  # seconds: a store gives up connecting after a third of it


def statuses() -> list[str]:
    from hark.model.values import Status

    return list(get_args(Status))


def kinds() -> list[str]:
    from hark.model.values import Kind

    return list(get_args(Kind))


def awakeable_statuses(incomplete: str) -> list[str]:
    from hark.model.values import AwakeableStatus

    return [status.lower() if incomplete.islower() else status for status in get_args(AwakeableStatus)]


def definitions(ctx: typer.Context) -> list[str]:
    """The names in the store that the options or HARK_DB name. The app of `--app` is not imported."""
    options = _options_so_far(ctx)
    found: list[str] = []
    with contextlib.suppress(Exception):
        if options.remote is None and (options.app is None or options.url is not None):
            from hark.app import Hark
            from hark.app.door_access import DoorAccess

            app = Hark(options.url or DEFAULT_DB, schema=options.store_schema or "hark", lease=_LEASE)
            with DoorAccess(app).opened("read", migrate=""):
                found = [one.name for one in DoorAccess(app).startable(limit=1000).result()]
    return found


def _options_so_far(ctx: typer.Context) -> Options:
    """The shared options on the unfinished command line, also those behind the groups before the command."""
    parent = getattr(ctx, "parent", None)
    params = ctx.params.get
    given = Options(db=params("db"), app=params("app"), schema=params("schema"), server=params("server"))
    return given.override(None if parent is None else _options_so_far(parent))
