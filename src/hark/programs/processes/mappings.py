"""Input and output mappings: the local variables of an activity or an event."""

from __future__ import annotations

from typing import Any

from hark.model.process import NodeSpec
from hark.programs.processes.execution import Execution
from hark.programs.processes.state import FlowToken, ProcessScope
from hark.programs.processes.variables import Variables, set_local


def begin_local(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """Give a token at an event the local variables that its mapping makes."""
    scope = ProcessScope(
        run.number(), token.node, token.scope, "local", token.id, mapped_inputs(run, node, token.scope)
    )
    run.scopes[scope.id] = scope
    token.local = scope.id


def end_local(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """Take the outputs of an event's mapping, and forget its local variables."""
    seen = run.view(token.local)
    given = [(each.target, run.evaluate(each.source, seen)) for each in node.outputs]
    run.remove_scope(token.local)
    token.local = 0
    for target, value in given:
        run.assign(token.scope, target, value)


def mapped_inputs(run: Execution, node: NodeSpec, scope: int, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """The local variables that the mapping of an activity makes; each source sees those before it, and `given`."""
    variables: dict[str, Any] = {}
    if node.inputs:
        seen = Variables([variables, given or {}, *run.layers(scope)])
        for each in node.inputs:
            set_local(variables, each.target, run.evaluate(each.source, seen))
    return variables
