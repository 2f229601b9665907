"""Begin and end scopes with tokens, interrupt them by event sub-processes, and terminate them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hark.programs.bpmn.interpreter import catching
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import BpmnScope, FlowToken
from hark.programs.bpmn.interpreter.mappings import mapped_inputs

if TYPE_CHECKING:
    from hark.programs.bpmn.interpreter.bpmn_graph import EventSubprocess


def begin(run: Execution, scope: BpmnScope, nodes: tuple[int, ...]) -> None:
    """Put tokens on these nodes of a new scope. Its event sub-processes can begin from now on."""
    tokens = [run.add_token(node, scope.id) for node in nodes]
    for token in reversed(tokens):
        run.push("enter", token)
    catching.arm_event_subprocesses(run, scope.id)
    if not tokens:
        may_end(run, scope.id)


def may_end(run: Execution, scope_id: int) -> None:
    """End the scope that a token has left, if it was the last.

    Once only event sub-processes are left, no other one begins (B5)."""
    scope = run.scopes[scope_id]
    tokens = run.in_scope.get(scope_id)
    if tokens:
        if scope_id in run.of_scope and all(run.node(token).event_subprocess for token in tokens.values()):
            run.disarm_scope(scope_id)
        return
    if scope.kind == "process":
        run.disarm_scope(0)
        run.finished = True
        return
    owner = run.tokens[scope.owner]
    if scope.kind == "handler":
        run.remove_scope(scope_id)
        run.push("compensate", owner)
    elif run.node(owner).event_subprocess and not run.node(owner).outputs:
        run.remove_scope(scope_id)
        owner.local = 0
        run.push("end", owner)
    else:
        run.disarm_scope(scope_id)
        run.push("ended", owner)


def begin_event_subprocess(
    run: Execution, scope: BpmnScope, event: EventSubprocess, values: dict[str, Any] | None
) -> None:
    """Begin an event sub-process; one that interrupts cancels everything else in its scope (B5)."""
    variables = mapped_inputs(run, event.node, scope.id, values)  # before anything changes: it may fail
    if event.start.interrupting:
        interrupt(run, scope)
        scope.interrupted = True
    owner = run.add_token(event.number, scope.id)
    run.entered[event.number] = run.entered.get(event.number, 0) + 1
    inner = BpmnScope(run.number(), event.number, scope.id, "subprocess", owner.id)
    run.scopes[inner.id] = inner
    owner.local = inner.id
    if values:
        run.merge(inner.id, values)
    inner.variables = variables
    begin(run, inner, (run.graph.element_of[event.start_number],))


def interrupt(run: Execution, scope: BpmnScope) -> None:
    """Cancel all tokens of a scope; no event sub-process of it begins any more."""
    run.disarm_scope(scope.id)
    for token in run.in_(scope.id):
        if token.id in run.tokens:
            run.cancel_token(token)


def terminate(run: Execution, token: FlowToken) -> None:
    """End the scope of a token at once, with all its tokens."""
    scope = run.scopes[token.scope]
    interrupt(run, scope)
    may_end(run, scope.id)
