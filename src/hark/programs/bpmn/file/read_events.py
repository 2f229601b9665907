"""Read events: the kind that an event catches or throws, and the places where it may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from hark.programs.bpmn.bpmn_elements import EVENTS, EventKind
from hark.programs.bpmn.bpmn_spec import ChangeKind, EventSpec
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import attribute, extensions_of, named, zeebe
from hark.programs.bpmn.file.file_sources import condition, source
from hark.programs.bpmn.file.read_mappings import PassedVariables
from hark.programs.bpmn.file.timer_events import read_timer
from hark.programs.bpmn.file.xml_tree import XmlElement

_ROWS = {row.tag: row for row in EVENTS.values()}
_PLACES: dict[str, str] = {
    "start": "a start event of a process",
    "inner start": "the start event of a sub-process",
    "event start": "the start event of an event sub-process",
    "boundary": "a boundary event",
    "catch": "an intermediate catch event",
    "throw": "an intermediate throw event",
    "end": "an end event",
}
_CHANGES: dict[str, ChangeKind] = {"create": "create", "update": "update", "delete": "delete"}


def read_event(process: BpmnDraft, node: NodeDraft) -> XmlElement | None:
    """Read the event that a node catches or throws. Return its definition; None if it has none, or a problem."""
    definitions = _definitions(process, node)
    if len(definitions) > 1:
        _read_several(process, node, definitions)
        return None
    row = _ROWS[definitions[0].tag if definitions else None]
    place = _place_of(process, node)
    if place not in row.places:
        process.report(node, _impossible(row.kind, place))
        return None
    if not definitions:
        return None
    definition = definitions[0]
    node.event = EVENT_READERS[row.kind](EventReader(process, node, definition))
    if node.event is None:
        return None
    if place in ("boundary", "event start") and node.row.interrupting is not None:
        interrupts = row.always_interrupts or node.element.flag(node.row.interrupting, default=True)
        node.fields["interrupting"] = interrupts
    return definition


def _read_several(process: BpmnDraft, node: NodeDraft, definitions: list[XmlElement]) -> None:
    """Read an event with several definitions: it waits for any of them, or throws all of them."""
    place = _place_of(process, node)
    if node.element.flag("parallelMultiple"):
        process.report(node, "It waits for all of its events. Use a parallel gateway with an event on each path.")
        return
    rows = [_ROWS[definition.tag] for definition in definitions]
    for row, definition in zip(rows, definitions, strict=True):
        alone = not row.combines or (row.begins_by_itself and place == "start")
        if place not in row.places:
            process.report(node, _impossible(row.kind, place))
        elif alone or (node.row.throws and row.always_interrupts):
            process.report(node, f"A {row.kind} event cannot be one of several definitions. Use an event for it alone.")
        elif node.row.throws and is_handled(definition, node):
            process.report(node, "A handler cannot throw one of several definitions. Use an event for it alone.")
        elif (event := EVENT_READERS[row.kind](EventReader(process, node, definition))) is not None:
            interrupts = row.always_interrupts or node.element.flag(node.row.interrupting or "", default=True)
            node.further.append((event, interrupts))
    if len(node.further) == len(definitions):
        node.event, interrupts = node.further.pop(0)
        if place in ("boundary", "event start"):
            node.fields["interrupting"] = interrupts


def _definitions(process: BpmnDraft, node: NodeDraft) -> list[XmlElement]:
    found = [child for child in node.element.children if child.tag in _ROWS]
    for reference in node.element.all("bpmn:eventDefinitionRef"):
        id = reference.text.strip()
        definition = process.file.definitions.get(id) or process.file.definitions.get(id.rpartition(":")[2])
        if definition is None or definition.tag not in _ROWS:
            process.report(node, f"It refers to the event definition {id!r}, which is not in the file.", reference.line)
        else:
            found.append(definition)
    return found


def _place_of(process: BpmnDraft, node: NodeDraft) -> str:
    if not node.is_start:
        return node.row.kind
    scope = process.scope_of(node)
    if scope is None:
        return "start"
    return "event start" if scope.is_event_subprocess else "inner start"


def _impossible(kind: EventKind, place: str) -> str:
    possible, where = ", ".join(row.kind for row in EVENTS.values() if place in row.places), _PLACES[place]
    if EVENTS[kind].tag is None:
        return f"It has no event definition, but {where} needs one of: {possible}."
    if place == "inner start":
        return (
            f"A sub-process cannot start with a {kind} event, unless triggeredByEvent is true. Remove the definition."
        )
    return f"A {kind} event cannot be {where}. Possible are: {possible}."


class EventReader:
    def __init__(self, process: BpmnDraft, node: NodeDraft, definition: XmlElement) -> None:
        self.process = process
        self.node = node
        self.definition = definition
        self.throws = node.row.throws

    def _report(self, message: str, line: int | None = None) -> None:
        self.process.report(self.node, message, line or self.definition.line)

    def _referred(self, kind: str, attribute: str, *, needed: bool) -> XmlElement | None:
        """The signal, message, error or escalation that the definition refers to."""
        reference = (self.definition.get(attribute) or "").strip()
        if not reference:
            if needed:
                self._report(f"It does not say which {kind} it {self._verb}. Set {attribute} to the id of a {kind}.")
            return None
        found = self.process.file.definition(f"bpmn:{kind}", reference)
        if found is None:
            hint = self.process.file.suggestion(f"bpmn:{kind}", reference)
            self._report(f"It refers to the {kind} {reference!r}, which is not in the file.{hint}")
        return found

    @property
    def _verb(self) -> str:
        return "throws" if self.throws else "catches"

    def signal(self) -> EventSpec | None:
        name = self._name("signal")
        if name is None:
            signal = self._referred("signal", "signalRef", needed=True)
            name = None if signal is None else name_of(self.process, self.node, signal, "signal")
        return None if name is None else EventSpec("signal", name=name, **self._payload())

    def _name(self, kind: str) -> Any:
        """The name that `flowable:signalExpression` or `flowable:messageExpression` gives."""
        return source(
            self.process,
            self.node,
            attribute(self.definition, f"{kind}Expression"),
            f"The name of the {kind}",
            self.definition.line,
        )

    def message(self) -> EventSpec | None:
        if self.throws and is_handled(self.definition, self.node):
            return EventSpec("message")  # its handler sends it
        name = self._name("message")
        if name is not None:
            spec: EventSpec | None = EventSpec("message", name=name)
        else:
            message = self._referred("message", "messageRef", needed=True)
            spec = None if message is None else message_event(self.process, self.node, message)
        if spec is None or not self.throws:
            return spec
        return EventSpec("message", name=spec.name, key=spec.key, **self._payload())

    def _payload(self) -> dict[str, Any]:
        """The variables that travel with a thrown event; for a caught one, the mapping is an output of the node."""
        if not self.throws:
            taken = PassedVariables(self.process, self.node, named(self.node.extensions, "in"))
            if taken.assignments and not taken.copies_all:
                self.node.fields["outputs"] = (*self.node.fields.get("outputs", ()), *taken.assignments)
                self.node.fields["keeps_result"] = True
            return {}
        given = [*named(extensions_of(self.definition), "in"), *named(self.node.extensions, "out")]
        passed = PassedVariables(self.process, self.node, given)
        is_zeebe = zeebe(self.node.extensions, "ioMapping") is not None
        inputs = self.node.fields.get("inputs", ()) if is_zeebe else ()  # there, what is mapped travels with it
        return {"payload": (*inputs, *passed.assignments), "copies_all": passed.copies_all}

    def timer(self) -> EventSpec | None:
        return read_timer(self.process, self.node, self.definition)

    def terminate(self) -> EventSpec:
        if attribute(self.definition, "terminateAll") == "true":
            return EventSpec("terminate", terminates="all")
        if attribute(self.definition, "terminateMultiInstance") == "true":
            return EventSpec("terminate", terminates="loop")
        return EventSpec("terminate")

    def error(self) -> EventSpec | None:
        error = self._referred("error", "errorRef", needed=self.throws)
        if error is None and (self.throws or self.definition.get("errorRef")):
            return None
        code = None if error is None else source(self.process, self.node, error.get("errorCode"), "The error code")
        if error is not None and code is None and self.throws:
            self._report(f"The error {error.get('id')!r} has no code. Set its errorCode.")
            return None
        message = None if error is None or not self.throws else attribute(error, "errorMessage")
        return EventSpec(
            "error",
            name=code,
            code_variable=attribute(self.definition, "errorCodeVariable")
            or attribute(self.definition, "errorVariableName"),
            message_variable=attribute(self.definition, "errorMessageVariable"),
            message=source(self.process, self.node, message, "The error message"),
        )

    def escalation(self) -> EventSpec | None:
        escalation = self._referred("escalation", "escalationRef", needed=self.throws)
        if escalation is None and (self.throws or self.definition.get("escalationRef")):
            return None
        given = None if escalation is None else escalation.get("escalationCode")
        code = source(self.process, self.node, given, "The escalation code")
        if escalation is not None and code is None and self.throws:
            self._report(f"The escalation {escalation.get('id')!r} has no code. Set its escalationCode.")
            return None
        return EventSpec("escalation", name=code, code_variable=attribute(self.definition, "escalationCodeVariable"))

    def conditional(self) -> EventSpec | None:
        element = self.definition.first("bpmn:condition")
        if element is None:
            self._report("It has no condition. Write one, such as =total > 100.")
            return None
        text = condition(self.process, self.node, element, "Its condition")
        if text is None:
            return None
        names = self._filter("variableName", "variableNames")
        return EventSpec("conditional", condition=text, variables=names, changes=self._changes())

    def _filter(self, name: str, in_zeebe: str) -> tuple[str, ...]:
        """The words of a filter of changes, separated by commas or spaces."""
        found = zeebe(extensions_of(self.definition), "conditionalFilter")
        text = attribute(self.definition, name) or (None if found is None else found.get(in_zeebe))
        return tuple(re.findall(r"[^\s,]+", text or ""))

    def _changes(self) -> tuple[ChangeKind, ...]:
        words = self._filter("variableEvents", "variableEvents")
        if wrong := [word for word in words if word not in _CHANGES]:
            message = f"Its variableEvents have {wrong[0][:40]!r}. Possible are: {', '.join(_CHANGES)}."
            self.process.file.report_extension(self.node.id, self.definition.line, message)
            return ()
        return tuple(_CHANGES[word] for word in words)

    def compensation(self) -> EventSpec | None:
        reference = (self.definition.get("activityRef") or "").strip()
        if not reference or not self.throws:
            return EventSpec("compensation")
        activity = self.process.find(reference)
        if activity is None or not activity.is_activity:
            self._report(f"It compensates {reference!r}, which is not an activity of this process.")
            return None
        return EventSpec("compensation", activity=activity.number)

    def link(self) -> EventSpec | None:
        name = (self.definition.get("name") or self.node.element.get("name") or "").strip()
        if not name:
            self._report("Its link has no name. Give the link event definition the name that its other end has.")
            return None
        return EventSpec("link", name=name)


EVENT_READERS: Final[dict[EventKind, Callable[[EventReader], EventSpec | None]]] = {
    "none": lambda _: None,
    "signal": EventReader.signal,
    "message": EventReader.message,
    "timer": EventReader.timer,
    "error": EventReader.error,
    "escalation": EventReader.escalation,
    "conditional": EventReader.conditional,
    "compensation": EventReader.compensation,
    "cancel": lambda _: EventSpec("cancel"),
    "terminate": EventReader.terminate,
    "link": EventReader.link,
}
"""The reader of the definition of each kind of event. It returns None if there is a problem, which is reported."""


def is_handled(definition: XmlElement, node: NodeDraft) -> bool:
    """Return True if a handler does the work of a thrown message event."""
    return zeebe(node.extensions, "taskDefinition") is not None or any(
        attribute(definition, name) for name in ("topic", "class", "delegateExpression", "expression")
    )


def name_of(process: BpmnDraft, node: NodeDraft, definition: XmlElement, what: str) -> Any:
    """The name of a signal or message, a source; None if it has a problem, which is the one of the definition."""
    name = (definition.get("name") or "").strip()
    if not name:
        process.file.report(
            definition.get("id"), definition.line, f"The {what} has no name. Give it the name that it is sent with."
        )
        return None
    return source(process, node, name, f"The name of the {what}")


def message_event(process: BpmnDraft, node: NodeDraft, message: XmlElement) -> EventSpec | None:
    """The event that catches or throws this message."""
    name = name_of(process, node, message, "message")
    if name is None:
        return None
    subscription = zeebe(extensions_of(message), "subscription")
    key = None if subscription is None else subscription.get("correlationKey")
    return EventSpec("message", name=name, key=source(process, node, key, "The correlation key"))
