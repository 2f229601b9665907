"""Compensate: undo what has completed, the last first, with the variables of then.

A scope keeps a record of each activity that has completed in it and can be compensated; a sub-process that completes
hands its own records to the record of itself. A throw event takes the records it means and runs their handlers one
after the other, each in a scope of kind `handler`; it goes on when all have ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hark.programs.bpmn.bpmn_elements import EVENTS
from hark.programs.bpmn.bpmn_spec import NodeSpec
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import BpmnScope, Compensation, FlowToken

if TYPE_CHECKING:
    from hark.programs.bpmn.interpreter.bpmn_graph import EventSubprocess


def record(
    run: Execution, scope: int, number: int, node: NodeSpec, seen_from: int, records: list[Compensation]
) -> None:
    """Keep what the compensation of a completed activity needs, if it can be compensated.

    Args:
        run: The instance.
        scope: The scope that the activity is in; of an instance of a loop: the scope of the loop.
        number: The activity.
        node: The same.
        seen_from: The scope whose variables it could see.
        records: Of a sub-process: what can be compensated in it.
    """
    if node.for_compensation or node.event_subprocess:
        return
    if node.compensation is None and not records and _compensating(run, number) is None:
        return
    keep(run, scope, [Compensation(number, run.snapshot(seen_from), records)])


def keep(run: Execution, scope: int, records: list[Compensation]) -> None:
    """Keep records in the innermost scope that can be compensated, or in the loop that they belong to."""
    while run.scopes[scope].kind not in ("process", "subprocess", "handler", "loop"):
        scope = run.scopes[scope].parent
    run.scopes[scope].records.extend(records)


def _compensating(run: Execution, number: int) -> EventSubprocess | None:
    """The event sub-process that compensates a sub-process."""
    if not run.graph.nodes[number].children:
        return None
    for each in run.graph.event_subprocesses(number):
        if each.start.event is not None and EVENTS[each.start.event.kind].compensates:
            return each
    return None


def throw(run: Execution, token: FlowToken, activity: int | None) -> None:
    """Compensate an activity or, without one, all that has completed in the scope of a token."""
    records = _take(run, token, activity)
    begin(run, token, records)


def begin(run: Execution, token: FlowToken, records: list[Compensation]) -> None:
    """Compensate these records; the token waits."""
    scope = BpmnScope(run.number(), token.node, token.scope, "compensation", token.id, records=records)
    run.scopes[scope.id] = scope
    token.local = scope.id
    run.push("compensate", token)


def compensate(run: Execution, token: FlowToken, data: Any) -> None:
    """Run the next handler; when there is none left, the throw event goes on."""
    scope = run.scopes[token.local]
    while scope.records:
        last = scope.records.pop()
        node = run.graph.nodes[last.node]
        if node.compensation is not None:
            _run(run, scope, token, node.compensation, last)
            return
        handler = _compensating(run, last.node)
        if handler is not None:
            _run(run, scope, token, handler.number, last, handler)
            return
        scope.records.extend(last.records)
    run.remove_scope(scope.id)
    token.local = 0
    run.push("thrown", token)


def _run(
    run: Execution,
    scope: BpmnScope,
    token: FlowToken,
    number: int,
    record: Compensation,
    event: EventSubprocess | None = None,
) -> None:
    """Run a handler: an activity, or the event sub-process of a sub-process, which sees its records."""
    inner = BpmnScope(run.number(), number, scope.id, "handler", token.id, record.variables, records=record.records)
    run.add_inner(inner)
    handler = run.add_token(number, inner.id)
    if event is None:
        run.push("enter", handler)
        return
    run.entered[number] = run.entered.get(number, 0) + 1
    body = BpmnScope(run.number(), number, inner.id, "subprocess", handler.id, dict(event.node.variables))
    run.scopes[body.id] = body
    handler.local = body.id
    run.push("enter", run.add_token(event.start_number, body.id))


def _take(run: Execution, token: FlowToken, activity: int | None) -> list[Compensation]:
    """Take the records that a throw event means out of their scope, oldest first."""
    scope = run.scopes[token.scope]
    while scope.kind not in ("process", "subprocess", "handler"):
        scope = run.scopes[scope.parent]
    if activity is None:
        records, scope.records = scope.records, []
        if scope.kind == "subprocess" and run.graph.nodes[scope.node].event_subprocess:
            around = run.scopes[scope.parent]  # an event sub-process compensates the scope it is in
            records, around.records = [*around.records, *records], []
        return records
    meant = {activity, *run.graph.compensated_by(activity)}  # a handler stands for what it compensates
    while True:
        found = [each for each in scope.records if each.node in meant]
        if found:
            scope.records = [each for each in scope.records if each.node not in meant]
            return found
        if scope.id == 0:
            return []
        scope = run.scopes[scope.parent]
