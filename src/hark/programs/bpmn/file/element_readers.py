"""Read and check the elements: a class per element, and the registry of them.

What all nodes have is read in read_nodes.py, and what nodes mean together is checked in node_checks.py.
"""

from __future__ import annotations

from typing import ClassVar, Final

from hark.programs.bpmn.bpmn_spec import EventSpec
from hark.programs.bpmn.file.data_objects import read_data_objects
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.file_sources import condition
from hark.programs.bpmn.file.read_calls import read_call
from hark.programs.bpmn.file.read_events import is_handled, message_event, read_event
from hark.programs.bpmn.file.read_handlers import has_handler, read_script, read_service
from hark.programs.bpmn.file.read_user_tasks import read_user


class ElementReader:
    """Reads and checks an element. By default, there is nothing beyond what all nodes have."""

    may_be_skipped: ClassVar[bool] = False
    """The element may have a skip expression."""
    has_due_date: ClassVar[bool] = False
    """The element may have a due date, which a business calendar computes in other engines."""
    may_follow_event_gateway: ClassVar[bool] = False
    """An event gateway can wait for it."""
    may_have_boundaries: ClassVar[bool] = False
    """A boundary event may be attached to the element, although it is not an activity."""
    decides_flows: ClassVar[bool] = True
    """The conditions of its outgoing flows decide which of them are taken."""
    skips_flows: ClassVar[bool] = True
    """The outgoing flows may have skip expressions."""

    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        """Read what the node does; its mappings and loop are read already. This may change the kind of the node."""

    def check(self, process: BpmnDraft, node: NodeDraft) -> None:
        """Report what cannot be executed. All nodes and flows of the process are read."""


# -- events ------------------------------------------------------------------------------------------


class EventNodeReader(ElementReader):
    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        read_event(process, node)


class StartEventReader(EventNodeReader):
    def check(self, process: BpmnDraft, node: NodeDraft) -> None:
        if (into := process.flow_into(node)) is not None:
            process.report(node, f"The flow {into.id!r} goes into a start event. Let it go to the element after it.")


class BoundaryEventReader(EventNodeReader):
    def check(self, process: BpmnDraft, node: NodeDraft) -> None:
        if (into := process.flow_into(node)) is not None:
            process.report(node, f"The flow {into.id!r} goes into a boundary event. Remove the flow.")


class CatchEventReader(EventNodeReader):
    may_follow_event_gateway = True
    may_have_boundaries = True

    def check(self, process: BpmnDraft, node: NodeDraft) -> None:
        if node.is_link and node.fields.get("boundaries"):
            process.report(node, "No token waits at a link, so its boundary events never come. Remove them.")


class ThrowEventReader(ElementReader):
    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        """Read an event that throws a message: a handler sends the message, or Hark itself."""
        definition = read_event(process, node)
        if definition is None or node.event is None or node.event.kind != "message":
            return
        if is_handled(definition, node):
            read_service(process, node, definition)
        else:
            node.kind = "send"


class EndEventReader(ThrowEventReader):
    def check(self, process: BpmnDraft, node: NodeDraft) -> None:
        if node.outgoing:
            process.report(node, "A flow leaves the end event. Remove the flow, or use an intermediate throw event.")


# -- activities --------------------------------------------------------------------------------------


class BusinessRuleTaskReader(ElementReader):
    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        read_service(process, node, node.element)


class ServiceTaskReader(BusinessRuleTaskReader):
    may_be_skipped = True


class SendTaskReader(ElementReader):
    may_be_skipped = True

    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        reference = (node.element.get("messageRef") or "").strip()
        if not reference or has_handler(node, node.element):
            read_service(process, node, node.element)
            return
        node.event = _referred_message(process, node, reference)


class ReceiveTaskReader(ElementReader):
    may_follow_event_gateway = True

    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        if node.element.flag("instantiate"):
            process.report(node, "Hark does not start processes at a receive task. Use a message start event.")
        reference = (node.element.get("messageRef") or "").strip()
        if not reference:
            process.report(node, "It does not say which message it receives. Set messageRef to the id of a message.")
            return
        node.event = _referred_message(process, node, reference)


