"""`app.asgi()` mounted in another application, and served alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from hark import Hark
from tests.support.http import app_on, ask
from tests.support.stores import Store


def client(asgi: Any, **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=asgi, **options)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8000")


@pytest.fixture
async def app(store: Store) -> Hark:
    return app_on(store)


@pytest.mark.parametrize("prefix", ["/hark", "/deep/down"])
async def test_mounted_under_a_prefix(app: Hark, store: Store, prefix: str) -> None:
    outer = Starlette(routes=[Mount(prefix, app.asgi())])
    async with app, client(outer) as http:
        made = await http.post(f"{prefix}/instances", json={"definition": "Order", "correlation_key": "a/b"})
        assert made.status_code == 201
        assert made.headers["location"] == f"http://localhost:8000{prefix}/instances/{made.json()['id']}"
        assert (await http.get(f"{prefix}/instances/a%2Fb")).json()["id"] == made.json()["id"]
        assert (await http.get(f"{prefix}/health")).status_code == 200
        assert (await http.get(f"{prefix}/nowhere")).json()["error"]
        described = (await http.get(f"{prefix}/openapi.json")).json()
        assert [server["url"] for server in described["servers"]] == [prefix]
        assert f'href="{prefix}/openapi.json"' in (await http.get(f"{prefix}/")).text
        await ask(store, "prom_1")
        shown = (await http.get(f"{prefix}/awakeables/prom_1")).json()
        assert shown["url"].startswith(f"http://localhost:8000{prefix}/a/prom_1")


async def test_d5_the_document_names_the_base_url_first(store: Store) -> None:
    app = app_on(store, base_url="https://ask.example/hark")
    async with app, client(Starlette(routes=[Mount("/inner", app.asgi())])) as http:
        described = (await http.get("/inner/openapi.json")).json()
    assert [server["url"] for server in described["servers"]] == ["https://ask.example/hark", "/inner"]


async def test_a_request_to_an_app_that_is_not_open_is_503(app: Hark) -> None:
    async with client(Starlette(routes=[Mount("/hark", app.asgi())])) as http:
        for path in ("/hark/instances", "/hark/health", "/hark/metrics"):
            answer = await http.get(path)
            assert answer.status_code == 503
            assert "open" in answer.json()["error"]


@asynccontextmanager
async def living(asgi: Any) -> AsyncIterator[list[str]]:
    """Run the lifespan as an ASGI server does."""
    to_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    from_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    task = asyncio.ensure_future(asgi({"type": "lifespan"}, to_app.get, from_app.put))
    types = []
    await to_app.put({"type": "lifespan.startup"})
    types.append((await asyncio.wait_for(from_app.get(), 30))["type"])
    yield types
    if types == ["lifespan.startup.complete"]:
        await to_app.put({"type": "lifespan.shutdown"})
        types.append((await asyncio.wait_for(from_app.get(), 30))["type"])
    await task


async def test_the_lifespan_opens_and_closes_an_app_that_is_not_open(app: Hark) -> None:
    asgi = app.asgi()
    async with living(asgi) as types, client(asgi) as http:
        assert app.is_open
        assert (await http.get("/health")).status_code == 200
    assert types == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert not app.is_open


async def test_the_lifespan_does_not_close_an_app_that_its_owner_has_opened(app: Hark) -> None:
    async with app:
        async with living(app.asgi()):
            pass
        assert app.is_open


async def test_a_store_that_cannot_be_opened_fails_the_startup(tmp_path: Any) -> None:
    async with living(Hark(f"sqlite:///{tmp_path}/no/such/folder.db").asgi()) as types:
        assert types == ["lifespan.startup.failed"]


async def test_x3_a_mounted_app_requires_a_token_from_other_machines(app: Hark) -> None:
    asgi = app.asgi()
    async with app, client(asgi, client=("192.0.2.7", 1234)) as http:
        answer = await http.get("/instances")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await http.get("/health")).status_code == 200


async def test_x3_with_require_token_every_request_needs_a_token(app: Hark) -> None:
    async with app, client(app.asgi(require_token=True)) as http:
        assert (await http.get("/instances")).status_code == 401
        assert (await http.get("/health", headers={"X-Forwarded-For": "10.0.0.1"})).status_code == 200


async def test_a_websocket_is_closed(app: Hark) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app.asgi()({"type": "websocket"}, None, send)
    assert sent[0]["type"] == "websocket.close"


async def test_an_unexpected_error_is_a_500_without_a_traceback(
    app: Hark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(app, "why", broken)
    async with app, client(app.asgi()) as http:
        answer = await http.get("/instances/o-1/why?t=secret-query")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "a secret detail" in caplog.text
    assert "secret-query" not in caplog.text
