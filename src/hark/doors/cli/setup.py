"""`hark migrate`: a store that is up to date."""

from typing import Annotated

import typer

from hark.doors.cli.options import DEFAULT_DB, Given, command, only_local
from hark.doors.cli.output import emit


def declare(cli: typer.Typer) -> None:
    command(cli)(migrate)


def migrate(
    given: Given,
    dump_sql: Annotated[bool, typer.Option("--dump-sql", help="Print the SQL instead of running it")] = False,
) -> None:
    """Bring the store up to date (opening an app does the same).

    hark migrate --db postgresql://localhost/shop
    """
    if dump_sql:
        from hark.app.door_access import dump_migrations

        print(dump_migrations(DEFAULT_DB if given.url is None else given.url, given.schema or "hark"))
        return
    with only_local(given, "migrate") as app:
        place = app.url.split("@")[-1]
    emit({"store": place, "up_to_date": True}) if given.json else print(f"{place} is up to date.")
