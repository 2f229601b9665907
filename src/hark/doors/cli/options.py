"""What every command is given: where to work, as whom, and how to print it.

`--db --app --schema --json --server --token` are taken before the command, between a group and its
command, and after it; the last one said wins, and all of them win over HARK_DB, HARK_SERVER and
HARK_TOKEN. Nothing heavy is imported here: a database, a server or somebody's app only when a command runs.
"""

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from hark.model.errors import InvalidInput

if TYPE_CHECKING:
    from hark.app import Hark
    from hark.app.door_access import DoorAccess
    from hark.doors.cli.remote import RemoteHark

Engine: TypeAlias = "Hark | RemoteHark"
DEFAULT_DB = "sqlite:///hark.db"

_OPTIONS: dict[str, Any] = {
    "db": Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="The store: sqlite:///file.db or postgresql://… [env: HARK_DB]"),
    ],
    "app": Annotated[str | None, typer.Option("--app", metavar="MODULE:APP", help="Your app, from this folder")],
    "schema": Annotated[str | None, typer.Option("--schema", metavar="NAME", help="The schema in PostgreSQL")],
    "server": Annotated[
        str | None,
        typer.Option("--server", metavar="URL", help="Ask a running server instead [env: HARK_SERVER]"),
    ],
    "token": Annotated[
        str | None, typer.Option("--token", metavar="TOKEN", help="Its credential [env: HARK_TOKEN]")
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print JSON; a list is an array")],
}  # fmt: skip

Payload = Annotated[str | None, typer.Option("--payload", metavar="JSON", help="JSON if it parses, else text")]
Text = Annotated[bool, typer.Option("--text", help="The payload is text, whatever it looks like")]
File = Annotated[Path | None, typer.Option("--file", help="Read the payload from a file; - is the standard input")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="An instance's id, or its correlation key")]
Limit = Annotated[int, typer.Option("--limit", help="How many at most")]


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of one call, as they were said."""

    db: str | None = None
    app: str | None = None
    schema: str | None = None
    server: str | None = None
    token: str | None = None
    json: bool = False

    def over(self, earlier: "Options | None") -> "Options":
        """Mine, and where I say nothing, what was said before me."""
        if earlier is None:
            return self
        pairs = zip(_values(self), _values(earlier), strict=True)
        return Options(*(theirs if mine is None or mine is False else mine for mine, theirs in pairs))

    @property
    def remote(self) -> str | None:
        """The server to ask, if it is to be one. A flag wins over the environment."""
        if self.server is not None:
            if self.db is not None or self.app is not None:
                raise InvalidInput("Give --db or --app (straight on a store), or --server (a running one), not both.")
            return self.server
        return os.environ.get("HARK_SERVER") or None if self.db is self.app is None else None

    @property
    def url(self) -> str | None:
        """The store that was asked for, by a flag or the environment."""
        return self.db if self.db is not None else os.environ.get("HARK_DB") or None


def _values(options: Options) -> tuple[Any, ...]:
    return tuple(getattr(options, field.name) for field in dataclasses.fields(options))


def _shared() -> list[inspect.Parameter]:
    ctx = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    return [ctx] + [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "json" else None, annotation=annotation
        )
        for name, annotation in _OPTIONS.items()
    ]


_VERSION = inspect.Parameter(
    "version",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--version", help="Print the version and exit")],
)


def _with_options(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> Any:
    """Typer reads a signature: this one is its own parameters, and those everybody has."""
    every = [*parameters, *_shared()]
    function.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return function


def group(help: str, *, root: bool = False) -> typer.Typer:
    """A group of commands. Alone it prints its help."""
    made = typer.Typer(help=help, rich_markup_mode=None, add_completion=root)  # rich would double the start

    def callback(ctx: typer.Context, version: bool = False, **values: Any) -> None:
        if version:
            from importlib import metadata

            print(f"hark {metadata.version('hark')}")
            raise typer.Exit
        ctx.obj = Options(**values).over(ctx.obj)
        if ctx.invoked_subcommand is None:
            print(ctx.get_help())
            raise typer.Exit(2)

    made.callback(invoke_without_command=True, help=help)(_with_options(callback, [_VERSION] if root else []))
    return made


def command(to: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command of a group. Its function gets what was given first, then its own arguments by name."""

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != "options"
        ]

        def run(ctx: typer.Context, **values: Any) -> None:
            options = Options(**{option: values.pop(option) for option in _OPTIONS}).over(ctx.obj)
            try:
                try:
                    function(options, **values)
                finally:
                    sys.stdout.flush()
            except BrokenPipeError:
                # `hark events | head`: who reads has seen enough. Nothing may be flushed into it at the end.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise typer.Exit(141) from None

        # The example is a paragraph of its own, which is not to be wrapped.
        help = (inspect.getdoc(function) or "").replace("\n\nhark ", "\n\n\b\nExample:\n  hark ")
        to.command(name or function.__name__, help=help)(_with_options(run, own))
        return function

    return declare


# -- where the work is done ------------------------------------------------------------------------


def local_app(options: Options) -> "Hark":
    """The app to work with, not open_engine: somebody's own, or a bare one on the store."""
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
        said = f"{type(error).__name__}: {error}" if not isinstance(error, ImportError) else str(error)
        raise InvalidInput(
            f"--app {options.app}: {said}. Write it as module:app, from the folder the module is in."
        ) from error
    if not isinstance(app, Hark):
        raise InvalidInput(f"--app {options.app} is no Hark app but {type(app).__name__}. Name a variable that is one.")
    if options.url is not None or options.schema is not None:
        DoorAccess(app).use_store(options.url, schema=options.schema)
    return app


def local_only_app(options: Options, what: str) -> "Hark":
    """For what a server cannot do for us."""
    if options.server is not None:
        raise InvalidInput(f"`hark {what}` works on a store, not through a server. Leave --server out and give --db.")
    return local_app(options)


@contextmanager
def open_engine(options: Options, *, create: bool = False) -> Iterator[Engine]:
    """The engine, ready to be asked: through a server, or straight on a store that is there."""
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


def check_database_exists(app: "Hark") -> None:
    """A slip in --db must not make an empty database and then find nothing in it."""
    from hark.app.door_access import DoorAccess

    if not DoorAccess(app).exists():
        raise InvalidInput(
            f"There is no database at {app.url}. Check --db or HARK_DB; `hark migrate` makes one, `hark serve` and "
            "`hark worker` do too."
        )


def door_access(hark: Engine) -> "DoorAccess | RemoteHark":
    """What only a door asks of the engine: `DoorAccess` of an app; a server answers such questions itself."""
    from hark.app import Hark
    from hark.app.door_access import DoorAccess

    return DoorAccess(hark) if isinstance(hark, Hark) else hark


def parse_payload(payload: str | None, text: bool, file: Path | None) -> Any:
    """JSON if it parses, else text; `--text` says text; a file instead of both; none is null."""
    from hark.model import json

    if file is not None:
        if payload is not None:
            raise InvalidInput("Give --payload or --file, not both.")
        try:
            payload = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"--file {file}: {error}. Give a readable file of UTF-8 text.") from error
    if payload is None or text:
        return payload
    try:
        return json.parse(payload, what="--payload")
    except InvalidInput:
        return payload


def parse_json(text: str | None, what: str) -> Any:
    """An option that must be JSON."""
    from hark.model import json

    return None if text is None else json.parse(text, what=what)
