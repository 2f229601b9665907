"""PostgreSQL is restarted at random under clients that do round trips: every round trip returns the right result.

HARK_CHAOS=full runs the whole of fault 36: 20 restarts, 5 to 40 seconds apart, and 10,000 round trips at least.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random

import pytest

from hark import Await, Context, Done, Duplicate, Hark, Machine, Next, StoreUnavailable, step
from tests.support.inspect import query
from tests.support.postgres import PostgresServer
from tests.support.stores import Store

FULL = os.environ.get("HARK_CHAOS") == "full"
RESTARTS, ROUND_TRIPS, PAUSE = (20, 10_000, (5.0, 40.0)) if FULL else (5, 500, (0.2, 1.0))
CLIENTS = 20


class Echo(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("word", then=self.heard)

    @step
    async def heard(self, ctx: Context) -> Next:
        ctx.state["heard"] = [signal.payload for signal in ctx.awaited]
        return Next(self.answer)

    @step
    async def answer(self, ctx: Context) -> Done:
        return Done(ctx.state["heard"])


class Clients:
    def __init__(self, app: Hark) -> None:
        self.app = app
        self.trips = 0
        self.restarting = True

    async def keep_asking(self, number: int) -> None:
        while self.restarting or self.trips < ROUND_TRIPS:
            await self.round_trip(f"echo-{number}-{self.trips}")
            self.trips += 1

    async def round_trip(self, id: str) -> None:
        """A client knows its ids and keys, so it may repeat a call that failed with "nothing was stored"."""
        while True:
            try:
                with contextlib.suppress(Duplicate):
                    await self.app.start(Echo, id=id)
                await self.app.signal(id, "word", id, dedup_key="once")
                assert await self.app.result(id, timeout=60) == [id]
                return
            except StoreUnavailable:
                await asyncio.sleep(0.1)


@pytest.mark.timeout(1800 if FULL else 240)
async def test_x5_fault_36_random_restarts_of_the_database_cost_no_round_trip() -> None:
    with PostgresServer() as server:
        store = Store("postgres", server.url, {"schema": "hark"})
        app, other = Hark(server.url), Hark(server.url)
        app.register(Echo)
        other.register(Echo)
        async with app, other, other.worker():
            clients = Clients(app)
            asking = [asyncio.create_task(clients.keep_asking(number)) for number in range(CLIENTS)]
            for number in range(RESTARTS):
                await asyncio.sleep(random.uniform(*PAUSE))
                await asyncio.to_thread(server.kill if number % 2 else server.stop)
                await asyncio.to_thread(server.start)
            clients.restarting = False
            await asyncio.gather(*asking)
        counted = "SELECT count(*), count(DISTINCT id), max(attempt), max(crashes) FROM instances WHERE status = 'done'"
        [(done, distinct, attempts, crashes)] = await query(store, counted)
        assert done == distinct == clients.trips >= ROUND_TRIPS
        assert (attempts, crashes) == (0, 0)
        assert await query(store, "SELECT count(*) FROM inbox") == [(done,)]
