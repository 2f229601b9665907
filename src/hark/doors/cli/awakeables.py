"""`hark awakeable`: list the questions of instances, and answer them."""

import os
import shlex
import time
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer

from hark.doors.cli.commands import command, group
from hark.doors.cli.completion import awakeable_statuses
from hark.doors.cli.engine import (
    find_target,
    local_only_app,
    open_engine,
    open_store,
    read_up_to,
)
from hark.doors.cli.options import After, File, Job, Limit, Options, Payload, Text, parse_json, parse_payload
from hark.doors.cli.output import colored, print_fields, print_json, print_next_page, print_result, printable, when
from hark.doors.cli.results import check_timeout
from hark.doors.cli.run_directory import next_place
from hark.doors.errors import StillSuspended
from hark.model.errors import AwakeableRejected, AwakeableTimedOut, InstanceCancelled, InvalidAnswer, InvalidInput

cli = group("List and answer the questions of instances.")
Id = Annotated[str, typer.Argument(metavar="ID", help="The id from `hark awakeable list`: prom_1…")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="The name that is recorded with the answer")]
_MARKS = {"PENDING": "·", "RESOLVED": "✓", "REJECTED": "✗", "TIMEOUT": "⏱", "CANCELLED": "⊘"}
_POLL_INTERVAL = 0.1
_MISSING_ADDRESS = "(only the path: set HARK_BASE_URL to the address of your server, or start `hark serve`)"


@command(cli)
def resolve(
    options: Options, id: Id, payload: Payload = None, text: Text = False, file: File = None, by: By = None
) -> None:
    """Answer an awakeable.

    hark awakeable resolve prom_1abc123 --payload '{"action":"approve"}'
    """
    value = parse_payload(payload, text, file)
    with open_engine(options) as hark:
        try:
            found = hark.resolve(id, value, by=by, via="cli").result()
        except InvalidAnswer as error:
            if not error.examples:
                raise
            from hark.model import json

            words = f"hark awakeable resolve {shlex.quote(id)} --payload {shlex.quote(json.dump(error.examples[0]))}"
            command = options.add_to_commands(f"`{words}`")
            raise InvalidAnswer(f"{error} For example: {command}", problems=error.problems) from None
    _print_settled(options, found)


@command(cli)
def reject(
    options: Options,
    id: Id,
    error: Annotated[str, typer.Option("--error", metavar="TEXT", help="The reason")] = "rejected",
    by: By = None,
) -> None:
    """Reject an awakeable.

    The instance gets the reason as an error.

    hark awakeable reject prom_1abc123 --error "approval denied"
    """
    with open_engine(options) as hark:
        _print_settled(options, hark.reject(id, error, by=by, via="cli").result())


@command(cli)
def claim(
    options: Options,
    id: Id,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="The name of the person who works on it")],
) -> None:
    """Claim an awakeable: others see who works on it, and cannot claim it too.

    hark awakeable claim prom_1abc123 --by ann
    """
    with open_engine(options) as hark:
        found = hark.claim(id, by, via="cli").result()
    print_json(found) if options.json else print(f"{_mark(found)} {found.id} claimed by {printable(by)}")


@command(cli)
def unclaim(options: Options, id: Id) -> None:
    """Give a claimed awakeable back.

    hark awakeable unclaim prom_1abc123
    """
    with open_engine(options) as hark:
        found = hark.unclaim(id, via="cli").result()
    print_json(found) if options.json else print(f"{_mark(found)} {found.id} not claimed")


def _print_settled(options: Options, found: Any) -> None:
    print_json(found) if options.json else print(f"{_mark(found)} {found.id} {colored(found.status)}")


def _mark(found: Any) -> str:
    return f"[{_MARKS.get(found.status, '?')}]"


@command(cli, "list")
def list_(
    options: Options,
    job: Job = None,
    status: Annotated[
        str | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only PENDING, RESOLVED, REJECTED, TIMEOUT or CANCELLED",
            autocompletion=awakeable_statuses,
        ),
    ] = None,
    limit: Limit = 100,
    after: After = None,
) -> None:
    """List awakeables, newest first.

    hark awakeable list --status PENDING
    """
    status = status.upper() if status is not None else None
    with open_engine(options, "read") as hark:
        job = None if job is None else find_target(hark, job)
        found = read_up_to(limit, after, partial(hark.awakeables, job=job, status=status))
    if options.json:
        print_json(found)
        return
    if not found:
        print("No awakeables.")
    for one in found:
        print(f"{_mark(one)} {one.id}")
        print(f"  Job: {one.instance_id}")
        print(f"  Task: {printable(one.task or '-')}")
        print(f"  Status: {colored(one.status)}")
        if one.title:
            print(f"  Title: {printable(one.title)}")
        if one.timeout_at and one.status == "PENDING":
            print(f"  Until: {when(one.timeout_at)}")
        if one.claimed_by and one.status == "PENDING":
            print(f"  Claimed by: {printable(one.claimed_by)}")
    print_next_page(found)


