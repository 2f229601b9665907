"""`hark migrate`: create the tables of a store, or bring them up to date."""

from typing import Annotated

import typer

from hark.doors.cli.commands import command
from hark.doors.cli.engine import local_only_app
from hark.doors.cli.options import DEFAULT_DB, Options
from hark.doors.cli.output import print_json


def add_commands(cli: typer.Typer) -> None:
    command(cli)(migrate)


def migrate(
    options: Options,
    dump_sql: Annotated[bool, typer.Option("--dump-sql", help="Print the SQL and do not run it")] = False,
) -> None:
    """Create the tables of a store, or update them.

    Apps, workers and servers do the same when they open a store.

    hark migrate --db postgresql://localhost/shop
    """
    if dump_sql:
        from hark.app.door_access import dump_migrations

        print(dump_migrations(DEFAULT_DB if options.url is None else options.url, options.schema or "hark"))
        return
    with local_only_app(options, "migrate") as app:
        store = app.url.split("@")[-1]  # without a password
    print_json({"store": store, "up_to_date": True}) if options.json else print(f"{store} is up to date.")
