"""Gather the classes of all kinds of nodes; event_kinds.py has those of events."""

from __future__ import annotations

from typing import Final

from hark.programs.bpmn.bpmn_elements import NodeKind
from hark.programs.bpmn.interpreter.activity_kinds import ACTIVITIES
from hark.programs.bpmn.interpreter.element_behaviour import ElementBehaviour
from hark.programs.bpmn.interpreter.event_places import EVENT_PLACES
from hark.programs.bpmn.interpreter.gateways import GATEWAYS

ELEMENT_BEHAVIOURS: Final[dict[NodeKind, ElementBehaviour]] = {**EVENT_PLACES, **ACTIVITIES, **GATEWAYS}
