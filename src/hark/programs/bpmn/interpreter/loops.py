"""Run loops: multi-instance activities, and standard loops.

The token of the activity owns a scope of kind `loop`. In it, each instance that has begun has a scope of kind
`iteration`, with the counter and the item, and a token of its own at the same node.
"""

from __future__ import annotations

import re
from typing import Any

from hark.programs.bpmn.bpmn_spec import LoopSpec, NodeSpec
from hark.programs.bpmn.interpreter import compensation
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import BpmnScope, FlowToken, LoopState
from hark.programs.bpmn.interpreter.scope_variables import StuckToken, Variables

MAX_INSTANCES = 100_000
_OUTPUT = re.compile(r"=\s*([^\W\d]\w*)(?:\.\w+)*\s*")  # an output that is a variable, or a part of one


def begin(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """Begin the loop of the activity at which a token is."""
    spec = node.loop
    assert spec is not None
    loop = LoopState()
    items: list[Any] | None = None
    if spec.kind != "standard":
        items, loop.total = _instances(run, token, spec)
        if spec.output_collection is not None:
            loop.outputs = [None] * loop.total
        if spec.kind == "sequential":
            loop.items = items
    scope = BpmnScope(run.number(), token.node, token.scope, "loop", token.id, loop=loop)
    run.scopes[scope.id] = scope
    token.local = scope.id
    if spec.kind == "standard":
        if spec.maximum == 0 or (spec.test_before and not _repeats(run, scope, spec)):
            _end(run, token, spec)
        else:
            _start(run, token, scope, spec, 0, None)
        return
    _count(scope, 0)
    if not loop.total:
        _end(run, token, spec)
    elif spec.kind == "sequential":
        _start(run, token, scope, spec, 0, items)
    else:
        for number in reversed(range(loop.total)):
            _start(run, token, scope, spec, number, items)
        _count(scope, loop.total)


def iteration_ended(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """Go on after one instance has ended; its token is removed."""
    iteration = run.scopes[token.scope]
    scope = run.scopes[iteration.parent]
    spec, loop = node.loop, scope.loop
    assert spec is not None
    assert loop is not None
    owner = run.tokens[scope.owner]
    number = iteration.variables["loopCounter"]
    if loop.outputs is not None and spec.output is not None:
        loop.outputs[number] = run.evaluate(spec.output, run.view(iteration.id))
    loop.completed += 1
    try:
        is_done = _is_done(run, scope, loop, iteration, spec)
    except BaseException:
        loop.completed -= 1  # a retry ends this instance again
        raise
    compensation.record(run, scope.id, token.node, node, iteration.id, iteration.records)
    run.remove_token(token)
    run.remove_scope(iteration.id)
    if is_done:
        _end(run, owner, spec)
    elif spec.kind != "parallel":
        _start(run, owner, scope, spec, loop.completed, loop.items)


def _is_done(run: Execution, scope: BpmnScope, loop: LoopState, iteration: BpmnScope, spec: LoopSpec) -> bool:
    if spec.kind == "standard":
        is_last = spec.maximum is not None and loop.completed >= spec.maximum  # a migration may lower it
        return is_last or not _repeats(run, iteration, spec)
    _count(scope, 0 if spec.kind == "sequential" else loop.total - loop.completed)
    if spec.completion is not None:
        layers = [*run.layers(iteration.id), _zeebe_counts(scope)]
        if run.holds(spec.completion, Variables(layers)):
            return True
    return loop.completed == loop.total


def _start(
    run: Execution, token: FlowToken, scope: BpmnScope, spec: LoopSpec, number: int, items: list[Any] | None
) -> None:
    variables: dict[str, Any] = {"loopCounter": number}
    own = _OUTPUT.fullmatch(spec.output) if isinstance(spec.output, str) else None
    if own is not None:
        variables.setdefault(own[1], None)  # so that each instance has its own
    if items is not None and spec.item is not None:
        variables[spec.item] = items[number]
    iteration = BpmnScope(run.number(), token.node, scope.id, "iteration", token.id, variables)
    run.add_inner(iteration)
    run.push("body", run.add_token(token.node, iteration.id))
    if spec.kind == "sequential":
        _count(scope, 1)


def _end(run: Execution, token: FlowToken, spec: LoopSpec) -> None:
    """End the loop: cancel the instances that are left, and go on."""
    scope = run.scopes[token.local]
    outputs = None if scope.loop is None else scope.loop.outputs
    compensation.keep(run, token.scope, scope.records)  # only now has the activity completed
    run.remove_scope(scope.id)
    token.local = 0
    if outputs is not None and spec.output_collection is not None:
        run.assign(token.scope, spec.output_collection, outputs)
    run.push("completed", token)


def stop(run: Execution, token: FlowToken) -> None:
    """End the loop of a token at once, without outputs and without anything to compensate, and go on behind it."""
    run.remove_scope(token.local)
    token.local = 0
    run.push("completed", token)


def _instances(run: Execution, token: FlowToken, spec: LoopSpec) -> tuple[list[Any] | None, int]:
    """The items of a multi-instance, if it has a collection, and how many instances there are."""
    variables = run.view(token.scope)
    if spec.collection is None:
        number = run.evaluate(spec.cardinality, variables)
        if isinstance(number, str) and number.strip().isdecimal():
            number = int(number)
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise StuckToken("the number of instances has to be a whole number that is not negative")
        _check(number)
        return None, number
    items = run.evaluate(spec.collection, variables)
    if isinstance(items, str) and items == spec.collection:  # the name of a variable
        if items not in variables:
            raise StuckToken(f"the collection {items!r} is not among the variables")
        items = variables[items]
    if not isinstance(items, list):
        raise StuckToken("the collection is not a list")
    _check(len(items))
    return list(items), len(items)


def _check(number: int) -> None:
    if number > MAX_INSTANCES:
        raise StuckToken(f"{number} instances are more than the {MAX_INSTANCES} that an activity can have")


def _count(scope: BpmnScope, active: int) -> None:
    loop = scope.loop
    assert loop is not None
    scope.variables["nrOfInstances"] = loop.total
    scope.variables["nrOfCompletedInstances"] = loop.completed
    scope.variables["nrOfActiveInstances"] = active


def _zeebe_counts(scope: BpmnScope) -> dict[str, Any]:
    """The counts with the names that they have in Camunda 8."""
    counts = scope.variables
    return {
        "numberOfInstances": counts["nrOfInstances"],
        "numberOfActiveInstances": counts["nrOfActiveInstances"],
        "numberOfCompletedInstances": counts["nrOfCompletedInstances"],
        "numberOfTerminatedInstances": 0,
    }


def _repeats(run: Execution, scope: BpmnScope, spec: LoopSpec) -> bool:
    counter = {"loopCounter": 0 if scope.kind == "loop" else scope.variables["loopCounter"]}
    return spec.condition is None or run.holds(spec.condition, Variables([counter, *run.layers(scope.id)]))
