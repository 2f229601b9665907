"""A BPMN file and its processes while they are read: what was found so far, and every problem on the way.

A part that has mistakes is still compared with the others, so that one check of a file shows all that is wrong with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hark.model.nearest import did_you_mean
from hark.model.problem import Problem, ProblemList
from hark.programs.bpmn.bpmn_elements import EVENTS, ElementRow, EventKindRow, NodeKind
from hark.programs.bpmn.bpmn_spec import ROOT, EventSpec
from hark.programs.bpmn.file.xml_tree import XmlElement

DEFINITIONS = frozenset(f"bpmn:{name}" for name in ("message", "signal", "error", "escalation")) | frozenset(
    row.tag for row in EVENTS.values() if row.tag is not None
)
"""Elements that others refer to, wherever they are in the file."""


class FileDraft:
    """A file as it is read.

    Attributes:
        root: Its tree.
        ignore_extensions: Whether extensions that would change the behaviour are ignored instead of reported.
        problems: What is wrong.
        ignored: What has no meaning for Hark, each name once.
        definitions: Messages, signals, errors, escalations and event definitions by id.
        top_level: The tags of the elements directly in the file, by id.
        forms: The JSON texts of zeebe forms by id.
        associations: All associations, with their ends: they may be outside the sub-process that they belong to.
        is_for_flowable: It was made for Flowable or Activiti: some standard texts mean something else there.
    """

    def __init__(self, root: XmlElement, *, ignore_extensions: bool, declared: frozenset[str] = frozenset()) -> None:
        self.root = root
        self.is_for_flowable = "camunda" not in declared and not declared.isdisjoint(("flowable", "activiti"))
        self.ignore_extensions = ignore_extensions
        self.problems = ProblemList()
        self.ignored: list[Problem] = []
        self.definitions: dict[str, XmlElement] = {}
        self.forms: dict[str, XmlElement] = {}
        self.associations: list[XmlElement] = []
        self._names_ignored: set[tuple[str | None, str]] = set()
        self.top_level = {element.get("id"): element.tag for element in root.children}
        self._index()

    def _index(self) -> None:
        todo = [self.root]
        while todo:
            element = todo.pop()
            tag = element.tag
            if tag == "bpmn:association":
                self.associations.append(element)
            elif (id := element.attributes.get("id")) is not None:
                if tag in DEFINITIONS:
                    self.definitions.setdefault(id, element)
                elif tag == "zeebe:userTaskForm":
                    self.forms.setdefault(id, element)
            todo += [child for child in reversed(element.children) if not child.tag.startswith("bpmndi:")]

    def report(self, element: str | None, line: int | None, message: str) -> None:
        """Keep a problem, once. Raises TooManyProblems if there are enough to show."""
        self.problems.report(element, line, message)

    def report_extension(self, element: str | None, line: int | None, message: str) -> bool:
        """Keep a problem with an extension that would change the behaviour. Returns False if those are ignored."""
        if self.ignore_extensions:
            self.ignore(element, line, message)
            return False
        self.report(element, line, f"{message} To deploy without it, use ignore_extensions=True.")
        return True

    def ignore(self, element: str | None, line: int | None, message: str, *, name: str | None = None) -> None:
        """Keep that something is ignored; of the same name only the first one."""
        key = (element, message) if name is None else (None, name)
        if key not in self._names_ignored:
            self._names_ignored.add(key)
            self.ignored.append(Problem(element, line, message))

    def definition(self, tag: str, reference: str) -> XmlElement | None:
        """The definition with this id; the reference may have a prefix, which is that of the file's own namespace."""
        for id in (reference, reference.rpartition(":")[2]):
            found = self.definitions.get(id)
            if found is not None and found.tag == tag:
                return found
        return None

    def suggestion(self, tag: str, reference: str) -> str:
        """` Did you mean 'order'?`, if a definition has a similar id."""
        return did_you_mean(reference, (id for id, found in self.definitions.items() if found.tag == tag))


@dataclass(slots=True, eq=False)
class NodeDraft:
    """A node as it is read. `fields` has what NodeSpec has of it beyond the attributes here.

    `row` is what the table has of its element; its reader may find another `kind` than the one there.
    """

    id: str
    number: int
    row: ElementRow
    kind: NodeKind
    element: XmlElement
    scope: int
    extensions: list[XmlElement]
    incoming: list[int] = field(default_factory=list)
    outgoing: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    event: EventSpec | None = None
    further: list[tuple[EventSpec, bool]] = field(default_factory=list)  # other events, and whether each interrupts
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> int:
        return self.element.line

    @property
    def is_activity(self) -> bool:
        """Return True if the node is a task, a sub-process or a call activity."""
        return self.row.is_activity

    @property
    def is_start(self) -> bool:
        return self.kind == "start"

    @property
    def is_boundary(self) -> bool:
        return self.row.kind == "boundary"

    @property
    def event_row(self) -> EventKindRow | None:
        """The row of its event in the table of events; None if it has none."""
        return None if self.event is None else EVENTS[self.event.kind]

    @property
    def is_link(self) -> bool:
        """Return True if the node is one end of a link."""
        return self.event_row is not None and self.event_row.is_link

    @property
    def is_compensation(self) -> bool:
        """Return True if the node is an event for compensation."""
        return self.event_row is not None and self.event_row.compensates

    @property
    def is_event_subprocess(self) -> bool:
        """Return True if the node is a sub-process that its start event triggers."""
        return bool(self.fields.get("event_subprocess"))

    @property
    def is_for_compensation(self) -> bool:
        """Return True if the node only runs to compensate another activity."""
        return bool(self.fields.get("for_compensation"))


@dataclass(slots=True, eq=False)
class FlowDraft:
    """A sequence flow as it is read; an end that does not exist is None."""

    id: str
    number: int
    element: XmlElement
    source: NodeDraft | None
    target: NodeDraft | None
    condition: str | None = None
    skip: str | None = None


class BpmnDraft:
    def __init__(self, file: FileDraft, element: XmlElement, id: str) -> None:
        self.file = file
        self.element = element
        self.id = id
        self.nodes: list[NodeDraft] = []
        self.flows: list[FlowDraft] = []
        self.by_id: dict[str, NodeDraft] = {}
        self.flow_elements: list[XmlElement] = []
        self.variables: dict[str, Any] = {}  # those that an instance begins with
        self.numbered: dict[str, int] = {}  # the last number behind an id that was made here

    def report(self, node: NodeDraft, message: str, line: int | None = None) -> None:
        self.file.report(node.id, line or node.line, message)

    def flow_into(self, node: NodeDraft) -> FlowDraft | None:
        return self.flows[node.incoming[0]] if node.incoming else None

    def scope_of(self, node: NodeDraft) -> NodeDraft | None:
        """The sub-process a node is in; None if it is directly in the process."""
        return None if node.scope == ROOT else self.nodes[node.scope]

    def find(self, reference: str) -> NodeDraft | None:
        """The node with this id; the reference may have a prefix, which is that of the file's own namespace."""
        return self.by_id.get(reference) or self.by_id.get(reference.rpartition(":")[2])

    def members(self, scope: NodeDraft | None) -> list[NodeDraft]:
        """The nodes directly in a sub-process, or directly in the process."""
        if scope is None:
            return [node for node in self.nodes if node.scope == ROOT]
        return [self.nodes[number] for number in scope.children]
