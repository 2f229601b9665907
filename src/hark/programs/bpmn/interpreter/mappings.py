"""Apply input and output mappings: the local variables of an activity or an event."""

from __future__ import annotations

from typing import Any

from hark.programs.bpmn.bpmn_spec import NodeSpec
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import BpmnScope, FlowToken
from hark.programs.bpmn.interpreter.scope_variables import Variables, assigned, set_local


def begin_local(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """Give a token at an event the local variables that its mapping makes."""
    scope = BpmnScope(run.number(), token.node, token.scope, "local", token.id, mapped_inputs(run, node, token.scope))
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
    """The local variables that an activity begins with: those of a sub-process, and those that its mapping makes; each
    source sees those before it, and `given`."""
    variables = dict(node.variables)
    if node.inputs:
        seen = Variables([variables, given or {}, *run.layers(scope)])
        for each in node.inputs:
            set_local(variables, each.target, run.evaluate(each.source, seen))
    return variables


def taken_by(
    run: Execution, scope: int, node: NodeSpec, values: dict[str, Any] | None, local: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The values that an event puts into the variables: what came with it, and what its output mapping makes of that
    and of its local variables, which are in its scope or, behind an event gateway, still here."""
    taken = {} if values is None or (node.outputs and node.keeps_result) else dict(values)
    if not node.outputs:
        return taken
    seen = Variables([values or {}, local or {}, *run.layers(scope)])
    outputs = [(each.target.split("."), run.evaluate(each.source, seen)) for each in node.outputs]
    around = run.view(scope)
    for (name, *path), value in outputs:
        taken[name] = assigned(taken.get(name, around.get(name)), path, value)
    return taken
