"""`read_bpmn`: reads a BPMN file into its checked processes, or reports all its problems."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from hark.model.errors import InvalidInput
from hark.model.names import check_name
from hark.model.problem import Problem, TooManyProblems
from hark.programs.bpmn.bpmn_elements import START_EVENTS
from hark.programs.bpmn.bpmn_spec import BpmnSpec, FlowSpec, NodeSpec
from hark.programs.bpmn.file.draft import BpmnDraft, FileDraft
from hark.programs.bpmn.file.extension_checks import check_definitions, check_extensions
from hark.programs.bpmn.file.extensions import attribute
from hark.programs.bpmn.file.node_checks import add_further_events, check_nodes
from hark.programs.bpmn.file.read_nodes import read_nodes
from hark.programs.bpmn.file.standard_checks import check_standard
from hark.programs.bpmn.file.structure import read_structure
from hark.programs.bpmn.file.xml_tree import XmlElement, parse_xml


@dataclass(frozen=True, slots=True)
class BpmnFile:
    """A checked BPMN file.

    Attributes:
        processes: The processes that can be deployed, at least one.
        xml: The text of the file.
        ignored: Extensions that are ignored, and processes that are left out, each with the reason.
    """

    processes: tuple[BpmnSpec, ...]
    xml: str
    ignored: list[Problem]


def read_bpmn(data: bytes | str, *, ignore_extensions: bool = False) -> BpmnFile:
    """Read and check a BPMN file.

    Processes that are not executable or have no start event are left out, if there are others.

    Args:
        data: The file, or its text.
        ignore_extensions: Ignore the extensions that Hark would have to run to behave as the modeler meant: listeners,
            connectors, signals of one instance, scripts in other languages (all are in extension_names.py).

    Raises:
        InvalidDefinition: It is not XML, has no process that can be deployed, or a process has mistakes; `.problems`
            lists them with their lines, up to 100.
    """
    document = parse_xml(data)
    file = FileDraft(document.root, ignore_extensions=ignore_extensions, declared=document.declared)
    drafts: list[BpmnDraft] = []
    with suppress(TooManyProblems):
        _check_signals(file)
        check_definitions(file)
        for element in _processes(file):
            if (draft := _read_process(file, element)) is not None:
                drafts.append(draft)
    if file.problems:
        raise file.problems.error("The BPMN file")
    file.ignored.sort(key=lambda problem: problem.line or 0)
    return BpmnFile(tuple(_spec(draft) for draft in drafts), document.text, file.ignored)


def _check_signals(file: FileDraft) -> None:
    for signal in file.definitions.values():
        if signal.tag == "bpmn:signal" and attribute(signal, "scope") == "processInstance":
            file.report_extension(
                signal.get("id"),
                signal.line,
                'The signal has scope="processInstance", but Hark sends signals to all instances. Remove the scope, '
                "or use an escalation or a message.",
            )


def _processes(file: FileDraft) -> list[XmlElement]:
    """The processes that are executable and can be started; those with an id that is taken are reported."""
    root = file.root
    if root.tag != "bpmn:definitions":
        file.report(
            None,
            root.line,
            f"The file begins with <{root.name}>, not with <definitions> of BPMN 2.0 "
            "(http://www.omg.org/spec/BPMN/20100524/MODEL). Export it as BPMN 2.0.",
        )
        return []
    elements = root.all("bpmn:process")
    if not elements:
        file.report(None, root.line, "The file has no process. Add one, with a start event.")
    taken: dict[str, XmlElement] = {}
    found: list[XmlElement] = []
    left_out: list[tuple[str, XmlElement, str]] = []
    for element in elements:
        id = (element.get("id") or "").strip()
        if not element.flag("isExecutable", default=True):
            left_out.append((id, element, 'it has isExecutable="false". To run it, set that to "true".'))
        elif element.first(*START_EVENTS) is None:
            left_out.append((id, element, "it has no start event. To run it, add one."))
        elif id in taken:
            file.report(id, element.line, f"Two processes have the id {id!r}; the first is in line {taken[id].line}.")
        else:
            taken[id] = element
            found.append(element)
    is_refused = not found and not file.problems
    for id, element, reason in left_out:
        if not is_refused:
            file.ignore(id or None, element.line, f"The process is left out: {reason}")
        else:
            file.report(
                id or None, element.line, f"The process cannot be deployed, nor any other of the file: {reason}"
            )
    return found


def _read_process(file: FileDraft, element: XmlElement) -> BpmnDraft | None:
    id = (element.get("id") or "").strip()
    try:
        check_name(id, "id of the process")
    except InvalidInput as error:
        file.report(id[:100] or None, element.line, f"{error}.")
        return None
    process = BpmnDraft(file, element, id)
    read_structure(process)
    read_nodes(process)
    check_extensions(process)
    check_nodes(process)
    check_standard(process)
    add_further_events(process)
    return process


def _spec(process: BpmnDraft) -> BpmnSpec:
    nodes = tuple(
        NodeSpec(
            id=node.id,
            kind=node.kind,
            line=node.line,
            scope=node.scope,
            name=(node.element.get("name") or "").strip() or None,
            incoming=tuple(node.incoming),
            outgoing=tuple(node.outgoing),
            event=node.event,
            children=tuple(node.children),
            boundaries=tuple(node.fields.pop("boundaries", ())),
            further=tuple(node.fields.pop("further", ())),
            **node.fields,
        )
        for node in process.nodes
    )
    flows = tuple(
        FlowSpec(
            flow.id,
            flow.source.number,
            flow.target.number,
            flow.condition,
            (flow.element.get("name") or "").strip() or None,
            flow.skip,
        )
        for flow in process.flows
        if flow.source is not None and flow.target is not None
    )
    name = (process.element.get("name") or "").strip() or None
    return BpmnSpec(process.id, nodes, flows, name, process.element.line, process.variables)
