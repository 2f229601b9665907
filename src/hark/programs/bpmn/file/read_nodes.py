"""Read the common parts of all nodes: mappings, loops, skips, flows, hosts. element_readers.py reads the rest."""

from __future__ import annotations

from hark.programs.bpmn.file.data_objects import read_data_objects
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.element_readers import ELEMENT_READERS
from hark.programs.bpmn.file.file_sources import flow_condition
from hark.programs.bpmn.file.read_loops import read_loop
from hark.programs.bpmn.file.read_mappings import read_mappings
from hark.programs.bpmn.file.read_skips import flow_skip, read_skip


def read_nodes(process: BpmnDraft) -> None:
    """Read the nodes of a process, the conditions of its flows, and the variables that it begins with."""
    process.variables = read_data_objects(process, process.element)
    for node in process.nodes:
        _read_node(process, node)
    for node in process.nodes:
        _read_flows(process, node)
    _read_hosts(process)
    _read_compensations(process)


def _read_node(process: BpmnDraft, node: NodeDraft) -> None:
    if node.extensions:
        read_mappings(process, node)
    reader = ELEMENT_READERS[node.row.tag]
    if node.is_activity:
        read_loop(process, node)
        read_skip(process, node, is_possible=reader.may_be_skipped)
    reader.read(process, node)


def _read_flows(process: BpmnDraft, node: NodeDraft) -> None:
    """Read the conditions of the outgoing flows, and which of them is the default."""
    reader = ELEMENT_READERS[node.row.tag]
    reference = (node.element.get("default") or "").strip()
    for number in node.outgoing:
        flow = process.flows[number]
        flow.skip = flow_skip(process, flow) if reader.skips_flows else None
        if reference and flow.id in (reference, reference.rpartition(":")[2]):
            node.fields["default"] = number
            continue
        element = flow.element.first("bpmn:conditionExpression")
        if element is None or not (element.text.strip() or element.attributes.get("language")):
            continue
        if reader.decides_flows:
            flow.condition = flow_condition(process, flow.id, element, "Its condition")
        else:
            process.file.ignore(flow.id, element.line, "Its condition is ignored: the gateway takes all flows.")
    if reference and "default" not in node.fields:
        process.report(
            node, f"Its default flow {reference!r} does not leave it. Set default to one of its outgoing flows."
        )


def _read_hosts(process: BpmnDraft) -> None:
    for node in process.nodes:
        if not node.is_boundary:
            continue
        reference = (node.element.get("attachedToRef") or "").strip()
        host = process.find(reference) if reference else None
        if host is None or not (host.is_activity or ELEMENT_READERS[host.row.tag].may_have_boundaries):
            what = f"{reference!r}, which is not an activity of this process" if reference else "nothing"
            process.report(node, f"It is attached to {what}. Set attachedToRef to the id of an activity.")
            continue
        if not host.is_activity and node.event_row is not None and not node.event_row.comes_from_outside:
            process.report(
                node,
                f"It is attached to {host.id!r}, a catch event, where no {node.event_row.kind} event can be thrown. "
                "Attach it to an activity.",
            )
            continue
        if host.scope != node.scope:
            process.report(node, f"It is attached to {host.id!r}, which is in another sub-process. Move it there.")
            continue
        node.fields["host"] = host.number
        if node.event is not None and not node.is_compensation:
            host.fields.setdefault("boundaries", []).append(node.number)


def _read_compensations(process: BpmnDraft) -> None:
    """Find the activity that compensates each one that has a boundary event for compensation."""
    ends: dict[int, list[NodeDraft]] = {}
    for association in process.file.associations:
        source = process.find((association.get("sourceRef") or "").strip())
        target = process.find((association.get("targetRef") or "").strip())
        if source is not None and target is not None:
            ends.setdefault(source.number, []).append(target)
            ends.setdefault(target.number, []).append(source)
    for node in process.nodes:
        if not node.is_boundary or not node.is_compensation:
            continue
        activities = [end for end in ends.get(node.number, ()) if end.is_activity]
        handlers = [end for end in activities if end.is_for_compensation]
        if not handlers and len(activities) == 1 and not (activities[0].incoming or activities[0].outgoing):
            # Nothing else can run it, so it is for this: Fleans does not write the flag.
            activities[0].fields["for_compensation"] = True
            handlers = activities
        if len(handlers) != 1:
            _report_handlers(process, node, activities, handlers)
        elif "host" in node.fields:
            host = process.nodes[node.fields["host"]]
            if "compensation" in host.fields:
                process.report(node, f"{host.id!r} has two boundary events for compensation. Leave one of them.")
            host.fields["compensation"] = handlers[0].number


def _report_handlers(
    process: BpmnDraft, node: NodeDraft, activities: list[NodeDraft], handlers: list[NodeDraft]
) -> None:
    if handlers:
        process.report(node, f"It is associated with {len(handlers)} activities that compensate. Leave one of them.")
    elif activities:
        process.report(
            node,
            f"It is associated with {activities[0].id!r}, which flows lead to or from. Remove them, and set "
            'isForCompensation="true" there.',
        )
    else:
        message = (
            "It is not associated with an activity that compensates, so it does nothing. Draw an association to one."
        )
        process.file.ignore(node.id, node.line, message)  # as in Camunda: a model that is not finished runs
