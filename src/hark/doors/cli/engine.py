"""The engine that a command works with: a `Hark` on a store, or a `RemoteHark` on a running server.

Databases, servers and the app of the user are imported when a command runs, so that `hark --help` starts fast.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hark.doors.cli.app_loading import load_app
from hark.doors.cli.options import DEFAULT_DB, Options
from hark.doors.errors import Forbidden
from hark.model.errors import InvalidInput, NotFound
from hark.model.masking import masked

if TYPE_CHECKING:
    from hark.app import Hark
    from hark.app.door_access import DoorAccess
    from hark.doors.cli.remote import RemoteHark
    from hark.model.page import Page

Engine: TypeAlias = "Hark | RemoteHark"
Access: TypeAlias = Literal["migrate", "create", "write", "read"]


@contextmanager
def open_engine(
    options: Options,
    access: Access = "write",
    nats: str | Literal[False] | None = False,
    agents: dict[str, list[str]] | None = None,
) -> Iterator[Engine]:
    """Open the store of the options, or connect to their server.

    Args:
        options: the shared options of the command.
        access: "read" for a command that only looks: nothing is written, and a read-only database is enough; "write"
            for one that changes instances; "create" to create the store first if it has no tables; "migrate" to create
            or update it.
        nats: the URL of `--nats`, or None; False: do not use NATS.
        agents: the command lines of `--agent`, by name.

    Raises:
        InvalidInput: the options contradict each other, or there is no such database.
    """
    server = options.remote
    if server is not None:
        from hark.doors.cli.remote import RemoteHark

        yield RemoteHark(server, options.token or os.environ.get("HARK_TOKEN") or None)
        return
    app = local_app(options)
    use_agents(app, agents or {})
    if nats is not False:
        use_nats(app, nats)
    with open_store(app, options, access, nats=nats is not False) as app:
        yield app


@contextmanager
def open_store(app: "Hark", options: Options, access: Access = "write", *, nats: bool = False) -> Iterator["Hark"]:
    """Open an app as `open_engine` does."""
    from hark.app.door_access import DoorAccess

    if not nats:
        DoorAccess(app).leave_nats_alone()
    if access == "migrate":
        with app:
            yield app
    else:
        with DoorAccess(app).opened(access, migrate=f"hark migrate{options.as_given()}"):
            yield app


def local_app(options: Options) -> "Hark":
    """The app of `--app`, or one without definitions on the store; not open yet."""
    from hark.app import Hark
    from hark.app.door_access import DoorAccess

    if options.app is None:
        return Hark(DEFAULT_DB if options.url is None else options.url, schema=options.store_schema or "hark")
    app = load_app(options.app)
    if options.url is not None or options.store_schema is not None:
        DoorAccess(app).use_store(options.url, schema=options.store_schema)
    return app


def use_nats(app: "Hark", url: str | None) -> None:
    """Let an app use the NATS server of `--nats` or `HARK_NATS`; both override the app's own.

    Raises:
        InvalidInput: The URL is malformed; the text says where it was given.
        MissingExtra: The NATS client is not installed.
    """
    from hark.app.door_access import DoorAccess

    given = url if url is not None else os.environ.get("HARK_NATS") or None
    try:
        DoorAccess(app).use_nats(given)
    except InvalidInput as error:
        raise InvalidInput(f"{'HARK_NATS' if url is None else '--nats'}: {error}") from None


def use_agents(app: "Hark", agents: dict[str, list[str]]) -> None:
    """Let an app run the agents of `--agent`; these override `HARK_AGENTS` and the app's own.

    Raises:
        InvalidInput: One of them cannot have this name.
    """
    from hark.app.door_access import DoorAccess

    try:
        DoorAccess(app).use_agents(agents)
    except InvalidInput as error:
        raise InvalidInput(f"--agent: {error}") from None


def local_only_app(options: Options, command: str) -> "Hark":
    """The `local_app` of a command that a server cannot execute."""
    refused = f"`hark {command}` works on a store, not through a server."
    if options.server is not None:
        raise InvalidInput(f"{refused} Give the --db of the server's store instead of --server.")
    if options.db is options.app is None and (server := os.environ.get("HARK_SERVER")):
        if options.url is None:
            raise InvalidInput(f"{refused} HARK_SERVER is {masked(server)}: give the --db of the store of that server.")
        print(f"hark: {refused} It uses HARK_DB, and ignores HARK_SERVER.", file=sys.stderr)
    return local_app(options)


_ABBREVIATED = re.compile("[0-9a-f]{8}[0-9a-f-]{0,27}")


def find_target(engine: Engine, target: str) -> str:
    """The target itself, or the id of the one instance whose id begins with it: tables print shortened ids.

    Raises:
        InvalidInput: Several ids begin with it.
    """
    if not _ABBREVIATED.fullmatch(target):
        return target
    try:
        engine.get(target).result()
        return target
    except Forbidden:  # the token may signal, but not read
        return target
    except NotFound:
        found = door_access(engine).ids_beginning(target).result()
    if len(found) > 1:
        raise InvalidInput(
            f"Several instances have an id that begins with {target}, for example {found[0]} and {found[1]}. "
            "Give more of it; `hark instance list --wide` prints whole ids."
        )
    return found[0] if found else target


def read_up_to(limit: int, after: str | None, read: Callable[..., Any]) -> "Page[Any]":
    """Read as many items as a command asks for: a page of large ones, or of a server, ends before its limit."""
    found = read(limit=limit, after=after).result()
    while found.next is not None and len(found) < limit:
        page = read(limit=limit - len(found), after=found.next).result()
        if found.next.startswith("~"):  # the latest events: further pages go back in time
            found[:0] = page
        else:
            found += page
        found.next = page.next
    return found  # type: ignore[no-any-return]


def door_access(engine: Engine) -> "DoorAccess | RemoteHark":
    """The `DoorAccess` of an engine; a `RemoteHark` has the operations of one itself."""
    from hark.app import Hark

    if not isinstance(engine, Hark):
        return engine
    from hark.app.door_access import DoorAccess

    return DoorAccess(engine)
