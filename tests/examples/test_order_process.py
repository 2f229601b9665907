"""The order process of examples/order_process, with the clock moved by hand: what its README says happens."""

import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hark.testing import Harness

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "order_process"
DAY = 86_400


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module orders.py."""
    monkeypatch.setenv("HARK_DB", "sqlite://")
    spec = importlib.util.spec_from_file_location("order_process_example", FOLDER / "orders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
async def app(orders: ModuleType) -> AsyncIterator[Harness]:
    async with Harness() as app:
        for name in ("reserve_stock", "release_stock", "remind_sales", "ship_order"):
            app.handler(name.replace("_", "-"))(getattr(orders, name))
        assert await app.deploy(FOLDER / "order.bpmn") == [("order", 1)]
        yield app


async def start(app: Harness, **input: Any) -> Any:
    order = await app.start("order", input, correlation_key="order-42")
    await app.drain()
    return order


async def tokens(order: Any) -> list[str]:
    return list((await order.get()).state["tokens"])


async def test_a_large_order_is_approved_after_a_reminder_paid_and_shipped(
    app: Harness, capsys: pytest.CaptureFixture[str]
) -> None:
    order = await start(app, total=250, items=2)
    assert await tokens(order) == ["approve"]
    assert "'Approve the order' (approve)" in (await app.why(order)).text
    [question] = await app.awakeables(status="PENDING")
    assert (question.title, question.groups) == ("Approve the order", ("sales",))
    assert question.schema is not None
    assert list(question.schema["properties"]) == ["approved", "comment"]
    await app.advance(DAY)
    await app.drain()
    assert capsys.readouterr().out == "sales: an order of 250 waits for approval\n"
    await app.resolve(question.id, {"approved": True, "comment": "good customer"})
    await app.drain()
    assert await tokens(order) == ["paid"]
    await app.message("payment", "order-42", {"amount": 250})
    await app.drain()
    assert (await order.result())["parcel"] == "parcel of 2, paid 250"


async def test_a_refused_order_releases_its_stock_and_a_small_one_needs_no_approval(app: Harness) -> None:
    refused = await start(app, total=250, items=2)
    [question] = await app.awakeables(status="PENDING")
    await app.resolve(question.id, {"approved": False})
    await app.drain()
    assert (await refused.result())["reserved"] == 0
    small = await start(app, total=20, items=1)
    assert await tokens(small) == ["paid"]


async def test_a_handler_that_fails_leaves_an_incident_that_corrected_variables_resolve(app: Harness) -> None:
    order = await start(app, total=20)  # it does not say how many items
    for _ in range(3):
        await app.advance(3600)
        await app.drain()
    failed = await order.get()
    assert (failed.status, failed.state["tokens"]) == ("failed", ["reserve"])
    [incident] = failed.state["incidents"]
    assert (incident["element"], "'items'" in incident["error"]) == ("reserve", True)
    why = await app.why(order)
    assert "Incident at 'Reserve stock' (reserve)" in why.blockers[-1].text
    assert why.text.endswith(f"run: hark instance retry {order.id}")
    await app.set_variables("order-42", {"items": 1})
    await app.retry("order-42")
    await app.drain()
    assert await tokens(order) == ["paid"]
    assert (await order.get()).state["incidents"] == []
