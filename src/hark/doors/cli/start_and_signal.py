"""`hark start`, `hark signal`, `hark broadcast` and `hark message`: start instances and send to them."""

from typing import Annotated, Any

import typer

from hark.doors.cli.completion import definitions
from hark.doors.cli.engine import find_target, open_engine
from hark.doors.cli.options import File, Options, Payload, Tags, Target, Text, parse_json, parse_payload, parse_tags
from hark.doors.cli.output import print_json
from hark.doors.cli.results import Timeout, check_timeout, print_end
from hark.model.errors import InvalidInput


def _dedup_key(what: str) -> Any:
    """The option --dedup-key of a command that sends a signal, a broadcast or a message."""
    return typer.Option("--dedup-key", metavar="KEY", help=f"A second {what} with the same key has no effect")


def start(
    options: Options,
    definition: Annotated[
        str,
        typer.Argument(metavar="DEFINITION", help="The name of a machine or a workflow", autocompletion=definitions),
    ],
    input: Annotated[str | None, typer.Option("--input", metavar="JSON", help="The input of the instance")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The correlation key, for example order:42")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The id; by default a new one is made")] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="NAME", help="The queue; by default that of the definition")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Lower numbers run first")] = 0,
    delay: Annotated[
        float | None, typer.Option("--delay", metavar="SECONDS", help="Wait this long before the first step")
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="The version; by default the newest that a worker has")
    ] = None,
    tag: Tags = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, and print its result alone")] = False,
    timeout: Timeout = None,
) -> None:
    """Start an instance and print its id.

    With --wait it prints the result of the instance instead, as `hark result` does, with the same exit codes. A worker
    must run elsewhere. Ctrl-C ends only the command.

    hark start Checkout --input '{"order": 42}' --key order:42
    """
    value = parse_json(input, "--input")
    if timeout is not None and not wait:
        raise InvalidInput("--timeout is for --wait. Give both, or use `hark result ID --timeout SECONDS` later.")
    check_timeout(timeout)
    # The store of an app may be new. A store that was named must exist: a typing error must not create another one.
    named = options.app is None or options.url is not None or options.schema is not None
    with open_engine(options, "write" if named else "migrate") as hark:
        handle = hark.start(
            definition,
            value,
            correlation_key=key,
            id=id,
            queue=queue,
            priority=priority,
            delay=delay,
            version=version,
            tags=parse_tags(tag),
        ).result()
        if wait:
            print_end(options, hark, handle.id, timeout)
            return
    print_json({"id": handle.id}) if options.json else print(handle.id)


def signal(
    options: Options,
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the signal")],
    payload: Payload = None,
    text: Text = False,
    file: File = None,
    dedup_key: Annotated[str | None, _dedup_key("signal")] = None,
) -> None:
    """Send a signal to an instance.

    Prints "woke" if the instance was waiting for it, "stored" if it is kept until the instance waits for it, or
    "duplicate" if --dedup-key was used before and the signal has no effect.

    hark signal order:42 payment_confirmed --payload '{"amount": 100}' --dedup-key evt-7
    """
    value = parse_payload(payload, text, file)
    with open_engine(options) as hark:
        delivery = hark.signal(find_target(hark, target), name, value, dedup_key=dedup_key).result()
    print_json(delivery) if options.json else print(delivery.status)


def broadcast(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the broadcast")],
    payload: Payload = None,
    text: Text = False,
    file: File = None,
    dedup_key: Annotated[str | None, _dedup_key("broadcast")] = None,
) -> None:
    """Broadcast to all instances that wait for a name.

    Prints how many instances received it.

    hark broadcast market-open
    """
    value = parse_payload(payload, text, file)
    with open_engine(options) as hark:
        count = hark.broadcast(name, value, dedup_key=dedup_key).result()
    print_json({"count": count}) if options.json else print(count)


def message(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the message")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The correlation key that the receiver waits with")],
    payload: Payload = None,
    text: Text = False,
    file: File = None,
    ttl: Annotated[
        float, typer.Option("--ttl", metavar="SECONDS", help="Keep it for so long if there is no receiver")
    ] = 0,
    dedup_key: Annotated[str | None, _dedup_key("message")] = None,
) -> None:
    """Send a message to the instance that waits for it.

    Prints the id of the instance that received it, or "kept" if it is kept for one.

    hark message payment order-42 --payload '{"amount": 120}' --ttl 3600
    """
    value = parse_payload(payload, text, file)
    with open_engine(options) as hark:
        handle = hark.message(name, key, value, ttl=ttl, dedup_key=dedup_key).result()
    id = None if handle is None else handle.id
    print_json({"id": id}) if options.json else print(id or "kept")
