"""The metrics by name, kind and labels, for all that show them: `GET /metrics` and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from hark.engine.nats.counters import NatsCounters
from hark.engine.observe.metrics import Metrics

_CAPPED = "Counts stop at 10000."
_Samples = list[tuple[dict[str, str], float]]


class Family(Struct, frozen=True):
    """All samples of one metric, each with its labels.

    A counter only grows, and only within a process. A summary has two samples: seconds in all, and how often.
    """

    name: str
    kind: Literal["counter", "gauge", "summary"]
    about: str
    samples: _Samples


def families(found: Metrics) -> list[Family]:
    """The families of metrics, made from the result of `metrics.read`."""
    counters = found.counters
    happened = counters.happened
    ready = {queue: number for queue, (number, _) in found.queues.items()}
    return [
        Family("hark_instances_started_total", "counter", "Instances started by this process, by definition.",
               _by("definition", counters.started)),
        Family("hark_instances_finished_total", "counter",
               "Instances whose end this process committed, by status and definition.",
               [({"status": status, "definition": definition}, number)
                for (status, definition), number in sorted(counters.finished.items())]),
        Family("hark_failed_attempts_total", "counter",
               "Attempts of steps, functions and runs that failed on this process, repeated or not.",
               _one(happened["failed_attempt"])),
        Family("hark_retries_total", "counter", "Steps and runs that are repeated after an attempt.",
               _one(happened["retry"])),
        Family("hark_cancels_total", "counter", "Cancels that this process committed, each with its descendants.",
               _one(happened["cancel"])),
        Family("hark_timeouts_total", "counter", "Waits, sleeps and delays between attempts whose time was over.",
               _one(happened["timeout"])),
        Family("hark_broadcasts_total", "counter", "Broadcasts sent through this process.",
               _one(happened["published"])),
        Family("hark_schedule_ticks_total", "counter",
               "Ticks of schedules that this process handled, by outcome: an instance was started, none was because of "
               "overlap or a refused start, or none was because no worker was running.",
               _by("outcome", {name: happened[f"tick_{name}"] for name in ("missed", "skipped", "started")})),
        Family("hark_late_answers_total", "counter", "Answers to awakeables that were settled already.",
               _one(happened["late_answer"])),
        Family("hark_turns_total", "counter", "Transactions committed by this process.", _one(counters.turns)),
        Family("hark_turn_requests_total", "counter", "Requests and outcomes in these transactions.",
               _one(counters.requests)),
        Family("hark_claims_total", "counter", "Activations claimed by this process.", _one(counters.claims)),
        Family("hark_turn_seconds", "summary", "Time from the oldest request of a turn to its commit.",
               [({}, counters.waited), ({}, counters.turns)]),
        Family("hark_wake_latency_seconds", "summary",
               "The same for turns that claimed work: from the request to the wake.",
               [({}, counters.woke), ({}, counters.wakes)]),
        Family("hark_oldest_wait_seconds", "gauge", "Age of the oldest open wait, by kind.",
               _by("kind", {kind: age for kind, (_, age) in found.waits.items()})),
        Family("hark_waits", "gauge", f"Open waits, by kind. {_CAPPED}",
               _by("kind", {kind: number for kind, (number, _) in found.waits.items()})),
        Family("hark_awakeables_pending", "gauge", f"Awakeables that wait for an answer. {_CAPPED}",
               _one(found.waits["awakeable"][0])),
        Family("hark_timer_lag_seconds", "gauge", "How late the oldest due timer is.", _one(found.timer_lag)),
        Family("hark_queue_depth", "gauge", f"Instances ready to run, by queue. {_CAPPED}", _by("queue", ready)),
        Family("hark_queue_oldest_seconds", "gauge", "Age of the oldest instance that is ready to run, by queue.",
               _by("queue", {queue: age for queue, (_, age) in found.queues.items()})),
        Family("hark_instances", "gauge", f"Live instances that are not parked, by status. {_CAPPED}",
               _by("status", {"executing": found.executing, "runnable": sum(ready.values()),
                              "blocked": found.blocked, "held": found.held})),
        *([] if counters.nats is None else _of_nats(counters.nats)),
    ]  # fmt: skip


def _of_nats(counters: NatsCounters) -> list[Family]:
    received = {outcome: counters.received[outcome] for outcome in ("delivered", "duplicate", "refused")}
    sent = {kind: counters.sent[kind] for kind in ("chunk", "dropped", "signal")}
    return [
        Family("hark_nats_connected", "gauge", "Whether this process is connected to NATS.",
               _one(int(counters.is_connected))),
        Family("hark_nats_connects_total", "counter", "How often this process has connected to NATS.",
               _one(counters.connects)),
        Family("hark_nats_reader", "gauge", "Whether this process is the one that reads signals from NATS.",
               _one(int(counters.is_reader))),
        Family("hark_nats_received_total", "counter", "Signals that this process has read from NATS, by outcome.",
               _by("outcome", received)),
        Family("hark_nats_sent_total", "counter",
               "What this process has published on NATS: signals and chunks of streams; and what was dropped.",
               _by("kind", sent)),
        Family("hark_nats_denied_total", "counter", "Messages of this process that the user may not publish on NATS.",
               _one(counters.denied)),
    ]  # fmt: skip


def _one(value: float) -> _Samples:
    return [({}, value)]


def _by(label: str, values: Mapping[str, float]) -> _Samples:
    return [({label: key}, value) for key, value in sorted(values.items())]
