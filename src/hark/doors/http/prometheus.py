"""`GET /metrics`: figures in Prometheus' text format. They are asked for here and now; unscraped they cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hark.doors.http.responses import Response, text_response
from hark.doors.http.routes import HttpRequest

_KIND = "text/plain; version=0.0.4; charset=utf-8"
_CAPPED = "Counted up to 10000."


async def metrics(request: HttpRequest) -> Response:
    found = await request.access.metrics()
    tally = found.tally
    ready = {queue: number for queue, (number, _) in found.queues.items()}
    lines = [
        *_family("hark_turns_total", "counter", "Transactions committed by this process.", [("", tally.turns)]),
        *_family("hark_turn_requests_total", "counter", "Requests and outcomes in them.", [("", tally.requests)]),
        *_family("hark_claims_total", "counter", "Activations claimed by this process.", [("", tally.claims)]),
        *_summary("hark_turn_seconds", "The oldest request of each turn: from its call to its commit.",
                  tally.waited, tally.turns),
        *_summary("hark_wake_latency_seconds", "The same for turns that claimed work: from what wakes to the wake.",
                  tally.woke, tally.wakes),
        *_family("hark_oldest_wait_seconds", "gauge", "Since the oldest open wait began, by kind.",
                 _by("kind", {kind: age for kind, (_, age) in found.waits.items()})),
        *_family("hark_waits", "gauge", f"Open waits, by kind. {_CAPPED}",
                 _by("kind", {kind: number for kind, (number, _) in found.waits.items()})),
        *_family("hark_awakeables_pending", "gauge", f"Awakeables somebody waits for. {_CAPPED}",
                 [("", found.waits["awakeable"][0])]),
        *_family("hark_timer_lag_seconds", "gauge", "How late the earliest timer is that has not fired.",
                 [("", found.timer_lag)]),
        *_family("hark_queue_depth", "gauge", f"Instances ready to run, by queue. {_CAPPED}", _by("queue", ready)),
        *_family("hark_queue_oldest_seconds", "gauge", "Since the first in line became ready, by queue.",
                 _by("queue", {queue: age for queue, (_, age) in found.queues.items()})),
        *_family("hark_instances", "gauge", f"Live instances that do not wait for the world. {_CAPPED}",
                 _by("status", {"executing": found.executing, "runnable": sum(ready.values()),
                                "blocked": found.blocked})),
    ]  # fmt: skip
    return text_response("\n".join(lines) + "\n", _KIND)


def _family(name: str, kind: str, about: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    return [
        f"# HELP {name} {about}",
        f"# TYPE {name} {kind}",
        *(f"{name}{label} {_number(value)}" for label, value in samples),
    ]


def _summary(name: str, about: str, seconds: float, count: int) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} summary", f"{name}_sum {seconds:.6f}", f"{name}_count {count}"]


def _by(label: str, values: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(f'{{{label}="{_escaped(key)}"}}', value) for key, value in sorted(values.items())]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
