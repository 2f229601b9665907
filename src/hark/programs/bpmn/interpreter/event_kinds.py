"""The kinds of events: a class for signals, messages, timers and so on, which waits for and throws them.

Signals and messages that are thrown are matched with the instance's own catchers first, old and new: what one of them
starts is handled before the token that threw goes on.
"""

from __future__ import annotations

from typing import Final, Literal

from hark.model import json
from hark.model.decisions import Arm, SendBroadcast
from hark.programs.bpmn.bpmn_elements import EventKind
from hark.programs.bpmn.bpmn_spec import EventSpec, NodeSpec
from hark.programs.bpmn.interpreter import catching, compensation, mappings, terminating, throwing
from hark.programs.bpmn.interpreter.element_behaviour import EventBehaviour
from hark.programs.bpmn.interpreter.execution import Execution
from hark.programs.bpmn.interpreter.instance_state import Catcher, FlowToken
from hark.programs.bpmn.interpreter.timers import first_due


class NoneEvent(EventBehaviour):
    """Throws nothing."""

    is_mapped = True

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        run.push("thrown", token)


class SignalEvent(EventBehaviour):
    """A broadcast: it has many receivers, and is matched by its name."""

    answered_by = "broadcast"
    is_mapped = True

    def subscribe(self, run: Execution, event: EventSpec, catcher: Catcher, seen: int) -> None:
        catcher.name = catching.name_of(run, event, seen, "signal")

    def wait(self, run: Execution, catcher: Catcher, *, again: bool) -> Arm:
        return Arm(
            "broadcast", run.wait_id(catcher.id), run.place_of(catcher), catcher.name, answers_each=again, fresh=True
        )

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        name = catching.name_of(run, event, token.local or token.scope, "signal")
        payload = throwing.payload_of(run, token, event)
        run.effects.append(SendBroadcast(name, json.dump(payload), skip_sender=True))
        run.push("thrown", token)
        for id in reversed(run.named.get(("broadcast", name), {})):
            run.push("fire", None, (id, payload))


class MessageEvent(EventBehaviour):
    """Has one receiver, and is matched by its name and key."""

    answered_by = "message"

    def subscribe(self, run: Execution, event: EventSpec, catcher: Catcher, seen: int) -> None:
        catcher.name = catching.name_of(run, event, seen, "message")
        catcher.key = catching.message_key(run, event, seen)

    def wait(self, run: Execution, catcher: Catcher, *, again: bool) -> Arm:
        id, place = run.wait_id(catcher.id), run.place_of(catcher)
        return Arm("message", id, place, catcher.name, catcher.key, answers_each=again)

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        throwing.send_message(run, token, node, "thrown")


class TimerEvent(EventBehaviour):
    """Comes with time, once or repeatedly."""

    answered_by = "timer"

    def subscribe(self, run: Execution, event: EventSpec, catcher: Catcher, seen: int) -> None:
        catcher.name = catching.timer_text(run, event, seen)
        assert event.timer is not None
        catcher.due, catcher.left = first_due(event.timer, catcher.name, run.now)

    def wait(self, run: Execution, catcher: Catcher, *, again: bool) -> Arm:
        return Arm("timer", run.wait_id(catcher.id), run.place_of(catcher), deadline=catcher.due)


class ConditionalEvent(EventBehaviour):
    """Comes when a condition holds. It has no wait in the store: only this instance changes its variables."""

    answered_by = "condition"


class ErrorEvent(EventBehaviour):
    """Goes to the innermost catcher, or fails the instance."""

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        code, message = throwing.code_of(run, token, event), throwing.message_of(run, token, event)
        throwing.raise_error(run, token, throwing.Thrown("error", code, message), "enter")


class EscalationEvent(EventBehaviour):
    """Goes to the innermost catcher, if there is one; the token goes on."""

    is_mapped = True

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        code = throwing.code_of(run, token, event)
        run.push("thrown", token)
        throwing.escalate(run, token, throwing.Thrown("escalation", code))


class CompensationEvent(EventBehaviour):
    """Runs the handlers of activities that have completed."""

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        compensation.throw(run, token, event.activity)


class CancelEvent(EventBehaviour):
    """Cancels the transaction around it, which is left by its cancel boundary event."""

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        throwing.cancel_transaction(run, token)

    def thrown(self, run: Execution, token: FlowToken, then: Literal["leave", "end"]) -> None:
        throwing.leave_transaction(run, token, self)


class TerminateEvent(EventBehaviour):
    """Ends its scope, the loop around it or the instance."""

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        terminating.terminate(run, token, event)


class LinkEvent(EventBehaviour):
    """A token goes on at the event that catches the link."""

    is_mapped = True

    def throw(self, run: Execution, token: FlowToken, node: NodeSpec, event: EventSpec) -> None:
        if token.local:
            mappings.end_local(run, token, node)
        token.node = run.graph.link_target(node)
        run.push("enter", token)


EVENT_BEHAVIOURS: Final[dict[EventKind, EventBehaviour]] = {
    "none": NoneEvent(),
    "signal": SignalEvent(),
    "message": MessageEvent(),
    "timer": TimerEvent(),
    "error": ErrorEvent(),
    "escalation": EscalationEvent(),
    "conditional": ConditionalEvent(),
    "compensation": CompensationEvent(),
    "cancel": CancelEvent(),
    "terminate": TerminateEvent(),
    "link": LinkEvent(),
}
