"""`GET /metrics`: metrics in the text format of Prometheus, collected when they are read and at no other time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hark.doors.http.responses import Response, text_response
from hark.doors.http.routes import HttpRequest

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CAPPED = "Counts stop at 10000."


async def metrics(request: HttpRequest) -> Response:
    found = await request.access.metrics()
    counters = found.counters
    happened = counters.happened
    ready = {queue: number for queue, (number, _) in found.queues.items()}
    lines = [
        *_family("hark_instances_started_total", "counter", "Instances started by this process, by definition.",
                 _by("definition", counters.started)),
        *_family("hark_instances_finished_total", "counter",
                 "Instances whose end this process committed, by status and definition.",
                 _by_both("status", "definition", counters.finished)),
        *_family("hark_failed_attempts_total", "counter",
                 "Attempts of steps, functions and runs that failed on this process, repeated or not.",
                 [("", happened["failed_attempt"])]),
        *_family("hark_retries_total", "counter", "Steps and runs that are repeated after an attempt.",
                 [("", happened["retry"])]),
        *_family("hark_cancels_total", "counter", "Cancels that this process committed, each with its descendants.",
                 [("", happened["cancel"])]),
        *_family("hark_timeouts_total", "counter", "Waits, sleeps and delays between attempts whose time was over.",
                 [("", happened["timeout"])]),
        *_family("hark_broadcasts_total", "counter", "Broadcasts sent through this process.",
                 [("", happened["published"])]),
        *_family("hark_late_answers_total", "counter", "Answers to awakeables that were settled already.",
                 [("", happened["late_answer"])]),
        *_family("hark_turns_total", "counter", "Transactions committed by this process.", [("", counters.turns)]),
        *_family("hark_turn_requests_total", "counter", "Requests and outcomes in these transactions.",
                 [("", counters.requests)]),
        *_family("hark_claims_total", "counter", "Activations claimed by this process.", [("", counters.claims)]),
        *_summary("hark_turn_seconds", "Time from the oldest request of a turn to its commit.",
                  counters.waited, counters.turns),
        *_summary("hark_wake_latency_seconds", "The same for turns that claimed work: from the request to the wake.",
                  counters.woke, counters.wakes),
        *_family("hark_oldest_wait_seconds", "gauge", "Age of the oldest open wait, by kind.",
                 _by("kind", {kind: age for kind, (_, age) in found.waits.items()})),
        *_family("hark_waits", "gauge", f"Open waits, by kind. {_CAPPED}",
                 _by("kind", {kind: number for kind, (number, _) in found.waits.items()})),
        *_family("hark_awakeables_pending", "gauge", f"Awakeables that wait for an answer. {_CAPPED}",
                 [("", found.waits["awakeable"][0])]),
        *_family("hark_timer_lag_seconds", "gauge", "How late the oldest due timer is.",
                 [("", found.timer_lag)]),
        *_family("hark_queue_depth", "gauge", f"Instances ready to run, by queue. {_CAPPED}", _by("queue", ready)),
        *_family("hark_queue_oldest_seconds", "gauge", "Age of the oldest instance that is ready to run, by queue.",
                 _by("queue", {queue: age for queue, (_, age) in found.queues.items()})),
        *_family("hark_instances", "gauge", f"Live instances that are not parked, by status. {_CAPPED}",
                 _by("status", {"executing": found.executing, "runnable": sum(ready.values()),
                                "blocked": found.blocked})),
    ]  # fmt: skip
    return text_response("\n".join(lines) + "\n", _CONTENT_TYPE)


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


def _by_both(first: str, second: str, values: Mapping[tuple[str, str], float]) -> list[tuple[str, float]]:
    return [
        (f'{{{first}="{_escaped(one)}",{second}="{_escaped(other)}"}}', value)
        for (one, other), value in sorted(values.items())
    ]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
