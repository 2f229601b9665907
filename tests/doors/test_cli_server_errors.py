"""D4: a verb raises the same error, with the same data and exit code, on a store and through a server."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hark import Hark
from hark.doors.cli.main import exit_code
from hark.doors.cli.remote import RemoteHark
from hark.model.decisions import Arm, Finish
from hark.model.errors import HarkError, NotAssigned
from tests.doors.support_cli import Cli, run_cli, store_options
from tests.doors.test_cli_server import ServerCli, serving
from tests.promises.support_signals import Turns
from tests.support.stores import sqlite_file

BIG = "x" * (1 << 20)
HUGE = "x" * (1 << 21)
# The expected class, and the call; `hark` is a Hark on the store or a RemoteHark on the server.
CASES: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("NotFound", "start, unknown definition", lambda hark: hark.start("Unknown")),
    ("Duplicate", "start, id taken", lambda hark: hark.start("m", id="over")),
    ("Duplicate", "start, key taken", lambda hark: hark.start("m", correlation_key="order:1")),
    ("InvalidInput", "start, malformed id", lambda hark: hark.start("m", id="not an id")),
    ("InvalidInput", "start, negative delay", lambda hark: hark.start("m", delay=-1)),
    ("InvalidInput", "start, malformed queue", lambda hark: hark.start("m", queue="")),
    ("PayloadTooLarge", "start, big input", lambda hark: hark.start("m", BIG)),
    ("NoTarget", "signal, unknown target", lambda hark: hark.signal("unknown", "go")),
    ("NoTarget", "signal, finished target", lambda hark: hark.signal("over", "go")),
    ("InvalidInput", "signal, empty name", lambda hark: hark.signal("live", "")),
    ("InvalidInput", "signal, empty target", lambda hark: hark.signal("", "go")),
    ("InvalidInput", "signal, long dedup key", lambda hark: hark.signal("live", "go", dedup_key="k" * 256)),
    ("PayloadTooLarge", "signal, big payload", lambda hark: hark.signal("live", "go", BIG)),
    ("PayloadTooLarge", "signal, huge payload", lambda hark: hark.signal("live", "go", HUGE)),
    ("InvalidInput", "broadcast, empty name", lambda hark: hark.broadcast("")),
    ("PayloadTooLarge", "broadcast, big payload", lambda hark: hark.broadcast("open", BIG)),
    ("NoTarget", "message, no receiver", lambda hark: hark.message("payment", "order:1")),
    ("InvalidInput", "message, empty key", lambda hark: hark.message("payment", "")),
    ("PayloadTooLarge", "message, big payload", lambda hark: hark.message("payment", "order:1", BIG)),
    ("NotFound", "resolve, unknown id", lambda hark: hark.resolve("prom_unknown")),
    ("InvalidInput", "resolve, malformed id", lambda hark: hark.resolve("")),
    ("AlreadySettled", "resolve, settled", lambda hark: hark.resolve("prom_settled")),
    ("AlreadySettled", "resolve, rejected", lambda hark: hark.resolve("prom_rejected")),
    ("InvalidAnswer", "resolve, not as the schema says", lambda hark: hark.resolve("prom_schema", {"approve": 1})),
    ("PayloadTooLarge", "resolve, huge answer", lambda hark: hark.resolve("prom_schema", HUGE)),
    ("NotFound", "reject, unknown id", lambda hark: hark.reject("prom_unknown")),
    ("AlreadySettled", "reject, settled", lambda hark: hark.reject("prom_settled")),
    ("NotFound", "get", lambda hark: hark.get("unknown")),
    ("InvalidInput", "get, malformed target", lambda hark: hark.get("x" * 300)),
    ("NotFound", "why", lambda hark: hark.why("unknown")),
    ("NotFound", "events", lambda hark: hark.events("unknown")),
    ("NotFound", "awakeable", lambda hark: hark.awakeable("prom_unknown")),
    ("InvalidInput", "list, unknown status", lambda hark: hark.list(status="asleep")),
    ("InvalidInput", "list, unknown kind", lambda hark: hark.list(kind="thing")),
    ("InvalidInput", "list, limit of zero", lambda hark: hark.list(limit=0)),
    ("InvalidInput", "awakeables, unknown status", lambda hark: hark.awakeables(status="ASLEEP")),
    ("NotFound", "cancel, unknown target", lambda hark: hark.cancel("unknown")),
    ("Conflict", "cancel, finished", lambda hark: hark.cancel("over")),
    ("NotFound", "retry, unknown target", lambda hark: hark.retry("unknown")),
    ("Conflict", "retry, not failed", lambda hark: hark.retry("live")),
    ("Duplicate", "retry, key taken since", lambda hark: hark.retry("failed")),
]


def set_up(cli: Cli) -> None:
    async def fail(turns: Turns) -> None:
        await turns.start("m", "failed", correlation_key="order:1")
        await turns.commit(await turns.claim("m"), Finish("failed", error="out of paper"))

    cli.run_turns(fail)
    cli.park(Arm("signal", "w-live", name="go"), id="live", key="order:1")
    cli.park(Arm("signal", "w-over", name="go"), id="over")
    cli.ask("prom_settled", of="j1")
    cli.ask("prom_rejected", of="j2")
    cli.ask("prom_schema", of="j3", schema='{"properties":{"approve":{"type":"boolean"}}}')
    cli.ask("prom_assigned", of="j4", assignees='["ann","bob"]')
    for words in (
        ["instance", "cancel", "over"],
        ["awakeable", "resolve", "prom_settled", "--by", "ann"],
        ["awakeable", "reject", "prom_rejected"],
    ):
        assert run_cli(*words, *store_options(cli.store)).code == 0


@pytest.fixture(scope="module")
def server_cli() -> Iterator[ServerCli]:
    with tempfile.TemporaryDirectory() as folder:
        store = sqlite_file(Path(folder))
        assert run_cli("migrate", *store_options(store)).code == 0
        set_up(Cli(store))
        with serving("--no-worker", *store_options(store), cwd=Path(folder)) as url:
            yield ServerCli(store, url)


def raised_by(verb: Callable[[], Any]) -> HarkError:
    with pytest.raises(HarkError) as caught:
        verb().result()
    return caught.value


@pytest.mark.parametrize(("kind", "what", "verb"), CASES, ids=[f"{kind}: {what}" for kind, what, _ in CASES])
def test_d4_the_same_error_on_a_store_and_through_a_server(
    server_cli: ServerCli, kind: str, what: str, verb: Callable[[Any], Any]
) -> None:
    with Hark(server_cli.store.url) as app:
        here = raised_by(lambda: verb(app))
    there = raised_by(lambda: verb(RemoteHark(server_cli.url, None)))
    assert type(here).__name__ == kind
    assert (type(there), vars(there), exit_code(there)) == (type(here), vars(here), exit_code(here))


@pytest.mark.parametrize("verb", ["resolve", "reject"])
def test_d4_a_token_with_another_name_than_the_assignees_is_refused_as_on_the_store(
    server_cli: ServerCli, verb: str
) -> None:
    with Hark(server_cli.store.url) as app:
        here = raised_by(lambda: getattr(app, verb)("prom_assigned", "x", by="eve"))
        token = app.create_token(["answer"], name="eve").result()
    there = raised_by(lambda: getattr(RemoteHark(server_cli.url, token.secret), verb)("prom_assigned", "x"))
    assert type(here) is NotAssigned
    assert (type(there), vars(there), exit_code(there)) == (type(here), vars(here), exit_code(here))
