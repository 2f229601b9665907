"""B2: events as they are read: what they catch or throw, and where they are."""

from typing import Any

import pytest

from hark.programs.bpmn.bpmn_spec import Assignment, EventSpec
from tests.bpmn.small_files import bpmn_file, chain, ext, node_of, read, spec_of

AROUND = (
    '<signal id="sig" name="go"/><signal id="named" name="go-${order}"/>'
    '<message id="msg" name="paid"/>'
    '<message id="keyed" name="=kind"><extensionElements><zeebe:subscription correlationKey="= order.id"/>'
    "</extensionElements></message>"
    '<error id="err" name="Not there" errorCode="404" camunda:errorMessage="no ${thing}"/><error id="any"/>'
    '<error id="blank" errorCode=""/>'
    '<escalation id="esc" escalationCode="slow"/>'
    '<timerEventDefinition id="later"><timeDuration>PT5M</timeDuration></timerEventDefinition>'
)


def catch(definition: str) -> EventSpec | None:
    return node_of(f'<intermediateCatchEvent id="n">{definition}</intermediateCatchEvent>', around=AROUND).event


def throw(definition: str, more: str = "") -> EventSpec | None:
    node = node_of(f'<intermediateThrowEvent id="n">{more}{definition}</intermediateThrowEvent>', around=AROUND)
    return node.event


def end(definition: str) -> EventSpec | None:
    content = f'<startEvent id="s"/><endEvent id="e">{definition}</endEvent><sequenceFlow sourceRef="s" targetRef="e"/>'
    return spec_of(content, around=AROUND).nodes[1].event


CAUGHT: dict[str, EventSpec] = {
    '<signalEventDefinition signalRef="sig"/>': EventSpec("signal", name="go"),
    '<signalEventDefinition signalRef="named"/>': EventSpec("signal", name="go-${order}"),
    '<messageEventDefinition messageRef="msg"/>': EventSpec("message", name="paid"),
    '<messageEventDefinition messageRef="tns:keyed"/>': EventSpec("message", name="=kind", key="= order.id"),
    "<timerEventDefinition><timeDuration> PT5M\n</timeDuration></timerEventDefinition>": EventSpec(
        "timer", timer="duration", text="PT5M"
    ),
    "<timerEventDefinition><timeDate>2030-01-01T00:00:00Z</timeDate></timerEventDefinition>": EventSpec(
        "timer", timer="date", text="2030-01-01T00:00:00Z"
    ),
    "<timerEventDefinition><timeCycle>R3/PT1H</timeCycle></timerEventDefinition>": EventSpec(
        "timer", timer="cycle", text="R3/PT1H"
    ),
    "<timerEventDefinition><timeDuration>=wait</timeDuration></timerEventDefinition>": EventSpec(
        "timer", timer="duration", text="=wait"
    ),
    "<eventDefinitionRef>later</eventDefinitionRef>": EventSpec("timer", timer="duration", text="PT5M"),
    "<conditionalEventDefinition><condition>${x > 1}</condition></conditionalEventDefinition>": EventSpec(
        "conditional", condition="${x > 1}"
    ),
    '<conditionalEventDefinition camunda:variableName="x"><condition>x &gt; 1</condition>'
    "</conditionalEventDefinition>": EventSpec("conditional", condition="=x > 1", variables=("x",)),
}


@pytest.mark.parametrize("definition", CAUGHT)
def test_b2_a_catch_event_says_what_it_catches(definition: str) -> None:
    assert catch(definition) == CAUGHT[definition]


THROWN: dict[str, EventSpec] = {
    '<signalEventDefinition signalRef="sig"/>': EventSpec("signal", name="go"),
    '<escalationEventDefinition escalationRef="esc"/>': EventSpec("escalation", name="slow"),
    "<compensateEventDefinition/>": EventSpec("compensation"),
    '<signalEventDefinition signalRef="sig"><extensionElements><camunda:in source="a" target="b"/>'
    '<camunda:in sourceExpression="${c + 1}" target="d"/><camunda:in source="my var" target="e"/></extensionElements>'
    "</signalEventDefinition>": EventSpec(
        "signal", name="go", payload=(Assignment("b", "=a"), Assignment("d", "${c + 1}"), Assignment("e", "=`my var`"))
    ),
    '<signalEventDefinition signalRef="sig"><extensionElements><camunda:in variables="all"/></extensionElements>'
    "</signalEventDefinition>": EventSpec("signal", name="go", copies_all=True),
}


