"""V4, V5: `hark instance migrate` and `fork`, on a store and through a server; `POST /migrations` and `…/fork`."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.support_cli import CliResult, run_process
from tests.doors.test_cli_server import serving

_APP = """
from hark import Await, Done, FunctionContext, Hark, Machine, step, workflow

app = Hark("sqlite:///shop.db")

class Order(Machine, version=1):
    @step
    async def start(self, ctx):
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx):
        return Done(1)

class NewOrder(Machine, name="Order", version=2):
    @step
    async def start(self, ctx):
        return Await("paid", then=self.send)

    @step
    async def send(self, ctx):
        return Done([2, ctx.state["currency"]])

def with_currency(old):
    if old["order"] == 2:
        raise ValueError("two")
    return {**old, "currency": "EUR"}

@workflow
async def greet(ctx: FunctionContext, name: str):
    first = await ctx.run(str.upper, name, name="upper")
    return [first, (await ctx.wait_for_signal("go")).payload]

app.register(Order, NewOrder, greet)
"""
_START = """
import asyncio
from shop import app, Order, greet

async def main():
    async with app, app.worker():
        for order in (1, 2, 3):
            one = await app.start(Order, {"order": order}, correlation_key=f"order:{order}", version=1)
            await one.wait_for("awaiting_signal", timeout=30)
        one = await app.start(greet, {"name": "ann"}, correlation_key="greet")
        await one.wait_for("awaiting_signal", timeout=30)

asyncio.run(main())
"""
_MIGRATE = ("instance", "migrate", "--to", "2", "--state", "shop:with_currency", "--map", "ship=send")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project in an empty folder, with three orders and a function that wait."""
    monkeypatch.chdir(tmp_path)
    Path("shop.py").write_text(textwrap.dedent(_APP))
    subprocess.run([sys.executable, "-c", textwrap.dedent(_START)], check=True, timeout=60)


@pytest.fixture(params=["store", "server"])
def where(request: pytest.FixtureRequest, shop: None) -> Iterator[list[str]]:
    if request.param == "store":
        yield ["--app", "shop:app"]
    else:
        with serving("--app", "shop:app", cwd=Path.cwd()) as address:
            yield ["--server", address]


def versions(where: list[str]) -> dict[str, int]:
    listed = run_process("instance", "list", "--definition", "Order", "--json", *where)
    return {one["correlation_key"]: one["version"] for one in listed.json}


def ended(done: CliResult, code: int) -> str:
    assert done.code == code, done
    return done.out


def test_v4_instances_are_previewed_and_moved_and_what_cannot_be_is_named(where: list[str]) -> None:
    many = (*_MIGRATE, "--definition", "Order", *where)
    preview = ended(run_process(*many, "--dry-run"), 1)
    assert preview.startswith("2 instances would move to version 2.\nNot movable:\n")
    assert "shop:with_currency failed: ValueError: two" in preview
    asked = run_process(*many)
    assert asked.error_line(2) == "hark: 2 instances would move to version 2. Add --yes to do it."
    assert set(versions(where).values()) == {1}
    moved = ended(run_process(*many, "--yes"), 1)
    assert moved.startswith("2 instances moved to version 2, 1 failed.\n")
    assert versions(where) == {"order:1": 2, "order:2": 1, "order:3": 2}
    again = json.loads(ended(run_process(*many, "--yes", "--json"), 1))
    assert {name: again[name] for name in ("done", "skipped", "failed")} == {"done": 0, "skipped": 2, "failed": 1}


def test_v4_one_instance_is_moved_without_a_question_and_refused_with_the_reason(where: list[str]) -> None:
    assert ended(run_process(*_MIGRATE, "order:1", *where), 0) == "1 instance moved to version 2.\n"
    refused = run_process(*_MIGRATE, "order:2", *where)
    assert (refused.code, refused.out) == (2, "")
    assert "ValueError: two" in refused.err
    assert run_process(*_MIGRATE, *where).error_line(2).endswith("Give one TARGET, or --definition to select many.")
    assert "write OLD=NEW" in run_process("instance", "migrate", "order:1", "--to", "2", "--map", "a", *where).err
    twice = run_process("instance", "migrate", "order:1", "--to", "2", "--map", "a=b", "--map", "a=c", *where)
    assert twice.error_line(2) == "hark: --map names 'a' twice, with different new names."
    assert versions(where) == {"order:1": 2, "order:2": 1, "order:3": 1}


def test_v5_a_function_and_a_machine_are_forked(where: list[str]) -> None:
    again = run_process("instance", "fork", "greet", "--at", "0", "--id", "again", *where)
    assert ended(again, 0) == "again is a fork of greet.\n"
    shown = run_process("instance", "show", "again", "--json", *where).json
    assert (shown["definition"], shown["state"]) == ("greet", {"name": "ann"})
    other = run_process(
        "instance",
        "fork",
        "order:1",
        "--step",
        "start",
        "--state",
        '{"order": 9}',
        "--key",
        "order:9",
        "--json",
        *where,
    ).json
    assert (other["state"], other["correlation_key"]) == ({"order": 9}, "order:9")
    assert other["forked_from"] != other["id"]
    assert "has no entry 7" in run_process("instance", "fork", "greet", "--at", "7", *where).error_line(2)
    assert "exists already" in run_process("instance", "fork", "greet", "--id", "again", *where).error_line(4)


def test_v4_a_server_wants_either_a_target_or_filters(shop: None) -> None:
    import httpx

    with serving("--app", "shop:app", cwd=Path.cwd()) as address:
        for body in ({"to_version": 2}, {"to_version": 2, "target": "order:1", "definition": "Order"}):
            answer = httpx.post(f"{address}/migrations", json=body)
            assert (answer.status_code, answer.json()["type"]) == (422, "InvalidInput")
        body = {"to_version": 2, "definition": "Order", "steps": {"ship": "send"}, "preview": True}
        answer = httpx.post(f"{address}/migrations", json=body)
        assert (answer.status_code, answer.json()["count"]) == (200, 3)
        answer = httpx.post(f"{address}/migrations", json={"to_version": 2, "target": "order:1"})
        assert (answer.status_code, answer.json()["type"]) == (422, "InvalidMigration")
        assert answer.json()["problems"][0]["element"] == "ship"
