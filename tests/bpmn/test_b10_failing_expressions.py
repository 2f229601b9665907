"""B10: an expression fails, wherever one may stand: the instance fails there with nothing half done.

Each expression that a process evaluates fails once, in an instance of its own. After a retry, the instance ends as one
in which none has failed: with the same variables, and each effect once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hark import Instance, TaskContext
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.expressions import ExpressionError
from hark.programs.expressions.sources import is_expression
from hark.testing import Harness
from tests.bpmn.small_files import chain, definitions, ext


def _io(tag: str, source: str, target: str) -> str:
    return f'<zeebe:{tag} source="{source}" target="{target}"/>'


def _mapping(*parts: str) -> str:
    return f"<zeebe:ioMapping>{''.join(parts)}</zeebe:ioMapping>"


def _script(id: str, text: str, more: str = "") -> str:
    attributes = f'id="{id}" scriptFormat="juel" camunda:resultVariable="{id}"'
    return f"<scriptTask {attributes}>{more}<script>{text}</script></scriptTask>"


def _within(id: str, *nodes: str, more: str = "", ahead: str = "") -> str:
    """A sub-process with these nodes in a chain; the ids of its other elements begin with its own id."""
    inner = chain(*nodes)
    for name in ("s", "e", *(f"f{number}" for number in range(1, len(nodes) + 2))):
        inner = inner.replace(f'"{name}"', f'"{id}-{name}"')
    return f'<subProcess id="{id}">{ahead}{inner}{more}</subProcess>'


TIMER = "<timerEventDefinition><timeDuration>{}</timeDuration></timerEventDefinition>"
LOOP = "<multiInstanceLoopCharacteristics {}>{}</multiInstanceLoopCharacteristics>"
SIGNAL = '<signal id="sig" name="${heard}"/><signal id="other" name="=&quot;never-&quot; + who"/>'
KEY = ext('<zeebe:subscription correlationKey="=who"/>')
MESSAGE = f'<message id="pay" name="pay">{KEY}</message>'
HEARD = (
    '<process id="heard"><startEvent id="h"><signalEventDefinition signalRef="news"/></startEvent></process>'
    '<signal id="news" name="news"/>'
)
CALLED = f'<process id="called">{chain(_script("called", "${given * 2}"))}</process>'
TASKS = {
    "mapped": (_script("x", "${n + 1}", ext(_mapping(_io("input", "=n", "m"), _io("output", "=x + m", "x")))), ""),
    "user": (
        '<userTask id="ask" name="Ask ${who}" camunda:assignee="${who}" camunda:candidateUsers="${who}" '
        'camunda:candidateGroups="${who}" camunda:dueDate="${due}">'
        + ext(_mapping(_io("input", "=n", "own"), _io("output", "=answer + own", "asked"))) + "</userTask>",
        "",
    ),
    "gateway": (
        '<exclusiveGateway id="choose" default="f2"/>',
        '<sequenceFlow id="a" sourceRef="choose" targetRef="low"><conditionExpression>${n &gt; 1}</conditionExpression>'
        '</sequenceFlow><endEvent id="low"/>',
    ),
    "flows": (
        _script("fork", "${n}"),
        '<sequenceFlow id="a" sourceRef="fork" targetRef="more"><conditionExpression>${n &gt; 0}</conditionExpression>'
        '</sequenceFlow>' + _script("more", "${n}") + '<sequenceFlow id="b" sourceRef="fork" targetRef="more">'
        '<conditionExpression>${n &gt; 0}</conditionExpression></sequenceFlow>',
    ),
    "service": (
        '<serviceTask id="work" camunda:type="external" camunda:topic="${topic}">'
        + ext(_mapping(_io("input", "=n", "own"), _io("output", "=done + own", "worked"))) + "</serviceTask>",
        f'<boundaryEvent id="late" attachedToRef="work">{TIMER.format("${wait}")}</boundaryEvent>'
        '<boundaryEvent id="odd" attachedToRef="work"><conditionalEventDefinition><condition>${n &gt; 5}</condition>'
        "</conditionalEventDefinition></boundaryEvent>"
        '<boundaryEvent id="told" attachedToRef="work"><signalEventDefinition signalRef="other"/></boundaryEvent>',
    ),
    "sub-process": (
        _within(
            "sub", _script("n", "${n + 1}"), '<serviceTask id="in" camunda:type="external" camunda:topic="work"/>',
            ahead=ext(_mapping(_io("input", "=n", "own"), _io("output", "=n + own", "y"))),
            more='<subProcess id="event" triggeredByEvent="true"><startEvent id="never">'
            f"{TIMER.format('${wait}')}</startEvent></subProcess>",
        ),
        "",
    ),
    "instances": (
        '<serviceTask id="each" camunda:type="external" camunda:topic="work">'
        + ext(_mapping(_io("input", "=item + n", "own")))
        + LOOP.format('camunda:collection="${items}" camunda:elementVariable="item"',
                      "<completionCondition>${nrOfCompletedInstances == 2}</completionCondition>") + "</serviceTask>",
        '<boundaryEvent id="told" attachedToRef="each"><signalEventDefinition signalRef="other"/></boundaryEvent>'
        f'<boundaryEvent id="late" attachedToRef="each">{TIMER.format("${wait}")}</boundaryEvent>',
    ),
    "event gateway": (
        _within(
            "sub", '<eventBasedGateway id="first"/>',
            '<intermediateCatchEvent id="hear"><messageEventDefinition messageRef="pay"/></intermediateCatchEvent>',
            more=f'<intermediateCatchEvent id="pause">{TIMER.format("${wait}")}</intermediateCatchEvent>'
            '<sequenceFlow id="a" sourceRef="first" targetRef="pause"/>',
        ),
        "",
    ),
    "one by one": (
        '<scriptTask id="each">' + ext('<zeebe:script expression="=item + n" resultVariable="z"/>') +
        '<multiInstanceLoopCharacteristics isSequential="true"><extensionElements><zeebe:loopCharacteristics '
        'inputCollection="=items" inputElement="item" outputCollection="zs" outputElement="=z"/></extensionElements>'
        "<completionCondition>=numberOfCompletedInstances = 2</completionCondition></multiInstanceLoopCharacteristics>"
        "</scriptTask>",
        "",
    ),
    "call": (
        '<callActivity id="call" calledElement="${callee}">'
        + ext('<camunda:in source="n" target="given"/><camunda:in sourceExpression="${n}" target="more"/>'
              '<camunda:out sourceExpression="${called + 1}" target="returned"/>') + "</callActivity>",
        "",
    ),
    "throw": (
        '<intermediateThrowEvent id="tell"><signalEventDefinition signalRef="sig"/></intermediateThrowEvent>',
        "",
    ),
    "message": (
        '<intermediateCatchEvent id="hear"><messageEventDefinition messageRef="pay"/></intermediateCatchEvent>',
        "",
    ),
    "timer": (f'<intermediateCatchEvent id="pause">{TIMER.format("${wait}")}</intermediateCatchEvent>', ""),
    "compensation": (
        _within(
            "sub", _script("w", "${n}"),
            '<intermediateThrowEvent id="back"><compensateEventDefinition/></intermediateThrowEvent>',
            more='<boundaryEvent id="undo" attachedToRef="w"><compensateEventDefinition/></boundaryEvent>'
            + _script("v", "${n + 1}").replace('id="v"', 'id="v" isForCompensation="true"')
            + '<association id="to-v" associationDirection="One" sourceRef="undo" targetRef="v"/>',
        ),
        "",
    ),
    "process": (
        f'<intermediateCatchEvent id="pause">{TIMER.format("PT2H")}</intermediateCatchEvent>',
        '<subProcess id="event" triggeredByEvent="true">' + ext(_mapping(_io("input", "=n + 1", "own")))
        + '<startEvent id="begun" isInterrupting="false"><messageEventDefinition messageRef="pay"/></startEvent>'
        + _script("inner", "${own}") + '<sequenceFlow id="a" sourceRef="begun" targetRef="inner"/></subProcess>'
        f'<subProcess id="later" triggeredByEvent="true"><startEvent id="never">{TIMER.format("${wait}")}</startEvent>'
        "</subProcess>",
    ),
}  # fmt: skip


class Faults:
    """Counts the expressions that an instance evaluates, and fails one of them, once."""

    def __init__(self) -> None:
        self.found = 0
        self.fails_at = 0

    def check(self, text: Any) -> None:
        if isinstance(text, str) and is_expression(text):
            self.found += 1
            if self.found == self.fails_at:
                raise ExpressionError("it is broken", text, 0)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    faults = Faults()

    def failing(method: Any) -> Any:
        def call(run: Execution, text: Any, variables: Any) -> Any:
            if run.graph.spec.id == "p":
                faults.check(text)
            return method(run, text, variables)

        return call

    for name in ("evaluate", "holds"):
        monkeypatch.setattr(Execution, name, failing(getattr(Execution, name)))
    return faults


async def _all(app: Harness) -> list[Instance]:
    """All instances, with the tasks."""
    return [*await app.list(limit=1000), *await app.list(kind="task", limit=1000)]


async def _end(app: Harness, id: str) -> tuple[list[str], Any]:
    """Let an instance end, and retry it if it fails. Gives its errors, and its variables."""
    errors: list[str] = []
    is_paid = False
    for _ in range(20):
        await app.drain()
        found = await app.get(id)
        names = [wait.name for wait in found.waits if wait.name]
        assert len(names) == len(set(names)), "it waits twice for one event"
        if found.status == "done":
            return errors, found.state["variables"]
        if found.status == "failed":
            errors.append(str(found.error))
            found_below = [one for one in await _all(app) if one.parent_id == id]
            assert not [one for one in found_below if one.status in ("runnable", "executing")]
            await app.retry(id)
        elif asked := await app.awakeables(job=id, status="PENDING"):
            await app.resolve(asked[0].id, {"answer": 10})
        elif not is_paid and any(wait.kind == "message" for wait in found.waits):
            is_paid = True
            await app.message("pay", "ada", {"paid": 5})
        else:
            await app.advance(3600)
    raise AssertionError(f"{id} does not end: {found}")


@pytest.mark.parametrize("task", TASKS)
async def test_b10_an_expression_that_fails_leaves_nothing_half_done(faults: Faults, task: str) -> None:
    called: list[Any] = []
    given = {"n": 1, "who": "ada", "due": "2030-01-01T00:00:00Z", "topic": "work", "wait": "PT1M", "items": [1, 2, 3],
             "callee": "called", "heard": "news"}  # fmt: skip
    async with Harness() as app:

        @app.handler("work")
        async def work(task: TaskContext) -> Any:
            called.append((task.name, dict(task.input)))
            return {"done": 7}

        element, more = TASKS[task]
        await app.deploy(
            definitions(f'<process id="p">{chain(element)}{more}</process>' + CALLED + HEARD + SIGNAL + MESSAGE)
        )

        async def outcome(fails_at: int) -> Any:
            called.clear()
            faults.found, faults.fails_at = 0, fails_at
            before = Counter(one.definition for one in await _all(app))
            errors, variables = await _end(app, (await app.start("p", given)).id)
            assert len(errors) == (fails_at > 0)
            assert all("it is broken" in error and " (line " in error for error in errors), errors
            started = Counter(one.definition for one in await _all(app)) - before
            assert not await app.awakeables(status="PENDING")
            return variables, sorted(called, key=repr), started

        expected = await outcome(0)
        count = faults.found
        assert count > 0
        for number in range(1, count + 1):
            assert await outcome(number) == expected, f"expression {number} of {count} has failed"
