"""Wait for events: a catcher for each, with a wait in the store that has its number.

What happens when an event comes is in firing.py.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from hark.model.errors import InvalidInput
from hark.programs.bpmn.bpmn_spec import EventSpec, NodeSpec
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import Catcher, FlowToken, Unarmed
from hark.programs.bpmn.interpreter.scope_variables import StuckToken, VariableChange, as_name
from hark.programs.bpmn.interpreter.timers import parse_end
from hark.programs.expressions import ExpressionError


def arm(run: Execution, token: FlowToken | None, number: int, scope: int, *, again: bool = False) -> bool:
    """Wait for the event of a node, for a token, or to start an event sub-process of a scope.

    The expressions of a boundary event see the local variables of its host.

    Args:
        run: The instance.
        token: The token whose event it is, the host of a boundary event; None: of an event sub-process.
        number: The node with the event.
        scope: The scope of the token, or that of the event sub-process.
        again: The event can come several times: it does not interrupt.

    Returns:
        Whether it is a condition that holds already.
    """
    graph = run.graph
    event, behaviour = graph.nodes[number].event, graph.events[number]
    assert event is not None
    assert behaviour is not None
    assert behaviour.answered_by is not None, f"an event of kind {event.kind} cannot be waited for"
    of = 0 if token is None else token.id
    seen = scope if token is None else token.local or scope
    catcher = Catcher(run.number(), number, of, scope, behaviour.answered_by)
    behaviour.subscribe(run, event, catcher, seen)
    if catcher.left == 0:
        return False  # the cycle of a timer is over
    new = behaviour.wait(run, catcher, again=again)
    run.add_catcher(catcher, new)
    holds = new is None and _condition_holds(run, catcher, event)
    if holds:
        run.push("fire", None, (catcher.id, None))
    return holds


def arm_boundaries(run: Execution, token: FlowToken, node: NodeSpec) -> bool:
    """Wait for the boundary events of an activity. After an incident they are armed already.

    Returns whether one of them interrupts the activity before it begins: its condition holds."""
    if token.id in run.of_token:
        return False
    interrupts = False
    for number in node.boundaries:
        boundary, event = run.graph.nodes[number], run.graph.events[number]
        if event is not None and event.answered_by is not None:
            with _Naming(boundary):
                if arm(run, token, number, token.scope, again=not boundary.interrupting) and boundary.interrupting:
                    interrupts = True
    return interrupts


def arm_event_subprocesses(run: Execution, scope: int) -> None:
    """Wait for the start events of the event sub-processes in a scope."""
    for each in run.graph.event_subprocesses(run.scopes[scope].node):
        event = run.graph.events[each.start_number]
        if event is not None and event.answered_by is not None:
            with _Naming(each.start):
                arm(run, None, each.start_number, scope, again=not each.start.interrupting)


class _Naming:
    """Names an event in the error of its expressions: the token that waits for it is at another element."""

    def __init__(self, node: NodeSpec) -> None:
        self._node = node

    def __enter__(self) -> None:  # a class: `contextmanager` takes twice the time
        pass

    def __exit__(self, type: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, ExpressionError | StuckToken):
            raise StuckToken(f"the event {self._node.id!r} (line {self._node.line}): {error}") from error


def arm_added(run: Execution, token: FlowToken | None, data: Unarmed) -> None:
    """Wait for an event that the instance has to wait for since it was migrated."""
    node, scope = run.graph.nodes[data.node], run.scopes.get(data.scope)
    if token is None and (scope is None or scope.interrupted):
        return  # a retry comes too late
    if token is not None and node.host not in (None, token.node):
        return
    with _Naming(node):
        arm(run, token, data.node, data.scope, again=not node.interrupting)


def arm_each(run: Execution, catcher: Catcher) -> None:
    """Arm the wait of a catcher again, because its event does not interrupt any more: it may come several times."""
    new = structs.replace(catcher, id=run.number())
    behaviour = run.graph.events[catcher.node]
    assert behaviour is not None
    run.remove_catcher(catcher)
    run.add_catcher(new, behaviour.wait(run, new, again=True))


def arm_timer_again(run: Execution, catcher: Catcher, due: int) -> None:
    """Arm the timer of a cycle for its next time."""
    left = None if catcher.left is None else catcher.left - 1
    new = structs.replace(catcher, id=run.number(), due=due, left=left)
    behaviour = run.graph.events[catcher.node]
    assert behaviour is not None
    run.add_catcher(new, behaviour.wait(run, new, again=True))


def end_of_cycle(run: Execution, catcher: Catcher, node: NodeSpec) -> int | None:
    """The time after which a timer does not fire, µs since 1970; None: there is none. As in Flowable, it is evaluated
    when the timer is due, so it can be decided while the timer runs."""
    if catcher.kind != "timer" or node.event is None or node.event.until is None:
        return None
    with _Naming(node):
        value = run.evaluate(node.event.until, run.view(_seen_by(run, catcher)))
        try:
            return parse_end(value)
        except InvalidInput as error:
            raise StuckToken(f"the end date of the timer: {error}") from error


def check_conditions(run: Execution) -> None:
    """Fire the conditions that hold after variables have changed."""
    changes, run.changes = run.changes, []
    fired = []
    for catcher in run.conditions.values():
        event = run.graph.nodes[catcher.node].event
        assert event is not None
        with _Naming(run.graph.nodes[catcher.node]):
            if _concerns(run, catcher, event, changes) and _condition_holds(run, catcher, event):
                fired.append(catcher.id)
    for id in reversed(fired):
        run.push("fire", None, (id, None))


def _concerns(run: Execution, catcher: Catcher, event: EventSpec, changes: list[VariableChange]) -> bool:
    """Return True if one of the changes is a reason to look at a condition."""
    seen = {0, *(scope.id for scope in run.scopes_around(_seen_by(run, catcher)))}
    names, kinds = event.variables, event.changes
    return any(
        change.scope in seen and (not names or change.name in names) and (not kinds or change.kind in kinds)
        for change in changes
    )


def _condition_holds(run: Execution, catcher: Catcher, event: EventSpec) -> bool:
    assert event.condition is not None
    return run.holds(event.condition, run.view(_seen_by(run, catcher)))


def _seen_by(run: Execution, catcher: Catcher) -> int:
    """The scope whose variables a condition sees: that of its host, if that has its own."""
    return (catcher.token and run.tokens[catcher.token].local) or catcher.scope


def name_of(run: Execution, event: EventSpec, scope: int, what: str) -> str:
    """The name of a signal or a message."""
    return as_name(run.evaluate(event.name, run.view(scope)), f"name of the {what}")


def message_key(run: Execution, event: EventSpec, scope: int) -> str:
    """The correlation key of a message: as its event says, or that of the instance, or its id."""
    if event.key is None:
        return run.key or run.id
    return as_name(run.evaluate(event.key, run.view(scope)), "correlation key")


def timer_text(run: Execution, event: EventSpec, scope: int) -> str:
    value: Any = run.evaluate(event.text, run.view(scope))
    if not isinstance(value, str):
        raise StuckToken("the timer has no text: write an ISO 8601 date, duration or repeating interval")
    return value
