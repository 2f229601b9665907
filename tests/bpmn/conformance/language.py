"""The little language of the conformance cases: its steps and its handlers. Checks are in observation.py.

A case is data: files, a scenario, what to expect. Our cases are in `cases/`, their files in `files/`. The cases from
other engines' suites are described in `shared/conformance/bpmn/README.md`, beside the repository.

Our own cases may say more than the README lists:

- a step with `"undrained": true` is not followed by a drain, so that the engine finds several events at once;
- a step with `"raises": "Name"` must raise that error, with the text `"says"` in it;
- `check` has a few more keys: see observation.py.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.parsers import expat

import hark
from hark import BpmnError, InvalidDefinition, NoTarget
from hark.testing import Harness
from tests.bpmn.conformance.observation import describe, mismatches


@dataclass(frozen=True)
class Case:
    """A case, and the folder that its files are in."""

    folder: Path
    data: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.data["id"])

    def file(self, index: int) -> Path:
        return self.folder / self.data["files"][index]


class CaseFailed(AssertionError):
    """A step did not do what the case says."""


class _Over(Exception):
    """The case ends here, passed."""


@dataclass
class Calls:
    """What the handlers of a case have been called with: (name, input), in order."""

    made: list[tuple[str, Any]] = field(default_factory=list)

    def of(self, name: str) -> list[Any]:
        return [input for called, input in self.made if called == name]


@dataclass
class Run:
    """A case on its way: the engine, and what the aliases stand for."""

    app: Harness
    case: Case
    calls: Calls = field(default_factory=Calls)
    instances: dict[str, str] = field(default_factory=dict)

    def key(self, alias: str) -> str:
        return f"{self.case.id}-{alias}"

    def values(self, value: Any) -> Any:
        """Variables of the case, with `{"$in": seconds}` replaced by a time."""
        match value:
            case {"$in": seconds}:
                return (self.now() + timedelta(seconds=seconds)).isoformat()
            case dict():
                return {name: self.values(one) for name, one in value.items()}
            case list():
                return [self.values(one) for one in value]
        return value

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.app.clock.now / 1e6, UTC)


async def run_case(app: Harness, case: Case) -> None:
    """Run a case on a fresh engine; raises CaseFailed with the step, the expectation and the state."""
    run = Run(app, case)
    _register(run, case.data.get("handlers", ()))
    steps = [*case.data["scenario"], {"op": "check", **case.data["expect"]}]
    for number, step in enumerate(steps, 1):
        try:
            wrong = await _take(run, step)
        except _Over:
            return
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            where = "at the end" if number == len(steps) else f"in step {number}"
            state = await describe(run.app, run.instances)
            raise CaseFailed(
                f"{case.id} ({case.data['tag']}) fails {where}: {json.dumps(step, ensure_ascii=False)}\n"
                + "".join(f"  - {one}\n" for one in wrong)
                + state
            )


async def _take(run: Run, step: dict[str, Any]) -> list[str]:
    """Do a step; what is wrong with it."""
    op = _OPS[step["op"]]
    if expected := step.get("raises"):
        try:
            await op(run, step)
        except getattr(hark, expected) as error:
            return [] if step.get("says", "") in str(error) else [f"expected {step['says']!r} in: {error}"]
        return [f"expected {expected}, nothing was raised"]
    wrong: list[str] = await op(run, step) or []
    if step["op"] != "check" and not step.get("undrained"):  # after a check there is nothing to run
        await run.app.drain()
    if step.get("fails"):
        status = (await run.app.get(run.instances[step.get("as", "")])).status
        wrong += [] if status == "failed" else [f"expected the instance to fail, it is {status}"]
    return wrong


# -- Steps -----------------------------------------------------------------------------------------


async def _deploy(run: Run, step: dict[str, Any]) -> list[str]:
    ids = step.get("refused") or step.get("may_refuse")
    for index in step["files"]:
        path = run.case.file(index)
        try:
            await run.app.deploy(path)
        except InvalidDefinition as error:
            if ids is None:
                raise
            if wrong := _misplaced(error, ids, path):
                return wrong
            if "may_refuse" in step:
                raise _Over from error
        else:
            if "refused" in step:
                return [f"expected {path.name} to be refused because of {ids}, it was deployed"]
    return []


def _misplaced(error: InvalidDefinition, ids: list[str], path: Path) -> list[str]:
    lines = lines_of(path.read_bytes())
    for problem in error.problems:
        if problem.element in ids and problem.line is not None:
            first, last = lines[problem.element]
            if first <= problem.line <= last:
                return []
    places = {id: lines.get(id) for id in ids}
    return [f"expected a problem at one of {places}, got: " + "; ".join(map(str, error.problems))]


def lines_of(text: bytes) -> dict[str, tuple[int, int]]:
    """The first and the last line of each element that has an id."""
    lines: dict[str, tuple[int, int]] = {}
    opened: list[tuple[str | None, int]] = []
    parser = expat.ParserCreate()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        opened.append((attributes.get("id"), parser.CurrentLineNumber))

    def end(tag: str) -> None:
        id, first = opened.pop()
        if id is not None:
            lines[id] = first, parser.CurrentLineNumber

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.Parse(text, True)
    return lines


async def _start(run: Run, step: dict[str, Any]) -> None:
    alias = step.get("as", "")
    key = step.get("key") or run.key(alias or f"unnamed-{len(run.instances)}")
    options = {"queue": step["queue"]} if "queue" in step else {}
    started = await run.app.start(step["process"], run.values(step.get("vars", {})), correlation_key=key, **options)
    run.instances[alias or f"({key})"] = started.id


async def _broadcast(run: Run, step: dict[str, Any]) -> list[str]:
    delivered = await run.app.broadcast(step["name"], run.values(step.get("payload")))
    if "delivered" in step and delivered != step["delivered"]:
        return [f"expected to reach {step['delivered']}, reached {delivered}"]
    return []


async def _message(run: Run, step: dict[str, Any]) -> list[str]:
    key = run.key(step["to"]) if "to" in step else step["key"]
    try:
        handle = await run.app.message(step["name"], key, run.values(step.get("payload")))
    except NoTarget:
        if step.get("no_target"):
            return []
        raise
    if "as" in step:
        run.instances[step["as"]] = handle.id
    return ["expected NoTarget, the message was delivered"] if step.get("no_target") else []


async def _complete_task(run: Run, step: dict[str, Any]) -> list[str]:
    pending = await run.app.awakeables(status="PENDING", limit=10_000)
    found = [awakeable for awakeable in pending if awakeable.task == step["task"]]
    if not found:
        return [f"no open task {step['task']}; open are {sorted(str(one.task) for one in pending)}"]
    await run.app.resolve(found[0].id, run.values(step.get("vars", {})))
    return []


async def _set_vars(run: Run, step: dict[str, Any]) -> None:
    await run.app.set_variables(run.instances[step["instance"]], run.values(step["vars"]))


async def _advance(run: Run, step: dict[str, Any]) -> None:
    if "to" in step:
        to = datetime.fromisoformat(step["to"])
        await run.app.advance((to if to.tzinfo else to.replace(tzinfo=UTC)) - run.now())
    else:
        await run.app.advance(step["seconds"])


async def _cancel(run: Run, step: dict[str, Any]) -> None:
    await run.app.cancel(run.instances[step["instance"]])


async def _retry(run: Run, step: dict[str, Any]) -> None:
    await run.app.retry(run.instances[step["instance"]])


async def _undeploy(run: Run, step: dict[str, Any]) -> None:
    await run.app.undeploy(step["process"])


async def _check(run: Run, step: dict[str, Any]) -> list[str]:
    return await mismatches(run.app, run.instances, run.calls, {k: v for k, v in step.items() if k != "op"})


_OPS: dict[str, Callable[[Run, dict[str, Any]], Any]] = {
    "deploy": _deploy,
    "start": _start,
    "broadcast": _broadcast,
    "message": _message,
    "complete_task": _complete_task,
    "set_vars": _set_vars,
    "advance": _advance,
    "cancel": _cancel,
    "retry": _retry,
    "undeploy": _undeploy,
    "check": _check,
}


# -- Handlers --------------------------------------------------------------------------------------


def _register(run: Run, handlers: list[str] | dict[str, Any]) -> None:
    given = handlers if isinstance(handlers, dict) else {name: {} for name in handlers}
    for name, does in given.items():
        run.app.handler(name)(_handler(run.calls, name, does if isinstance(does, list) else [does]))


def _handler(calls: Calls, name: str, does: list[dict[str, Any]]) -> Callable[[Any], Any]:
    async def handler(task: Any) -> Any:
        calls.made.append((name, task.input))
        number = len(calls.of(name))
        this = does[min(number, len(does)) - 1]
        if number <= this.get("fails", 0):
            raise RuntimeError(f"{name} fails in call {number}")
        if (variable := this.get("fails_while")) and task.input.get(variable):
            raise RuntimeError(f"{name} fails while {variable} is true")
        if "error" in this:
            raise BpmnError(this["error"], this.get("message", ""), this.get("variables"))
        if "escalate" in this:
            escalated = task.escalate(this["escalate"])
            if inspect.isawaitable(escalated):
                await escalated
        return this.get("returns", {})

    return handler
