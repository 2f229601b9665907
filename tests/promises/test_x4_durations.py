"""X4: each kind of duration has one rule, and every error about it names the same values."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from hark import Await, Hark, InvalidDefinition, InvalidInput, Nats, Retry, RetryPolicy, load_job
from hark.doors.cli.results import check_timeout
from hark.model.cron import check_timing
from hark.programs import effects


def _task(key: str) -> Callable[[float], Any]:
    loop = {"name": "a", "type": "loop", "handler": "h", "max_iterations": 2}
    return lambda value: load_job({"name": "j", "tasks": [{**loop, key: value}]})


ABOVE_ZERO = "a duration above zero, in seconds"
FROM_ZERO = "zero or more seconds"

KINDS: dict[str, tuple[str, Callable[[float], Any]]] = {
    "lease": (ABOVE_ZERO, lambda value: Hark("sqlite://", lease=value)),
    "linger": (FROM_ZERO, lambda value: Hark("sqlite://", linger=value)),
    "max_signal_wait": (ABOVE_ZERO, lambda value: Hark("sqlite://", max_signal_wait=value)),
    "retention": (ABOVE_ZERO, lambda value: Hark("sqlite://", retention=value)),
    "retention_failed": (ABOVE_ZERO, lambda value: Hark("sqlite://", retention_failed=value)),
    "event_retention": ("at least 86400 seconds", lambda value: Hark("sqlite://", event_retention=value)),
    "keep of NATS": (FROM_ZERO, lambda value: Nats("nats://localhost", keep=value)),
    "interval of a schedule": ("at least", lambda value: check_timing(None, value, "UTC")),
    "timeout of Await": (ABOVE_ZERO, lambda value: Await("a", then="b", timeout=value)),
    "timeout of an awakeable": (ABOVE_ZERO, lambda value: effects.question(value, None, None, None, None)),
    "delay of Retry": (FROM_ZERO, lambda value: Retry(value)),
    "delay of a policy": (FROM_ZERO, lambda value: RetryPolicy(3, delay=value)),
    "--timeout": (FROM_ZERO, check_timeout),
    "timeout_sec": (ABOVE_ZERO, _task("timeout_sec")),
    "heartbeat_sec": (ABOVE_ZERO, _task("heartbeat_sec")),
    "max_duration": (ABOVE_ZERO, _task("max_duration")),
    "loop_delay": (FROM_ZERO, _task("loop_delay")),
}


def advice(kind: Callable[[float], Any], value: float) -> str | None:
    """What an error says to give; None if the value is accepted."""
    try:
        kind(value)
    except (InvalidInput, InvalidDefinition) as error:
        [found] = re.findall(r"; give (.*?)[.\n]?$", str(error), re.MULTILINE)
        return str(found)
    return None


@pytest.mark.parametrize("name", KINDS)
def test_x4_every_error_about_a_duration_names_the_values_that_are_accepted(name: str) -> None:
    rule, kind = KINDS[name]
    negative, zero, tiny = (advice(kind, value) for value in (-1, 0, 1e-5))
    assert negative is not None
    assert negative.startswith(rule)
    assert zero == (None if rule == FROM_ZERO else negative)
    assert tiny == (negative if rule.startswith("at least") else None)
    at_least = re.match(r"at least ([\d.]+)", negative)
    assert advice(kind, float(at_least[1]) if at_least else 1) is None, "what it says to give is accepted"
