"""`hark instance`: list, show, explain, cancel and retry instances; the variables of processes."""

import shlex
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from hark.doors.cli.commands import command, group
from hark.doors.cli.completion import definitions, kinds, statuses
from hark.doors.cli.engine import door_access, find_target, open_engine, read_up_to
from hark.doors.cli.options import After, Limit, Options, SvgFile, Tags, Target, Wide, parse_tags, parse_values
from hark.doors.cli.output import (
    age,
    ago,
    colored,
    exact,
    print_fields,
    print_json,
    print_next_page,
    print_svg,
    print_traceback,
    printable,
    when,
)
from hark.doors.cli.tables import print_table, shown_ids
from hark.doors.times import parse_time
from hark.model.errors import InvalidInput

cli = group("List, explain, draw, cancel and retry instances.")


@command(cli, "list")
def list_(
    options: Options,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="STATUS", help="Only with this status, for example failed", autocompletion=statuses
        ),
    ] = None,
    definition: Annotated[
        str | None,
        typer.Option("--definition", metavar="NAME", help="Only those of this definition", autocompletion=definitions),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Only machine, workflow, job, bpmn or task; without it, all but tasks",
            autocompletion=kinds,
        ),
    ] = None,
    tag: Tags = None,
    key_prefix: Annotated[
        str | None, typer.Option("--key-prefix", metavar="TEXT", help="Only correlation keys that begin with TEXT")
    ] = None,
    created_after: Annotated[
        str | None, typer.Option("--created-after", metavar="TIME", help="Only later, such as 2026-01-31T09:00:00Z")
    ] = None,
    created_before: Annotated[
        str | None, typer.Option("--created-before", metavar="TIME", help="Only earlier than this time")
    ] = None,
    limit: Limit = 50,
    after: After = None,
    wide: Wide = False,
) -> None:
    """List instances, newest first.

    hark instance list --status failed --tag tenant=a
    """
    filters: dict[str, Any] = {
        "status": status, "definition": definition, "kind": kind, "tags": parse_tags(tag), "key_prefix": key_prefix,
        "created_after": parse_time(created_after, "--created-after"),
        "created_before": parse_time(created_before, "--created-before"),
    }  # fmt: skip
    with open_engine(options, "read") as hark:
        found = read_up_to(limit, after, partial(hark.list, **filters))
    if options.json:
        print_json(found)
        return
    ids = shown_ids((one.id for one in found), wide)
    print_table(
        ("ID", "DEFINITION", "STATUS", "STEP", "KEY", "WAITS FOR", "STARTED"),
        (
            [ids[i.id], i.definition, i.status, i.step, i.correlation_key or "-", _waits(i), ago(i.created_at)]
            for i in found
        ),
        "No such instances." if any(filters.values()) else "No instances.",
        drop=("STEP", "WAITS FOR", "STARTED", "KEY", "DEFINITION"),
        wide=wide,
    )
    print_next_page(found)


def _waits(instance: Any) -> str:
    names = [wait.name or wait.kind for wait in instance.waits]
    return ", ".join(dict.fromkeys(names)) or "-"


def _tags(tags: dict[str, str]) -> str | None:
    return " ".join(f"{name}={value}" for name, value in tags.items()) or None


@command(cli)
def show(options: Options, target: Target) -> None:
    """Show all fields of an instance.

    hark instance show order:42
    """
    with open_engine(options, "read") as hark:
        found = hark.get(find_target(hark, target)).result()
        retry = hark.why(found.id).result() if not options.json and _may_wait_for_retry(found) else None
    if options.json:
        print_json(found)
        return
    print_fields(
        [
            ("id", found.id), ("definition", f"{found.definition} version {found.version} ({found.kind})"),
            ("status", found.status), ("cancel", _cancelling(found.cancel_reason)),
            ("step", found.step), ("attempt", found.attempt or None), ("queue", found.queue),
            ("key", found.correlation_key), ("parent", found.parent_id), ("started", when(found.created_at)),
            ("finished", when(found.finished_at)), ("tags", _tags(found.tags)), ("progress", found.progress),
            *_state(found, options), ("result", found.result), ("error", found.error),
        ]
    )  # fmt: skip
    for wait in found.waits:
        until = f", until {exact(wait.deadline)}" if wait.deadline else ""
        wanted = f"{wait.kind} {printable(wait.name or '')}".rstrip()
        print(f"{'waits for':<16} {wanted} (for {age(wait.since)}{until})")
    if retry is not None and retry.traceback is not None:
        print(f"{'why':<16} {printable(retry.text)}")
    print_traceback(found.traceback if retry is None else retry.traceback)


def _state(instance: Any, options: Options) -> list[tuple[str, Any]]:
    """The state in one field; of a process in several, and how to go on after an incident."""
    if instance.kind != "bpmn":
        return [("state", instance.state)]
    fields: list[tuple[str, Any]] = [
        ("variables", instance.state["variables"]), ("tokens", ", ".join(instance.state["tokens"]) or None),
    ]  # fmt: skip
    for incident in instance.state["incidents"]:
        since = exact(datetime.fromisoformat(incident["since"]))
        fields.append(("incident", f"{incident['element']}: {incident['error']} (since {since})"))
    if instance.state["incidents"]:
        fields.append(("resume", f"hark instance retry {shlex.quote(instance.id)}{options.as_given()}"))
    return fields


def _may_wait_for_retry(instance: Any) -> bool:
    """Return True if a failed attempt may be repeated: a step of a machine, or a run of a function."""
    if instance.status == "runnable":
        return bool(instance.attempt > 0)
    return any(wait.name is None and wait.deadline is not None for wait in instance.waits)


