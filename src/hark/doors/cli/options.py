"""The options that every command has, and arguments that several commands share.

`--db --app --schema --json --server --token` may stand before the command, between a group and its command, and after
it. The last one wins, and all of them override HARK_DB, HARK_SCHEMA, HARK_SERVER and HARK_TOKEN.
"""

import dataclasses
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hark.doors.cli.help import OTHER_OPTIONS
from hark.model.errors import InvalidInput, MalformedJson
from hark.model.masking import masked

DEFAULT_DB = "sqlite:///hark.db"


def _shared(name: str, metavar: str | None, help: str) -> Any:
    return typer.Option(name, metavar=metavar, help=help, rich_help_panel=OTHER_OPTIONS)


SHARED_OPTIONS: dict[str, Any] = {
    "db": Annotated[str | None, _shared("--db", "URL", "The store: sqlite:///FILE or postgresql://… (or HARK_DB)")],
    "app": Annotated[str | None, _shared("--app", "MODULE:APP", "Your app: shop:app is the variable app in shop.py")],
    "schema": Annotated[str | None, _shared("--schema", "NAME", "The schema in PostgreSQL (or HARK_SCHEMA)")],
    "server": Annotated[str | None, _shared("--server", "URL", "A running server instead of a store (or HARK_SERVER)")],
    "token": Annotated[str | None, _shared("--token", "TOKEN", "The token for --server (or HARK_TOKEN)")],
    "json": Annotated[bool, _shared("--json", None, "Print JSON; a list is an array")],
}

