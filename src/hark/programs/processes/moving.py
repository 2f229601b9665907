"""How tokens move: they enter a node, leave it by its flows, and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hark.model.process import NodeSpec
from hark.programs.processes import activities, catching, gateways, scopes, throwing
from hark.programs.processes.execution import Execution
from hark.programs.processes.state import FlowToken
from hark.programs.processes.variables import StuckToken


def enter(run: Execution, token: FlowToken, data: Any) -> None:
    """A token has come to a node."""
    number = token.node
    run.entered[number] = run.entered.get(number, 0) + 1
    node = run.graph.nodes[number]
    _ENTER.get(node.kind, activities.enter)(run, token, node)


def _start(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    run.leave(token)


def leave(run: Execution, token: FlowToken, data: Any) -> None:
    """A token goes on by the outgoing flows of its node: all without a condition, and those whose condition holds."""
    node = run.node(token)
    token.flow = -1
    if not node.outgoing or node.for_compensation:
        run.push("end", token)
        return
    flows = gateways.open_flows(run, token, node)
    if not flows:
        raise StuckToken(gateways.NO_FLOW)
    run.follow(token, flows)


def end(run: Execution, token: FlowToken, data: Any) -> None:
    """A token has come to the end of its path."""
    run.remove_token(token)
    scopes.may_end(run, token.scope)


_ENTER: Final[dict[str, Callable[[Execution, FlowToken, NodeSpec], None]]] = {
    "exclusive": gateways.exclusive,
    "parallel": gateways.parallel,
    "inclusive": gateways.inclusive,
    "complex": gateways.complex,
    "event_gateway": gateways.event_based,
    "start": _start,
    "catch": catching.catch,
    "throw": throwing.throw,
    "end": throwing.throw,
}
"""What happens at each kind of node; at the others it is an activity."""
