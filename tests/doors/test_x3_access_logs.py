"""X3: the token of a link is in no access log, also when Hark is mounted in another application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from hark.doors.http.access_log import hide_link_tokens
from hark.doors.http.listening import listen
from tests.support.http import app_on, ask
from tests.support.inspect import until
from tests.support.stores import Store


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("http"):  # httpx and httpcore: the client of this test
            self.lines.append(self.format(record))


@pytest.fixture
def every_line() -> Any:
    """What any logger writes at any level, as a file or the console would get it."""
    lines = Lines()
    loggers = [logging.getLogger(), logging.getLogger("uvicorn.access"), logging.getLogger("uvicorn.error")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(lines)
        logger.setLevel(logging.DEBUG)
    yield lines.lines
    for logger, level in zip(loggers, before, strict=True):
        logger.removeHandler(lines)
        logger.setLevel(level)


@asynccontextmanager
async def uvicorn_serving(application: Any) -> AsyncIterator[str]:
    """uvicorn as an application configures it: with its access log."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_config=None, access_log=True))
    server.capture_signals = nullcontext  # type: ignore[method-assign]
    task = asyncio.ensure_future(server.serve([listener]))

    async def started() -> bool:
        return bool(server.started)

    await until(started, "the server to start")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@pytest.mark.parametrize("prefix", ["", "/hark"])
async def test_x3_the_token_is_in_no_line_of_any_log(store: Store, prefix: str, every_line: list[str]) -> None:
    await ask(store, "prom_1", schema='{"type": "integer"}')
    app = app_on(store)
    application = Starlette(routes=[Mount(prefix, app.asgi())]) if prefix else app.asgi()
    async with app, uvicorn_serving(application) as origin, httpx.AsyncClient(base_url=origin, timeout=60) as http:
        token = (await app.awakeable("prom_1")).url.partition("?t=")[2]
        page = f"{prefix}/a/prom_1"
        for query in (f"?t={token}", f"?utm=1&t={token}&x=2", f"?t={token}x", f"?t={token}&sent=1"):
            await http.get(page + query, headers={"Accept": "text/html"})
            await http.post(page + query, json="wrong")
            await http.post(f"{page}/reject{query}x", json={"error": "no"})
        await http.post(f"{page}?t={token}", json=5)
    access = [line for line in every_line if f"{page}?" in line]
    assert len(access) >= 9
    assert all("t=[hidden]" in line for line in access if "HTTP/1.1" in line)
    assert not any(token[:-4] in line for line in every_line)


@pytest.mark.parametrize(
    ("message", "args", "expected"),
    [
        ('%s "%s %s"', ("::1", "GET", "/a/x?t=secret&b=1"), '::1 "GET /a/x?t=[hidden]&b=1"'),
        ("%(h)s %(r)s", ({"h": "::1", "r": "GET /p/a/x?b=1&t=secret HTTP/2"},), "::1 GET /p/a/x?b=1&t=[hidden] HTTP/2"),
        ('"GET /a/x?t=secret" 200', (), '"GET /a/x?t=[hidden]" 200'),
        ("%s %d", ("/instances?t=5", 200), "/instances?t=5 200"),
        ("%s", (f"/x?t={'k' * 60}",), "/x?t=[hidden]"),
        ("%s", (f"/x?token=hark_{'k' * 43}",), "/x?token=hark_[hidden]"),
    ],
)
def test_x3_lines_of_other_servers_are_filtered_too(
    message: str, args: tuple[Any, ...], expected: str, every_line: list[str]
) -> None:
    hide_link_tokens()
    for name in ("hypercorn.access", "uvicorn.access"):
        logging.getLogger(name).warning(message, *args)
        assert every_line[-1] == expected


async def test_x3_a_page_behind_a_link_sends_no_referrer(store: Store) -> None:
    """What the page links to would otherwise see its address, and with it the token."""
    await ask(store, "prom_1")
    app = app_on(store)
    transport = httpx.ASGITransport(app=app.asgi())
    async with app, httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        link = (await app.awakeable("prom_1")).url
        shown = await http.get(link)
        form = shown.text.partition('name="form" value="')[2].partition('"')[0]
        sent = await http.post(link, data={"form": form}, headers={"Accept": "text/html"})
        assert sent.status_code == 303
        for response in (shown, sent, await http.get(link), await http.get(f"{link}x"), await http.post(link)):
            assert response.headers["referrer-policy"] == "no-referrer"
            assert "no-store" in response.headers["cache-control"]
