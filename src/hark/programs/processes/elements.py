"""The registry of elements: the class of each kind of node and of each kind of event.

A new kind is a row in model/bpmn_elements.py and a class here; docs/contributing/recipes-bpmn-element.md has the rest.
"""

from __future__ import annotations

from typing import Final

from hark.model.bpmn_elements import EventKind, NodeKind
from hark.programs.processes import activity_kinds, event_kinds, event_places, gateways
from hark.programs.processes.element_behaviour import ElementBehaviour, EventBehaviour

ELEMENT_BEHAVIOURS: Final[dict[NodeKind, ElementBehaviour]] = {
    "start": event_places.StartEvent(),
    "end": event_places.EndEvent(),
    "catch": event_places.CatchEvent(),
    "throw": event_places.ThrowEvent(),
    "boundary": event_places.BoundaryEvent(),
    "task": activity_kinds.EmptyTask(),
    "service": activity_kinds.ServiceTask(),
    "send": activity_kinds.SendTask(),
    "script": activity_kinds.ScriptTask(),
    "user": activity_kinds.UserTask(),
    "receive": activity_kinds.ReceiveTask(),
    "subprocess": activity_kinds.SubProcess(),
    "call": activity_kinds.CallActivity(),
    "exclusive": gateways.ExclusiveGateway(),
    "parallel": gateways.ParallelGateway(),
    "inclusive": gateways.InclusiveGateway(),
    "complex": gateways.ComplexGateway(),
    "event_gateway": gateways.EventGateway(),
}
EVENT_BEHAVIOURS: Final[dict[EventKind, EventBehaviour]] = {
    "none": event_kinds.NoneEvent(),
    "signal": event_kinds.SignalEvent(),
    "message": event_kinds.MessageEvent(),
    "timer": event_kinds.TimerEvent(),
    "error": event_kinds.ErrorEvent(),
    "escalation": event_kinds.EscalationEvent(),
    "conditional": event_kinds.ConditionalEvent(),
    "compensation": event_kinds.CompensationEvent(),
    "cancel": event_kinds.CancelEvent(),
    "terminate": event_kinds.TerminateEvent(),
    "link": event_kinds.LinkEvent(),
}
