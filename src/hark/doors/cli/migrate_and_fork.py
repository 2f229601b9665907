"""`hark instance migrate` and `hark instance fork`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from hark.doors.cli.completion import definitions, statuses
from hark.doors.cli.engine import Engine, find_target, open_engine
from hark.doors.cli.options import Options, Tags, Target, parse_json, parse_tags
from hark.doors.cli.output import print_json, printable
from hark.doors.cli.progress import progress_bar
from hark.model.errors import InvalidInput

_POLL = 0.2  # seconds
_GRACE = 5.0


def migrate(
    options: Options,
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="One instance, by its id or correlation key")
    ] = None,
    *,
    to: Annotated[int, typer.Option("--to", metavar="VERSION", help="The version to go on with")],
    definition: Annotated[
        str | None,
        typer.Option(
            "--definition", metavar="NAME", help="All live instances of this definition", autocompletion=definitions
        ),
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="STATUS", help="Only with this status, for example held", autocompletion=statuses
        ),
    ] = None,
    tag: Tags = None,
    key_prefix: Annotated[
        str | None, typer.Option("--key-prefix", metavar="TEXT", help="Only correlation keys that begin with TEXT")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="MODULE:FUNCTION", help="Of machines: from the old state to the new one"),
    ] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="A step of a machine, or an element of a process; repeatable; OLD= for an event to wait for anew",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before many instances are moved")] = False,
) -> None:
    """Move live instances to another version.

    It first says what would happen. A worker carries it out; without --server that is this command, with the code of
    --app. Exits with 1 if one of many cannot be moved, and with 2 if the only one cannot.

    hark instance migrate --definition order --to 2 --state orders:with_currency --dry-run
    """
    filters = {"definition": definition, "status": status, "tags": parse_tags(tag), "key_prefix": key_prefix}
    given = {name: value for name, value in filters.items() if value is not None}
    if (target is None) is (not given):
        raise InvalidInput("Give one TARGET, or --definition to select many.")
    with open_engine(options) as hark:
        wanted: Any = given if target is None else find_target(hark, target)
        kind = _kind(hark, wanted)
        maps = {"elements" if kind == "bpmn" else "steps": _names(map)} if map else {}
        how: dict[str, Any] = {"to_version": to, "state": state, **maps}
        found = hark.migrate(wanted, **how, preview=True).result()
        if dry_run:
            print_json(found) if options.json else _print_preview(found, to)
            raise typer.Exit(1 if found.problems else 0)
        if target is None:
            _confirm(found, to, options, yes=yes)
        with _own_worker(hark):
            moved = hark.migrate(wanted, **how).result()
            result, problems = _carried_out(hark, moved.id, found.count + found.skipped + len(found.problems))
    if options.json:
        print_json({"id": moved.id, **result, "problems": problems})
    else:
        print(_counts(result, to))
        for id, problem in problems.items():
            print(f"  {id}: {printable(problem)}")
    if result["failed"]:
        raise typer.Exit(1)


def fork(
    options: Options,
    target: Target,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="ENTRY", help="Of a function: the last entry of its journal to keep; -1: none"),
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Of a machine: the step to begin with")
    ] = None,
    state: Annotated[str | None, typer.Option("--state", metavar="JSON", help="Of a machine: its state")] = None,
    input: Annotated[str | None, typer.Option("--input", metavar="JSON", help="Of a function: its new input")] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="VERSION", help="The version of its definition; default: the same"),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The id of the new instance")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The correlation key of the new instance")
    ] = None,
) -> None:
    """Start a new instance from a point in the past of another one.

    The other one is not changed. `hark instance journal` shows the entries of a function.

    hark instance fork order:42 --at 3
    """
    with open_engine(options) as hark:
        handle = hark.fork(
            find_target(hark, target), at=at, step=step,
            state=parse_json(state, "--state"), input=parse_json(input, "--input"),
            version=version, id=id, correlation_key=key,
        ).result()  # fmt: skip
        found = hark.get(handle.id).result()
    print_json(found) if options.json else print(f"{found.id} is a fork of {printable(target)}.")


def _kind(hark: Engine, wanted: Any) -> str | None:
    """The kind of the instances, which decides what a map names."""
    if isinstance(wanted, str):
        return str(hark.get(wanted).result().kind)
    versions = hark.definitions(name=wanted.get("definition")).result()
    return versions[-1].kind if versions else None


def _names(given: list[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for text in given:
        old, found, new = text.partition("=")
        if not (old and found):
            raise InvalidInput(f"--map {text!r}: write OLD=NEW.")
        if names.get(old, new) != new:
            raise InvalidInput(f"--map names {old!r} twice, with different new names.")
        names[old] = new
    return names


def _print_preview(found: Any, to: int) -> None:
    print(f"{_instances(found.count)} would move to version {to}.")
    if found.skipped:
        print(f"{_instances(found.skipped)} would be skipped: there already.")
    if found.problems:
        print("Not movable:")
    for problem in found.problems:
        print(f"  {printable(problem)}")


def _confirm(found: Any, to: int, options: Options, *, yes: bool) -> None:
    if yes or not found.count:
        return
    if options.json or not sys.stdin.isatty():
        raise InvalidInput(f"{_instances(found.count)} would move to version {to}. Add --yes to do it.")
    _print_preview(found, to)
    typer.confirm(f"Move {_instances(found.count)}?", abort=True)


@contextmanager
def _own_worker(hark: Engine) -> Iterator[None]:
    """Carry it out in this process, if that has the store: the workers that run may not have the new code yet."""
    with hark.worker({}, grace=_GRACE):  # through a server: nothing, its workers work
        yield


def _carried_out(hark: Engine, id: str, total: int) -> tuple[dict[str, int], dict[str, str]]:
    """Wait for the bulk instance, and return its result and the first problems."""
    import time

    with progress_bar("done") as progress:
        while True:
            found = hark.get(id).result()
            said = found.progress or {}
            progress(min(total, sum(said.get(name, 0) for name in ("done", "skipped", "failed"))), total)
            if found.finished_at is not None:
                break
            time.sleep(_POLL)
    if found.status != "done":
        raise InvalidInput(f"The migration {id} is {found.status}: {found.error}")
    return found.result, said.get("problems", {})


def _counts(result: dict[str, int], to: int) -> str:
    parts = [f"{_instances(result['done'])} moved to version {to}"]
    parts += [f"{result[name]} {name}" for name in ("skipped", "failed") if result[name]]
    return f"{', '.join(parts)}."


def _instances(number: int) -> str:
    return f"{number} instance{'' if number == 1 else 's'}"
