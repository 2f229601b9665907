"""How tokens move: they enter a node, leave it by its flows, and end."""

from __future__ import annotations

from typing import Any

from hark.programs.processes import activities, catching, gateways, scopes, throwing
from hark.programs.processes.execution import Execution
from hark.programs.processes.state import FlowToken
from hark.programs.processes.variables import StuckToken


def enter(run: Execution, token: FlowToken, data: Any) -> None:
    """A token has come to a node."""
    run.entered[token.node] = run.entered.get(token.node, 0) + 1
    node = run.node(token)
    match node.kind:
        case "exclusive":
            gateways.exclusive(run, token, node)
        case "parallel":
            gateways.parallel(run, token, node)
        case "inclusive":
            gateways.inclusive(run, token, node)
        case "complex":
            gateways.complex(run, token, node)
        case "event_gateway":
            gateways.event_based(run, token, node)
        case "start":
            run.push("leave", token)
        case "catch":
            catching.catch(run, token, node)
        case "throw" | "end":
            throwing.throw(run, token, node)
        case _:
            activities.enter(run, token, node)


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
