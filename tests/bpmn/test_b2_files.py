"""B2: files of any modeler: several processes, missing ids, references to what comes later, what has no effect."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from hark import InvalidDefinition
from hark.app.bpmn_deployment import read_bpmn_file
from hark.programs.bpmn.file import BpmnFile, read_bpmn
from tests.bpmn.small_files import bpmn_file, chain, definitions, problems_of, read, spec_of

CONFORMANCE = (
    Path(os.environ.get("HARK_CONFORMANCE", Path(__file__).resolve().parents[3] / "shared/conformance")) / "bpmn"
)
REFUSED = {
    "InvalidProcessWithNoSignalName.bpmn20.xml": ("alertSignal", 7),
    "InvalidProcessWithSignalNoRef.bpmn20.xml": ("signalEvent", 16),
    "TransactionSubProcessTest.testCancelEndNoTransactionFails.bpmn20.xml": ("failure", 14),
}
FILES = sorted(path for path in CONFORMANCE.glob("*/*") if path.suffix in (".xml", ".bpmn"))


def test_b2_the_files_of_other_engines_are_read() -> None:
    for path in FILES:
        if path.name not in REFUSED:
            assert read(path.read_bytes()).processes, path.name


def test_b2_the_files_that_other_engines_refuse_are_refused() -> None:
    for path in FILES:
        if path.name in REFUSED:
            [problem] = problems_of(path.read_bytes())
            assert (problem.element, problem.line) == REFUSED[path.name]


def test_b2_a_process_is_data() -> None:
    spec = spec_of(
        '<sequenceFlow sourceRef="s" targetRef="g" name="begin"/>'
        '<startEvent id="s" name=" Start "/>'
        '<exclusiveGateway id="g" default="no"/>'
        '<sequenceFlow id="yes" sourceRef="g" targetRef="e"><conditionExpression>=x &gt; 1</conditionExpression>'
        '</sequenceFlow><sequenceFlow id="no" sourceRef="g" targetRef="e"/>'
        '<endEvent id="e"/>'
    )
    assert [(node.id, node.kind, node.name) for node in spec.nodes] == [
        ("s", "start", "Start"), ("g", "exclusive", None), ("e", "end", None),
    ]  # fmt: skip
    assert [(flow.id, flow.source, flow.target, flow.condition, flow.name) for flow in spec.flows] == [
        ("s->g", 0, 1, None, "begin"), ("yes", 1, 2, "=x > 1", None), ("no", 1, 2, None, None),
    ]  # fmt: skip
    assert spec.nodes[1].default == 2
    assert (spec.nodes[1].incoming, spec.nodes[1].outgoing) == ((0,), (1, 2))


def test_b2_missing_ids_are_made_from_the_line_and_from_the_ends() -> None:
    spec = spec_of(
        '<startEvent id="s"/>\n<subProcess>\n<task/></subProcess><subProcess id="x"><task/><task/></subProcess>\n'
        '<task id="a"/>'
        '<sequenceFlow sourceRef="s" targetRef="a"/><sequenceFlow sourceRef="s" targetRef="a"/>'
        '<sequenceFlow sourceRef="s" targetRef="x"/>'.replace("<subProcess>\n<task/></subProcess>", "")
    )
    assert [node.id for node in spec.nodes] == ["s", "x", "task@4", "task@4.2", "a"]
    assert [flow.id for flow in spec.flows] == ["s->a", "s->a.2", "s->x"]


def test_b2_several_processes_are_read_and_those_that_cannot_start_are_left_out() -> None:
    content = (
        f'<process id="one" isExecutable="true">{chain()}</process>\n'
        f'<process id="two" name="Second" isExecutable="false">{chain()}</process>\n'
        '<process id="three"><task id="t"/></process>\n'
        f'<process id="four">{chain()}</process>'
    )
    found = read(definitions(content))
    assert [spec.id for spec in found.processes] == ["one", "four"]
    assert [(item.element, "left out" in item.message) for item in found.ignored] == [("two", True), ("three", True)]


def test_b2_a_file_whose_processes_would_all_be_left_out_is_refused() -> None:
    content = (
        '<process id="a" isExecutable="false"><startEvent id="s"/></process>\n<process id="b"><task id="t"/></process>'
    )
    first, second = problems_of(definitions(content))
    assert (first.element, first.line, second.element, second.line) == ("a", 2, "b", 3)
    assert 'isExecutable="false"' in first.message
    assert "no start event" in second.message


def test_b2_a_file_without_a_process_is_refused() -> None:
    [problem] = problems_of(definitions('<signal id="x" name="x"/>'))
    assert "no process" in problem.message
    [problem] = problems_of("<html/>")
    assert "BPMN 2.0" in problem.message
    [problem] = problems_of('<definitions xmlns="http://schema.omg.org/spec/BPMN/2.0"><process id="a"/></definitions>')
    assert "20100524" in problem.message


def test_b2_what_has_no_effect_is_tolerated() -> None:
    content = chain('<task id="t"><documentation>x</documentation><ioSpecification/><property id="v"/></task>') + (
        '<laneSet><lane id="l"><flowNodeRef>t</flowNodeRef></lane></laneSet><dataObject id="d"/>'
        '<dataObjectReference id="r" dataObjectRef="d"/><dataStoreReference id="ds"/>'
        '<textAnnotation id="n"><text>hi</text></textAnnotation><association id="as" sourceRef="t" targetRef="n"/>'
        '<group id="gr" categoryValueRef="c"/><acme:thing/>'
    )
    around = '<collaboration id="c"><participant id="pa" processRef="p"/></collaboration><category/><itemDefinition/>'
    assert [node.id for node in read(bpmn_file(content, around=around)).processes[0].nodes] == ["s", "t", "e"]


def test_b2_definitions_may_be_anywhere_and_come_later() -> None:
    inside = '<signal id="sig" name="go"/>' + chain(
        '<intermediateCatchEvent id="c"><signalEventDefinition signalRef="sig"/></intermediateCatchEvent>',
        '<intermediateThrowEvent id="t"><signalEventDefinition signalRef="tns:later"/></intermediateThrowEvent>',
    )
    spec = spec_of(inside, around='<signal id="later" name="gone"/>')
    assert [node.event.name for node in spec.nodes if node.event is not None] == ["go", "gone"]


def test_b2_the_digest_is_that_of_the_text() -> None:
    text = bpmn_file(chain())
    assert digest(text) == digest(text.encode()) == digest(text.encode("utf-16"))
    assert digest(text + " ") != digest(text)
    assert read(text).xml == text


def test_b2_the_digest_is_that_of_what_was_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = bpmn_file(chain())
    before = digest(text)

    def read_more(data: bytes | str, **options: bool) -> BpmnFile:
        file = read_bpmn(data, **options)
        return replace(file, processes=tuple(structs.replace(each, variables={"new": 1}) for each in file.processes))

    monkeypatch.setattr("hark.app.bpmn_deployment.read_bpmn", read_more)  # as a later version may do
    assert digest(text) != before


def digest(data: bytes | str) -> str | None:
    _, [request] = read_bpmn_file(data, 0)
    return request.digest


def test_b2_all_problems_are_listed_in_the_order_of_their_lines() -> None:
    with pytest.raises(InvalidDefinition) as caught:
        read(bpmn_file('<receiveTask id="r"/>\n<startEvent id="s"/>\n<callActivity id="c"/>'))
    assert [(problem.element, problem.line) for problem in caught.value.problems] == [
        ("r", 3), ("r", 3), ("c", 5), ("c", 5),
    ]  # fmt: skip
    assert "has 4 problems" in str(caught.value)


def test_b2_of_very_many_problems_the_first_hundred_are_listed() -> None:
    text = bpmn_file('<startEvent id="s"/>' + "".join(f'<callActivity id="c{n}"/>\n' for n in range(500)))
    problems = problems_of(text)
    assert len(problems) == 100
