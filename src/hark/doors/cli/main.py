"""`hark`: works straight on the database named by --db or HARK_DB.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 conflict. Errors say what to do next.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
import os
import signal as signals
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from hark.app import Hark
from hark.model import json
from hark.model.errors import Conflict, Duplicate, HarkError, InvalidInput, NoTarget, NotFound

cli = typer.Typer(
    help="Durable workflows that wait for the world.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)

Db = Annotated[str, typer.Option("--db", envvar="HARK_DB", help="The store: sqlite:///file.db or postgresql://…")]
App = Annotated[str | None, typer.Option("--app", help="module:app, for your code and its options")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON")]
Schema = Annotated[str, typer.Option("--schema", help="PostgreSQL schema")]
DEFAULT_DB = "sqlite:///hark.db"

_EXIT: dict[type[HarkError], int] = {
    InvalidInput: 2,
    NotFound: 3,
    NoTarget: 3,
    Duplicate: 4,
    Conflict: 4,
}


def main() -> None:
    """Run the command line; an error is one line and an exit code, never a traceback."""
    try:
        cli()
    except HarkError as error:
        print(f"hark: {error}", file=sys.stderr)
        sys.exit(next((code for kind, code in _EXIT.items() if isinstance(error, kind)), 1))


def load_app(name: str | None, db: str, schema: str = "hark") -> Hark:
    """The app to work with: somebody's own, or a bare one on the database."""
    if name is None:
        return Hark(db, schema=schema)
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        app = getattr(importlib.import_module(module), attribute or "app")
    except (ImportError, AttributeError) as error:
        raise InvalidInput(
            f"--app {name}: {error}. Write it as module:app, from the folder the module is in."
        ) from error
    if not isinstance(app, Hark):
        raise InvalidInput(f"--app {name} is no Hark app but {type(app).__name__}.")
    return app


@contextlib.contextmanager
def opened(db: str, schema: str, name: str | None = None) -> Iterator[Hark]:
    with load_app(name, db, schema) as app:
        yield app


def payload_of(payload: str | None, text: bool, file: Path | None) -> Any:
    """JSON if it parses, else text; `--text` says text; a file instead of both; none is null."""
    if file is not None:
        if payload is not None:
            raise InvalidInput("Give --payload or --file, not both.")
        try:
            raw = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"--file {file}: {error}.") from error
        payload = raw
    if payload is None or text:
        return payload
    try:
        return json.parse(payload, what="--payload")
    except InvalidInput:
        return payload


def show(value: Any, as_json: bool) -> None:
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    if as_json:
        print(json.dump(plain))
        return
    for key, item in plain.items():
        print(f"{key:<16} {item}")


@cli.command()
def migrate(
    db: Db = DEFAULT_DB,
    schema: Schema = "hark",
    dump_sql: Annotated[bool, typer.Option("--dump-sql", help="Print the SQL instead of running it")] = False,
) -> None:
    """Bring the store up to date (opening an app does the same)."""
    if dump_sql:
        from hark.app import dump_migrations

        print(dump_migrations(db, schema))
        return
    with opened(db, schema):
        print(f"{db.split('@')[-1]} is up to date.")


@cli.command()
def start(
    definition: str,
    input: Annotated[str | None, typer.Option("--input", help="JSON")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Correlation key")] = None,
    db: Db = DEFAULT_DB,
    schema: Schema = "hark",
    app: App = None,
    as_json: Json = False,
) -> None:
    """Start an instance by its definition's name."""
    value = None if input is None else json.parse(input, what="--input")
    with opened(db, schema, app) as hark:
        handle = hark.start(definition, value, correlation_key=key).result()
        show({"id": handle.id}, True) if as_json else print(handle.id)


@cli.command()
def signal(
    target: str,
    name: str,
    payload: Annotated[str | None, typer.Option("--payload", help="JSON if it parses, else text")] = None,
    text: Annotated[bool, typer.Option("--text", help="The payload is text")] = False,
    file: Annotated[Path | None, typer.Option("--file", help="Read the payload from a file")] = None,
    dedup_key: Annotated[
        str | None, typer.Option("--dedup-key", help="A second one with this key is a duplicate")
    ] = None,
    db: Db = DEFAULT_DB,
    schema: Schema = "hark",
    as_json: Json = False,
) -> None:
    """Send a signal to an instance, by id or correlation key."""
    with opened(db, schema) as hark:
        delivery = hark.signal(target, name, payload_of(payload, text, file), dedup_key=dedup_key).result()
        show(delivery, True) if as_json else print(delivery.status)


@cli.command()
def worker(
    app: Annotated[str, typer.Option("--app", help="module:app")],
    queue: Annotated[list[str] | None, typer.Option("--queue", help="name=concurrency, as often as needed")] = None,
    grace: Annotated[float, typer.Option("--grace", help="Seconds running steps get at a stop")] = 10.0,
) -> None:
    """Run the steps of an app until SIGTERM or Ctrl-C."""
    queues: dict[str, int] = {}
    for item in queue or []:
        name, _, size = item.partition("=")
        if not size.isdecimal():
            raise InvalidInput(f"--queue {item}: write it as name=concurrency, for example default=100.")
        queues[name] = int(size)
    asyncio.run(_work(load_app(app, DEFAULT_DB), queues or None, grace))
    if any(thread.name.startswith("hark-step") for thread in threading.enumerate()):
        # A plain step that would not end was handed back: it must not run on beside its successor.
        sys.stdout.flush()
        os._exit(0)


async def _work(app: Hark, queues: dict[str, int] | None, grace: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signals.SIGTERM, signals.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with app, app.worker(queues, grace=grace):
        print("working; SIGTERM or Ctrl-C stops", flush=True)
        await stop.wait()
        print("stopping: running steps finish or are handed back", flush=True)
