"""X5 over HTTP: while the database does not respond, requests fail quickly; afterwards everything works again."""

import os
import shutil

import httpx
import pytest

from hark.engine.turns import caller_errors
from hark.store.sqlite import path_of
from tests.support.http import Order, app_on, ask, serving
from tests.support.inspect import until
from tests.support.proxy import Proxy
from tests.support.stores import Store


async def test_x5_health_is_503_while_the_store_does_not_respond_and_then_200_again(
    pg_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Proxy(pg_store.url) as proxy:
        near = Store(pg_store.name, proxy.url, pg_store.options)
        async with serving(app_on(near), worker=False) as http:
            await ask(pg_store, "prom_1")
            assert (await http.get("/health")).status_code == 200
            proxy.go_away()
            monkeypatch.setattr(caller_errors, "PATIENCE", 3600)  # a probe does not wait as long as a request may
            answer = await http.get("/health")
            assert answer.status_code == 503
            assert answer.json()["status"] == "unavailable"
            assert answer.json()["error"]
            monkeypatch.setattr(caller_errors, "PATIENCE", 0.3)
            refused = await http.post("/awakeables/prom_1/resolve", json=1)
            assert refused.status_code == 503
            assert "try again" in refused.json()["error"]
            assert refused.headers["retry-after"] == "1"
            monkeypatch.undo()
            proxy.up.set()

            async def healthy() -> bool:
                return (await http.get("/health")).status_code == 200

            await until(healthy, "the store to be back")
            assert (await http.post("/awakeables/prom_1/resolve", json=1)).status_code == 200


async def test_x5_a_stream_survives_an_outage_and_misses_nothing(pg_store: Store) -> None:
    async with Proxy(pg_store.url) as proxy:
        near = Store(pg_store.name, proxy.url, pg_store.options)
        app = app_on(near)
        async with serving(app) as http, httpx.AsyncClient(base_url=http.base_url, timeout=60) as other:
            await app.start(Order, id="o-1")
            async with other.stream("GET", "/instances/o-1/stream") as answer:
                lines = answer.aiter_lines()
                seen: list[str] = []
                while "event: await" not in seen:
                    seen.append(await anext(lines))
                proxy.cut()
                await app.signal("o-1", "paid")
                seen += [line async for line in lines]
            assert [line for line in seen if line.startswith("event: ")] == [
                f"event: {type}" for type in ("started", "await", "signal", "done", "end")
            ]


async def test_x5_fault_85_health_says_that_the_file_was_replaced_and_nothing_is_acknowledged(
    sqlite_store: Store,
) -> None:
    file = str(path_of(sqlite_store.url))
    async with serving(app_on(sqlite_store), worker=False) as http:
        assert (await http.get("/health")).status_code == 200
        shutil.copy(file, f"{file}.backup")
        os.replace(f"{file}.backup", file)
        refused = await http.post("/instances", json={"definition": "Order"})
        assert refused.status_code == 503
        assert "removed or replaced" in refused.json()["error"]
        assert file not in refused.text  # anyone may read it
        health = await http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "unavailable")
        assert "Restart that process" in health.json()["error"]
