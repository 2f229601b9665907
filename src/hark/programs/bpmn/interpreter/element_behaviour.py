"""ElementBehaviour and EventBehaviour: the interface of the interpreter to kinds of nodes and kinds of events.

Each kind has one class: activity_kinds.py, event_places.py, gateways.py and event_kinds.py have them, with a registry
each. A BpmnGraph looks up those of its nodes once. A class has no state: an instance of it serves all processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from hark.model.decisions import Arm
    from hark.programs.bpmn.bpmn_spec import EventSpec, NodeSpec
    from hark.programs.bpmn.interpreter.execution import Execution
    from hark.programs.bpmn.interpreter.instance_state import Catcher, CatcherKind, FlowToken

Values = dict[str, Any]
"""Variables, by name."""


class ElementBehaviour:
    """A kind of node. By default, a token that comes to it goes on."""

    is_start: ClassVar[bool] = False
    """The tokens of a scope begin there."""
    is_activity: ClassVar[bool] = False
    """The element does work. What its event brings is its result: an `Activity` of activities.py."""
    scope_kind: ClassVar[Literal["local", "subprocess"]] = "local"
    """Of an activity: the scope that it has while it works; `local` only if it has a mapping."""
    is_catch: ClassVar[bool] = False
    """A token waits at it for its event, or before it: at an event gateway."""
    is_join: ClassVar[bool] = False
    """Tokens wait in it for other tokens."""
    joins_by_reach: ClassVar[bool] = False
    """The element is asked about the tokens that wait in it when all tokens of the process rest."""
    expects_tokens: ClassVar[bool] = False
    """The element, when it has gone on, remembers which incoming flows it still expects a token from."""
    awaits_targets: ClassVar[bool] = False
    """A token waits at it for the events of the nodes that follow."""
    has_handler: ClassVar[bool] = False
    """A handler does its work, in a service task."""
    after_throw: ClassVar[Literal["leave", "end"]] = "leave"
    """The next step of a token after what it threw has been handled."""

    def is_plain(self, node: NodeSpec) -> bool:
        """Return True if the element is over at once, and has nothing but a script."""
        return False

    def is_passed(self, node: NodeSpec, only_flow: int) -> bool:
        """Return True if one flow leaves the node and no token rests in it. `only_flow`: the one that all take, or
        -1."""
        return False

    def joins_at_rest(self, node: NodeSpec) -> bool:
        """Return True if its tokens are joined when no other one can come."""
        return False

    def enter(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        """Handle a token that has come to the node."""
        run.leave(token)

    def work(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        """Do the work of an activity once, or begin it. Its end is the action `ended`."""
        raise AssertionError(f"{node.kind} does no work")

    # -- when its event comes ------------------------------------------------------------------------

    def answer(self, run: Execution, token: FlowToken | None, payload: Any, by: str | None) -> Values | None:
        """The variables that came with its event; `by` is the person who gave an answer."""
        return payload if isinstance(payload, dict) else None

    def follow(self, run: Execution, token: FlowToken, node: NodeSpec) -> None:
        """Handle a token that has come from an event gateway, because the event of the node came."""

    def fired(self, run: Execution, token: FlowToken, catcher: Catcher, values: Values | None, taken: Values) -> None:
        """Let a token go on whose event has come.

        Args:
            run: The instance.
            token: The token that waits, or the host of a boundary event.
            catcher: What waited for the event; it is still there, unless it was a timer.
            values: The variables that came with the event.
            taken: Of an event: the variables to set.
        """
        raise AssertionError(f"node {catcher.node} does not wait for an event")


class EventBehaviour:
    """A kind of event. By default, it can be neither waited for nor thrown."""

    answered_by: ClassVar[CatcherKind | None] = None
    """The kind of its catchers; None: it is not waited for, because the process itself throws it."""
    is_mapped: ClassVar[bool] = False
    """The mapping of an event that throws it has local variables of its own."""

    def subscribe(self, run: Execution, event: EventSpec, catcher: Catcher, seen: int) -> None:
        """Set what a new catcher waits for. The expressions of the event see the variables of the scope `seen`."""

    def wait(self, run: Execution, catcher: Catcher, *, again: bool) -> Arm | None:
        """The wait of a catcher in the store, when it is armed first or by a retry; None: it has none.

        `again`: the event can come several times."""
        return None

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        """Throw the event for a token that has come to it."""
        raise AssertionError(f"{event.kind} cannot be thrown")

    def thrown(self, run: Execution, token: FlowToken, then: Literal["leave", "end"]) -> None:
        """Let the token go on: what it threw has been handled."""
        run.push(then, token)
