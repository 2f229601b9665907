"""The classes of all kinds of nodes; event_kinds.py has those of events."""

from __future__ import annotations

from typing import Final

from hark.model.bpmn_elements import NodeKind
from hark.programs.processes.activity_kinds import ACTIVITIES
from hark.programs.processes.element_behaviour import ElementBehaviour
from hark.programs.processes.event_places import EVENT_PLACES
from hark.programs.processes.gateways import GATEWAYS

ELEMENT_BEHAVIOURS: Final[dict[NodeKind, ElementBehaviour]] = {**EVENT_PLACES, **ACTIVITIES, **GATEWAYS}