Payload = Annotated[
    str | None, typer.Option("--payload", metavar="JSON", help="The payload: JSON if it parses, otherwise text")
]
Text = Annotated[bool, typer.Option("--text", help="Take the payload as text, even if it is JSON")]
File = Annotated[
    Path | None, typer.Option("--file", metavar="PATH", help="Read the payload from a file; - is standard input")
]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="The id or the correlation key of an instance")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Print at most N")]
After = Annotated[str | None, typer.Option("--after", metavar="ID", help="Continue after this one, the last you saw")]
SvgFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the SVG here, not to standard output")
]
Wide = Annotated[bool, typer.Option("--wide", help="Print everything, even if it does not fit the terminal")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="A tag, for example tenant=a; may be repeated"),
]
NatsUrl = Annotated[
    str | None,
    typer.Option(
        "--nats",
        metavar="URL",
        help="A NATS server for signals and streams; replaces the server of the app (or HARK_NATS)",
    ),
]
Agents = Annotated[
    list[str] | None,
    typer.Option(
        "--agent",
        metavar="NAME='COMMAND …'",
        help="Run the tasks of this agent with this command line, which gets the prompt on standard input; may be "
        "repeated (or HARK_AGENTS)",
    ),
]
Job = Annotated[str | None, typer.Option("--job", metavar="TARGET", help="Only those of this instance")]


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that every command has, as they were given."""

    db: str | None = None
    app: str | None = None
    schema: str | None = None
    server: str | None = None
    token: str | None = None
    json: bool = False
    command_line: tuple[str, ...] | None = None
    """All arguments of `hark`, as they were typed: not an option."""

    def override(self, earlier: "Options | None") -> "Options":
        """Return these options, completed with the earlier ones."""
        if earlier is None:
            return self
        pairs = zip(_values(self), _values(earlier), strict=True)
        return Options(*(old if new is None or new is False else new for new, old in pairs))

    @property
    def remote(self) -> str | None:
        """The URL of the server to use, or None for a store. An option overrides the environment."""
        if self.server is not None:
            if self.db is not None or self.app is not None:
                raise InvalidInput("Give --db or --app to use a store, or --server to use a running server, not both.")
            return self.server
        return os.environ.get("HARK_SERVER") or None if self.db is self.app is None else None

    @property
    def url(self) -> str | None:
        """The URL of the store, from an option or the environment."""
        return self.db if self.db is not None else os.environ.get("HARK_DB") or None

    @property
    def store_schema(self) -> str | None:
        """The schema of the store, from an option or, unless an option names the store, the environment."""
        if self.schema is not None or self.db is not None:
            return self.schema
        return os.environ.get("HARK_SCHEMA") or None

    def as_given(self) -> str:
        """The options that choose the store, as text behind a command that the user should run next.

        Values from the environment are left out, because they apply to that command too. So are secrets.
        """
        words = []
        for name in ("db", "app", "schema", "server"):
            if (value := getattr(self, name)) is not None:
                words += [f"--{name}", masked(value) if name in ("db", "server") else value]
        return "".join(f" {shlex.quote(word)}" for word in words) + (" --token …" if self.token is not None else "")

    def add_to_commands(self, text: str) -> str:
        """Return a text that tells the user to run commands, with these options in each of them.

        A command is in backticks, or at the end of the text.
        """

        def complete(match: re.Match[str]) -> str:
            command, verb, given = match[0], match[1], self.as_given()
            if command.endswith(given) or (self.server is not None and verb in _STORE_ONLY):
                return command
            return (command if self.app is None else command.replace(" --app module:app", "")) + given

        return _COMMAND.sub(complete, text)


_STORE_ONLY = ("worker", "serve", "migrate", "token", "secret", "timeout")
_COMMAND = re.compile(r"(?:(?<=`)|(?<=: )|^)hark (\w+)[^`]*(?=`|$)")


def _values(options: Options) -> tuple[Any, ...]:
    return tuple(getattr(options, field.name) for field in dataclasses.fields(options))


def parse_payload(payload: str | None, text: bool, file: Path | None) -> Any:
    """The value of --payload, --text and --file: JSON if it parses, otherwise text; None without any of them."""
    from hark.model import json

    if file is not None:
        if payload is not None:
            raise InvalidInput("Give --payload or --file, not both.")
        try:
            payload = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"--file {file}: {error}. Give a file of UTF-8 text that you may read.") from error
    if payload is None or text:
        return payload
    try:
        return json.parse(payload, what="--payload")
    except InvalidInput:
        return payload


def parse_tags(tags: list[str] | None) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for tag in tags or ():
        name, equals, value = tag.partition("=")
        if not name or not equals or not value:
            raise InvalidInput(f"--tag {tag}: write a name and a value, for example --tag tenant=a.")
        if found.setdefault(name, value) != value:
            raise InvalidInput(f"--tag {name} has two values. A tag has one: give it once.")
    return found or None


def parse_agents(given: list[str] | None) -> dict[str, list[str]]:
    """The command lines of `--agent NAME='COMMAND …'`, by name: words as a shell would make them."""
    found: dict[str, list[str]] = {}
    for one in given or ():
        name, equals, text = one.partition("=")
        if not name or not equals:
            raise InvalidInput(
                f"--agent {one}: write a name and a command, for example --agent opencode='opencode run'."
            )
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InvalidInput(f"--agent {one}: {error}. Close the quotes in the command.") from None
        if not words:
            raise InvalidInput(f"--agent {one}: the command is empty, for example --agent {name}='opencode run'.")
        if name in found:
            raise InvalidInput(f"--agent {name} is given twice. An agent has one command: give it once.")
        found[name] = words
    return found


def parse_values(given: list[str] | None, option: str | None = None) -> dict[str, Any]:
    """The values of arguments like `name=value`, by name: JSON if it parses, otherwise text. `option` is the option
    that they were given with; None if they are arguments."""
    from hark.model import json

    label = "" if option is None else f"{option} "
    found: dict[str, Any] = {}
    for one in given or ():
        name, equals, text = one.partition("=")
        if not name or not equals:
            raise InvalidInput(f"{label}{one}: write a name and a value, for example {label}service=api.")
        if name in found:
            raise InvalidInput(f"{label}{name} is given twice. Give it once.")
        try:
            found[name] = json.parse(text, what=option or name)
        except InvalidInput:
            found[name] = text
    return found


def parse_json(text: str | None, what: str) -> Any:
    from hark.model import json

    if text is None:
        return None
    try:
        return json.parse(text, what=what)
    except MalformedJson as error:
        if not text.isprintable() or text.lstrip()[:1] in tuple('"[{'):
            raise
        hint = f"{error}. Text needs quotes: {what} {shlex.quote(json.dump(text))}"
        raise MalformedJson(hint, line=error.line, column=error.column) from None
