"""What each node does: its event, work, loop and mappings."""

from __future__ import annotations

from hark.dialects.bpmn.calls import read_call
from hark.dialects.bpmn.data_objects import read_data_objects
from hark.dialects.bpmn.draft import NodeDraft, ProcessDraft
from hark.dialects.bpmn.events import is_handled, message_event, read_event
from hark.dialects.bpmn.handlers import has_handler, read_script, read_service
from hark.dialects.bpmn.loops import read_loop
from hark.dialects.bpmn.mappings import read_mappings
from hark.dialects.bpmn.skips import flow_skip, read_skip
from hark.dialects.bpmn.sources import condition, flow_condition
from hark.dialects.bpmn.user_tasks import read_user
from hark.model.process import EventSpec


def read_nodes(process: ProcessDraft) -> None:
    """Read what the nodes of a process do, the conditions of its flows, and the variables that it begins with."""
    process.variables = read_data_objects(process, process.element)
    for node in process.nodes:
        _read_node(process, node)
    for node in process.nodes:
        _read_flows(process, node)
    _read_hosts(process)
    _read_compensations(process)


def _read_node(process: ProcessDraft, node: NodeDraft) -> None:
    if node.extensions:
        read_mappings(process, node)
    if node.is_activity:
        read_loop(process, node)
        read_skip(process, node)
    match node.kind:
        case "start" | "end" | "catch" | "throw" | "boundary":
            definition = read_event(process, node)
            if definition is not None and node.event is not None and node.event.kind == "message":
                _read_message_throw(process, node)
        case "service":
            read_service(process, node, node.element)
        case "send":
            _read_send(process, node)
        case "receive":
            _read_receive(process, node)
        case "script":
            read_script(process, node)
        case "user":
            read_user(process, node)
        case "call":
            read_call(process, node)
        case "subprocess":
            if variables := read_data_objects(process, node.element):
                node.fields["variables"] = variables
        case "complex":
            element = node.element.first("bpmn:activationCondition")
            if element is not None and element.text.strip():
                node.fields["activation"] = condition(process, node, element, "Its activation condition")
        case "event_gateway":
            if node.element.flag("instantiate"):
                process.report(node, "Hark does not start processes at an event gateway. Use message start events.")


def _read_message_throw(process: ProcessDraft, node: NodeDraft) -> None:
    """A thrown message is sent by a handler, or by Hark itself."""
    if node.kind not in ("throw", "end"):
        return
    definition = node.element.first("bpmn:messageEventDefinition") or node.element
    if is_handled(definition, node):
        read_service(process, node, definition)
    else:
        node.kind = "send"


def _read_send(process: ProcessDraft, node: NodeDraft) -> None:
    reference = (node.element.get("messageRef") or "").strip()
    if not reference or has_handler(node, node.element):
        read_service(process, node, node.element)
        return
    node.event = _referred_message(process, node, reference)


def _read_receive(process: ProcessDraft, node: NodeDraft) -> None:
    if node.element.flag("instantiate"):
        process.report(node, "Hark does not start processes at a receive task. Use a message start event.")
    reference = (node.element.get("messageRef") or "").strip()
    if not reference:
        process.report(node, "It does not say which message it receives. Set messageRef to the id of a message.")
        return
    node.event = _referred_message(process, node, reference)


def _referred_message(process: ProcessDraft, node: NodeDraft, reference: str) -> EventSpec | None:
    message = process.file.definition("bpmn:message", reference)
    if message is None:
        hint = process.file.suggestion("bpmn:message", reference)
        process.report(node, f"It refers to the message {reference!r}, which is not in the file.{hint}")
        return None
    return message_event(process, node, message)


def _read_flows(process: ProcessDraft, node: NodeDraft) -> None:
    """The conditions of the outgoing flows, and which of them is the default."""
    reference = (node.element.get("default") or "").strip()
    for number in node.outgoing:
        flow = process.flows[number]
        flow.skip = flow_skip(process, node, flow)
        if reference and flow.id in (reference, reference.rpartition(":")[2]):
            node.fields["default"] = number
            continue
        element = flow.element.first("bpmn:conditionExpression")
        if element is None or not (element.text.strip() or element.attributes.get("language")):
            continue
        if node.kind in ("parallel", "event_gateway"):
            process.file.ignore(flow.id, element.line, "Its condition is ignored: the gateway takes all flows.")
        else:
            flow.condition = flow_condition(process, flow.id, element, "Its condition")
    if reference and "default" not in node.fields:
        process.report(
            node, f"Its default flow {reference!r} does not leave it. Set default to one of its outgoing flows."
        )


def _read_hosts(process: ProcessDraft) -> None:
    """Attach boundary events to their activities."""
    for node in process.nodes:
        if node.element.tag != "bpmn:boundaryEvent":
            continue
        reference = (node.element.get("attachedToRef") or "").strip()
        host = process.find(reference) if reference else None
        if host is None or not host.is_activity:
            what = f"{reference!r}, which is not an activity of this process" if reference else "nothing"
            process.report(node, f"It is attached to {what}. Set attachedToRef to the id of an activity.")
            continue
        if host.scope != node.scope:
            process.report(node, f"It is attached to {host.id!r}, which is in another sub-process. Move it there.")
            continue
        node.fields["host"] = host.number
        if node.event is not None and node.event.kind != "compensation":
            host.fields.setdefault("boundaries", []).append(node.number)


def _read_compensations(process: ProcessDraft) -> None:
    """Find the activity that compensates each one that has a boundary event for compensation."""
    ends: dict[int, list[NodeDraft]] = {}
    for association in process.file.associations:
        source = process.find((association.get("sourceRef") or "").strip())
        target = process.find((association.get("targetRef") or "").strip())
        if source is not None and target is not None:
            ends.setdefault(source.number, []).append(target)
            ends.setdefault(target.number, []).append(source)
    for node in process.nodes:
        if node.kind != "boundary" or node.event is None or node.event.kind != "compensation":
            continue
        activities = [end for end in ends.get(node.number, ()) if end.is_activity]
        handlers = [end for end in activities if end.is_for_compensation]
        if len(handlers) != 1:
            _report_handlers(process, node, activities, handlers)
        elif "host" in node.fields:
            host = process.nodes[node.fields["host"]]
            if "compensation" in host.fields:
                process.report(node, f"{host.id!r} has two boundary events for compensation. Leave one of them.")
            host.fields["compensation"] = handlers[0].number


def _report_handlers(
    process: ProcessDraft, node: NodeDraft, activities: list[NodeDraft], handlers: list[NodeDraft]
) -> None:
    if handlers:
        process.report(node, f"It is associated with {len(handlers)} activities that compensate. Leave one of them.")
    elif activities:
        process.report(node, f'It is associated with {activities[0].id!r}. Set isForCompensation="true" there.')
    else:
        message = (
            "It is not associated with an activity that compensates, so it does nothing. Draw an association to one."
        )
        process.file.ignore(node.id, node.line, message)  # as in Camunda: a model that is not finished runs
