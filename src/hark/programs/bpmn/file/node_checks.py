"""Check what the nodes of a process mean together: starts, flows, links, transactions, and what can be reached.

element_readers.py checks each element by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hark.programs.bpmn.bpmn_elements import EVENTS, EventKind
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.element_readers import ELEMENT_READERS


def add_further_events(process: BpmnDraft) -> None:
    """Add a node for each further event of an element. The checks are over: nothing leads to these nodes."""
    for node in list(process.nodes):
        for event, interrupts in node.further:
            number = len(process.nodes)
            further = node.fields.setdefault("further", [])
            further.append(number)
            fields = {key: value for key, value in node.fields.items() if key != "further"}
            if "interrupting" in fields:
                fields["interrupting"] = interrupts
            fields["of"] = node.number
            id = f"{node.id}#{len(further) + 1}"
            twin = NodeDraft(id, number, node.row, node.kind, node.element, node.scope, node.extensions, fields=fields)
            twin.event, twin.outgoing = event, node.outgoing
            process.nodes.append(twin)
            scope = process.scope_of(node)
            if scope is not None:
                scope.children.append(number)
            if "host" in fields:
                process.nodes[fields["host"]].fields["boundaries"].append(number)


def check_nodes(process: BpmnDraft) -> None:
    """Report what cannot be executed although each node of the process is right by itself."""
    for node in process.nodes:
        ELEMENT_READERS[node.row.tag].check(process, node)
        _check_flows(process, node)
        if node.event is not None and (check := _EVENT_CHECKS.get(node.event.kind)) is not None:
            check(process, node)
        _check_same_catch(process, [process.nodes[number] for number in node.fields.get("boundaries", ())])
    is_connected = sum(len(node.outgoing) for node in process.nodes) == len(process.flows)
    for scope in (None, *(node for node in process.nodes if node.row.family == "subprocess")):
        members = process.members(scope)
        _check_starts(process, scope, members)
        starts = (start for node in members if node.is_event_subprocess for start in process.members(node))
        _check_same_catch(process, [start for start in starts if start.is_start])
        _check_links(process, members)
        _check_compensation_subprocess(process, scope, members)
        if is_connected:  # otherwise it is reported that flows have no end
            _check_reached(process, members)


def _check_flows(process: BpmnDraft, node: NodeDraft) -> None:
    has_flows = bool(node.incoming or node.outgoing)
    if has_flows and node.is_event_subprocess:
        process.report(node, "An event sub-process has no flows into it or out of it. Remove them.")
    elif has_flows and node.is_for_compensation:
        process.report(node, "An activity for compensation has no flows into it or out of it. Remove them.")


def _check_link(process: BpmnDraft, node: NodeDraft) -> None:
    into = process.flow_into(node)
    if node.row.throws and node.outgoing:
        process.report(node, "A flow leaves the throwing end of a link. Remove the flow: the catching end goes on.")
    if not node.row.throws and into is not None:
        process.report(node, f"The flow {into.id!r} goes into the catching end of a link. Remove the flow.")


def _check_cancel(process: BpmnDraft, node: NodeDraft) -> None:
    if node.row.throws:
        scope = process.scope_of(node)
        if scope is None or not scope.fields["transaction"]:
            process.report(
                node, "A cancel end event is only possible directly in a transaction. Use an error end event."
            )
    elif "host" in node.fields and not process.nodes[node.fields["host"]].fields.get("transaction"):
        process.report(node, "A cancel boundary event is only possible on a transaction. Use an error boundary event.")


def _check_same_catch(process: BpmnDraft, catches: list[NodeDraft]) -> None:
    """Report a second event on one activity or in one scope for the same error or escalation: it would catch none."""
    seen: dict[tuple[str, str], NodeDraft] = {}
    for node in catches:
        if node.event is None or not EVENTS[node.event.kind].has_one_catcher:
            continue
        first = seen.setdefault((node.event.kind, str(node.event.name)), node)
        if first is not node:
            process.report(node, f"It catches the same as {first.id!r}, so it never would. Remove one of them.")


def _check_compensation(process: BpmnDraft, node: NodeDraft) -> None:
    """Report a compensation of an activity outside the scope of the event, or of the event sub-process it is in."""
    if node.outgoing and node.is_boundary:
        process.report(node, "A flow leaves a boundary event for compensation. Use an association instead.")
    if node.event is None or node.event.activity is None:
        return
    activity = process.nodes[node.event.activity]
    scope = node.scope
    around = process.scope_of(node)
    while activity.scope != scope and around is not None and around.is_event_subprocess:
        scope = around.scope
        around = process.scope_of(around)
    if activity.scope != scope:
        process.report(node, f"It compensates {activity.id!r}, which is not in the same scope. Throw it where that is.")


_EVENT_CHECKS: Final[dict[EventKind, Callable[[BpmnDraft, NodeDraft], None]]] = {
    "cancel": _check_cancel,
    "compensation": _check_compensation,
    "link": _check_link,
}


def _check_compensation_subprocess(process: BpmnDraft, scope: NodeDraft | None, members: list[NodeDraft]) -> None:
    """Report a second way to compensate a sub-process, and any way to compensate a process."""
    found = [node for node in members if _compensates(process, node)]
    for node in found:
        if scope is None:
            process.report(node, "Nothing compensates a whole process. Put it into the sub-process it compensates.")
        elif node is not found[0]:
            process.report(node, f"{scope.id!r} has two event sub-processes for compensation. Leave one of them.")
        elif scope.fields.get("compensation") is not None:
            process.report(node, f"{scope.id!r} also has a boundary event for compensation. Leave one of them.")


def _compensates(process: BpmnDraft, node: NodeDraft) -> bool:
    starts = (process.nodes[number] for number in node.children if process.nodes[number].is_start)
    return node.is_event_subprocess and any(start.is_compensation for start in starts)


def _check_starts(process: BpmnDraft, scope: NodeDraft | None, members: list[NodeDraft]) -> None:
    starts = [node for node in members if node.is_start]
    if scope is not None and scope.is_event_subprocess:
        if len(starts) != 1:
            process.report(scope, f"An event sub-process needs one start event; this one has {len(starts)}.")
        return
    plain = [node for node in starts if node.event is None and not _has_definition(node)]
    for second in plain[1:]:
        process.report(
            second, f"There are two start events without a trigger, {plain[0].id!r} is the first. Leave one."
        )
    if plain and scope is None:
        for start in starts:
            if start.event_row is not None and start.event_row.begins_by_itself:
                message = f"It is ignored: an instance that is started by name begins at {plain[0].id!r}."
                process.file.ignore(start.id, start.line, message)
    messages: dict[str, NodeDraft] = {}
    for start in starts:
        if start.event is not None and EVENTS[start.event.kind].has_one_receiver:
            first = messages.setdefault(str(start.event.name), start)
            if first is not start:
                process.report(start, f"{first.id!r} starts with the same message, which has one receiver. Remove one.")
    if scope is not None and not members:
        process.report(scope, "The sub-process is empty. Put something into it, or use a task.")


def _has_definition(node: NodeDraft) -> bool:
    return any(child.tag.endswith(("EventDefinition", "eventDefinitionRef")) for child in node.element.children)


def _check_links(process: BpmnDraft, members: list[NodeDraft]) -> None:
    """Report thrown links that do not have exactly one other end in their scope."""
    links = [node for node in members if node.is_link]
    catches: dict[str, NodeDraft] = {}
    for node in links:
        assert node.event is not None
        if node.row.throws:
            continue
        if (first := catches.setdefault(node.event.name, node)) is not node:
            process.report(
                node, f"Two events catch the link {node.event.name!r}; the other is {first.id!r}. Rename one."
            )
    thrown = {node.event.name for node in links if node.event is not None and node.row.throws}
    for node in links:
        assert node.event is not None
        if node.row.throws and node.event.name not in catches:
            process.report(node, f"No event in the same scope catches the link {node.event.name!r}. Add one.")
        if not node.row.throws and node.event.name not in thrown:
            process.report(node, f"No event in the same scope throws the link {node.event.name!r}. Add one, or a flow.")


def _check_reached(process: BpmnDraft, members: list[NodeDraft]) -> None:
    """Report the nodes that no token can reach; of those that only lead to each other, the first."""
    starts = [node for node in members if node.is_start]
    if not starts:
        starts = [node for node in members if not node.incoming]  # BPMN starts them all
    reached = {node.number for node in members if _begins(node)}
    todo = [*starts, *(node for node in members if node.number in reached)]
    reached |= {node.number for node in starts}
    while todo:
        for following in _after(process, todo.pop()):
            if following.number not in reached:
                reached.add(following.number)
                todo.append(following)
    hidden = [node for node in members if node.number not in reached]
    covered: set[int] = set()
    for node in [*(node for node in hidden if not node.incoming), *hidden]:
        if node.number in covered:
            continue
        todo = [node]
        while todo:
            for following in _after(process, todo.pop()):
                if following.number not in covered:
                    covered.add(following.number)
                    todo.append(following)
        covered.add(node.number)
        process.report(node, "Nothing leads to this element, so it can never run. Connect it, or remove it.")


def _begins(node: NodeDraft) -> bool:
    """Return True if something other than a flow or a host leads to a node: an event, a compensation, a link, a
    problem."""
    if node.is_event_subprocess or node.is_for_compensation:
        return True
    if node.is_boundary:
        return node.event is None or node.is_compensation or "host" not in node.fields
    return node.is_link and not node.row.throws


def _after(process: BpmnDraft, node: NodeDraft) -> Iterator[NodeDraft]:
    for number in node.outgoing:
        target = process.flows[number].target
        if target is not None:
            yield target
    for number in node.fields.get("boundaries", ()):
        yield process.nodes[number]
    if node.fields.get("compensation") is not None:
        yield process.nodes[node.fields["compensation"]]
