"""Read timer events: the time when they fire and, of cycles, the end."""

from __future__ import annotations

import re
from typing import Literal

from hark.programs.bpmn.bpmn_spec import EventSpec
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import attribute
from hark.programs.bpmn.file.file_sources import source
from hark.programs.bpmn.file.timer_checks import end_problem, timer_problem
from hark.programs.bpmn.file.xml_tree import XmlElement

_TIMERS: dict[str, Literal["date", "duration", "cycle"]] = {
    "bpmn:timeDate": "date",
    "bpmn:timeDuration": "duration",
    "bpmn:timeCycle": "cycle",
}
_WITH_END = re.compile(r"(R[^/]*/P[^/]*)/(.+)", re.DOTALL)


def read_timer(process: BpmnDraft, node: NodeDraft, definition: XmlElement) -> EventSpec | None:
    """Read the timer of an event; None if it has a problem."""
    timers = [child for child in definition.children if child.tag in _TIMERS]
    if len(timers) != 1 or not timers[0].text.strip():
        message = "Its timer needs one of timeDate, timeDuration or timeCycle, with a text such as PT5M."
        process.report(node, message, definition.line)
        return None
    [timer] = timers
    kind = _TIMERS[timer.tag]
    written, end = _cycle(process, node, timer) if kind == "cycle" else (timer.text, None)
    text = source(process, node, written, "Its timer", timer.line)
    if (problem := timer_problem(kind, text)) is not None:
        process.report(node, f"Its timer: {problem}", timer.line)
        return None
    if end is not None and (problem := end_problem(end)) is not None:
        process.file.report_extension(node.id, timer.line, f"Its timer: {problem}.")
        end = None
    return EventSpec("timer", timer=kind, text=text, until=end)


def _cycle(process: BpmnDraft, node: NodeDraft, timer: XmlElement) -> tuple[str, str | None]:
    """The text of a cycle and its end date.

    In Flowable, `R3/PT1H/end` begins to count at once and stops at the end, which only counts if it repeats. In
    Camunda, and by ISO 8601, its last time is the end. An intermediate event ignores both kinds of end dates."""
    text, end = timer.text.strip(), attribute(timer, "endDate")
    if process.file.is_for_flowable and (found := _WITH_END.fullmatch(text)):
        text, end = found[1], end or (found[2] if _repeats(process, node) else None)
    if end is not None and node.row.interrupting is None:
        message = "The end date of its timer is ignored, as in Flowable: an intermediate event fires once."
        process.file.ignore(node.id, timer.line, message)
        end = None
    return text, end


def _repeats(process: BpmnDraft, node: NodeDraft) -> bool:
    """Return True if a cycle fires more than once at this event."""
    if node.row.interrupting is None:
        return False
    is_start_of_process = node.is_start and process.scope_of(node) is None
    return is_start_of_process or not node.element.flag(node.row.interrupting, default=True)