@pytest.mark.parametrize("definition", THROWN)
def test_b2_a_throw_event_says_what_it_throws_and_what_travels_with_it(definition: str) -> None:
    assert throw(definition) == THROWN[definition]


def test_b2_only_what_is_mapped_to_the_event_travels_with_it() -> None:
    mapped = ext("<zeebe:ioMapping><zeebe:input source='=x' target='y'/></zeebe:ioMapping>")
    found = throw('<signalEventDefinition signalRef="sig"/>', mapped)
    assert found == EventSpec("signal", name="go", payload=(Assignment("y", "=x"),))
    local = (
        "<extensionElements><camunda:inputOutput><camunda:inputParameter name='y'>${x}</camunda:inputParameter>"
        "</camunda:inputOutput></extensionElements>"
    )
    assert throw('<signalEventDefinition signalRef="sig"/>', local) == EventSpec("signal", name="go")
    found = throw(
        '<signalEventDefinition signalRef="sig"><extensionElements><camunda:in variables="all" local="true"/>'
        "</extensionElements></signalEventDefinition>",
        local,
    )
    assert found == EventSpec("signal", name="go", payload=(Assignment("y", "${x}"),))


def test_b2_an_error_that_is_thrown_has_a_code_and_may_have_a_message() -> None:
    assert end('<errorEventDefinition errorRef="err"/>') == EventSpec("error", name="404", message="no ${thing}")
    assert end("<terminateEventDefinition/>") == EventSpec("terminate")
    assert end("") is None


BOUNDARIES: dict[str, tuple[EventSpec, bool]] = {
    '<errorEventDefinition errorRef="err" camunda:errorCodeVariable="c" camunda:errorMessageVariable="m"/>': (
        EventSpec("error", name="404", code_variable="c", message_variable="m"),
        True,
    ),
    "<errorEventDefinition/>": (EventSpec("error"), True),
    '<errorEventDefinition errorRef="any"/>': (EventSpec("error"), True),
    '<errorEventDefinition errorRef="blank"/>': (EventSpec("error"), True),
    '<escalationEventDefinition escalationRef="esc" camunda:escalationCodeVariable="c"/>': (
        EventSpec("escalation", name="slow", code_variable="c"),
        False,
    ),
    '<signalEventDefinition signalRef="sig"/>': (EventSpec("signal", name="go"), False),
}


@pytest.mark.parametrize("definition", BOUNDARIES)
def test_b2_a_boundary_event_belongs_to_its_host_and_an_error_always_interrupts_it(definition: str) -> None:
    spec = spec_of(
        chain('<userTask id="t"/>')
        + f'<boundaryEvent id="b" attachedToRef="t" cancelActivity="false">{definition}</boundaryEvent>',
        around=AROUND,
    )
    task, boundary = spec.nodes[1], spec.nodes[3]
    assert (boundary.event, boundary.interrupting) == BOUNDARIES[definition]
    assert boundary.host == task_number(spec.nodes, "t")
    assert task.boundaries == (3,)


def task_number(nodes: Any, id: str) -> int:
    return next(number for number, node in enumerate(nodes) if node.id == id)


def test_b2_a_boundary_event_without_cancel_activity_interrupts() -> None:
    spec = spec_of(
        chain('<userTask id="t"/>')
        + '<boundaryEvent id="b" attachedToRef="t"><signalEventDefinition signalRef="sig"/></boundaryEvent>'
        '<boundaryEvent id="c" attachedToRef="t" cancelActivity="0"><signalEventDefinition signalRef="sig"/>'
        "</boundaryEvent>",
        around=AROUND,
    )
    assert [node.interrupting for node in spec.nodes if node.kind == "boundary"] == [True, False]


