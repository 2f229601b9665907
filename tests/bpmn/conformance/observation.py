"""The checks of the conformance cases: what they look at, and how they say what is different.

Besides the keys of the README: `errors` (alias → a text that is in the instance's error), `incident_errors` (alias →
texts that are in the errors of its incidents), `results` (alias → variables that are in the result), `titles` (element
id → titles of its open tasks), `due` (element id → their `due_at`), `schemas` (element id → a part of the JSON Schema
of its only open task), `message_subscription_names`, `failures` (how many process instances have failed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from hark import Awakeable, Instance, NotFound
from hark.testing import Harness

_TERMINAL = {"done", "failed", "cancelled"}
_ALL = 10_000  # the largest page


class Called(Protocol):
    """The calls of handlers so far."""

    made: list[tuple[str, Any]]

    def of(self, name: str) -> list[Any]: ...


async def mismatches(app: Harness, instances: dict[str, str], calls: Called, expected: dict[str, Any]) -> list[str]:
    """What is not as expected, a sentence for each key."""
    look = _Look(app, instances, calls)
    found: list[str] = []
    for key, value in expected.items():
        seen = await _CHECKS[key](look, value)
        if seen is not _AS_EXPECTED:
            found.append(f"{key}: expected {value!r}, seen {seen!r}")
    return found


async def describe(app: Harness, instances: dict[str, str]) -> str:
    """The state of everything, for the message of a failed case."""
    names = {id: alias for alias, id in instances.items()}
    lines = ["state:"]
    found = [*await app.list(limit=_ALL), *await app.list(kind="task", limit=_ALL)]
    for one in sorted(found, key=lambda one: one.id):
        alias = names.get(one.id, "")
        lines.append(f"  {alias or '-'} {one.kind} {one.definition} {one.id}: {one.status}")
        if one.kind == "bpmn":
            lines.append(f"      {one.state}")
        if one.error:
            lines.append(f"      error: {one.error}")
    lines += [f"  open task {one.task} of {one.instance_id}" for one in await app.awakeables(status="PENDING")]
    lines += [f"  wait for {one.kind} {one.name} at {one.place}, {one.deadline}" for one in await app.waits()]
    return "\n".join(lines)


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


_AS_EXPECTED = _Nothing()


class _Look:
    """The engine as a case sees it."""

    def __init__(self, app: Harness, instances: dict[str, str], calls: Called) -> None:
        self.app = app
        self.aliases = instances
        self.calls = calls

    async def instance(self, alias: str) -> Instance:
        return await self.app.get(self.aliases[alias])

    async def processes(self) -> list[Instance]:
        return list(await self.app.list(kind="bpmn", limit=_ALL))

    async def tasks(self) -> list[Awakeable]:
        return list(await self.app.awakeables(status="PENDING", limit=_ALL))

    async def waits(self, kind: str) -> list[Any]:
        return list(await self.app.waits(kind=kind))


def _is(seen: Any, expected: Any) -> Any:
    return _AS_EXPECTED if seen == expected else seen


def _in_any_order(seen: Iterable[Any], expected: Iterable[Any]) -> Any:
    found = list(seen)
    return _AS_EXPECTED if Counter(map(repr, found)) == Counter(map(repr, expected)) else found


def _has(status: str) -> Callable[[_Look, list[str]], Awaitable[Any]]:
    async def check(look: _Look, aliases: list[str]) -> Any:
        return _is({alias: (await look.instance(alias)).status for alias in aliases}, dict.fromkeys(aliases, status))

    return check


def _of_each(
    see: Callable[[Instance], Any], compare: Callable[[Any, Any], Any]
) -> Callable[[_Look, dict[str, Any]], Awaitable[Any]]:
    """A check of several aliases, each with its own expectation."""

    async def check(look: _Look, expected: dict[str, Any]) -> Any:
        seen = {alias: compare(see(await look.instance(alias)), value) for alias, value in expected.items()}
        wrong = {alias: one for alias, one in seen.items() if one is not _AS_EXPECTED}
        return wrong or _AS_EXPECTED

    return check


def _of_tasks(see: Callable[[list[Awakeable]], Any], compare: Callable[[Any, Any], Any]) -> Any:
    """A check of the open tasks of several elements."""

    async def check(look: _Look, expected: dict[str, Any]) -> Any:
        tasks = await look.tasks()
        seen = {id: compare(see([task for task in tasks if task.task == id]), value) for id, value in expected.items()}
        wrong = {id: one for id, one in seen.items() if one is not _AS_EXPECTED}
        return wrong or _AS_EXPECTED

    return check


def _contains(seen: Any, expected: dict[str, Any]) -> Any:
    same = {name: seen[name] for name in expected if name in seen}
    return _AS_EXPECTED if same == expected else seen


def _part(seen: Any, expected: Any) -> Any:
    """Whether objects have at least the expected keys, at every level."""
    if not (isinstance(seen, dict) and isinstance(expected, dict)):
        return _is(seen, expected)
    fits = all(name in seen and _part(seen[name], value) is _AS_EXPECTED for name, value in expected.items())
    return _AS_EXPECTED if fits else seen


def _without(seen: Any, names: list[str]) -> Any:
    return _AS_EXPECTED if not {*names} & {*seen} else seen


def _at_least(seen: list[str], expected: list[str]) -> Any:
    return _AS_EXPECTED if not Counter(expected) - Counter(seen) else seen


def _says(seen: Any, text: str) -> Any:
    return _AS_EXPECTED if seen is not None and text in str(seen) else seen


def _each_says(seen: list[Any], texts: list[str]) -> Any:
    return _AS_EXPECTED if all(any(text in str(one) for one in seen) for text in texts) else seen


async def _instances(look: _Look, expected: int) -> Any:
    return _is(sum(one.status not in _TERMINAL for one in await look.processes()), expected)


async def _instances_ever(look: _Look, expected: int) -> Any:
    return _is(len(await look.processes()), expected)


async def _failures(look: _Look, expected: int) -> Any:
    return _is(sum(one.status == "failed" for one in await look.processes()), expected)


async def _tasks(look: _Look, expected: list[str]) -> Any:
    return _in_any_order([task.title for task in await look.tasks()], expected)


async def _task_ids(look: _Look, expected: list[str]) -> Any:
    return _in_any_order([task.task for task in await look.tasks()], expected)


async def _tasks_count(look: _Look, expected: int) -> Any:
    return _is(len(await look.tasks()), expected)


async def _task_name_count(look: _Look, expected: dict[str, int]) -> Any:
    titles = Counter(task.title for task in await look.tasks())
    return _is({name: titles[name] for name in expected}, expected)


async def _never_opened(look: _Look, ids: list[str]) -> Any:
    opened = {task.task for task in await look.app.awakeables(limit=_ALL)}
    return _AS_EXPECTED if not opened & {*ids} else sorted(opened & {*ids})


def _count_of(kind: str) -> Callable[[_Look, int], Awaitable[Any]]:
    async def check(look: _Look, expected: int) -> Any:
        waits = await look.waits(kind)
        return _AS_EXPECTED if len(waits) == expected else [(wait.name, wait.place) for wait in waits]

    return check


async def _signal_names(look: _Look, expected: list[str]) -> Any:
    return _in_any_order([wait.name for wait in await look.waits("broadcast")], expected)


async def _message_names(look: _Look, expected: list[str]) -> Any:
    return _in_any_order([wait.name for wait in await look.waits("message")], expected)


async def _handled(look: _Look, expected: dict[str, int]) -> Any:
    return _is({name: len(look.calls.of(name)) for name in expected}, expected)


async def _calls(look: _Look, expected: list[str]) -> Any:
    return _is([name for name, _ in look.calls.made], expected)


async def _saw(look: _Look, expected: dict[str, dict[str, list[Any]]]) -> Any:
    for name, variables in expected.items():
        for variable, values in variables.items():
            seen = [input.get(variable) for input in look.calls.of(name)]
            if _in_any_order(seen, values) is not _AS_EXPECTED:
                return {name: {variable: seen}}
    return _AS_EXPECTED


async def _undeployed(look: _Look, names: list[str]) -> Any:
    for name in names:
        try:
            await look.app.start(name)
        except NotFound:
            continue
        return f"{name} started"
    return _AS_EXPECTED


_CHECKS: dict[str, Callable[[_Look, Any], Awaitable[Any]]] = {
    "ended": _has("done"),
    "cancelled": _has("cancelled"),
    "failed": _has("failed"),
    "instances": _instances,
    "instances_ever": _instances_ever,
    "failures": _failures,
    "tasks": _tasks,
    "task_ids": _task_ids,
    "tasks_count": _tasks_count,
    "task_name_count": _task_name_count,
    "assignees": _of_tasks(lambda tasks: [name for one in tasks for name in one.assignees], _in_any_order),
    "groups": _of_tasks(lambda tasks: [name for one in tasks for name in one.groups], _in_any_order),
    "titles": _of_tasks(lambda tasks: [one.title for one in tasks], _in_any_order),
    "due": _of_tasks(lambda tasks: [one.due_at.isoformat() for one in tasks if one.due_at], _in_any_order),
    "schemas": _of_tasks(lambda tasks: tasks[0].schema if len(tasks) == 1 else tasks, _part),
    "never_opened": _never_opened,
    "signal_subscriptions": _count_of("broadcast"),
    "signal_subscription_names": _signal_names,
    "message_subscriptions": _count_of("message"),
    "message_subscription_names": _message_names,
    "timers": _count_of("timer"),
    "vars": _of_each(lambda one: one.state["variables"], _contains),
    "no_vars": _of_each(lambda one: one.state["variables"], _without),
    "tokens": _of_each(lambda one: one.state["tokens"], _at_least),
    "incidents": _of_each(lambda one: [i["element"] for i in one.state["incidents"]], _in_any_order),
    "incident_errors": _of_each(lambda one: [i["error"] for i in one.state["incidents"]], _each_says),
    "errors": _of_each(lambda one: one.error, _says),
    "results": _of_each(lambda one: one.result, _contains),
    "handled": _handled,
    "calls": _calls,
    "saw": _saw,
    "undeployed": _undeployed,
}