def _referred_message(process: BpmnDraft, node: NodeDraft, reference: str) -> EventSpec | None:
    message = process.file.definition("bpmn:message", reference)
    if message is None:
        hint = process.file.suggestion("bpmn:message", reference)
        process.report(node, f"It refers to the message {reference!r}, which is not in the file.{hint}")
        return None
    return message_event(process, node, message)


class ScriptTaskReader(ElementReader):
    may_be_skipped = True

    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        read_script(process, node)


class UserTaskReader(ElementReader):
    may_be_skipped = True
    has_due_date = True

    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        read_user(process, node)


class SubProcessReader(ElementReader):
    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        if variables := read_data_objects(process, node.element):
            node.fields["variables"] = variables


class CallActivityReader(ElementReader):
    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        read_call(process, node)


# -- gateways ----------------------------------------------------------------------------------------


class ParallelGatewayReader(ElementReader):
    decides_flows = False


class ComplexGatewayReader(ElementReader):
    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        element = node.element.first("bpmn:activationCondition")
        if element is not None and element.text.strip():
            node.fields["activation"] = condition(process, node, element, "Its activation condition")
        elif "activationCondition" in node.element.attributes:
            process.report(node, "Its activation condition is an attribute. Make it an element <activationCondition>.")


class EventGatewayReader(ElementReader):
    decides_flows = False
    skips_flows = False

    def read(self, process: BpmnDraft, node: NodeDraft) -> None:
        if node.element.flag("instantiate"):
            process.report(node, "Hark does not start processes at an event gateway. Use message start events.")

    def check(self, process: BpmnDraft, node: NodeDraft) -> None:
        if not node.outgoing:
            process.report(node, "Nothing follows the event gateway. Connect it with the events that it waits for.")
        for number in node.outgoing:
            target = process.flows[number].target
            if target is None:
                continue
            if not ELEMENT_READERS[target.row.tag].may_follow_event_gateway:
                process.report(
                    node, f"{target.id!r} follows the event gateway, but is neither a catch event nor a receive task."
                )
            elif not target.is_activity and target.fields.get("boundaries"):
                process.report(
                    target,
                    "It follows an event gateway, where the token waits, so its boundary events never come. "
                    "Let the event gateway wait for their events too.",
                )
            elif not target.is_activity and len(target.incoming) > 1:
                process.report(
                    target, "It follows an event gateway, so nothing else can lead to it. Use an event of its own."
                )
        if node.element.get("eventGatewayType") == "Parallel":
            process.report(node, "It waits for all of its events. Use a parallel gateway with an event on each path.")


ELEMENT_READERS: Final[dict[str, ElementReader]] = {
    "bpmn:startEvent": StartEventReader(),
    "bpmn:endEvent": EndEventReader(),
    "bpmn:intermediateCatchEvent": CatchEventReader(),
    "bpmn:intermediateThrowEvent": ThrowEventReader(),
    "bpmn:boundaryEvent": BoundaryEventReader(),
    "bpmn:task": ElementReader(),
    "bpmn:manualTask": ElementReader(),
    "bpmn:serviceTask": ServiceTaskReader(),
    "bpmn:businessRuleTask": BusinessRuleTaskReader(),
    "bpmn:sendTask": SendTaskReader(),
    "bpmn:scriptTask": ScriptTaskReader(),
    "bpmn:userTask": UserTaskReader(),
    "bpmn:receiveTask": ReceiveTaskReader(),
    "bpmn:subProcess": SubProcessReader(),
    "bpmn:transaction": SubProcessReader(),
    "bpmn:adHocSubProcess": SubProcessReader(),
    "bpmn:callActivity": CallActivityReader(),
    "bpmn:exclusiveGateway": ElementReader(),
    "bpmn:parallelGateway": ParallelGatewayReader(),
    "bpmn:inclusiveGateway": ElementReader(),
    "bpmn:complexGateway": ComplexGatewayReader(),
    "bpmn:eventBasedGateway": EventGatewayReader(),
}
"""The reader of each element of programs/bpmn/bpmn_elements.py."""