@command(cli)
def show(options: Options, id: Id) -> None:
    """Show all fields of an awakeable.

    hark awakeable show prom_1abc123
    """
    with open_engine(options, "read") as hark:
        found = hark.awakeable(id).result()
    if options.json:
        print_json(found)
        return
    print(f"{_mark(found)} {found.id}")
    print_fields(
        [
            ("Status", found.status), ("Job", found.instance_id), ("Task", found.task), ("Title", found.title),
            ("Description", found.description), ("Schema", found.schema),
            ("Assignees", ", ".join(found.assignees) or None), ("Groups", ", ".join(found.groups) or None),
            ("Claimed by", found.claimed_by), ("Due", when(found.due_at)), ("Created", when(found.created_at)),
            ("Until", when(found.timeout_at)), ("Settled", when(found.resolved_at)), ("By", found.answered_by),
            ("Payload", found.payload if found.status == "RESOLVED" else None), ("Error", found.error),
            ("Link", found.url), ("", _MISSING_ADDRESS if found.url.startswith("/") else None),
        ]
    )  # fmt: skip


@command(cli, store_only=True)
def create(
    options: Options,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="One line for the answerer")] = None,
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="More text for the answerer")
    ] = None,
    answer_schema: Annotated[
        str | None, typer.Option("--answer-schema", metavar="JSON", help="The JSON Schema that the answer must match")
    ] = None,
    assignees: Annotated[
        list[str] | None,
        typer.Option("--assignee", metavar="NAME", help="A person who may answer; may be repeated"),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Seconds until it times out")
    ] = None,
) -> None:
    """In a shell task: create an awakeable, and print its id.

    The nth one that a command creates is the same one whenever the command runs again. `hark awakeable await` waits for
    its answer.

    hark awakeable create --title "Deploy?"
    """
    from hark.app.door_access import DoorAccess

    lease = os.environ.get("HARK_LEASE")
    if not lease:
        raise InvalidInput("`hark awakeable create` is for the commands of tasks: HARK_LEASE is not set.")
    if options.url is None and options.app is None:
        raise InvalidInput("The store of this task is in memory, and no other process reaches it: HARK_DB is not set.")
    app = local_only_app(options, "awakeable create")
    schema = parse_json(answer_schema, "--answer-schema")
    with next_place() as place, open_store(app, options):
        id = (
            DoorAccess(app)
            .create_awakeable(
                lease,
                place,
                run=os.environ.get("HARK_JOB", ""),
                task=os.environ.get("HARK_TASK", ""),
                timeout=timeout,
                title=title,
                description=description,
                schema=schema,
                assignees=assignees or (),
            )
            .result()
        )
        print_json(app.awakeable(id).result()) if options.json else print(id)


def _needs_a_park(found: Any) -> bool:
    """True in a shell task when the time of the awakeable is over. The sweep times out the awakeables of parked tasks
    only, so the command suspends its task."""
    is_in_task = bool(os.environ.get("HARK_LEASE"))
    return is_in_task and found.timeout_at is not None and found.timeout_at <= datetime.now(UTC)


@command(cli, "await")
def await_(
    options: Options,
    id: Id,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is settled, instead of exit 75")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Wait at most this long")
    ] = None,
) -> None:
    """Print the answer of an awakeable.

    Exits with 75 while there is no answer. In a shell task that means: suspend the task until it is answered.

    hark awakeable await prom_1abc123 --wait --timeout 60
    """
    check_timeout(timeout)
    until = None if timeout is None else time.monotonic() + timeout
    with open_engine(options, "read") as hark:
        found = hark.awakeable(id).result()
        while found.status == "PENDING" and (wait or timeout) and (until is None or time.monotonic() < until):
            if _needs_a_park(found):
                break
            time.sleep(_POLL_INTERVAL)
            found = hark.awakeable(id).result()
    match found.status:
        case "RESOLVED":
            print_result(found.payload, as_json=options.json)
        case "PENDING":
            from hark.model.schema import example_answer

            payload = "" if found.schema is None else f" --payload {shlex.quote(example_answer(found.schema))}"
            raise StillSuspended(
                f"{id} is PENDING: answer it with `hark awakeable resolve {id}{payload}`, then run this command again."
            )
        case "TIMEOUT":
            raise AwakeableTimedOut(
                f"{id} timed out: there was no answer before {found.timeout_at:%Y-%m-%d %H:%M:%S} UTC. "
                f"See `hark instance show {found.instance_id}` for what the instance did then."
            )
        case "REJECTED":
            raise AwakeableRejected(f"{id} was rejected: {found.error}")
        case _:
            raise InstanceCancelled(
                f"{id} was cancelled: see `hark instance show {found.instance_id}`.", id=found.instance_id
            )
