"""`hark migrate`: create the tables of a store, or bring them up to date."""

from typing import Annotated

import typer

from hark.doors.cli.engine import local_only_app
from hark.doors.cli.options import Options
from hark.doors.cli.output import print_json
from hark.model.masking import masked


def migrate(
    options: Options,
    dump_sql: Annotated[bool, typer.Option("--dump-sql", help="Print the SQL and do not run it")] = False,
) -> None:
    """Create the tables of a store, or update them.

    Apps, workers and servers do the same when they open a store.

    hark migrate --db postgresql://localhost/shop
    """
    from hark.app.door_access import DoorAccess

    app = local_only_app(options, "migrate")
    if dump_sql:
        print(DoorAccess(app).dump_migrations())
        return
    with app:
        store = masked(app.url)
    print_json({"store": store, "up_to_date": True}) if options.json else print(f"{store} is up to date.")
