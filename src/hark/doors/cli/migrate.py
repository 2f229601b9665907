"""`hark migrate`: a store that is up to date."""

from typing import Annotated

import typer

from hark.doors.cli.options import DEFAULT_DB, Options, command, local_only_app
from hark.doors.cli.output import print_json


def add_commands(cli: typer.Typer) -> None:
    command(cli)(migrate)


def migrate(
    options: Options,
    dump_sql: Annotated[bool, typer.Option("--dump-sql", help="Print the SQL instead of running it")] = False,
) -> None:
    """Bring the store up to date (opening an app does the same).

    hark migrate --db postgresql://localhost/shop
    """
    if dump_sql:
        from hark.app.door_access import dump_migrations

        print(dump_migrations(DEFAULT_DB if options.url is None else options.url, options.schema or "hark"))
        return
    with local_only_app(options, "migrate") as app:
        place = app.url.split("@")[-1]
    print_json({"store": place, "up_to_date": True}) if options.json else print(f"{place} is up to date.")
