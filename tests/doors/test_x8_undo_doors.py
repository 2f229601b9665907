"""X8: cancel with and without undo over HTTP and on the command line, and what they say while an undo runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest

from hark import Await, Context, Done, Hark, Machine, step
from tests.doors.support_cli import CliResult, run_cli, store_options
from tests.support.http import serving
from tests.support.inspect import until
from tests.support.stores import Store


class Checkout(Machine, on_cancel="undo"):
    """Waits for `paid`, and in its undo for `released`."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.end)

    @step
    async def undo(self, ctx: Context) -> Await:
        return Await("released", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


@dataclass
class Shop:
    """A server with a worker, and `hark` on it or on its store."""

    store: Store
    http: httpx.AsyncClient

    async def parked(self, id: str, step: str = "end") -> None:
        async def is_parked() -> bool:
            found = (await self.http.get(f"/instances/{id}")).json()
            return bool(found["status"] == "awaiting_signal" and found["step"] == step)

        await until(is_parked, f"{id} to wait")

    async def start(self, *ids: str) -> None:
        for id in ids:
            await self.http.post("/instances", json={"definition": "Checkout", "id": id})
            await self.parked(id)

    async def hark(self, where: str, *args: str) -> CliResult:
        place = store_options(self.store) if where == "db" else ["--server", str(self.http.base_url)]
        return await asyncio.to_thread(run_cli, *args, *place)


@pytest.fixture
async def shop(store: Store) -> AsyncIterator[Shop]:
    app = Hark(store.url, **store.options)
    app.register(Checkout)
    async with serving(app) as http:
        yield Shop(store, http)


async def test_x8_over_http_a_cancel_undoes_first_unless_it_is_forced(shop: Shop) -> None:
    await shop.start("o", "p")
    cancelling = await shop.http.post("/instances/o/cancel", json={"reason": "out of stock"})
    assert cancelling.status_code == 200
    assert (cancelling.json()["cancel_reason"], cancelling.json()["finished_at"]) == ("out of stock", None)
    forced = await shop.http.post("/instances/p/cancel", json={"force": True})
    assert (forced.status_code, forced.json()["status"], forced.json()["cancel_reason"]) == (200, "cancelled", None)
    again = await shop.http.post("/instances/o/cancel", json={"reason": "once more"})
    assert (again.status_code, again.json()["cancel_reason"]) == (200, "out of stock")
    assert (await shop.http.post("/instances/o/cancel", json={"force": "yes"})).status_code == 422
    await shop.http.post("/instances/o/signals/released")

    async def ended() -> bool:
        return bool((await shop.http.get("/instances/o")).json()["status"] == "cancelled")

    await until(ended, "the end of the undo")


@pytest.mark.parametrize("where", ["db", "server"])
async def test_x8_on_the_command_line_a_cancel_undoes_first_unless_it_is_forced(shop: Shop, where: str) -> None:
    await shop.start("o")
    said = (await shop.hark(where, "instance", "cancel", "o", "--reason", "out of stock")).out
    assert said == "o is being cancelled: its undo runs first. To end it without undo, add --force.\n"
    forced = await shop.hark(where, "instance", "cancel", "o", "--force", "--json")
    assert (forced.json["status"], forced.json["error"]) == ("cancelled", "out of stock")
    await shop.start("p")
    assert (await shop.hark(where, "instance", "cancel", "p", "--force")).out == "p is cancelled.\n"


@pytest.mark.parametrize("where", ["db", "server"])
async def test_x8_show_and_why_say_that_the_undo_runs(shop: Shop, where: str) -> None:
    await shop.start("o")
    assert "being cancelled" not in (await shop.hark(where, "instance", "show", "o")).out
    await shop.hark(where, "instance", "cancel", "o", "--reason", "out of stock.")
    await shop.parked("o")
    shown = (await shop.hark(where, "instance", "show", "o")).out
    assert "being cancelled: undo runs (out of stock.)" in shown
    why = (await shop.hark(where, "instance", "why", "o")).out
    assert "It is being cancelled: undo runs (out of stock). It waits for " in why
    assert "hark signal o released" in why


async def test_x8_why_says_once_what_holds_up_an_undo(store: Store) -> None:
    app = Hark(store.url, **store.options)
    app.register(Checkout)
    async with app:
        await app.start(Checkout, id="o")
        await app.cancel("o", "out of stock")
        why = (await asyncio.to_thread(run_cli, "instance", "why", "o", *store_options(store))).out
    assert "It is being cancelled: undo runs (out of stock)." in why
    assert why.count("No live worker") == 1
