"""`hark token`: who may come in over HTTP. Straight on the store: no token can make another one."""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from hark.doors.cli.options import Options, check_database_exists, command, group, local_only_app
from hark.doors.cli.output import print_json, print_table, printable, when
from hark.model.errors import InvalidInput

cli = group("Credentials for the HTTP API.")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@command(cli)
def create(
    options: Options,
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="As often as needed: read, signal, answer, operate, or deploy (runs commands)"),
    ],
    name: Annotated[str | None, typer.Option("--name", help="Recorded as the one who answered")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="3600 (seconds), 12h, 90d, or a time in ISO 8601")
    ] = None,
) -> None:
    """Make a token; prints its secret, this once.

    hark token create --scope read --scope answer --name ann --expires 90d
    """
    until = None if expires is None else _until(expires)
    with local_only_app(options, "token create") as app:
        made = app.create_token(scope, name, until).result()
    if options.json:
        print_json(made)
        return
    print(made.secret)
    print(f"It is shown once and kept nowhere. `hark token revoke {made.id}` ends it.", file=sys.stderr)
    if "deploy" in made.scopes:
        print("Who has it may deploy definitions, which means to run commands on your workers.", file=sys.stderr)


def _until(text: str) -> timedelta | datetime:
    if match := re.fullmatch(r"(\d{1,9})([smhd]?)", text, re.ASCII):
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"--expires {text}: give seconds, 12h, 90d, or a time as 2027-01-31T12:00:00Z.") from error
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


@command(cli, "list")
def list_(options: Options) -> None:
    """List all tokens ever made, oldest first, without their secrets.

    hark token list
    """
    app = local_only_app(options, "token list")
    check_database_exists(app)
    with app:
        found = app.tokens().result()
    if options.json:
        print_json([_shown(token) for token in found])
        return
    rows = ([one.id, one.name or "-", ", ".join(one.scopes), when(one.created_at), _fate(one)] for one in found)
    print_table(("ID", "NAME", "SCOPES", "MADE", "ENDS"), rows, "No tokens.")


def _shown(token: Any) -> dict[str, Any]:
    names = ("id", "name", "scopes", "created_at", "expires_at", "revoked_at")
    return {name: getattr(token, name) for name in names}


def _fate(token: Any) -> str:
    return f"revoked {when(token.revoked_at)}" if token.revoked_at else when(token.expires_at)


@command(cli)
def revoke(
    options: Options, id: Annotated[str, typer.Argument(metavar="ID", help="From `hark token list`; not the secret")]
) -> None:
    """End a token: from now on it opens nothing.

    hark token revoke 01a1df25-632f-7623-bb27-8822e5df9860
    """
    app = local_only_app(options, "token revoke")
    check_database_exists(app)
    with app:
        gone = app.revoke_token(id).result()
    print_json(_shown(gone)) if options.json else print(f"{printable(gone.name or gone.id)} is revoked.")
