"""X3: how a server finds the address for links, and that no stranger can change it."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from hark import Hark
from hark.doors.http.server import listen, reachable_address
from tests.support.http import app_on, ask, serving
from tests.support.inspect import query, until
from tests.support.stores import Store


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARK_BASE_URL", raising=False)


async def origins(store: Store) -> list[str]:
    return [url for (url,) in await query(store, "SELECT url FROM origins ORDER BY url")]


async def test_x3_serve_records_its_address_and_other_processes_use_it(store: Store) -> None:
    await ask(store, "prom_1")
    async with serving(app_on(store), worker=False) as http, Hark(store.url, **store.options) as worker:
        url = (await worker.awakeable("prom_1")).url
        assert url.startswith(f"{str(http.base_url).rstrip('/')}/a/prom_1?t=")
        assert (await http.get(url, headers={"Accept": "application/json"})).json()["awakeable_id"] == "prom_1"


def test_x3_a_server_on_all_addresses_is_reached_by_the_name_of_the_machine() -> None:
    with listen("0.0.0.0", 0) as everywhere, listen("127.0.0.1", 0) as here:
        assert reachable_address(everywhere) == f"http://{socket.gethostname()}:{everywhere.getsockname()[1]}"
        assert reachable_address(here) == f"http://127.0.0.1:{here.getsockname()[1]}"


def client(asgi: Any, host: str, address: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=asgi, client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url=host)


async def recorded(store: Store, expected: list[str]) -> None:
    async def found() -> bool:
        return await origins(store) == expected

    await until(found, f"{expected} to be recorded")


async def test_x3_a_mounted_app_records_the_prefix_and_then_the_address_for_other_machines(store: Store) -> None:
    await ask(store, "prom_1")
    app = app_on(store)
    outer = Starlette(routes=[Mount("/hark", app.asgi())])
    async with app:
        async with client(outer, "http://localhost:8000") as http:
            await http.get("/hark/instances")
        await recorded(store, ["http://localhost:8000/hark"])
        assert (await app.awakeable("prom_1")).url.startswith("http://localhost:8000/hark/a/prom_1?t=")
        token = (await app.create_token(["answer", "read"])).secret
        async with client(outer, "https://ask.example", "192.0.2.7") as http:
            await http.get("/hark/instances", headers={"Authorization": f"Bearer {token}"})
        await recorded(store, ["http://localhost:8000/hark", "https://ask.example/hark"])
        assert (await app.awakeable("prom_1")).url.startswith("https://ask.example/hark/a/prom_1?t=")


@pytest.mark.parametrize("scopes", [None, ["read"], ["signal", "operate", "deploy"]])
async def test_x3_a_forged_host_of_a_sender_that_may_not_answer_changes_no_link(
    store: Store, scopes: list[str] | None
) -> None:
    await ask(store, "prom_1")
    app = app_on(store)
    async with app, client(app.asgi(), "https://evil.example", "192.0.2.7") as http:
        headers = {}
        if scopes is not None:
            headers["Authorization"] = f"Bearer {(await app.create_token(scopes)).secret}"
        link = (await app.awakeable("prom_1")).url
        assert link.startswith("/a/")
        for path in ("/instances", "/health", link, "/nowhere"):
            await http.get(path, headers=headers)
        assert (await app.awakeable("prom_1")).url == link
        assert await origins(store) == []


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1@evil.example", "a b", ""])
async def test_x3_a_forged_host_of_a_request_from_this_machine_changes_no_link(store: Store, host: str) -> None:
    app = app_on(store)
    async with app, client(app.asgi(), "http://localhost:8000") as http:
        assert (await http.get("/instances", headers={"Host": host})).status_code == 403
        assert await origins(store) == []
        assert app._links.origin == ""