def _cancelling(reason: str | None) -> str | None:
    return None if reason is None else f"being cancelled: undo runs ({reason})"


@command(cli)
def cancel(
    options: Options,
    target: Target,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="The reason; it becomes the error of the instance")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="End it now, without its undo")] = False,
) -> None:
    """Cancel an instance and its children.

    If it has something to undo, its undo runs first, on a worker.

    hark instance cancel order:42 --reason "out of stock"
    """
    with open_engine(options) as hark:
        found = hark.cancel(find_target(hark, target), reason, force=force).result()
    if options.json:
        print_json(found)
    elif found.cancel_reason is not None:
        if found.kind == "job":
            first, omitted = "its `finally` tasks and undos run", "them"
        else:
            first, omitted = "its undo runs", "undo"
        print(f"{found.id} is being cancelled: {first} first. To end it without {omitted}, add --force.")
    else:
        print(f"{found.id} is {colored(found.status)}.")


@command(cli)
def retry(options: Options, target: Target) -> None:
    """Run a failed instance again, or resume the incidents of a process.

    A failed instance continues with the step that failed. A process may still be live: its other tokens go on.

    hark instance retry order:42
    """
    with open_engine(options) as hark:
        found = hark.retry(find_target(hark, target)).result()
    print_json(found) if options.json else print(f"{found.id} is {colored(found.status)} at {printable(found.step)}.")


@command(cli)
def variables(
    options: Options,
    target: Target,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE…]", help="Variables to set: JSON if it parses, otherwise text"),
    ] = None,
) -> None:
    """Print the variables of a process, or set some of them.

    A live process gets them at once; one that has failed gets them when it is retried.

    hark instance variables order-42 total=120 'address={"city": "Bern"}'
    """
    given = parse_values(values)
    with open_engine(options, "write" if given else "read") as hark:
        id = find_target(hark, target)
        found = hark.set_variables(id, given).result() if given else hark.get(id).result()
    if found.kind != "bpmn":
        raise InvalidInput(f"{target!r} is a {found.kind}: only processes have variables.")
    if given:  # a live process takes them when it runs next
        print_json(found) if options.json else print(f"{found.id}: {printable(', '.join(given))} set.")
    elif options.json:
        print_json(found.state["variables"])
    else:
        print_fields(list(found.state["variables"].items()))


@command(cli)
def diagram(options: Options, target: Target, output: SvgFile = None) -> None:
    """Draw a process or a job as SVG, with where it is.

    hark instance diagram order-42 -o order-42.svg
    """
    with open_engine(options, "read") as hark:
        drawing = door_access(hark).instance_drawing(find_target(hark, target)).result()
    print_svg(drawing(), output, as_json=options.json)


@command(cli)
def journal(options: Options, target: Target, limit: Limit = 1000, after: After = None, wide: Wide = False) -> None:
    """Print the journal of a function: what its code has asked for so far, and what it received.

    hark instance journal order:42
    """
    with open_engine(options, "read") as hark:
        found = read_up_to(limit, after, partial(hark.journal, find_target(hark, target)))
    if options.json:
        print_json(found)
        return
    print_table(
        ("ENTRY", "KIND", "NAME", "RECEIVED", "ATTEMPTS", "AT"),
        (
            (
                str(one.number), one.kind, printable(one.name or "-"), _received(one), str(one.attempts), ago(one.at)
            )
            for one in found
        ),
        "Nothing is in its journal yet. Only functions have one.",
        drop=("ATTEMPTS", "AT", "KIND"),
        wide=wide,
    )  # fmt: skip
    print_next_page(found)


def _received(entry: Any) -> str:
    from hark.model import json

    return printable(f"error: {entry.error}" if entry.error is not None else json.dump(entry.value))


@command(cli)
def why(options: Options, target: Target) -> None:
    """Explain why an instance waits.

    Prints what it waits for and since when, the command that would wake it, what blocks it, and which signals
    almost woke it.

    hark instance why order:42
    """
    with open_engine(options, "read") as hark:
        found = hark.why(find_target(hark, target)).result()
    if options.json:
        print_json(found)
        return
    print(f"{printable(found.correlation_key or found.id)} {_status_since(found)}.")
    print(printable(options.add_to_commands(found.text)))
    for wait in found.waits:
        print(f"\n  {wait.kind} {printable(wait.name or '')}".rstrip() + f" (for {age(wait.since)})")
        if wait.deadline is not None:
            print(f"    {'ends' if wait.kind == 'timer' else 'times out'} {when(wait.deadline)}")
        if wait.note:
            print(f"    {printable(options.add_to_commands(wait.note))}")
        if wait.wake:
            print(f"    {colored(printable(wait.wake) + options.as_given(), 'bold')}")
    for blocker in found.blockers:
        if blocker.text not in found.text:
            print(f"\n{printable(options.add_to_commands(blocker.text))}")
        if blocker.until is not None:
            print(f"  until {exact(blocker.until)} ({ago(blocker.until)})")
    print_traceback(found.traceback)
    if found.misses:
        print("\nAlmost woke it:")
    for miss in found.misses:
        print(f"  {ago(miss.at)}: {printable(miss.text)}{f' ({miss.count} times)' if miss.count > 1 else ''}")


_ENDED = {"done": "finished", "failed": "failed", "cancelled": "was cancelled"}


def _status_since(found: Any) -> str:
    """The status and since when, as the end of a sentence that begins with the instance."""
    if found.status in _ENDED:
        return f"{_ENDED[found.status]} {when(found.since)}"
    return f"is {colored(found.status)} (for {age(found.since)}, since {exact(found.since)})"
