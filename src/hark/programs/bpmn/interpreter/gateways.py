"""Gateways: choose the flows that a token takes, and join tokens.

A parallel gateway joins one token of each incoming flow. An inclusive one waits as long as another token of its scope
may still come by an incoming flow that has none: that depends on where the other tokens are, so it is decided when all
tokens rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hark.programs.bpmn.bpmn_elements import NodeKind
from hark.programs.bpmn.bpmn_spec import NodeSpec
from hark.programs.bpmn.interpreter import catching
from hark.programs.bpmn.interpreter.element_behaviour import ElementBehaviour
from hark.programs.bpmn.interpreter.execution import Execution, Joining
from hark.programs.bpmn.interpreter.instance_state import BpmnScope, FlowToken
from hark.programs.bpmn.interpreter.scope_variables import StuckToken, Variables
from hark.programs.bpmn.interpreter.skips import skips_are_on

NO_FLOW = "no condition of its outgoing flows holds, and it has no default flow"


def open_flows(run: Execution, token: FlowToken, node: NodeSpec) -> list[int]:
    """The outgoing flows without a condition, and those whose condition holds; else the default flow."""
    is_only = len(node.outgoing) == 1
    if is_only and node.default is None and run.graph.flows[node.outgoing[0]].condition is None:
        return [node.outgoing[0]]
    variables = run.view(token.scope)
    flows = [flow for flow in node.outgoing if _is_open(run, node, flow, variables, is_only=is_only)]
    return flows or ([node.default] if node.default is not None else [])


def _is_open(run: Execution, node: NodeSpec, flow: int, variables: Mapping[str, Any], *, is_only: bool = False) -> bool:
    """Return True if a flow can be taken. As in Flowable, its skip expression decides instead of its condition, if skip
    expressions are on; the only flow of a node is not skipped."""
    spec = run.graph.flows[flow]
    if spec.skip is not None and skips_are_on(variables):
        return is_only or run.holds(spec.skip, variables)
    return flow != node.default and (spec.condition is None or run.holds(spec.condition, variables))


def chosen_flow(run: Execution, token: FlowToken, node: NodeSpec) -> int:
    """The flow by which a token leaves an exclusive gateway: the first one in the file that is open."""
    variables = run.view(token.scope)
    for flow in node.outgoing:
        if _is_open(run, node, flow, variables):
            return flow
    if node.default is None:
        raise StuckToken(NO_FLOW)
    return node.default


class ExclusiveGateway(ElementBehaviour):
    """Takes the first flow that is open."""

    def is_passed(self, node: NodeSpec, only_flow: int) -> bool:
        return bool(node.outgoing)

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        run.push("end", token)


class ParallelGateway(ElementBehaviour):
    """Joins one token of each incoming flow; then takes all outgoing flows."""

    is_join = True

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        if len(node.incoming) > 1:
            waiting = run.wait_to_join(token)
            if len(waiting) < len(node.incoming):
                return
            _join(run, token, _oldest(waiting))
        if token.node in run.graph.skipping:
            run.push("leave", token)
        elif node.outgoing:
            run.follow(token, node.outgoing)
        else:
            run.push("end", token)


class InclusiveGateway(ElementBehaviour):
    """Joins all tokens that can still come; then takes the flows whose condition holds."""

    is_join = True
    joins_by_reach = True

    def joins_at_rest(self, node: NodeSpec) -> bool:
        return True

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        if len(node.incoming) <= 1:
            run.push("leave", token)
        else:
            run.wait_to_join(token)  # see resolve


class ComplexGateway(ElementBehaviour):
    """Goes on as soon as its activation condition holds; tokens that come later, by the other flows, end there."""

    is_join = True
    joins_by_reach = True
    expects_tokens = True

    def joins_at_rest(self, node: NodeSpec) -> bool:
        return node.activation is None

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        if len(node.incoming) <= 1:
            run.push("leave", token)
            return
        if node.activation is None:  # as an inclusive gateway: see resolve
            run.wait_to_join(token)
            return
        scope = run.scopes[token.scope]
        expected = scope.fired.get(token.node)
        if expected is not None and token.flow in expected:
            expected.remove(token.flow)
            if not expected:
                del scope.fired[token.node]
            run.push("end", token)
            return
        waiting = [each for of_flow in run.wait_to_join(token).values() for each in of_flow.values()]
        if run.holds(node.activation, Variables([{"activationCount": len(waiting)}, *run.layers(token.scope)])):
            arrived = {each.flow for each in waiting}
            _join(run, token, waiting)
            if left := [flow for flow in node.incoming if flow not in arrived]:
                scope.fired[token.node] = left
            run.push("leave", token)


class EventGateway(ElementBehaviour):
    """Waits for the first of the events that follow."""

    awaits_targets = True

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        for flow in node.outgoing:
            target = run.graph.flows[flow].target
            for number in run.graph.events_of(target):
                catching.arm(run, token, number, token.scope)


# -- joins -------------------------------------------------------------------------------------------


def resolve(run: Execution) -> bool:
    """Let the joins by reachability go on that no token can come to now that all rest. Return True if one has."""
    for (scope, number), waiting in run.joining.items():
        joins = run.graph.elements[number].joins_at_rest(run.graph.nodes[number])
        if joins and not _can_come(run, scope, number, set(waiting)):
            tokens = _oldest(waiting)
            token = min(tokens, key=lambda each: each.id)
            _join(run, token, tokens)
            run.push("leave", token)
            return True
    for scope_with in [scope for scope in run.scopes.values() if scope.fired] if run.graph.expects_tokens else ():
        _reset_complex(run, scope_with)
    return False


def _can_come(run: Execution, scope: int, number: int, arrived: set[int]) -> bool:
    """Return True if another token can come by an incoming flow that has none. One that can also come by a flow that
    has a token already does not count: otherwise two gateways in a loop would wait for each other."""
    graph = run.graph
    missing = [flow for flow in graph.nodes[number].incoming if flow not in arrived]
    others = {other.node for other in run.in_scope[scope].values() if other.node != number or other.flow < 0}
    return any(
        any(graph.reaches_flow(node, flow, number) for flow in missing)
        and not any(graph.reaches_flow(node, flow, number) for flow in arrived)
        for node in others
    )


def _reset_complex(run: Execution, scope: BpmnScope) -> None:
    """Begin anew at a complex gateway that has gone on, when no token can come any more by the flows it expects."""
    for number, expected in list(scope.fired.items()):
        others = [token.node for token in run.in_(scope.id)]
        if not any(run.graph.reaches_flow(node, flow, number) for node in others for flow in expected):
            del scope.fired[number]


def _oldest(waiting: Joining) -> list[FlowToken]:
    """The token of each incoming flow that came first."""
    return [next(iter(of_flow.values())) for of_flow in waiting.values()]


def _join(run: Execution, token: FlowToken, tokens: list[FlowToken]) -> None:
    """Make one token of these."""
    for other in tokens:
        run.stop_joining(other)
        if other is not token:
            run.remove_token(other)


GATEWAYS: Final[dict[NodeKind, ElementBehaviour]] = {
    "exclusive": ExclusiveGateway(),
    "parallel": ParallelGateway(),
    "inclusive": InclusiveGateway(),
    "complex": ComplexGateway(),
    "event_gateway": EventGateway(),
}
