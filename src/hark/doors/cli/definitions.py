"""`hark definition`: the versions of definitions, and which of them starts by name choose."""

from functools import partial
from typing import Annotated

import typer

from hark.doors.cli.commands import command, group
from hark.doors.cli.completion import definitions
from hark.doors.cli.engine import open_engine, read_up_to
from hark.doors.cli.options import After, Limit, Options, Wide
from hark.doors.cli.output import print_json, print_next_page, printable
from hark.doors.cli.tables import print_table

cli = group("List and retire the versions of definitions.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the definition", autocompletion=definitions)]
_Version = Annotated[int, typer.Argument(metavar="VERSION", help="The version")]


@command(cli, "list")
def list_(
    options: Options,
    name: Annotated[
        str | None,
        typer.Option("--definition", metavar="NAME", help="Only this definition", autocompletion=definitions),
    ] = None,
    limit: Limit = 50,
    after: After = None,
    wide: Wide = False,
) -> None:
    """List the versions of definitions, their code, and how many unfinished instances and workers each has.

    Two fingerprints under CODE: two codes run under one version, or have.

    hark definition list --definition order
    """
    with open_engine(options, "read") as hark:
        found = read_up_to(limit, after, partial(hark.definitions, name=name))
    if options.json:
        print_json(found)
        return
    print_table(
        ("DEFINITION", "VERSION", "KIND", "LIVE", "WORKERS", "RETIRED", "CODE"),
        (
            (
                one.name, str(one.version), one.kind, str(one.live), str(one.workers),
                "retired" if one.retired else "-", " ".join(one.fingerprints) or "-",
            )
            for one in found
        ),
        "No such definition." if name else "No definitions. A worker registers those of its --app.",
        drop=("CODE", "KIND", "WORKERS"),
        wide=wide,
    )  # fmt: skip
    print_next_page(found)


@command(cli)
def retire(options: Options, name: _Name, version: _Version) -> None:
    """Let starts by name, schedules, messages and broadcasts choose another version.

    The instances of the retired version finish. So a deploy is rolled back.

    hark definition retire order 3
    """
    with open_engine(options) as hark:
        hark.retire(name, version).result()
    _print(options, name, version, retired=True)


@command(cli)
def unretire(options: Options, name: _Name, version: _Version) -> None:
    """Take a retired version back into the choice of starts by name.

    hark definition unretire order 3
    """
    with open_engine(options) as hark:
        hark.unretire(name, version).result()
    _print(options, name, version, retired=False)


def _print(options: Options, name: str, version: int, *, retired: bool) -> None:
    if options.json:
        print_json({"name": name, "version": version, "retired": retired})
    else:
        now = "is retired: starts by name choose another version" if retired else "can be chosen by starts again"
        print(f"{printable(name)} version {version} {now}.")
