"""Turn a BPMN file into the requests that deploy its processes, with the triggers of their start events.

Imported where it is used: a program without processes never loads it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, assert_never

from hark.kernel.requests import Deploy
from hark.model.errors import InvalidDefinition, InvalidInput
from hark.model.lanes import BPMN, ENGINE_QUEUE
from hark.model.names import check_name
from hark.model.problem import Problem
from hark.model.trigger import Trigger
from hark.programs.bpmn.bpmn_spec import START, BpmnSource, BpmnSpec, NodeSpec, encode_bpmn, step_of_start
from hark.programs.bpmn.file import BpmnFile, read_bpmn
from hark.programs.bpmn.interpreter.timers import triggers_of_timer
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.sources import evaluate


def read_bpmn_file(data: bytes | str, now: int, *, ignore_extensions: bool = False) -> tuple[BpmnFile, list[Deploy]]:
    """A BPMN file, and the requests that deploy its processes. `now` is the time, µs since 1970, for timers.

    Raises:
        InvalidDefinition: It has mistakes, or parts that Hark does not run.
    """
    file = read_bpmn(data, ignore_extensions=ignore_extensions)
    return file, [_request(process, file.xml, now) for process in file.processes]


def _request(process: BpmnSpec, xml: str, now: int) -> Deploy:
    source = encode_bpmn(BpmnSource(process, xml))
    return Deploy(
        name=process.id,
        kind=BPMN,
        queue=ENGINE_QUEUE,
        initial=START if process.starts_by_name else "",
        source=source,
        # Covers the text and what was read from it: a later version of Hark may read more.
        digest=sha256(source.encode()).hexdigest(),
        starts=triggers_of(process, now),
    )


def triggers_of(process: BpmnSpec, now: int) -> list[Trigger]:
    """The triggers of a process: its start events for signals, messages and timers.

    Raises:
        InvalidDefinition: The name or the time of one cannot be evaluated: there are no variables before the start.
    """
    found: list[Trigger] = []
    problems: list[Problem] = []
    for node in process.starts:
        try:
            found += _starts_of(node, now)
        except (ExpressionError, InvalidInput) as error:
            text = f"{str(error).rstrip('.')}. An instance has no variables before it starts."
            problems.append(Problem(node.id, node.line, text))
    if problems:
        raise InvalidDefinition("; ".join(map(str, problems)), problems=problems)
    return found


def _starts_of(node: NodeSpec, now: int) -> list[Trigger]:
    event, element = node.event, step_of_start(node.id)
    if event is None:
        return []
    match event.kind:
        case "signal":
            return [Trigger(kind="broadcast", name=_name(event.name, "signal"), element=element)]
        case "message":
            return [Trigger(kind="message", name=_name(event.name, "message"), element=element)]
        case "timer":
            return triggers_of_timer(event, element, now)
        case "none" | "error" | "escalation" | "conditional" | "compensation" | "cancel" | "terminate" | "link":
            return []  # an event sub-process can start at some of these, an instance by itself at none
        case _ as never:
            assert_never(never)


def _name(source: Any, what: str) -> str:
    return check_name(evaluate(source, {}), f"{what} name")
