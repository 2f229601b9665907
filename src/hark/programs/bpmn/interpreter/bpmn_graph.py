"""BpmnGraph: the spec of a process with its indexes, built once per version and shared by all its instances."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from hark.programs.bpmn.bpmn_elements import EVENTS
from hark.programs.bpmn.bpmn_spec import ROOT, BpmnSpec, FlowSpec, NodeSpec, decode_bpmn
from hark.programs.bpmn.interpreter.elements import ELEMENT_BEHAVIOURS
from hark.programs.bpmn.interpreter.event_kinds import EVENT_BEHAVIOURS


class EventSubprocess(NamedTuple):
    """An event sub-process, and its start event."""

    node: NodeSpec
    number: int
    start: NodeSpec
    start_number: int


class BpmnGraph:
    """The nodes of a process by number, with indexes.

    Attributes:
        spec: The spec.
        nodes: Its nodes; the index of a node is its number.
        flows: Its flows; the index of a flow is its number.
        elements: What each node does, by number.
        enter: What happens when a token comes to a node, by number.
        events: What the event of a node does, by number; None if it has none.
        element_of: The node of the element, by number: another one for a further event of an element.
        ids: The ids of the nodes, by number.
        numbers: The numbers of the nodes, by id.
        none_start: The start event of an instance that is started by name, by number.
        waiting_starts: The start events at which such an instance waits, if there is none, by number.
        targets: The targets of the flows, by number.
        only_flow: The flow by which every token leaves a node, by number; -1 if that has to be decided.
        is_plain: Whether a node is a task that is over at once and has nothing but a script, by number.
        is_passed: Whether one flow leaves a node and no token waits in it, by number.
        skipping: The nodes with outgoing flows that have skip expressions.
        joins_by_reach: It has gateways that depend on where other tokens are.
        expects_tokens: It has gateways that expect tokens after they have gone on.
    """

    def __init__(self, spec: BpmnSpec) -> None:
        self.spec = spec
        self.nodes: tuple[NodeSpec, ...] = spec.nodes
        self.flows: tuple[FlowSpec, ...] = spec.flows
        self.elements = [ELEMENT_BEHAVIOURS[node.kind] for node in spec.nodes]
        self.enter = [element.enter for element in self.elements]
        self.events = [None if node.event is None else EVENT_BEHAVIOURS[node.event.kind] for node in spec.nodes]
        self.element_of = [number if node.of is None else node.of for number, node in enumerate(spec.nodes)]
        self._further: dict[int, int] = {}
        for number, node in enumerate(spec.nodes):
            self._further |= zip((number, *node.further), node.further, strict=False)
        self.ids = [node.id for node in spec.nodes]
        self.numbers = {node.id: number for number, node in enumerate(spec.nodes)}
        start = spec.none_start
        self.none_start = None if start is None else self.numbers[start.id]
        self.waiting_starts = tuple(self.numbers[node.id] for node in spec.waiting_starts)
        self.targets = [flow.target for flow in spec.flows]
        self.only_flow = [_only_flow(spec, node) for node in spec.nodes]
        self.is_plain = [element.is_plain(node) for element, node in zip(self.elements, spec.nodes, strict=True)]
        self.skipping = frozenset(flow.source for flow in spec.flows if flow.skip is not None)
        self.is_passed = [
            element.is_passed(node, only)
            for element, node, only in zip(self.elements, spec.nodes, self.only_flow, strict=True)
        ]
        self._event_subprocesses: dict[int, tuple[EventSubprocess, ...]] = {}
        self._begins: dict[int, tuple[int, ...]] = {}
        self._links: dict[tuple[int, str], int] = {}
        for number, node in enumerate(spec.nodes):
            if self._is_link(number) and self.elements[number].is_catch:
                assert node.event is not None
                self._links[node.scope, str(node.event.name)] = number
        self.joins_by_reach = any(element.joins_by_reach for element in self.elements)
        self.expects_tokens = any(element.expects_tokens for element in self.elements)
        self._reach_without: dict[tuple[int, int], frozenset[int]] = {}

    def children(self, scope: int) -> tuple[int, ...]:
        """The nodes directly in a sub-process, or in the process."""
        if scope != ROOT:
            return self.nodes[scope].children
        return tuple(number for number, node in enumerate(self.nodes) if node.scope == ROOT)

    def event_subprocesses(self, scope: int) -> tuple[EventSubprocess, ...]:
        """The event sub-processes directly in a sub-process, or in the process."""
        known = self._event_subprocesses.get(scope)
        if known is None:
            found = []
            for number in self.children(scope):
                node = self.nodes[number]
                if node.event_subprocess:
                    starts = [child for child in node.children if self.elements[child].is_start]
                    found += [EventSubprocess(node, number, self.nodes[start], start) for start in starts]
            known = self._event_subprocesses[scope] = tuple(found)
        return known

    def begins(self, scope: int) -> tuple[int, ...]:
        """The nodes where the tokens of a sub-process begin: its start events, or else its nodes without incoming
        flows."""
        known = self._begins.get(scope)
        if known is None:
            nodes = [(number, self.nodes[number]) for number in self.children(scope) if self.nodes[number].of is None]
            known = tuple(number for number, _ in nodes if self.elements[number].is_start)
            if not known:
                known = tuple(
                    number
                    for number, node in nodes
                    if not node.incoming
                    and node.host is None
                    and not node.event_subprocess
                    and not node.for_compensation
                    and not (self._is_link(number) and self.elements[number].is_catch)
                )
            self._begins[scope] = known
        return known

    def events_of(self, number: int) -> tuple[int, ...]:
        """The nodes of the events of an element that catches: itself and its further ones."""
        return (number, *self.nodes[number].further)

    def next_event(self, number: int) -> int | None:
        """The node of the event that an element throws after this one."""
        return self._further.get(number)

    def link_target(self, node: NodeSpec) -> int:
        """The catching event of a throwing link."""
        assert node.event is not None
        return self._links[node.scope, str(node.event.name)]

    def compensated_by(self, handler: int) -> list[int]:
        """The activities that an activity for compensation compensates."""
        return [number for number, node in enumerate(self.nodes) if node.compensation == handler]

    def _is_link(self, number: int) -> bool:
        event = self.nodes[number].event
        return event is not None and EVENTS[event.kind].is_link

    # -- reachability, for joins by reachability -----------------------------------------------------

    def following(self, number: int) -> list[int]:
        """The nodes where a token at this node may be next, in the same scope."""
        node = self.nodes[number]
        after = [self.flows[flow].target for flow in node.outgoing]
        after.extend(node.boundaries)
        if self._is_link(number) and not self.elements[number].is_catch:
            after.append(self.link_target(node))
        return after

    def reaches_flow(self, start: int, flow: int, gateway: int) -> bool:
        """Return True if a token that leaves `start` may come to `gateway` by `flow` without passing the gateway
        first."""
        key = (start, gateway)
        reached = self._reach_without.get(key)
        if reached is None:
            found: set[int] = set()
            pending = [start] if start != gateway else []
            while pending:
                number = pending.pop()
                if number in found or number == gateway:
                    continue
                found.add(number)
                pending.extend(self.following(number))
            reached = self._reach_without[key] = frozenset(found)
        return self.flows[flow].source in reached


def _only_flow(spec: BpmnSpec, node: NodeSpec) -> int:
    if len(node.outgoing) != 1 or node.default is not None or node.for_compensation:
        return -1
    [flow] = node.outgoing
    return flow if spec.flows[flow].condition is None and spec.flows[flow].skip is None else -1


@lru_cache(256)
def bpmn_graph(source: str) -> BpmnGraph:
    """The process of a stored source, with its indexes. All instances of a version share it."""
    return BpmnGraph(decode_bpmn(source).process)
