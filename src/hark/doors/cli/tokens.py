"""`hark token`: tokens for the HTTP API. On a store only: no token can make another token."""

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from hark.doors.cli.commands import command, group
from hark.doors.cli.engine import local_only_app, open_store
from hark.doors.cli.options import Options, Wide
from hark.doors.cli.output import ago, print_json, printable, when
from hark.doors.cli.tables import line_width, print_table
from hark.model.errors import InvalidInput
from hark.model.tokens import check_scopes

cli = group("Make, list and revoke tokens for the HTTP API.")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@command(cli, store_only=True)
def create(
    options: Options,
    scope: Annotated[
        list[str],
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="read, signal, answer, operate, work, or deploy (which can run commands); may be repeated",
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The name that is recorded with an answer")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="3600 (seconds), 12h, 90d, or a time in ISO 8601")
    ] = None,
) -> None:
    """Make a token and print its secret.

    The secret is shown only this once: the store keeps a hash of it. A store that does not exist is created.

    hark token create --scope read --scope answer --name ann --expires 90d
    """
    check_scopes(scope)  # before a store is created for it
    until = None if expires is None else _parse_expiry(expires)
    # The first token comes before the server that needs it, so the store may be new.
    with open_store(local_only_app(options, "token create"), options, "create") as app:
        token = app.create_token(scope, name, until).result()
    if options.json:
        print_json(token)
        return
    print(token.secret)
    print(
        f"Copy it now: it is not shown again. `hark token revoke {token.id}{options.as_given()}` revokes it.",
        file=sys.stderr,
    )
    if "deploy" in token.scopes:
        print(
            "Anyone who has it will be able to deploy definitions, and so to run commands on your workers.",
            file=sys.stderr,
        )


def _parse_expiry(text: str) -> timedelta | datetime:
    if match := re.fullmatch(r"(\d{1,9})([smhd]?)", text, re.ASCII):
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"--expires {text}: give seconds, 12h, 90d, or a time like 2027-01-31T12:00:00Z.") from error
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


@command(cli, "list", store_only=True)
def list_(options: Options, wide: Wide = False) -> None:
    """List all tokens, oldest first, without their secrets.

    hark token list
    """
    with open_store(local_only_app(options, "token list"), options, "read") as app:
        found = app.tokens().result()
    if options.json:
        print_json([_without_secret(token) for token in found])
        return
    at = when if line_width(wide) is None else ago
    rows = (
        [token.id, token.name or "-", ", ".join(token.scopes), at(token.created_at), _end(token, at)] for token in found
    )
    print_table(
        ("ID", "NAME", "SCOPES", "CREATED", "EXPIRES"), rows, "No tokens.", drop=("CREATED", "EXPIRES"), wide=wide
    )


def _without_secret(token: Any) -> dict[str, Any]:
    names = ("id", "name", "scopes", "created_at", "expires_at", "revoked_at")
    return {name: getattr(token, name) for name in names}


def _end(token: Any, at: Callable[[datetime | None], str]) -> str:
    return f"revoked {at(token.revoked_at)}" if token.revoked_at else at(token.expires_at)


@command(cli, store_only=True)
def revoke(
    options: Options,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id from `hark token list`, not the secret")],
) -> None:
    """Revoke a token, from the next request on.

    hark token revoke 01a1df25-632f-7623-bb27-8822e5df9860
    """
    with open_store(local_only_app(options, "token revoke"), options) as app:
        token = app.revoke_token(id).result()
    print_json(_without_secret(token)) if options.json else print(f"{printable(token.name or token.id)} is revoked.")