def test_b2_compensation_is_found_through_an_association_outside_the_sub_process() -> None:
    inside = (
        '<startEvent id="i"/><task id="book"/><sequenceFlow sourceRef="i" targetRef="book"/>'
        '<boundaryEvent id="b" attachedToRef="book"><compensateEventDefinition/></boundaryEvent>'
        '<task id="undo" isForCompensation="true"/>'
        '<intermediateThrowEvent id="back"><compensateEventDefinition activityRef="book"/></intermediateThrowEvent>'
        '<sequenceFlow sourceRef="book" targetRef="back"/>'
    )
    spec = spec_of(
        chain(f'<subProcess id="sub">{inside}</subProcess>') + '<association id="a" sourceRef="b" targetRef="undo"/>'
    )
    nodes = {node.id: node for node in spec.nodes}
    assert spec.nodes[nodes["book"].compensation or 0].id == "undo"
    assert nodes["undo"].for_compensation
    assert nodes["book"].boundaries == ()
    assert spec.nodes[nodes["back"].event.activity or 0].id == "book"  # type: ignore[union-attr]


def test_b2_a_boundary_event_for_compensation_without_an_association_does_nothing_and_is_listed() -> None:
    boundary = '<boundaryEvent id="b" attachedToRef="t"><compensateEventDefinition/></boundaryEvent>'
    found = read(bpmn_file(chain('<task id="t"/>') + boundary))
    assert [(item.element, "not associated" in item.message) for item in found.ignored] == [("b", True)]
    assert all(node.compensation is None for node in found.processes[0].nodes)


def test_b2_the_scopes_of_sub_processes_and_the_start_of_an_event_sub_process() -> None:
    inside = (
        '<startEvent id="i"/><subProcess id="es" triggeredByEvent="true">'
        '<startEvent id="es_start" isInterrupting="false"><signalEventDefinition signalRef="sig"/></startEvent>'
        '<transaction id="tx"/></subProcess>'
    ).replace('<transaction id="tx"/>', "")
    spec = spec_of(chain(f'<transaction id="sub">{inside}</transaction>'), around=AROUND)
    nodes = {node.id: node for node in spec.nodes}
    assert nodes["sub"].transaction
    assert [spec.nodes[number].id for number in nodes["sub"].children] == ["i", "es"]
    assert nodes["es"].event_subprocess
    assert not nodes["es_start"].interrupting
    assert (nodes["i"].scope, nodes["es_start"].scope, nodes["s"].scope) == (1, 3, -1)


def test_b2_a_thrown_message_is_sent_or_is_the_work_of_a_handler() -> None:
    sent = node_of(
        '<intermediateThrowEvent id="n"><messageEventDefinition messageRef="msg"/></intermediateThrowEvent>',
        around=AROUND,
    )
    assert (sent.kind, sent.event) == ("send", EventSpec("message", name="paid"))
    handled = node_of(
        '<intermediateThrowEvent id="n"><messageEventDefinition camunda:type="external" camunda:topic="mail"/>'
        "</intermediateThrowEvent>"
    )
    assert (handled.kind, handled.event, handled.handler) == ("service", None, "mail")
    handled = node_of(
        '<intermediateThrowEvent id="n"><extensionElements><zeebe:taskDefinition type="post"/></extensionElements>'
        '<messageEventDefinition messageRef="msg"/></intermediateThrowEvent>',
        around=AROUND,
    )
    assert (handled.kind, handled.event, handled.handler) == ("service", None, "post")


def test_b2_links_are_connected_by_their_names() -> None:
    spec = spec_of(
        '<startEvent id="s"/>'
        '<intermediateThrowEvent id="out"><linkEventDefinition name="two"/></intermediateThrowEvent>'
        '<sequenceFlow sourceRef="s" targetRef="out"/>'
        '<intermediateCatchEvent id="in" name="two"><linkEventDefinition/></intermediateCatchEvent>'
        '<endEvent id="e"/><sequenceFlow sourceRef="in" targetRef="e"/>'
    )
    assert [node.event.name for node in spec.nodes if node.event is not None] == ["two", "two"]


def test_b2_the_starts_of_a_process() -> None:
    spec = spec_of(
        '<startEvent id="none"/><startEvent id="on"><signalEventDefinition signalRef="sig"/></startEvent>'
        '<startEvent id="at"><timerEventDefinition><timeCycle>0 0 * * *</timeCycle></timerEventDefinition></startEvent>'
        '<startEvent id="by"><messageEventDefinition messageRef="msg"/></startEvent>',
        around=AROUND,
    )
    assert [node.id for node in spec.starts] == ["none", "on", "at", "by"]
    assert spec.none_start is not None
    assert spec.none_start.id == "none"
