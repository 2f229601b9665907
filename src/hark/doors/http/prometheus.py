"""`GET /metrics`: metrics in the text format of Prometheus, collected when they are read and at no other time."""

from __future__ import annotations

from typing import Any

from hark.doors.http.responses import Response, text_response
from hark.doors.http.routes import HttpRequest

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: HttpRequest) -> Response:
    lines = [line for family in await request.access.metrics() for line in _lines(family)]
    return text_response("\n".join(lines) + "\n", _CONTENT_TYPE)


def _lines(family: Any) -> list[str]:
    """A `Family` (engine/observe/metric_families.py) as text."""
    about = [f"# HELP {family.name} {family.about}", f"# TYPE {family.name} {family.kind}"]
    if family.kind == "summary":
        [(_, seconds), (_, count)] = family.samples
        return [*about, f"{family.name}_sum {_number(seconds)}", f"{family.name}_count {_number(count)}"]
    return [*about, *(f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.samples)]


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}" if labels else ""


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
