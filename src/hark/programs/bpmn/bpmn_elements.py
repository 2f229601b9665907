"""The table of BPMN elements: a row for each node of a BPMN file, and one for each event definition.

The reader (programs/bpmn/file/), the interpreter (programs/bpmn/interpreter/) and the drawing look up a row instead of
testing for names. A row has only data. What an element does is in registries, which tests/bpmn/test_registries.py
compares with this table: how a token runs it (programs/bpmn/interpreter/elements.py, event_kinds.py), how its XML is
read and checked (programs/bpmn/file/element_readers.py, read_events.py), and its symbol
(programs/bpmn/drawing/drawing_symbols.py). docs/contributing/recipes/bpmn-element.md tells how to add one.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

NodeKind = Literal[
    "start", "end", "catch", "throw", "boundary",
    "task", "service", "send", "script", "user", "receive", "subprocess", "call",
    "exclusive", "parallel", "inclusive", "complex", "event_gateway",
]  # fmt: skip
EventKind = Literal[
    "none", "signal", "message", "timer", "error", "escalation", "conditional", "compensation", "cancel", "terminate",
    "link",
]  # fmt: skip
Family = Literal["event", "task", "subprocess", "call", "gateway"]
EventPlace = Literal["start", "inner start", "event start", "boundary", "catch", "throw", "end"]


class ElementRow(NamedTuple):
    """An element that is a node.

    Attributes:
        tag: Its name in the file, with the prefix that the reader gives the namespace of BPMN.
        kind: The kind of its node, unless the reader finds another: a send task with a handler is a `service`.
        family: Its shape and size in the drawing; tasks, sub-processes and calls are activities.
        words: Its name in the drawing.
        throws: Of an event: it throws.
        rim: Of an event: its outline.
        interrupting: Of an event: the attribute that says whether it interrupts.
        is_transaction: It is a sub-process that can be cancelled.
        marker: The marker at its lower edge.
        refused: The problem that is reported if a process has it.
    """

    tag: str
    kind: NodeKind
    family: Family
    words: str
    throws: bool = False
    rim: Literal["single", "double", "thick"] = "single"
    interrupting: str | None = None
    is_transaction: bool = False
    marker: str | None = None
    refused: str | None = None

    @property
    def is_activity(self) -> bool:
        """Return True if the element is a task, a sub-process or a call activity."""
        return self.family in ("task", "subprocess", "call")


class EventKindRow(NamedTuple):
    """A kind of event that can be caught or thrown.

    Attributes:
        name: The short name of its definition: `timer`, `compensate`; empty: an event without a definition.
        kind: The kind of its EventSpec.
        places: Where it can be.
        always_interrupts: It interrupts, whatever the file says.
        has_one_catcher: Of two events in one place that catch the same one, the second would never catch it.
        has_one_receiver: One instance receives it, so two start events cannot wait for the same one.
        compensates: It starts a compensation.
        is_link: Its two ends are connected by a name instead of a flow.
        combines: It can be one of several events of an element: if it is thrown, the token goes on.
        comes_from_outside: A token that waits can get it: it is sent, or due, or becomes true.
        begins_by_itself: An instance that is started by name waits for it at its start event.
    """

    name: str
    kind: EventKind
    places: tuple[EventPlace, ...]
    always_interrupts: bool = False
    has_one_catcher: bool = False
    has_one_receiver: bool = False
    compensates: bool = False
    is_link: bool = False
    combines: bool = False
    comes_from_outside: bool = False
    begins_by_itself: bool = False

    @property
    def tag(self) -> str | None:
        """The name of its definition in the file; None if it has none."""
        return f"bpmn:{self.name}EventDefinition" if self.name else None


_AD_HOC = "Hark does not execute ad-hoc sub-processes. Use a sub-process with flows."

ELEMENTS: Final = {
    row.tag: row
    for row in (
        ElementRow("bpmn:startEvent", "start", "event", "start event", interrupting="isInterrupting"),
        ElementRow("bpmn:endEvent", "end", "event", "end event", throws=True, rim="thick"),
        ElementRow("bpmn:intermediateCatchEvent", "catch", "event", "intermediate catch event", rim="double"),
        ElementRow(
            "bpmn:intermediateThrowEvent", "throw", "event", "intermediate throw event", throws=True, rim="double"
        ),
        ElementRow(
            "bpmn:boundaryEvent", "boundary", "event", "boundary event", rim="double", interrupting="cancelActivity"
        ),
        ElementRow("bpmn:task", "task", "task", "task"),
        ElementRow("bpmn:manualTask", "task", "task", "manual task"),
        ElementRow("bpmn:serviceTask", "service", "task", "service task"),
        ElementRow("bpmn:businessRuleTask", "service", "task", "business rule task"),
        ElementRow("bpmn:sendTask", "send", "task", "send task"),
        ElementRow("bpmn:scriptTask", "script", "task", "script task"),
        ElementRow("bpmn:userTask", "user", "task", "user task"),
        ElementRow("bpmn:receiveTask", "receive", "task", "receive task"),
        ElementRow("bpmn:subProcess", "subprocess", "subprocess", "sub-process"),
        ElementRow("bpmn:transaction", "subprocess", "subprocess", "transaction", is_transaction=True),
        ElementRow(
            "bpmn:adHocSubProcess", "subprocess", "subprocess", "ad hoc sub-process", marker="ad hoc", refused=_AD_HOC
        ),
        ElementRow("bpmn:callActivity", "call", "call", "call activity"),
        ElementRow("bpmn:exclusiveGateway", "exclusive", "gateway", "exclusive gateway"),
        ElementRow("bpmn:parallelGateway", "parallel", "gateway", "parallel gateway"),
        ElementRow("bpmn:inclusiveGateway", "inclusive", "gateway", "inclusive gateway"),
        ElementRow("bpmn:complexGateway", "complex", "gateway", "complex gateway"),
        ElementRow("bpmn:eventBasedGateway", "event_gateway", "gateway", "event-based gateway"),
    )
}
"""The elements that are nodes, by their tags."""

_ANYWHERE: Final[tuple[EventPlace, ...]] = ("start", "event start", "boundary", "catch", "throw", "end")

EVENTS: Final = {
    row.kind: row
    for row in (
        EventKindRow("", "none", ("start", "inner start", "throw", "end")),
        EventKindRow("signal", "signal", _ANYWHERE, combines=True, comes_from_outside=True),
        EventKindRow("message", "message", _ANYWHERE, has_one_receiver=True, combines=True, comes_from_outside=True),
        EventKindRow(
            "timer", "timer", ("start", "event start", "boundary", "catch"), combines=True, comes_from_outside=True
        ),
        EventKindRow(
            "error",
            "error",
            ("event start", "boundary", "end"),
            always_interrupts=True,
            has_one_catcher=True,
            combines=True,
        ),
        EventKindRow(
            "escalation", "escalation", ("event start", "boundary", "throw", "end"), has_one_catcher=True, combines=True
        ),
        EventKindRow(
            "conditional",
            "conditional",
            ("start", "event start", "boundary", "catch"),
            combines=True,
            comes_from_outside=True,
            begins_by_itself=True,
        ),
        EventKindRow(
            "compensate",
            "compensation",
            ("event start", "boundary", "throw", "end"),
            always_interrupts=True,
            compensates=True,
        ),
        EventKindRow("cancel", "cancel", ("boundary", "end"), always_interrupts=True, has_one_catcher=True),
        EventKindRow("terminate", "terminate", ("end",)),
        EventKindRow("link", "link", ("catch", "throw"), is_link=True),
    )
}
"""The kinds of events."""


def tags_of(*families: Family) -> frozenset[str]:
    """The tags of the elements of these families."""
    return frozenset(row.tag for row in ELEMENTS.values() if row.family in families)


START_EVENTS: Final = frozenset(row.tag for row in ELEMENTS.values() if row.kind == "start")
BOUNDARY_EVENTS: Final = frozenset(row.tag for row in ELEMENTS.values() if row.kind == "boundary")
