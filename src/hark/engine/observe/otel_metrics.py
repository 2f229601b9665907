"""The metrics as OpenTelemetry instruments (X6), if the program has configured a meter provider.

The provider asks for the values when it exports them, in a thread of its own; in between nothing is collected.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hark.engine.observe.metric_families import Family, families
from hark.engine.observe.metrics import Metrics, ProcessCounters
from hark.engine.turns.reply import Reply
from hark.model.errors import HarkError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

_MODULE = "opentelemetry.metrics"
_FRESH = 1.0  # seconds: the instruments of one export share a reading
_PATIENCE = 10.0  # seconds that an export waits for the store

Read = Callable[[], Reply[Metrics]]


def export_metrics(read: Read, counters: ProcessCounters) -> bool:
    """Create the instruments if a meter provider is configured. Return whether one is.

    Args:
        read: A bound method; the instruments do not keep its object alive.
        counters: Of this process: exported also when there is no store to read, as in the last export before it exits.
    """
    api = sys.modules.get(_MODULE)
    if api is None or type(api.get_meter_provider()).__module__.startswith(_MODULE):  # the API's own does nothing
        return False
    from importlib.metadata import version

    meter = api.get_meter("hark", version("hark"))
    readings = _Readings(read, counters)
    for family in families(Metrics.unread(counters)):
        name, unit = _name(family.name), "s" if family.name.endswith("_seconds") else ""
        if family.kind == "gauge":
            meter.create_observable_gauge(name, [readings.of(family)], unit, family.about)
        elif family.kind == "counter":
            meter.create_observable_counter(name, [readings.of(family)], unit, family.about)
        else:
            meter.create_observable_counter(name, [readings.of(family, 0)], unit, family.about)
            meter.create_observable_counter(f"{name}.count", [readings.of(family, 1)], "", f"How often: {family.about}")
    return True


def _name(name: str) -> str:
    """The name in the spelling of OpenTelemetry: `hark.instances.started`. The unit is not part of the name."""
    return name.removesuffix("_total").removesuffix("_seconds").replace("_", ".")


class _Readings:
    def __init__(self, read: Read, counters: ProcessCounters) -> None:
        self._read = weakref.WeakMethod(read)
        self._counters = counters
        self._at = 0.0
        self._found: dict[str, list[tuple[dict[str, str], float]]] = {}

    def of(self, family: Family, part: int | None = None) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return a callback for the instrument of this family; `part` is the number of a sample of a summary."""

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            from opentelemetry.metrics import Observation

            samples = self._latest().get(family.name, [])
            wanted = samples if part is None else samples[part : part + 1]
            return [Observation(value, labels) for labels, value in wanted]

        return observe

    def _latest(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        if time.monotonic() - self._at > _FRESH:
            self._found = {family.name: family.samples for family in self._collect()}
            self._at = time.monotonic()
        return self._found

    def _collect(self) -> list[Family]:
        read = self._read()
        if read is None:
            return []
        try:
            return families(read().result(timeout=_PATIENCE))
        except (HarkError, TimeoutError):  # the app is closed, or the store is away
            return [family for family in families(Metrics.unread(self._counters)) if family.kind != "gauge"]
