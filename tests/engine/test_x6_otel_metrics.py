"""X6: the metrics of /metrics are OpenTelemetry instruments too, when a meter provider is configured."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from hark import Hark
from hark.engine.observe import otel_metrics
from tests.support.http import Order
from tests.support.stores import Store


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    """A meter provider of this test, in place of the global one, which can be set only once."""
    reader = InMemoryMetricReader()
    monkeypatch.setattr(otel_metrics, "_FRESH", -1.0)
    provider = MeterProvider([reader])
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: provider)
    monkeypatch.setattr(metrics, "get_meter", lambda name, version=None: provider.get_meter(name, version))
    yield reader
    provider.shutdown()


async def collect(reader: InMemoryMetricReader) -> dict[str, Any]:
    """All samples, by name and labels. In a thread, as an exporter does."""
    found = await asyncio.to_thread(reader.get_metrics_data)
    if found is None:
        return {}
    [resource] = found.resource_metrics
    [scope] = resource.scope_metrics
    return {
        metric.name + "".join(f" {name}={text}" for name, text in (point.attributes or {}).items()): point.value  # type: ignore[union-attr]
        for metric in scope.metrics
        for point in metric.data.data_points
    }


async def test_x6_the_metrics_are_exported(store: Store, reader: InMemoryMetricReader) -> None:
    app = Hark(store.url, **store.options)
    app.register(Order)
    async with app, app.worker():
        order = await app.start(Order)
        await order.wait_for("awaiting_signal", timeout=30)
        found = await collect(reader)
    assert found["hark.instances.started definition=Order"] == 1
    assert found["hark.waits kind=signal"] == 2
    assert found["hark.oldest.wait kind=signal"] > 0
    assert found["hark.turn"] > 0
    assert found["hark.turn.count"] > 0
    assert found["hark.turns"] > 0
    last = await collect(reader)  # the app is closed, as when a program has ended and its provider exports once more
    assert last["hark.instances.started definition=Order"] == 1
    assert "hark.waits kind=signal" not in last


async def test_x6_without_a_meter_provider_there_are_no_instruments(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app:
        assert not app._exports_metrics
