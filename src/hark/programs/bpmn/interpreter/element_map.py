"""ElementMap: the elements of another version of a process that the elements of an instance become.

An element becomes the one that the given map names or else, if it is not in the map, the one with its id. The rules
here concern two elements; process_migration.py has those that concern the state of an instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hark.model.nearest import did_you_mean
from hark.model.problem import Problem
from hark.programs.bpmn.bpmn_elements import ELEMENTS, EVENTS, ElementRow, NodeKind
from hark.programs.bpmn.bpmn_spec import ROOT, NodeSpec
from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph

NOTHING: Final = ""
"""In a map, the target of an event that is not kept: it is waited for anew, as the other version says."""

_ROWS: Final[dict[NodeKind, ElementRow]] = {row.kind: row for row in reversed(ELEMENTS.values())}


class ElementMap:
    """The elements and flows that those of an instance become, by number, with the reasons why some cannot.

    Attributes:
        old: The version that the instance has.
        new: The version that it gets.
        problems: The reasons so far; each is found once.
    """

    def __init__(self, old: BpmnGraph, new: BpmnGraph, elements: Mapping[str, str]) -> None:
        self.old, self.new = old, new
        self.problems: list[Problem] = []
        self._elements = elements
        self._old_flows = {flow.id: number for number, flow in enumerate(old.flows)}
        self._new_flows = {flow.id: number for number, flow in enumerate(new.flows)}
        self._active: dict[int, int | None] = {}
        self._events: dict[int, int | None] = {}
        self._kept: dict[int, int] = {}  # the events that are kept, by the number of what they become
        self._check_names()

    def refuse(self, id: str, message: str, target: NodeSpec | None = None) -> None:
        """Keep the reason why an element cannot be moved. `target`: what it would become, for the line."""
        problem = Problem(id, None if target is None or not target.line else target.line, message)
        if problem not in self.problems:
            self.problems.append(problem)

    def _check_names(self) -> None:
        for source, target in self._elements.items():
            is_element, is_flow = source in self.old.numbers, source in self._old_flows
            if not is_element and not is_flow:
                hint = did_you_mean(source, [*self.old.numbers, *self._old_flows])
                self.refuse(source, f"the version that the instance has does not have this element.{hint}")
            elif target != NOTHING and target not in (self.new.numbers if is_element else self._new_flows):
                known = self.new.numbers if is_element else self._new_flows
                what = "element" if is_element else "sequence flow"
                self.refuse(source, f"the new version has no {what} {target!r}.{did_you_mean(target, known)}")

    # -- what they become ----------------------------------------------------------------------------

    def is_named(self, number: int) -> bool:
        """Return True if the map names this element."""
        return self.old.ids[self.old.element_of[number]] in self._elements

    def found(self, number: int) -> int | None:
        """The element that an element becomes, by its id only; None if there is none. A further event of an element
        becomes the one at the same place of what its element becomes."""
        node = self.old.nodes[number]
        if node.of is not None:
            target, place = self.found(node.of), self.old.nodes[node.of].further.index(number)
            further = () if target is None else self.new.nodes[target].further
            return further[place] if place < len(further) else None
        id = node.id
        return self.new.numbers.get(self._elements.get(id, id))

    def flow(self, number: int) -> int | None:
        """The flow that a flow becomes; None if there is none."""
        id = self.old.flows[number].id
        return self._new_flows.get(self._elements.get(id, id))

    def active(self, number: int, why: str = "the instance is at this {}") -> int | None:
        """The element that one becomes which the instance needs. None: it cannot be moved, and the reason is kept.

        `why` says what it is needed for, with a place for what the element is."""
        if number not in self._active:
            self._active[number] = self._find_active(number, why)
        return self._active[number]

    def _find_active(self, number: int, why: str) -> int | None:
        old, target = self.old.nodes[number], self.found(number)
        if old.of is not None and self.active(old.of) is None:
            return None  # the reason is that of its element
        is_unnamed = f"@{old.line}" in old.id and not self.is_named(number)  # the line says nothing in another file
        if target is None or is_unnamed:
            words = describe(old)
            lacking = "it has no id in the file" if is_unnamed else "the new version does not have it"
            self.refuse(old.id, f"{why.format(words)}, and {lacking}: name the {words} that it becomes")
            return None
        new = self.new.nodes[target]
        reason = difference(old, new) or _other_events(old, new) or self._other_scope(old, new)
        if reason is not None:
            self.refuse(old.id, reason, new)
            return None
        return target

    def event(self, number: int) -> int | None:
        """The event that a boundary event becomes, or the start event of an event sub-process. None: it is not waited
        for any more, or anew. One that the map names, and that cannot become what it names, is a problem."""
        if number not in self._events:
            self._events[number] = self._find_event(number)
        return self._events[number]

    def _find_event(self, number: int) -> int | None:
        old, target = self.old.nodes[number], self.found(number)
        if target is None:
            return None
        new = self.new.nodes[target]
        reason = difference(old, new) or _other_timer(old, new) or self._other_host(old, new)
        if reason is None and target in self._kept:
            reason = f"{self.old.ids[self._kept[target]]!r} becomes {new.id!r} too: an event can be kept once"
        if reason is not None:
            if self.is_named(number):
                self.refuse(old.id, reason, new)
            return None
        self._kept[target] = number
        return None if has_other_condition(old, new) else target

    # -- the rules for two elements ------------------------------------------------------------------

    def _other_scope(self, old: NodeSpec, new: NodeSpec) -> str | None:
        expected = ROOT if old.scope == ROOT else self.found(old.scope)
        if expected == new.scope:
            return None
        around = _around(self.old, old.scope)
        if expected is None:
            return f"it is in {around}, which the new version does not have: name what that becomes"
        return (
            f"it is in {around}, which becomes {_around(self.new, expected)}, and {new.id!r} is in "
            f"{_around(self.new, new.scope)}: a token stays in the sub-processes that it is in"
        )

    def _other_host(self, old: NodeSpec, new: NodeSpec) -> str | None:
        if old.host is not None and new.host is not None:
            if self.found(old.host) == new.host:
                return None
            was, now = self.old.ids[old.host], self.new.ids[new.host]
            return f"it is attached to {was!r}, which does not become {now!r}, to which {new.id!r} is attached"
        for graph, node in ((self.old, old), (self.new, new)):
            if node.scope == ROOT or not graph.nodes[node.scope].event_subprocess:
                return f"{node.id!r} does not start an event sub-process"
        return self._other_scope(self.old.nodes[old.scope], self.new.nodes[new.scope])


def describe(node: NodeSpec) -> str:
    """An element in words: `timer boundary event`, `sequential multi-instance user task`."""
    row = _ROWS[node.kind]
    words = row.words
    if node.transaction:
        words = "transaction"
    elif node.event_subprocess:
        words = "event sub-process"
    elif row.family == "event" and node.event is not None and EVENTS[node.event.kind].name:
        words = f"{node.event.kind} {words}"
    if node.for_compensation:
        words = f"{words} for compensation"
    if node.loop is not None:
        words = f"looping {words}" if node.loop.kind == "standard" else f"{node.loop.kind} multi-instance {words}"
    return words


def difference(old: NodeSpec, new: NodeSpec) -> str | None:
    """The reason why one element cannot become the other, wherever they are; None if it can."""
    was, now = describe(old), describe(new)
    if was != now:
        return f"it is a {was}, and {new.id!r} of the new version is a {now}: an element becomes one of its own kind"
    if old.loop is not None and new.loop is not None and (old.loop.collection is None) != (new.loop.collection is None):
        return f"only one of it and {new.id!r} of the new version repeats over a collection"
    if (old.activation is None) != (new.activation is None):
        return f"only one of it and {new.id!r} of the new version has an activation condition"
    return None


def _other_events(old: NodeSpec, new: NodeSpec) -> str | None:
    """A token waits for all definitions of a catch event: they cannot become more or fewer."""
    was, now = len(old.further) + 1, len(new.further) + 1
    if was == now or _ROWS[old.kind].throws:
        return None
    return f"it waits for {was} event definitions, and {new.id!r} of the new version has {now}"


def _other_timer(old: NodeSpec, new: NodeSpec) -> str | None:
    assert old.event is not None
    assert new.event is not None
    if old.event.timer == new.event.timer:
        return None
    return f"its timer is a {old.event.timer}, and that of {new.id!r} in the new version a {new.event.timer}"


def has_other_condition(old: NodeSpec, new: NodeSpec) -> bool:
    """Return True if these are conditional events whose conditions differ: what became of the old one says nothing
    about the new one."""
    return old.event is not None and new.event is not None and old.event.condition != new.event.condition


def _around(graph: BpmnGraph, scope: int) -> str:
    return "the process" if scope == ROOT else repr(graph.ids[scope])
