"""Fire a catcher: continue the token that waits for this event, unless it has been removed since (B5)."""

from __future__ import annotations

from typing import Any

from hark.programs.bpmn.bpmn_spec import NodeSpec
from hark.programs.bpmn.interpreter import catching, scopes
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import Catcher, FlowToken
from hark.programs.bpmn.interpreter.mappings import mapped_inputs, taken_by
from hark.programs.bpmn.interpreter.timers import next_due


def fire(run: Execution, token: FlowToken | None, data: tuple[int, Any] | tuple[int, Any, str | None]) -> None:
    """Let a catcher go on: with the payload of a signal or message, or the answer to a user task and who gave it."""
    id, payload, *by = data
    catcher = run.catchers.get(id)
    if catcher is None:
        return  # what it belonged to has ended
    node, element = run.graph.nodes[catcher.node], run.graph.elements[catcher.node]
    until = catching.end_of_cycle(run, catcher, node)
    if until is not None and catcher.due > until:
        run.remove_catcher(catcher)
        return
    host = run.tokens[catcher.token] if catcher.token else None
    number = run.graph.element_of[catcher.node]
    follows_gateway = host is not None and element.is_catch and host.node != number
    values = element.answer(run, host, payload, by[0] if by else None)
    local = mapped_inputs(run, node, catcher.scope) if follows_gateway else {}
    taken = {} if element.is_activity else taken_by(run, catcher.scope, node, values, local)
    if host is None:
        _start_event_subprocess(run, catcher, taken)
    if catcher.kind == "timer":  # nothing of what follows can fail
        _count_timer(run, catcher, node, until)
    if host is None:
        return
    if follows_gateway:
        run.disarm_token(host)
        _follow_to(run, host, number)
        element.follow(run, host, node)
    element.fired(run, host, catcher, values, taken)


def _follow_to(run: Execution, token: FlowToken, number: int) -> None:
    """Move a token from an event-based gateway to the event that came first."""
    flow = next(flow for flow in run.node(token).outgoing if run.graph.flows[flow].target == number)
    run.flows_taken[flow] = run.flows_taken.get(flow, 0) + 1
    token.node = number
    run.entered[number] = run.entered.get(number, 0) + 1


def _start_event_subprocess(run: Execution, catcher: Catcher, taken: dict[str, Any]) -> None:
    scope = run.scopes[catcher.scope]
    event = next(each for each in run.graph.event_subprocesses(scope.node) if each.start_number == catcher.node)
    scopes.begin_event_subprocess(run, scope, event, taken)


def _count_timer(run: Execution, catcher: Catcher, node: NodeSpec, until: int | None) -> None:
    """Count a timer that has fired: it is gone. The timer of a cycle that does not interrupt fires again, counted from
    its last time (T2), but not after its end."""
    assert node.event is not None
    repeats = node.event.timer == "cycle" and (catcher.left is None or catcher.left > 1)
    if repeats and not node.interrupting:
        due = next_due(catcher.name, catcher.due)
        if due is not None and due > catcher.due and (until is None or due <= until):
            catching.arm_timer_again(run, catcher, due)
    if not node.interrupting or run.graph.elements[catcher.node].is_catch:
        run.remove_catcher(catcher)
