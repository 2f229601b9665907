"""Processes: what of a BPMN file is deployed, and how its start events start instances.

Imported where it is used: a program without processes never loads it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from hark.kernel.requests import Deploy
from hark.model.errors import InvalidDefinition, InvalidInput
from hark.model.lanes import BPMN, GRAPHS
from hark.model.names import check_name
from hark.model.problem import Problem
from hark.model.trigger import AutomaticStart
from hark.programs.bpmn.bpmn_spec import START, NodeSpec, ProcessSource, ProcessSpec, encode_process, step_of_start
from hark.programs.bpmn.file import BpmnFile, read_bpmn
from hark.programs.bpmn.interpreter.timers import starts_of_timer
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.sources import evaluate


def read_process_file(data: bytes | str, now: int, *, ignore_extensions: bool = False) -> tuple[BpmnFile, list[Deploy]]:
    """A BPMN file, and the requests that deploy its processes. `now` is the time, µs since 1970, for timers.

    Raises:
        InvalidDefinition: It has mistakes, or parts that Hark does not run.
    """
    file = read_bpmn(data, ignore_extensions=ignore_extensions)
    return file, [_request(process, file.xml, now) for process in file.processes]


def _request(process: ProcessSpec, xml: str, now: int) -> Deploy:
    source = encode_process(ProcessSource(process, xml))
    return Deploy(
        name=process.id,
        kind=BPMN,
        queue=GRAPHS,
        initial="" if process.none_start is None else START,
        source=source,
        # Of the text and of what was read from it: a later version of Hark may read more.
        digest=sha256(source.encode()).hexdigest(),
        starts=automatic_starts(process, now),
    )


def automatic_starts(process: ProcessSpec, now: int) -> list[AutomaticStart]:
    """What starts instances of a process by itself: its start events for signals, messages and timers.

    Raises:
        InvalidDefinition: The name or the time of one cannot be evaluated: there are no variables before the start.
    """
    found: list[AutomaticStart] = []
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


def _starts_of(node: NodeSpec, now: int) -> list[AutomaticStart]:
    event, element = node.event, step_of_start(node.id)
    if event is None:
        return []
    match event.kind:
        case "signal":
            return [AutomaticStart(kind="broadcast", name=_name(event.name, "signal"), element=element)]
        case "message":
            return [AutomaticStart(kind="message", name=_name(event.name, "message"), element=element)]
        case "timer":
            return starts_of_timer(event, element, now)
        case _:
            return []


def _name(source: Any, what: str) -> str:
    return check_name(evaluate(source, {}), f"{what} name")
