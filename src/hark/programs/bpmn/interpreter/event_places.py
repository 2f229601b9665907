"""The events by their place: a class for start, end, catch, throw and boundary events.

What they catch or throw is in event_kinds.py.
"""

from __future__ import annotations

from typing import Final

from hark.programs.bpmn.bpmn_elements import NodeKind
from hark.programs.bpmn.bpmn_spec import ROOT, NodeSpec
from hark.programs.bpmn.interpreter.catching import arm, arm_boundaries
from hark.programs.bpmn.interpreter.element_behaviour import ElementBehaviour, Values
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import Catcher, FlowToken
from hark.programs.bpmn.interpreter.mappings import begin_local


class StartEvent(ElementBehaviour):
    """The place where the tokens of a scope begin. That of an event sub-process waits for its event without a token."""

    is_start = True

    def is_passed(self, node: NodeSpec, only_flow: int) -> bool:
        return only_flow >= 0 and (node.event is None or node.scope != ROOT)

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        """Begin. An instance that was started by name waits for the condition of a start event that has one."""
        token.flow = -1
        if token.node in run.graph.waiting_starts:
            arm(run, token, token.node, token.scope)
        else:
            run.leave(token)

    def fired(self, run: Execution, token: FlowToken, catcher: Catcher, values: Values | None, taken: Values) -> None:
        run.disarm_token(token)
        for other in run.in_(token.scope):
            if other is not token and run.graph.elements[other.node].is_start:
                run.cancel_token(other)
        run.merge(token.scope, taken)
        run.push("leave", token)


class CatchEvent(ElementBehaviour):
    """A token waits at it."""

    is_catch = True

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        event = run.graph.events[token.node]
        if event is None or event.answered_by is None:  # the catching end of a link
            run.push("leave", token)
            return
        token.flow = -1
        if node.inputs:
            begin_local(run, token, node)
        if node.boundaries and arm_boundaries(run, token, node):
            return
        for number in run.graph.events_of(token.node):
            arm(run, token, number, token.local or token.scope)

    def fired(self, run: Execution, token: FlowToken, catcher: Catcher, values: Values | None, taken: Values) -> None:
        run.disarm_token(token)
        if token.local:
            run.remove_scope(token.local)
            token.local = 0
        run.merge(token.scope, taken)
        run.push("leave", token)


class ThrowEvent(ElementBehaviour):
    """A token throws its event, and goes on."""

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        event = run.graph.events[token.node]
        token.flow = -1
        if (node.inputs or node.outputs) and (event is None or event.is_mapped):
            begin_local(run, token, node)
        if event is None:
            run.push("thrown", token)
            return
        assert node.event is not None
        event.throw(run, token, node, node.event)


class EndEvent(ThrowEvent):
    """A token throws its event, and ends."""

    after_throw = "end"


class BoundaryEvent(ElementBehaviour):
    """Waits beside an activity, which it may interrupt."""

    def fired(self, run: Execution, token: FlowToken, catcher: Catcher, values: Values | None, taken: Values) -> None:
        number = run.graph.element_of[catcher.node]
        if run.graph.nodes[catcher.node].interrupting:
            run.cancel_work(token)
            token.node = number
        else:
            token = run.add_token(number, token.scope)
        run.entered[number] = run.entered.get(number, 0) + 1
        run.merge(token.scope, taken)
        run.push("leave", token)


EVENT_PLACES: Final[dict[NodeKind, ElementBehaviour]] = {
    "start": StartEvent(),
    "end": EndEvent(),
    "catch": CatchEvent(),
    "throw": ThrowEvent(),
    "boundary": BoundaryEvent(),
}
