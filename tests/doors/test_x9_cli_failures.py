"""X9: the command line and the HTTP API show the error, the traceback and the next attempt."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from hark import Context, FunctionContext, Hark, Machine, Retry, step, workflow
from tests.doors.support_cli import Cli, run_cli, store_options
from tests.doors.test_cli_server import serving
from tests.support.stores import Store


class Breaks(Machine):
    @step
    async def start(self, ctx: Context) -> Any:
        {}["x"]


class Waits(Machine):
    @step
    async def start(self, ctx: Context) -> Any:
        {}["x"]

    def handle(self, error: Exception, ctx: Context) -> Any:
        return Retry(3600)


def charge() -> None:
    {}["x"]


@workflow
async def pay(ctx: FunctionContext) -> None:
    await ctx.run(charge, retries=4, backoff=3600)


def run_until(store: Store, definition: Any, status: str) -> None:
    """Start an instance `o-1`, and stop when it has this status and has had an attempt."""

    async def whole() -> None:
        app = Hark(store.url, **store.options)
        app.register(definition)
        async with app, app.worker():
            handle = await app.start(definition, id="o-1")
            while not [event for event in await app.events(handle) if event.type in ("retry", "stop")]:
                await asyncio.sleep(0.01)
            await handle.wait_for(status, timeout=60)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:  # see support_cli.py
        runner.run(whole())


@pytest.mark.parametrize("command", ["show", "why"])
def test_x9_a_failed_instance_is_printed_with_its_error_and_its_traceback(cli: Cli, store: Store, command: str) -> None:
    run_until(store, Breaks, "failed")
    out = cli("instance", command, "o-1").out
    assert "KeyError: 'x'" in out
    assert '\nTraceback (most recent call last):\n  File "' in out
    assert '    {}["x"]\n' in out


@pytest.mark.parametrize("definition", [Waits, pay], ids=["a step", "a run"])
def test_x9_events_show_the_error_of_a_failed_attempt_on_80_columns(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch, definition: Any
) -> None:
    run_until(store, definition, "runnable" if definition is Waits else "awaiting_signal")
    monkeypatch.setenv("COLUMNS", "80")
    [line] = [line for line in cli("events", "--job", "o-1").out.splitlines() if " retry " in line]
    assert line.endswith("  KeyError: 'x'")
    assert '"traceback"' in cli("events", "--job", "o-1", "--wide").out


@pytest.mark.parametrize("command", ["show", "why"])
@pytest.mark.parametrize(
    ("definition", "status", "text"),
    [
        (Waits, "runnable", "start: attempt 1 failed: KeyError: 'x'; next try in "),
        (pay, "awaiting_signal", "run charge: attempt 1 of 5 failed: KeyError: 'x'; next try in "),
    ],
    ids=["a step", "a run"],
)
def test_x9_during_a_backoff_the_failed_attempt_is_printed(
    cli: Cli, store: Store, command: str, definition: Any, status: str, text: str
) -> None:
    run_until(store, definition, status)
    out = cli("instance", command, "o-1").out
    assert re.search(re.escape(text) + r"(1 h|\d+ min)", out)
    assert "times out" not in out
    assert '    {}["x"]\n' in out


def test_x9_json_has_the_traceback(cli: Cli, store: Store) -> None:
    run_until(store, Breaks, "failed")
    assert '{}["x"]' in cli("instance", "show", "o-1", "--json").json["traceback"]
    assert '{}["x"]' in cli("instance", "why", "o-1", "--json").json["traceback"]


def test_x9_a_server_shows_the_same(cli: Cli, store: Store, tmp_path: Path) -> None:
    run_until(store, Waits, "runnable")
    with serving("--no-worker", *store_options(store), cwd=tmp_path) as url:
        why = run_cli("--server", url, "instance", "why", "o-1", "--json").json
        assert "start: attempt 1 failed: KeyError: 'x'; next try in " in why["text"]
        assert '{}["x"]' in why["traceback"]
        assert "attempt 1 failed" in run_cli("--server", url, "instance", "show", "o-1").out
        assert run_cli("--server", url, "instance", "show", "o-1", "--json").json["traceback"] is None
