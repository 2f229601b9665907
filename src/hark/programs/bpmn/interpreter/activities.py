"""Run activities: a token begins one, its work is done, and it goes on.

`enter` begins the loop of an activity, if it has one; `body` does the work once; `ended` takes its result; `iterated`
goes on with the loop; `completed` leaves the activity for good. The work of each kind is in activity_kinds.py.
"""

from __future__ import annotations

from typing import Any, ClassVar

from hark.programs.bpmn.bpmn_spec import CallSpec, NodeSpec
from hark.programs.bpmn.interpreter import catching, compensation, loops
from hark.programs.bpmn.interpreter.element_behaviour import ElementBehaviour, Values
from hark.programs.bpmn.interpreter.execution import RETRIED, Execution
from hark.programs.bpmn.interpreter.instance_state import BpmnScope, Catcher, FlowToken
from hark.programs.bpmn.interpreter.mappings import begin_local, mapped_inputs
from hark.programs.bpmn.interpreter.scope_variables import StuckToken, Variables, set_local
from hark.programs.bpmn.interpreter.skips import skips_are_on
from hark.programs.expressions import ExpressionError


class Activity(ElementBehaviour):
    """A kind of activity. By default, its work is over at once and has no result."""

    is_activity = True
    is_instant: ClassVar[bool] = False
    """The work is over at once: a token may pass the activity."""

    def is_plain(self, node: NodeSpec) -> bool:
        has_more = node.inputs or node.outputs or node.boundaries or node.for_compensation or node.skip
        return self.is_instant and not has_more and node.loop is None and node.compensation is None

    def is_passed(self, node: NodeSpec, only_flow: int) -> bool:
        return only_flow >= 0 and self.is_plain(node)

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        token.flow = -1
        if run.graph.is_plain[token.node]:
            if node.script is not None:
                run_script(run, token, node)
            run.leave(token)
        elif node.loop is None:
            body(run, token, None)
        elif not catching.arm_boundaries(run, token, node):
            loops.begin(run, token, node)

    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        ended(run, token, None)

    def follow(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        begin_local(run, token, node)

    def fired(self, run: Execution, token: FlowToken, catcher: Catcher, values: Values | None, taken: Values) -> None:
        if catcher.id in run.catchers:
            run.remove_catcher(catcher, answered=True)
        run.push("ended", token, values)


def run_script(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """Do everything that a plain script task does."""
    result = run.evaluate(node.script, run.view(token.scope))
    run.merge(token.scope, _values(run, token, node, result))


def body(run: Execution, token: FlowToken, data: Any) -> None:
    """Do the work of an activity, or of one instance of it."""
    node = run.node(token)
    if node.skip is not None and _is_skipped(run, token, node.skip):
        _skip(run, token, node)
        return
    activity = run.graph.elements[token.node]
    variables = mapped_inputs(run, node, token.scope)
    if node.inputs or node.outputs or activity.scope_kind != "local":
        local = BpmnScope(run.number(), token.node, token.scope, activity.scope_kind, token.id, variables)
        run.scopes[local.id] = local
        token.local = local.id
    if node.boundaries and not run.is_iteration(token) and catching.arm_boundaries(run, token, node):
        return
    activity.work(run, token, node)


def child(run: Execution, token: FlowToken, data: Any) -> None:
    """Start the child that does the work, or run it again; the work that failed may be skipped now."""
    node = run.node(token)
    if data == RETRIED and node.skip is not None and _is_skipped(run, token, node.skip):
        if token.local:
            run.remove_scope(token.local)
            token.local = 0
        token.child = 0
        _skip(run, token, node)
    else:
        run.children.start(run, token, data)


def _is_skipped(run: Execution, token: FlowToken, condition: str) -> bool:
    variables = run.view(token.scope)
    return skips_are_on(variables) and run.holds(condition, variables)


def _skip(run: Execution, token: FlowToken, node: NodeSpec) -> None:
    """End the activity, or one instance of it, without its work and without a result."""
    if run.is_iteration(token):
        if node.result is not None:
            run.scopes[token.scope].variables[node.result] = None  # not the result of the instance before
        run.push("iterated", token)
        return
    compensation.record(run, token.scope, token.node, node, token.scope, [])
    completed(run, token, None)


def seen_by(token: FlowToken) -> int:
    """The scope whose variables the work of a token sees."""
    return token.local or token.scope


def ended(run: Execution, token: FlowToken, result: Any) -> None:
    """Take the result of an activity, or of one instance of it, whose work has ended."""
    node = run.node(token)
    values = _values(run, token, node, result)
    inner = seen_by(token)
    records = run.scopes[token.local].records if token.local else []
    given: list[tuple[str, Any]] = []
    if node.outputs:
        seen = Variables([values, *run.layers(inner)])
        given = [(each.target, run.evaluate(each.source, seen)) for each in node.outputs]
    if node.result_is_local:
        run.scopes[token.scope].variables |= values
    elif values and not node.keeps_result:
        run.merge(inner, values)
    token.child = 0
    own: dict[str, Any] = {}
    if token.local:
        own = run.scopes[token.local].variables
        if node.outputs:
            own = own | values
        run.remove_scope(token.local)
        token.local = 0
    for target, value in given:
        run.assign(token.scope, target, value)
    if run.is_iteration(token):
        if own and node.loop is not None and node.loop.output is not None:
            # The output of this instance sees what was mapped to it and, beside output mappings, what it returned.
            targets = {target.partition(".")[0] for target, _ in given}
            run.scopes[token.scope].variables |= {name: own[name] for name in own.keys() - targets}
        run.scopes[token.scope].records = records
        run.disarm_token(token)
        try:
            iterated(run, token, None)
        except (ExpressionError, StuckToken) as error:  # its result is taken: a retry must not take it again
            raise StuckToken(str(error), "iterated") from error
        return
    if node.loop is None:
        compensation.record(run, token.scope, token.node, node, token.scope, records)
    completed(run, token, None)


def iterated(run: Execution, token: FlowToken, data: Any) -> None:
    """Go on with the loop: one instance of it has ended, and its result is taken."""
    loops.iteration_ended(run, token, run.node(token))


def completed(run: Execution, token: FlowToken, data: Any) -> None:
    """Leave an activity that has completed, with all its instances: its boundary events do not count any more."""
    run.disarm_token(token)
    run.leave(token)


def _values(run: Execution, token: FlowToken, node: NodeSpec, result: Any) -> dict[str, Any]:
    if node.call is not None:
        return _from_called(run, token, node.call, result)
    if node.result is not None:
        return {node.result: result}
    return result if isinstance(result, dict) else {}


def _from_called(run: Execution, token: FlowToken, call: CallSpec, result: Any) -> dict[str, Any]:
    """The variables that come out of a called process."""
    returned: dict[str, Any] = result if isinstance(result, dict) else {}
    values = dict(returned) if call.all_out else {}
    for each in call.outputs:
        set_local(values, each.target, run.evaluate(each.source, returned))
    return values
