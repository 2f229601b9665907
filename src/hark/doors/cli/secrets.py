"""`hark secret`: the secret that signs links. On a store only."""

from typing import Annotated

import typer

from hark.doors.cli.commands import command, group
from hark.doors.cli.engine import local_only_app, open_store
from hark.doors.cli.options import Options
from hark.doors.cli.output import print_json

cli = group("Change the secret that signs links to awakeables.")


@command(cli, store_only=True)
def rotate(
    options: Options,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Delete the older secrets: links that were sent stop working")
    ] = False,
) -> None:
    """Sign new links with a new secret.

    Links that were already sent stay valid until they expire. No process has to be restarted.

    hark secret rotate
    """
    with open_store(local_only_app(options, "secret rotate"), options) as app:
        valid = app.rotate_secret(drop_old=drop_old).result()
    if options.json:
        print_json({"rotated": True, "valid_secrets": valid})
    elif drop_old:
        print("New links are signed with a new secret. Links that were sent stop working within a minute.")
    else:
        print("New links are signed with a new secret. Links that were already sent stay valid until they expire.")
