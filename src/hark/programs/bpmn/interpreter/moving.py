"""Move tokens: they enter a node, leave it by its flows, and end."""

from __future__ import annotations

from typing import Any

from hark.programs.bpmn.interpreter import activities, gateways, scopes
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import FlowToken
from hark.programs.bpmn.interpreter.scope_variables import StuckToken


def enter(run: Execution, token: FlowToken, data: Any) -> None:
    """Let a token enter a node. It goes on at once through the nodes that it only passes: most files have many."""
    graph, entered, taken = run.graph, run.entered, run.flows_taken
    while True:
        number = token.node
        entered[number] = entered.get(number, 0) + 1
        node = graph.nodes[number]
        if not graph.is_passed[number]:
            graph.enter[number](run, token, node)
            return
        token.flow = -1
        if node.script is not None:
            activities.run_script(run, token, node)
        flow = graph.only_flow[number]
        if flow < 0:
            flow = gateways.chosen_flow(run, token, node)
        token.node, token.flow = graph.targets[flow], flow
        taken[flow] = taken.get(flow, 0) + 1
        run.done += 1
        if run.changes or run.done >= run.pause_at:
            run.push("enter", token)
            return


def leave(run: Execution, token: FlowToken, data: Any) -> None:
    """Let a token leave by the outgoing flows of its node: all without a condition, and those whose condition holds."""
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
    """End a token at the end of its path."""
    run.remove_token(token)
    scopes.may_end(run, token.scope)
