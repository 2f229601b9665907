"""Telling: start, signal, broadcast, message."""

from typing import Annotated

import typer

from hark.doors.cli.options import File, Options, Payload, Target, Text, command, open_engine, parse_json, parse_payload
from hark.doors.cli.output import print_json

Dedup = Annotated[str | None, typer.Option("--dedup-key", metavar="KEY", help="A second one with it is a duplicate")]


def add_commands(cli: typer.Typer) -> None:
    for verb in (start, signal, broadcast, message):
        command(cli)(verb)


def start(
    options: Options,
    definition: Annotated[str, typer.Argument(metavar="DEFINITION", help="Its name")],
    input: Annotated[str | None, typer.Option("--input", metavar="JSON", help="What it starts with")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Correlation key: its name in the business")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Its id, instead of a made one")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Another queue than its definition's")] = None,
    priority: Annotated[int, typer.Option("--priority", help="Lower goes first")] = 0,
    delay: Annotated[float | None, typer.Option("--delay", metavar="SECONDS", help="Not before then")] = None,
    version: Annotated[int | None, typer.Option("--version", help="Not the newest one")] = None,
) -> None:
    """Start an instance by its definition's name; prints its id.

    hark start Checkout --input '{"order": 42}' --key order:42
    """
    value = parse_json(input, "--input")
    with open_engine(options, create=options.app is not None) as hark:
        handle = hark.start(
            definition, value, correlation_key=key, id=id, queue=queue, priority=priority, delay=delay, version=version
        ).result()
    print_json({"id": handle.id}) if options.json else print(handle.id)


def signal(
    options: Options,
    target: Target,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name")],
    payload: Payload = None,
    text: Text = False,
    file: File = None,
    dedup_key: Dedup = None,
) -> None:
    """Send a signal to an instance; prints woke, stored or duplicate.

    hark signal order:42 payment_confirmed --payload '{"amount": 100}' --dedup-key evt-7
    """
    value = parse_payload(payload, text, file)
    with open_engine(options) as hark:
        delivery = hark.signal(target, name, value, dedup_key=dedup_key).result()
    print_json(delivery) if options.json else print(delivery.status)


def broadcast(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The broadcast's name")],
    payload: Payload = None,
    text: Text = False,
    file: File = None,
    dedup_key: Dedup = None,
) -> None:
    """Wake everybody who waits for this broadcast; prints how many.

    hark broadcast market-open
    """
    value = parse_payload(payload, text, file)
    with open_engine(options) as hark:
        count = hark.broadcast(name, value, dedup_key=dedup_key).result()
    print_json({"count": count}) if options.json else print(count)


def message(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The message's name")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The correlation key it is for")],
    payload: Payload = None,
    text: Text = False,
    file: File = None,
) -> None:
    """Give a message to the one who waits for it under a key; prints its id.

    hark message payment order-42 --payload '{"amount": 120}'
    """
    value = parse_payload(payload, text, file)
    with open_engine(options) as hark:
        handle = hark.message(name, key, value).result()
    print_json({"id": handle.id}) if options.json else print(handle.id)
