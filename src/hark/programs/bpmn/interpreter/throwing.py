"""Throw messages, errors and escalations, and cancel transactions; event_kinds.py has a class for each kind of event.

An error or an escalation goes to the innermost catcher: the boundary of the activity that threw it, then the event
sub-processes and the boundary of each scope around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hark.model import json
from hark.model.decisions import SendMessage, TellParent
from hark.programs.bpmn.bpmn_spec import EventSpec, NodeSpec
from hark.programs.bpmn.interpreter import catching, compensation, mappings, scopes
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import BpmnScope, Compensation, FlowToken


class Thrown(NamedTuple):
    """An error or an escalation on its way."""

    kind: Literal["error", "escalation"]
    code: str
    message: str = ""
    variables: dict[str, Any] | None = None


if TYPE_CHECKING:
    from hark.programs.bpmn.interpreter.bpmn_graph import EventSubprocess
    from hark.programs.bpmn.interpreter.element_behaviour import EventBehaviour


def thrown(run: Execution, token: FlowToken, data: Any) -> None:
    """Let a token go on, or end, after what it threw has been handled."""
    following = run.graph.next_event(token.node)
    if following is not None:
        event, spec = run.graph.events[following], run.graph.nodes[following]
        assert event is not None
        assert spec.event is not None
        event.throw(run, token, spec, spec.event)
        token.node = following
        return
    token.node = run.graph.element_of[token.node]
    node = run.node(token)
    if token.local:
        mappings.end_local(run, token, node)
    event, then = run.graph.events[token.node], run.graph.elements[token.node].after_throw
    if event is None:
        run.push(then, token)
    else:
        event.thrown(run, token, then)


# -- signals and messages ----------------------------------------------------------------------------


def send_message(run: Execution, token: FlowToken, node: NodeSpec, then: Literal["thrown", "ended"]) -> None:
    """Send the message of a throw event or a send task: to the oldest catcher of this instance, or to another one.
    `then` is what the token does after that."""
    event = node.event
    assert event is not None
    scope = token.local or token.scope
    name = catching.name_of(run, event, scope, "message")
    key = catching.message_key(run, event, scope)
    payload = payload_of(run, token, event)
    if payload is None and token.local:
        payload = dict(run.scopes[token.local].variables)
    run.push(then, token)
    for each in run.named.get(("message", name), {}).values():
        if each.key == key:
            run.push("fire", None, (each.id, payload))
            return
    run.effects.append(SendMessage(name, key, json.dump(payload)))


def payload_of(run: Execution, token: FlowToken, event: EventSpec) -> dict[str, Any] | None:
    """The variables that travel with a signal or a message."""
    if not event.payload and not event.copies_all:
        return None
    scope = token.local or token.scope
    payload = run.snapshot(scope) if event.copies_all else {}
    seen = run.view(scope)
    for each in event.payload:
        payload[each.target] = run.evaluate(each.source, seen)
    return payload


# -- errors and escalations --------------------------------------------------------------------------


def code_of(run: Execution, token: FlowToken, event: EventSpec) -> str:
    value = run.evaluate(event.name, run.view(token.local or token.scope))
    return "" if value is None else value if isinstance(value, str) else json.dump(value)


def message_of(run: Execution, token: FlowToken, event: EventSpec) -> str:
    value = run.evaluate(event.message, run.view(token.scope))
    return "" if value is None else value if isinstance(value, str) else json.dump(value)


def raise_error(run: Execution, token: FlowToken, thrown: Thrown, resume: Literal["enter", "child"]) -> None:
    """Give an error to its catcher. Without one, the token stops, or the process that called this one gets it."""
    if _give(run, token, thrown):
        return
    text = f": {thrown.message}" if thrown.message else ""
    error = f"the error {thrown.code!r} is not caught{text}"
    if run.has_caller:
        run.thrown = {"code": thrown.code, "message": thrown.message, "variables": thrown.variables or {}}
    run.stop(token, error, resume, fatal=run.has_caller)


def escalate(run: Execution, token: FlowToken, thrown: Thrown) -> None:
    """Give an escalation to its catcher. Without one, the process that called this one gets it."""
    if _give(run, token, thrown) or not run.has_caller:
        return
    body: dict[str, Any] = {"status": "escalated", "code": thrown.code, "returned": run.state.variables}
    if thrown.variables:
        body["variables"] = thrown.variables
    run.effects.append(TellParent(json.dump(body)))


def _give(run: Execution, token: FlowToken, thrown: Thrown) -> bool:
    """Let the innermost catcher catch it. Return False if there is none."""
    host = token
    while True:
        scope = run.scopes[host.scope]
        if scope.kind != "iteration":
            number = _matching(run, run.node(host).boundaries, thrown)
            if number is not None:
                _catch_at_boundary(run, host, number, thrown)
                return True
        if scope.kind in ("process", "subprocess") and not scope.interrupted:
            event = _event_subprocess(run, scope, host, thrown)
            if event is not None:
                scopes.begin_event_subprocess(run, scope, event, _caught(run, scope.id, event.start, thrown))
                return True
        if scope.id == 0:
            return False
        host = run.tokens[scope.owner]


def _matching(run: Execution, numbers: tuple[int, ...], thrown: Thrown) -> int | None:
    """The event that catches it: one with its code before one without a code."""
    found = None
    for number in numbers:
        event = run.graph.nodes[number].event
        if event is None or event.kind != thrown.kind:
            continue
        if event.name is None:
            found = number if found is None else found
        elif str(run.evaluate(event.name, run.state.variables)) == thrown.code:
            return number
    return found


def _event_subprocess(run: Execution, scope: BpmnScope, host: FlowToken, thrown: Thrown) -> EventSubprocess | None:
    """The event sub-process of a scope that catches it; never the one that it comes from."""
    events = [each for each in run.graph.event_subprocesses(scope.node) if each.number != host.node]
    number = _matching(run, tuple(each.start_number for each in events), thrown)
    return next((each for each in events if each.start_number == number), None)


def _caught(run: Execution, scope: int, node: NodeSpec, thrown: Thrown) -> dict[str, Any]:
    """The variables that a catcher sets."""
    event = node.event
    values = dict(thrown.variables or {})
    if event is not None and event.code_variable is not None:
        values[event.code_variable] = thrown.code
    if event is not None and event.message_variable is not None:
        values[event.message_variable] = thrown.message
    return mappings.taken_by(run, scope, node, values)


def _catch_at_boundary(run: Execution, host: FlowToken, number: int, thrown: Thrown) -> None:
    boundary = run.graph.nodes[number]
    number = run.graph.element_of[number]
    values = _caught(run, host.scope, boundary, thrown)
    if boundary.interrupting:
        run.cancel_work(host)
        host.node = number
        token = host
    else:
        token = run.add_token(number, host.scope)
    run.entered[number] = run.entered.get(number, 0) + 1
    if values:
        run.merge(token.scope, values)
    run.push("leave", token)


# -- transactions ------------------------------------------------------------------------------------


def cancel_transaction(run: Execution, token: FlowToken) -> None:
    """Cancel a transaction, with all its instances: its other tokens end, and what has completed is compensated."""
    scope = run.scopes[token.scope]
    run.disarm_scope(scope.id)
    for other in run.in_(scope.id):
        if other is not token and other.id in run.tokens:
            run.cancel_token(other)
    records, scope.records = [*_of_other_instances(run, scope), *scope.records], []
    compensation.begin(run, token, records)


def _of_other_instances(run: Execution, scope: BpmnScope) -> list[Compensation]:
    """Cancel the other instances of a transaction. Return what has completed in them, and in those that have ended."""
    owner = run.tokens[scope.owner]
    if not run.is_iteration(owner):
        return []
    loop = run.scopes[run.scopes[owner.scope].parent]
    records, loop.records = loop.records, []
    for iteration in [each.id for each in run.scopes.values() if each.parent == loop.id]:
        for other in run.in_(iteration):
            if other is not owner:
                records += run.scopes[other.local].records if other.local else []
                run.cancel_token(other)
    return records


def leave_transaction(run: Execution, token: FlowToken, event: EventBehaviour) -> None:
    """Leave a transaction that is compensated: by its cancel event or, without one, its path ends here."""
    owner = run.tokens[run.scopes[token.scope].owner]
    while run.is_iteration(owner):  # the event belongs to the activity, not to one instance of it
        owner = run.tokens[run.scopes[owner.scope].owner]
    cancel = next((number for number in run.node(owner).boundaries if run.graph.events[number] is event), None)
    run.cancel_work(owner)
    if cancel is None:
        run.push("end", owner)
        return
    owner.node = cancel
    run.entered[cancel] = run.entered.get(cancel, 0) + 1
    run.push("leave", owner)
