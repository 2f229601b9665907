"""The engine that a command works with: a `Hark` on a store, or a `RemoteHark` on a running server.

Databases, servers and the app of the user are imported when a command runs, so that `hark --help` starts fast.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hark.doors.cli.options import DEFAULT_DB, Options
from hark.model.errors import InvalidInput

if TYPE_CHECKING:
    from hark.app import Hark
    from hark.app.door_access import DoorAccess
    from hark.doors.cli.remote import RemoteHark

Engine: TypeAlias = "Hark | RemoteHark"


@contextmanager
def open_engine(options: Options, *, create: bool = False) -> Iterator[Engine]:
    """Open the store of the options, or connect to their server.

    Args:
        options: the shared options of the command.
        create: whether a database that does not exist is created.

    Raises:
        InvalidInput: the options contradict each other, or there is no such database.
    """
    server = options.remote
    if server is not None:
        from hark.doors.cli.remote import RemoteHark

        yield RemoteHark(server, options.token or os.environ.get("HARK_TOKEN") or None)
        return
    app = local_app(options)
    if not create:
        check_database_exists(app)
    with app:
        yield app


def local_app(options: Options) -> "Hark":
    """The app of `--app`, or one without definitions on the store; not open yet."""
    from hark.app import Hark
    from hark.app.door_access import DoorAccess

    if options.app is None:
        return Hark(DEFAULT_DB if options.url is None else options.url, schema=options.schema or "hark")
    module, _, attribute = options.app.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        app = getattr(importlib.import_module(module), attribute or "app")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, ImportError) else str(error)
        raise InvalidInput(
            f"--app {options.app} cannot be loaded: {reason}. Write it as module:app, and run the command in the "
            "folder of the module."
        ) from error
    if not isinstance(app, Hark):
        raise InvalidInput(
            f"--app {options.app} is a {type(app).__name__}, not a Hark. "
            "Give the variable that holds your Hark app, as module:variable."
        )
    if options.url is not None or options.schema is not None:
        DoorAccess(app).use_store(options.url, schema=options.schema)
    return app


def local_only_app(options: Options, command: str) -> "Hark":
    """The same, for a command that a server cannot execute."""
    if options.server is not None:
        raise InvalidInput(f"`hark {command}` works on a store, not through a server. Give --db instead of --server.")
    return local_app(options)


def check_database_exists(app: "Hark") -> None:
    """Refuse to create a database: a typing error in --db would make an empty one, and then find nothing in it."""
    from hark.app.door_access import DoorAccess

    if not DoorAccess(app).exists():
        raise InvalidInput(
            f"There is no database at {app.url}. Check --db or HARK_DB; `hark migrate`, `hark serve` and `hark worker` "
            "create one."
        )


def door_access(engine: Engine) -> "DoorAccess | RemoteHark":
    """What doors need of the engine besides its verbs; a `RemoteHark` has it too."""
    from hark.app import Hark
    from hark.app.door_access import DoorAccess

    return DoorAccess(engine) if isinstance(engine, Hark) else engine
