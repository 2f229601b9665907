"""D5: a standard generator makes a typed client from /openapi.json, and the client works against a live server."""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from hark import Hark
from tests.support.http import app_on, ask, serving
from tests.support.inspect import until
from tests.support.stores import Store

# In an environment of its own (see the Makefile), because it does not work with the version of typer that Hark needs.
GENERATOR = Path(sys.prefix) / "generator" / "bin" / "openapi-python-client"
CONFIG = """\
post_hooks: []
package_name_override: hark_client
content_type_overrides: {image/svg+xml: text/html}
"""


@pytest.fixture
async def app(sqlite_store: Store) -> AsyncIterator[Hark]:
    app = app_on(sqlite_store)
    async with app:
        yield app


@pytest.fixture
async def http(app: Hark) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app) as client:
        yield client


@pytest.fixture
async def package(http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The package of the generated client."""
    assert GENERATOR.exists(), "The generator of the client is missing. Run `make setup`."
    (tmp_path / "openapi.json").write_bytes((await http.get("/openapi.json")).content)
    (tmp_path / "config.yml").write_text(CONFIG)
    generating = await asyncio.create_subprocess_exec(
        GENERATOR, "generate", "--path", "openapi.json", "--config", "config.yml", "--meta", "none",
        "--output-path", "hark_client", "--fail-on-warning",
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await generating.communicate()
    assert generating.returncode == 0, output.decode()
    monkeypatch.syspath_prepend(tmp_path)
    yield "hark_client"
    for name in [name for name in sys.modules if name.partition(".")[0] == "hark_client"]:
        del sys.modules[name]


async def test_d5_a_generated_client_starts_signals_lists_and_answers(
    package: str, http: httpx.AsyncClient, app: Hark, sqlite_store: Store
) -> None:
    def operation(name: str) -> ModuleType:
        return importlib.import_module(f"{package}.api.{name}")

    def typed(value: Any, name: str) -> Any:
        assert type(value) is getattr(models, name), value
        return value

    models = importlib.import_module(f"{package}.models")
    await ask(sqlite_store, "prom_1", schema='{"type": "boolean"}')
    token = await app.create_token(["read", "operate", "signal", "answer"], name="ann")
    server = importlib.import_module(package)
    async with server.AuthenticatedClient(base_url=str(http.base_url), token=token.secret) as client:
        # Start an instance, wait until it waits, wake it by its key, read its result.
        body = models.StartBody(definition="Order", input_={"order": 42}, correlation_key="order/42")
        started = typed(await operation("instances.start_instance").asyncio(client=client, body=body), "Instance")
        get = operation("instances.get_instance").asyncio

        async def status() -> str:
            return str(typed(await get(started.id, client=client), "Instance").status)

        async def has_status(expected: str) -> bool:
            return await status() == expected

        await until(lambda: has_status("awaiting_signal"), "the park")
        [wait] = typed(await get("order/42", client=client), "Instance").waits[:1]
        assert (wait.kind, wait.name) == (models.WaitKind.SIGNAL, "paid")
        signal = operation("signals.signal_instance").asyncio
        woken = await signal("order/42", "paid", client=client, body={"amount": 100}, idempotency_key="evt-7")
        assert typed(woken, "Delivered").status == models.DeliveredStatus.WOKE
        await until(lambda: has_status("done"), "the end")
        finished = typed(await get(started.id, client=client), "Instance")
        assert (finished.status, finished.result) == (models.Status.DONE, {"amount": 100})
        assert finished.created_at < finished.finished_at

        # List, with filters.
        found = await operation("instances.list_instances").asyncio(client=client, status=models.Status.DONE, limit=1)
        assert [item.id for item in typed(found, "Instances").items] == [started.id]
        events = await operation("events.list_instance_events").asyncio(started.id, client=client)
        assert [event.type_ for event in typed(events, "Events").items] == ["started", "await", "signal", "done"]

        # Answer an awakeable: first wrongly, then rightly, then too late. Errors are typed too.
        resolve = operation("awakeables.resolve_awakeable").asyncio_detailed
        wrong = await resolve("prom_1", client=client, body="maybe")
        assert (wrong.status_code, typed(wrong.parsed, "Error").type_) == (422, "InvalidAnswer")
        assert len(wrong.parsed.problems) == 1
        assert typed((await resolve("prom_1", client=client, body=True)).parsed, "Resolved").payload is True
        late = typed((await resolve("prom_1", client=client, body=False)).parsed, "Error")
        assert (late.type_, late.status, late.by) == ("AlreadySettled", "RESOLVED", "ann")
        settled = await operation("awakeables.get_awakeable").asyncio("prom_1", client=client)
        assert typed(settled, "Awakeable").status == models.AwakeableStatus.RESOLVED
        assert typed(await get("unknown", client=client), "Error").type_ == "NotFound"
    async with server.AuthenticatedClient(base_url=str(http.base_url), token="hark_unknown") as client:
        refused = typed(await operation("server.list_workers").asyncio(client=client), "Error")
        assert refused.type_ == "Unauthenticated"
