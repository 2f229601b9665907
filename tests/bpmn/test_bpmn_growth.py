"""B6: the work of one activation of a process grows with the number of its tokens, not with the square of it."""

import itertools
import json
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import pytest

from hark.model.activation import Claim, InboxRow, WaitRow
from hark.model.decisions import Park
from hark.programs.bpmn.file import read_bpmn
from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph
from hark.programs.bpmn.interpreter.bpmn_interpreter import run_bpmn
from hark.programs.bpmn.interpreter.instance_state import Catcher, load_bpmn_state
from hark.programs.jobs.job_services import TaskOutput
from tests.bpmn.small_files import bpmn_file, chain
from tests.support.claims import a_claim

AROUND = '<signal id="sig" name="sig"/><message id="msg" name="msg"/>'
MANY = "<multiInstanceLoopCharacteristics><loopCardinality>${n}</loopCardinality></multiInstanceLoopCharacteristics>"
TIMER = "<timerEventDefinition><timeDuration>PT1M</timeDuration></timerEventDefinition>"
SIGNAL = '<signalEventDefinition signalRef="sig"/>'
EACH_SIGNAL = f'<boundaryEvent id="edge" attachedToRef="host" cancelActivity="false">{SIGNAL}</boundaryEvent>'
CONDITION = "<conditionalEventDefinition><condition>=x = 1</condition></conditionalEventDefinition>"
EACH_CONDITION = EACH_SIGNAL.replace(SIGNAL, CONDITION)


def flows(*pairs: str) -> str:
    split = (pair.split("-") for pair in pairs)
    return "".join(f'<sequenceFlow id="{a}_{b}" sourceRef="{a}" targetRef="{b}"/>' for a, b in split)


def many(first: str, *then: str) -> str:
    """A sub-process of many instances, each of which waits at `a`, and goes on."""
    ids = ["b", "a", *(element.partition('id="')[2].partition('"')[0] for element in then)]
    content = "".join(('<startEvent id="b"/>', first, *then, flows(*map("-".join, itertools.pairwise(ids)))))
    return chain(f'<subProcess id="sub">{MANY}{content}</subProcess>')


def joined(gateway: str) -> str:
    """Many tokens come by a boundary event, and each has a user task before a join."""
    return (
        f'<startEvent id="s"/><userTask id="host"/>{EACH_SIGNAL}<userTask id="a"/><{gateway} id="j"/>'
        f'<userTask id="c"/>{flows("s-host", "host-j", "edge-a", "a-j", "j-c")}'
    )


USER, NEXT = '<userTask id="a"/>', '<userTask id="c"/>'
THROW = f'<intermediateThrowEvent id="t">{SIGNAL}</intermediateThrowEvent>'
CASES = {
    "user tasks": (many(USER, NEXT), "awakeable"),
    "receive tasks": (many('<receiveTask id="a" messageRef="msg"/>', NEXT), "message"),
    "timers": (many(f'<intermediateCatchEvent id="a">{TIMER}</intermediateCatchEvent>', NEXT), "timer"),
    "conditions": (many(f'<intermediateCatchEvent id="a">{CONDITION}</intermediateCatchEvent>', NEXT), "control"),
    "throws": (many(USER, THROW, NEXT), "awakeable"),
    "loops in loops": (many(f'<userTask id="a">{MANY.replace("${n}", "2")}</userTask>'), "awakeable"),
    "an inclusive gateway": (chain(f'<userTask id="a">{MANY}</userTask>', '<inclusiveGateway id="g"/>'), "awakeable"),
    "a condition": (chain(f'<userTask id="host">{MANY}</userTask>') + EACH_CONDITION, "awakeable"),
    "a parallel join": (joined("parallelGateway"), "broadcast"),
    "an inclusive join": (joined("inclusiveGateway"), "broadcast"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
async def test_b6_an_activation_with_four_times_as_many_tokens_is_about_four_times_the_work(case: str) -> None:
    content, kind = CASES[case]
    few, many_ = [await _work(content, kind, n) for n in (100, 400)]
    limit = 7 if case == "an inclusive join" else 5  # it looks at all tokens of its scope; the square would be 16
    assert many_ < few * limit, (few, many_)


async def _work(content: str, kind: str, n: int) -> int:
    """How many lines the activation executes that handles what this many tokens wait for."""
    process = _Process(content)
    await process.run([], {"n": n})
    if kind == "broadcast":
        [edge] = process.catchers("broadcast")
        await process.run([InboxRow(k, kind, "sig", f"i~{edge.id}", "null", 0) for k in range(n)])
        kind = "awakeable"
    if kind == "control":
        rows = [InboxRow(1, "control", "variables", "i~0", '{"x":1}', 0)]
    elif kind == "awakeable":
        settled = json.dumps({"status": "RESOLVED", "payload": {"y": 1}})
        rows = [InboxRow(k, kind, each.name, None, settled, 0) for k, each in enumerate(process.catchers(kind))]
    else:
        rows = [
            InboxRow(k, kind, each.name, f"i~{each.id}", "null", 0) for k, each in enumerate(process.catchers(kind))
        ]
    lines = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        await process.run(rows)
    finally:
        sys.settrace(before)
    return lines


class _Process:
    """An instance whose waits are kept as the store keeps them."""

    max_payload = 10**9

    def __init__(self, content: str) -> None:
        [spec] = read_bpmn(bpmn_file(content, around=AROUND)).processes
        self._graph = BpmnGraph(spec)
        self._step, self._state = "start", "{}"
        self._waits: dict[str, WaitRow] = {}
        self._now = 10**15

    async def bpmn_graph(self, definition: str, version: int) -> BpmnGraph:
        return self._graph

    async def outputs(self, ids: Iterable[str]) -> dict[str, TaskOutput]:
        return {}

    def catchers(self, kind: str) -> list[Catcher]:
        return [each for each in load_bpmn_state(self._state).catchers if each.kind == kind]

    async def run(self, rows: list[InboxRow], variables: dict[str, Any] | None = None) -> None:
        self._now += 60_000_000
        decision = await run_bpmn(self._claim(rows, variables), self)  # type: ignore[arg-type]
        self._step, self._state = decision.step, decision.state
        if isinstance(decision.move, Park):
            for id in decision.move.disarm or ():
                del self._waits[id]
            for arm in decision.move.arm:
                self._waits[arm.id] = WaitRow(
                    arm.id, arm.place or "", arm.kind, arm.name, arm.key, arm.deadline, None, None,
                    answers_each=arm.answers_each,
                )  # fmt: skip

    def _claim(self, rows: list[InboxRow], variables: dict[str, Any] | None) -> Claim:
        state = self._state if variables is None else json.dumps(variables)
        return a_claim(
            id="i", definition="p", kind="bpmn", step=self._step, state=state, correlation_key="key", now=self._now,
            inbox=rows, waits=list(self._waits.values()),
        )  # fmt: skip
