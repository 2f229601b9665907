"""D4: `GET /instances/{target}?wait=S` answers when the instance has ended, or after S seconds as it is then."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from hark import Hark
from hark.doors.http import server
from hark.engine.callers.waiting import WaitingCallers
from hark.store import reads
from tests.support.http import app_on, serving
from tests.support.inspect import until
from tests.support.stores import Store

LONG = "?wait=60"


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Hark]:
    async with app_on(store) as app:
        yield app


@pytest.fixture
async def http(app: Hark) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app) as client:
        yield client


@pytest.fixture
async def idle(app: Hark) -> AsyncIterator[httpx.AsyncClient]:
    """A server without a worker."""
    async with serving(app, worker=False) as client:
        yield client


async def waiting(app: Hark, number: int = 1) -> None:
    """Until so many requests wait for the end of an instance."""

    async def there() -> bool:
        return len(held(app._clerk.waiting)) == number

    await until(there, f"{number} requests to wait")


def held(callers: WaitingCallers) -> list[Any]:
    gc.collect()
    return [waiter for waiters in callers.for_ends.alive().values() for waiter in waiters]


async def parked(app: Hark, id: str) -> None:
    await app.start("Order", id=id, correlation_key=f"key:{id}")
    await app._wait_for_status(id, "awaiting_signal", 60)


@pytest.mark.parametrize(("signal", "status"), [("paid", "done"), ("refused", "failed"), (None, "cancelled")])
async def test_d4_a_request_that_waits_is_answered_when_the_instance_has_ended(
    app: Hark, http: httpx.AsyncClient, signal: str | None, status: str
) -> None:
    await parked(app, "o-1")
    asked = asyncio.ensure_future(http.get(f"/instances/key:o-1{LONG}"))
    await waiting(app)
    assert not asked.done()
    await (app.cancel("o-1") if signal is None else app.signal("o-1", signal, {"amount": 1}))
    answer = await asked
    assert (answer.status_code, answer.json()["id"], answer.json()["status"]) == (200, "o-1", status)
    assert answer.json()["result"] == ({"amount": 1} if status == "done" else None)
    assert held(app._clerk.waiting) == []


async def test_d4_the_end_on_another_worker_is_found(store: Store, app: Hark, idle: httpx.AsyncClient) -> None:
    await app.start("Order", id="o-1")
    asked = asyncio.ensure_future(idle.get(f"/instances/o-1{LONG}"))
    await waiting(app)
    async with app_on(store) as elsewhere, elsewhere.worker():
        await elsewhere.signal("o-1", "paid", 7)
        assert (await asked).json()["result"] == 7


async def test_d4_after_the_time_the_instance_is_answered_as_it_is(app: Hark, http: httpx.AsyncClient) -> None:
    await parked(app, "o-1")
    answer = await http.get("/instances/o-1?wait=0.05")
    assert (answer.status_code, answer.json()["status"]) == (200, "awaiting_signal")
    assert answer.json() == (await http.get("/instances/o-1")).json()
    await app.signal("o-1", "paid")
    await app.result("o-1", 60)
    assert (await http.get(f"/instances/o-1{LONG}")).json()["status"] == "done"


async def test_d4_a_target_that_does_not_exist_is_not_waited_for(idle: httpx.AsyncClient) -> None:
    assert (await idle.get(f"/instances/nowhere{LONG}")).status_code == 404


async def test_d4_the_instance_is_waited_for_and_not_the_next_holder_of_its_key(
    app: Hark, http: httpx.AsyncClient
) -> None:
    await parked(app, "o-1")
    asked = asyncio.ensure_future(http.get(f"/instances/key:o-1{LONG}"))
    await waiting(app)
    cancelled = app.cancel("o-1")
    await app.start("Order", id="o-2", correlation_key="key:o-1")
    await cancelled
    assert (await asked).json()["id"] == "o-1"


@pytest.mark.parametrize("wait", ["60.1", "-1", "1e9", "inf", "nan", "soon", "", "true", "1&wait=2"])
async def test_d4_a_time_that_is_out_of_range_is_refused(app: Hark, idle: httpx.AsyncClient, wait: str) -> None:
    await app.start("Order", id="o-1")
    answer = await idle.get(f"/instances/o-1?wait={wait}")
    assert (answer.status_code, answer.json()["type"]) == (422, "InvalidInput")
    assert "wait" in answer.json()["error"]


async def test_d4_a_request_whose_client_is_gone_waits_no_more(app: Hark, idle: httpx.AsyncClient) -> None:
    await app.start("Order", id="o-1")
    asked = asyncio.ensure_future(idle.get(f"/instances/o-1{LONG}"))
    await waiting(app)
    asked.cancel()
    await waiting(app, 0)


async def test_d4_a_server_that_stops_answers_those_who_wait(app: Hark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SHUTDOWN_TIMEOUT", 3600)  # a request that is not answered keeps the server up
    await app.start("Order", id="o-1")
    line: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(app.serve(port=0, worker=False, say=line.set_result))
    url = (await line).split()[2].rstrip(";")
    async with httpx.AsyncClient(timeout=30) as http:
        asked = asyncio.ensure_future(http.get(f"{url}/instances/o-1{LONG}"))
        await waiting(app)
        serving.cancel()
        answer = await asked
        assert (answer.status_code, answer.json()["status"]) == (200, "runnable")
    await asyncio.wait({serving}, timeout=60)
    assert serving.done()


async def test_d4_requests_that_wait_cost_no_thread_and_one_read_for_all_of_them(
    app: Hark, idle: httpx.AsyncClient
) -> None:
    for n in range(20):
        await app.start("Order", id=f"o-{n}")
    await idle.get("/instances/o-1?wait=0.01")
    threads, store = threading.active_count(), app._clerk.store
    read, asked_about = store.read, []

    async def noted(sql: Any, *args: Any, **values: Any) -> Any:
        if sql is reads.outcomes:
            asked_about.append(len(values["ids"]))
        return await read(sql, *args, **values)

    requests = [asyncio.ensure_future(idle.get(f"/instances/o-{n}{LONG}")) for n in range(20) for _ in range(5)]
    await waiting(app, 100)
    assert threading.active_count() < threads + 5  # not 100 more; the app itself may begin one
    store.read = noted  # type: ignore[assignment]
    app._clerk.hint()
    await until(lambda: _is(asked_about), "the check after a hint")
    assert set(asked_about) == {20}
    for request in requests:
        request.cancel()
    await waiting(app, 0)


async def _is(found: list[int]) -> bool:
    return bool(found)
