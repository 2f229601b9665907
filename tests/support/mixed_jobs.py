"""Random jobs with tasks of every type, for tests of what must hold in every order of ends, answers and cancels."""

from __future__ import annotations

from random import Random
from typing import Any

_WHENS = ("all_success", "all_success", "all_success", "all_success", "all_done", "one_failed")
_TYPES = ("task", "task", "task", "map", "function", "job", "sleep", "approval", "event")

INNER: dict[str, Any] = {
    "name": "inner",
    "tasks": [
        {"name": "first", "handler": "work", "undo": "undo"},
        {"name": "moment", "type": "sleep", "seconds": 3, "needs": ["first"]},
        {"name": "last", "handler": "work", "needs": ["moment"]},
    ],
    "finally": [{"name": "tidy", "handler": "work"}],
}
"""The job that is a task of the random one. The function `inner_function` is another."""


def mixed_job(random: Random) -> dict[str, Any]:
    """A job as a dict. Its handlers are `work` and `undo`, its signal is `go`, its event `event` with `n` 1."""
    count = random.randint(1, 6)
    tasks = [_task(random, number, range(number), is_finally=False) for number in range(count)]
    last = [_task(random, n, range(count, n), is_finally=True) for n in range(count, count + random.randint(0, 2))]
    job = {"name": "mixed", "tasks": tasks, "finally": last, "fail_fast": random.random() < 0.4}
    return {**job, "timeout_sec": random.choice([3, 20, 60])} if random.random() < 0.4 else job


def _task(random: Random, number: int, earlier: range, *, is_finally: bool) -> dict[str, Any]:
    needs = [f"t{n}" for n in random.sample(earlier, min(len(earlier), random.randint(0, 2)))]
    type = random.choice(_TYPES)
    task: dict[str, Any] = {"name": f"t{number}", "needs": needs, **_work(random, type)}
    if needs or is_finally:
        task["when"] = random.choice(_WHENS)
    if type != "sleep" and not is_finally and random.random() < 0.25:
        task["on_fail"] = {"regress_to": random.choice([*needs, task["name"]]), "limit": random.randint(1, 2)}
    if type in ("task", "map") and random.random() < 0.2:
        asking = {"user_approval": {"title": "Keep {{ output }}?", "timeout": 15}}
        task["gate"] = random.choice(["user_approval", asking])
    return task


def _work(random: Random, type: str) -> dict[str, Any]:
    match type:
        case "task":
            undo = {"undo": "undo"} if random.random() < 0.5 else {}
            return {"handler": "work", "retry": {"limit": random.randint(1, 2), "delay": 0}, **undo}
        case "map":
            items = list(range(random.randint(0, 4)))
            return {"type": "map", "handler": "work", "over": items, "concurrency": random.randint(1, 4)}
        case "function":
            return {"type": "workflow", "definition": "inner_function"}
        case "job":
            return {"type": "workflow", "definition": "inner"}
        case "sleep":
            return {"type": "sleep", "seconds": random.choice([0, 5])}
        case "approval":
            return {"type": "approval", "title": "Go on?"}
    return {"type": "wait_for_event", "event": "event", "match": "{{ event.n == 1 }}", "timeout": 20}
