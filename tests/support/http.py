"""A real server on a free port, a client for it, and instances with pending awakeables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import uvicorn.server

from hark import Await, Context, Done, Hark, Machine, Stop, step
from hark.model.decisions import Arm, NewAwakeable, Park
from tests.promises.support_signals import Turns
from tests.support.stores import Store


class Order(Machine):
    """Waits for `paid`, then ends with its payload; `refused` makes it fail."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", "refused", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done | Stop:
        [signal] = ctx.awaited[:1]
        return Stop("no money") if signal.name == "refused" else Done(signal.payload)


def app_on(store: Store, **options: Any) -> Hark:
    app = Hark(store.url, **store.options, **options)
    app.register(Order)
    return app


@asynccontextmanager
async def serving(app: Hark, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """`serve` as `hark serve` calls it, until the block ends; the client's base_url says where."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[str] = loop.create_future()
    serving = asyncio.ensure_future(app.serve(port=0, say=told.set_result, **options))
    await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving
    url = told.result().split()[2].rstrip(";")
    try:
        limits = httpx.Limits(max_connections=300)
        # There is no TLS here, and reading all certificates of the machine takes longer than most tests.
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, verify=False) as client:
            yield client
    finally:
        serving.cancel()
        with mock.patch.object(uvicorn.server, "asyncio", _HASTY):
            await asyncio.wait({serving}, timeout=60)
        assert serving.done()


# A server of uvicorn that stops sleeps 0.1 s before it looks whether its connections have ended.
_HASTY = SimpleNamespace(**{**vars(asyncio), "sleep": lambda _: asyncio.sleep(0.005)})


async def ask(store: Store, *ids: str, timeout: int | None = None, **about: Any) -> None:
    """Pending awakeables with these ids, each of an instance of its own that no worker runs."""
    async with Turns(store) as turns:
        await turns.register("Asks")

        def question(instance: str) -> Park:
            id, wait = instance.removeprefix("asks-"), f"wait-{instance}"
            asked = NewAwakeable(id, 0, place="door", timeout=timeout, **about)
            return Park((Arm("awakeable", wait, "door", name=id, timeout=timeout),), awakeables=(asked,))

        await turns.park_all("Asks", [f"asks-{id}" for id in ids], question, step="answered")


def lines_of(text: str) -> list[dict[str, str]]:
    """Server-sent events as dicts of their fields; comments left out."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if fields:
            found.append(fields)
    return found
