"""B2: what cannot be executed is refused, with the element, its line and what to do."""

import sys
from typing import Any

import pytest

from tests.bpmn.small_files import bpmn_file, chain, definitions, extended, problems_of, read

AROUND = (
    '<signal id="sig" name="go"/>\n<message id="msg" name="paid"/>\n<error id="err" errorCode="1"/>\n'
    '<error id="plain"/>\n<escalation id="esc"/>\n<signal id="nameless"/>\n<message id="blank" name=" "/>'
)
SIGNAL = '<signalEventDefinition signalRef="sig"/>'
COMPENSATION = "<compensateEventDefinition/>"


def catch(definition: str, id: str = "n") -> str:
    return f'<intermediateCatchEvent id="{id}">{definition}</intermediateCatchEvent>'


def throw(definition: str, id: str = "n") -> str:
    return f'<intermediateThrowEvent id="{id}">{definition}</intermediateThrowEvent>'


def boundary(definition: str, host: str = "t") -> str:
    """In line 8, on the task `t` in line 4."""
    task = '<task id="t"/>'
    return f'{chain(task)}<boundaryEvent id="b" attachedToRef="{host}">{definition}</boundaryEvent>'


def sub(content: str, attributes: str = "") -> str:
    return f'<subProcess id="sub" {attributes}>\n{content}</subProcess>'


def timer(content: str) -> str:
    return catch(f"<timerEventDefinition>{content}</timerEventDefinition>")


def loop(content: str) -> str:
    return f'<task id="n">{content}</task>'


INNER = '<startEvent id="i"/>'
EVENT_SUB = '<startEvent id="i"><signalEventDefinition signalRef="sig"/></startEvent>'

IN_A_CHAIN = {  # nodes between a start and an end: the first of them is in line 4
    "a signal event without a reference": (catch("<signalEventDefinition/>"), "n", 4, "which signal"),
    "an unknown signal": (catch('<signalEventDefinition signalRef="sog"/>'), "n", 4, "Did you mean 'sig'?"),
    "a reference to another kind": (catch('<signalEventDefinition signalRef="msg"/>'), "n", 4, "'msg'"),
    "a message event without a reference": (catch("<messageEventDefinition/>"), "n", 4, "which message"),
    "a thrown message without a reference": (throw("<messageEventDefinition/>"), "n", 4, "which message"),
    "an unknown message": (catch('<messageEventDefinition messageRef="x"/>'), "n", 4, "'x'"),
    "a message without a name": (catch('<messageEventDefinition messageRef="blank"/>'), "blank", 16, "no name"),
    "a signal without a name": (catch('<signalEventDefinition signalRef="nameless"/>'), "nameless", 15, "no name"),
    "a catch event without an event": (catch(""), "n", 4, "no event definition"),
    "an activation condition as an attribute": (
        '<complexGateway id="n" activationCondition="=activationCount > 1"/>', "n", 4, "<activationCondition>",
    ),
    "an event that waits for all of its definitions": (
        catch(SIGNAL + SIGNAL).replace("<intermediateCatchEvent", '<intermediateCatchEvent parallelMultiple="true"'),
        "n", 4, "waits for all of its events",
    ),
    "an error among several thrown events": (
        f'<subProcess id="sub"><startEvent id="i"/><endEvent id="n">{SIGNAL}<errorEventDefinition errorRef="err"/>'
        '</endEvent><sequenceFlow sourceRef="i" targetRef="n"/></subProcess>',
        "n", 4, "cannot be one of several definitions",
    ),
    "a link among several events": (
        catch(SIGNAL + '<linkEventDefinition name="x"/>'), "n", 4, "cannot be one of several definitions",
    ),
    "an error that is thrown in between": (throw('<errorEventDefinition errorRef="err"/>'), "n", 4, "cannot be"),
    "an unknown event definition": (catch("<eventDefinitionRef>x</eventDefinitionRef>"), "n", 4, "'x'"),
    "a timer without a text": (timer(""), "n", 4, "timeDate"),
    "a timer with an empty text": (timer("<timeDuration> </timeDuration>"), "n", 4, "PT5M"),
    "a timer with two texts": (
        timer("<timeDuration>PT1S</timeDuration><timeDate>2030-01-01</timeDate>"), "n", 4, "one of",
    ),
    "a timer whose text is not a duration": (timer("<timeDuration>soon</timeDuration>"), "n", 4, "'soon'"),
    "a timer whose text is not a date": (timer("<timeDate>2030-13-45</timeDate>"), "n", 4, "2030-13-45"),
    "a timer whose text is not a cycle": (timer("<timeCycle>often</timeCycle>"), "n", 4, "often"),
    "a timer whose expression is broken": (timer("<timeDuration>=1 +</timeDuration>"), "n", 4, "Its timer"),
    "a conditional event without a condition": (catch("<conditionalEventDefinition/>"), "n", 4, "no condition"),
    "an empty condition": (
        catch("<conditionalEventDefinition><condition/></conditionalEventDefinition>"), "n", 4, "empty",
    ),
    "an escalation without a reference": (throw("<escalationEventDefinition/>"), "n", 4, "which escalation"),
    "an escalation without a code": (throw('<escalationEventDefinition escalationRef="esc"/>'), "n", 4, "no code"),
    "compensation of something unknown": (throw('<compensateEventDefinition activityRef="x"/>'), "n", 4, "'x'"),
    "compensation of an event": (throw('<compensateEventDefinition activityRef="s"/>'), "n", 4, "'s'"),
    "a link without a name": (catch("<linkEventDefinition/>"), "n", 4, "no name"),
    "a receive task without a message": ('<receiveTask id="n"/>', "n", 4, "which message"),
    "a receive task with an unknown message": ('<receiveTask id="n" messageRef="x"/>', "n", 4, "'x'"),
    "a receive task that starts processes": (
        '<receiveTask id="n" messageRef="msg" instantiate="true"/>', "n", 4, "start event",
    ),
    "an event gateway that starts processes": (
        '<eventBasedGateway id="n" instantiate="true"/>', "n", 4, "message start events",
    ),
    "a send task with an unknown message": ('<sendTask id="n" messageRef="x"/>', "n", 4, "'x'"),
    "a call activity without a process": ('<callActivity id="n"/>', "n", 4, "calledElement"),
    "a call of a version that is not a number": (
        '<callActivity id="n" calledElement="x" camunda:calledElementBinding="version" '
        'camunda:calledElementVersion="new"/>', "n", 4, "'new'",
    ),
    "a mapping without a target": (
        extended("callActivity", "<camunda:in source='a'/>", attributes='calledElement="x"'), "n", 4, "target",
    ),
    "a zeebe mapping without a target": (
        extended("task", "<zeebe:ioMapping><zeebe:input source='=a'/></zeebe:ioMapping>"), "n", 4, "no target",
    ),
    "a mapping without a name": (
        extended("task", "<camunda:inputOutput><camunda:inputParameter>1</camunda:inputParameter>"
                 "</camunda:inputOutput>"), "n", 4, "no name",
    ),
    "a mapping that is not an expression": (
        extended("task", "<zeebe:ioMapping><zeebe:input source='=a +' target='b'/></zeebe:ioMapping>"), "n", 4, "'b'",
    ),
    "retries that are not a number": (
        extended("serviceTask", "<zeebe:taskDefinition type='a' retries='many'/>"), "n", 4, "'many'",
    ),
    "a type that is empty": (extended("serviceTask", "<zeebe:taskDefinition type=' '/>"), "n", 4, "no type"),
    "a handler named shell": ('<serviceTask id="n" camunda:topic="shell"/>', "n", 4, "'shell'"),
    "a delegate without a name": (
        '<serviceTask id="n" camunda:delegateExpression="${a ? b : c}"/>', "n", 4, "name of a handler",
    ),
    "a script without a text": ('<scriptTask id="n" scriptFormat="feel"/>', "n", 4, "no script"),
    "a script without a language": ('<scriptTask id="n"><script>a + 1</script></scriptTask>', "n", 4, "scriptFormat"),
    "a script that is not an expression": (
        '<scriptTask id="n" scriptFormat="feel">\n<script>a +</script></scriptTask>', "n", 5, "Its script",
    ),
    "an assignee that is not an expression": ('<userTask id="n" camunda:assignee="${"/>', "n", 4, "Its assignee"),
    "an ad-hoc sub-process": ('<adHocSubProcess id="n"><task id="x"/></adHocSubProcess>', "n", 4, "ad-hoc"),
    "a loop without a number": (
        loop("<multiInstanceLoopCharacteristics/>"), "n", 4, "neither a loopCardinality nor a collection",
    ),
    "a loop that is an expression": (
        loop('<multiInstanceLoopCharacteristics isSequential="${x}"><loopCardinality>1</loopCardinality>'
             "</multiInstanceLoopCharacteristics>"), "n", 4, "isSequential",
    ),
    "two loops": (loop("<standardLoopCharacteristics/>" * 2), "n", 4, "several loops"),
    "a maximum that is not a number": (
        loop('<standardLoopCharacteristics loopMaximum="²"/>'), "n", 4, "loopMaximum",
    ),
    "a collection that is not one": (
        loop("<multiInstanceLoopCharacteristics><extensionElements><flowable:collection><flowable:string>[1"
             "</flowable:string></flowable:collection></extensionElements><loopCardinality>1</loopCardinality>"
             "</multiInstanceLoopCharacteristics>"), "n", 4, "JSON list",
    ),
    "a default flow of another node": ('<exclusiveGateway id="n" default="f1"/>', "n", 4, "does not leave it"),
    "an activity for compensation in the flow": ('<task id="n" isForCompensation="true"/>', "n", 4, "no flows"),
    "an event sub-process in the flow": (
        '<subProcess id="n" triggeredByEvent="true">' + EVENT_SUB + "</subProcess>", "n", 4, "no flows",
    ),
    "an empty sub-process": ('<subProcess id="n"/>', "n", 4, "empty"),
    "a sub-process that starts with a signal": (sub(EVENT_SUB), "i", 5, "triggeredByEvent"),
    "a sub-process with two starts": (sub(INNER + '\n<startEvent id="j"/>'), "j", 6, "two start events"),
    "an event gateway before a task": ('<eventBasedGateway id="n"/>', "n", 4, "neither a catch event"),
    "an id that cannot be one": ('<task id="a#b"/>', "a#b", 4, "cannot be an id"),
}  # fmt: skip

IN_A_PROCESS = {  # the first line is line 3
    "an end with a flow out of it": (
        '<startEvent id="s"/><endEvent id="e"/><task id="t"/>\n<sequenceFlow sourceRef="s" targetRef="e"/>'
        '<sequenceFlow sourceRef="e" targetRef="t"/>', "e", 3, "leaves the end event",
    ),
    "a start with a flow into it": (
        '<startEvent id="s"/><task id="t"/>\n<sequenceFlow sourceRef="s" targetRef="t"/>'
        '<sequenceFlow id="back" sourceRef="t" targetRef="s"/>', "s", 3, "'back'",
    ),
    "an error event on a catch event": (
        chain(catch(SIGNAL)) + '<boundaryEvent id="b" attachedToRef="n"><errorEventDefinition/></boundaryEvent>',
        "b", 8, "no error event can be thrown",
    ),
    "a boundary event on a catch event behind an event gateway": (
        '<startEvent id="s"/><eventBasedGateway id="g"/>\n' + catch(SIGNAL) + '<boundaryEvent id="b" attachedToRef="n">'
        f'{SIGNAL}</boundaryEvent><sequenceFlow sourceRef="s" targetRef="g"/>'
        '<sequenceFlow sourceRef="g" targetRef="n"/>', "n", 4, "its boundary events never come",
    ),
    "two starts without a trigger": ('<startEvent id="s"/>\n<startEvent id="r"/>', "r", 4, "two start events"),
    "a flow to nowhere": (
        '<startEvent id="s"/>\n<sequenceFlow id="f" sourceRef="s" targetRef="x"/>', "f", 4, "'x'",
    ),
    "a flow from nowhere": (
        '<startEvent id="s"/>\n<task id="t"/><sequenceFlow id="f" sourceRef="ss" targetRef="t"/>', "f", 4, "Did you",
    ),
    "a flow without a target": ('<startEvent id="s"/>\n<sequenceFlow id="f" sourceRef="s"/>', "f", 4, "no targetRef"),
    "a flow into a sub-process": (
        chain(sub(INNER + '<task id="t"/><sequenceFlow sourceRef="i" targetRef="t"/>'))
        + '\n<sequenceFlow id="f" sourceRef="s" targetRef="t"/>', "f", 10, "across the border",
    ),
    "a node that nothing leads to": (chain() + '\n<task id="lost"/>', "lost", 7, "Nothing leads to"),
    "a circle that nothing leads to": (
        chain() + '\n<task id="a"/><task id="b"/><sequenceFlow sourceRef="a" targetRef="b"/>'
        '<sequenceFlow sourceRef="b" targetRef="a"/>', "a", 7, "Nothing leads to",
    ),
    "a node in a sub-process that nothing leads to": (
        chain(sub(INNER + '\n<task id="lost"/>')), "lost", 6, "Nothing leads to",
    ),
    "two elements with one id": (chain('<task id="t"/>') + '\n<task id="t"/>', "t", 9, "two elements"),
    "two flows with one id": (chain('<task id="t"/>').replace('"f2"', '"f1"'), "f1", 7, "two elements"),
    "a condition that is not an expression": (
        '<startEvent id="s"/><endEvent id="e"/>\n<sequenceFlow id="f" sourceRef="s" targetRef="e">\n'
        "<conditionExpression>${x >}</conditionExpression></sequenceFlow>", "f", 5, "Its condition",
    ),
    "a boundary event on nothing": (boundary(SIGNAL, ""), "b", 8, "attachedToRef"),
    "a boundary event on something unknown": (boundary(SIGNAL, "x"), "b", 8, "'x'"),
    "a boundary event on an event": (boundary(SIGNAL, "s"), "b", 8, "not an activity"),
    "a boundary event without an event": (boundary(""), "b", 8, "no event definition"),
    "a cancel boundary on a task": (boundary("<cancelEventDefinition/>"), "b", 8, "transaction"),
    "a terminate boundary": (boundary("<terminateEventDefinition/>"), "b", 8, "cannot be a boundary event"),
    "a flow into a boundary event": (
        boundary(SIGNAL) + '<sequenceFlow id="f" sourceRef="t" targetRef="b"/>', "b", 8, "'f'",
    ),
    "two boundary events for the same error": (
        boundary("<errorEventDefinition/>")
        + '\n<boundaryEvent id="c" attachedToRef="t"><errorEventDefinition errorRef="plain"/></boundaryEvent>',
        "c", 9, "the same as 'b'",
    ),
    "two event sub-processes for the same error": (
        chain() + "".join(
            f'\n<subProcess id="x{n}" triggeredByEvent="true"><startEvent id="i{n}">'
            '<errorEventDefinition errorRef="err"/></startEvent></subProcess>' for n in (1, 2)
        ), "i2", 8, "the same as 'i1'",
    ),
    "two starts with the same message": (
        "".join(f'\n<startEvent id="s{n}"><messageEventDefinition messageRef="msg"/></startEvent>' for n in (1, 2)),
        "s2", 5, "same message",
    ),
    "compensation by an ordinary activity": (
        boundary(COMPENSATION) + '<association sourceRef="b" targetRef="t"/>', "b", 8, "isForCompensation",
    ),
    "compensation by two activities": (
        boundary(COMPENSATION) + '<task id="u" isForCompensation="true"/><task id="v" isForCompensation="true"/>'
        '<association sourceRef="b" targetRef="u"/><association sourceRef="v" targetRef="b"/>', "b", 8, "2 activities",
    ),
    "an activity that is compensated twice": (
        boundary(COMPENSATION) + '<task id="u" isForCompensation="true"/><association sourceRef="b" targetRef="u"/>\n'
        f'<boundaryEvent id="c" attachedToRef="t">{COMPENSATION}</boundaryEvent>'
        '<association sourceRef="c" targetRef="u"/>', "c", 9, "two boundary events",
    ),
    "a cancel end outside a transaction": (
        '<startEvent id="s"/>\n<endEvent id="e"><cancelEventDefinition/></endEvent>'
        '<sequenceFlow sourceRef="s" targetRef="e"/>', "e", 4, "transaction",
    ),
    "an error end without an error": (
        '<startEvent id="s"/>\n<endEvent id="e"><errorEventDefinition/></endEvent>'
        '<sequenceFlow sourceRef="s" targetRef="e"/>', "e", 4, "which error",
    ),
    "an error that is not among those of the file": (
        boundary('<errorEventDefinition errorRef="er"/>'), "b", 8, "Did you mean 'err'?",
    ),
    "an error end without a code": (
        '<startEvent id="s"/>\n<endEvent id="e"><errorEventDefinition errorRef="plain"/></endEvent>'
        '<sequenceFlow sourceRef="s" targetRef="e"/>', "e", 4, "errorCode",
    ),
    "a link to nowhere": (
        '<startEvent id="s"/>\n' + throw('<linkEventDefinition name="x"/>')
        + '<sequenceFlow sourceRef="s" targetRef="n"/>', "n", 4, "catches the link 'x'",
    ),
    "a link from nowhere": (chain() + "\n" + catch('<linkEventDefinition name="x"/>'), "n", 7, "throws the link 'x'"),
    "a link that is caught twice": (
        '<startEvent id="s"/>' + throw('<linkEventDefinition name="x"/>')
        + '<sequenceFlow sourceRef="s" targetRef="n"/>' + catch('<linkEventDefinition name="x"/>', "a") + "\n"
        + catch('<linkEventDefinition name="x"/>', "b"), "b", 4, "Two events catch",
    ),
    "a link that goes on": (chain(throw('<linkEventDefinition name="x"/>')), "n", 4, "catches the link"),
    "an event sub-process without a start": (
        chain() + "\n" + sub('<task id="t"/>', 'triggeredByEvent="true"'), "sub", 7, "one start event",
    ),
    "an event sub-process without a trigger": (
        chain() + "\n" + sub(INNER, 'triggeredByEvent="true"'), "i", 8, "no event definition",
    ),
    "an event sub-process with a loop": (
        chain() + "\n" + sub(EVENT_SUB + "<standardLoopCharacteristics/>", 'triggeredByEvent="true"'),
        "sub", 8, "repeated",
    ),
    "an event sub-process that compensates the process": (
        chain() + "\n" + sub(f'<startEvent id="i">{COMPENSATION}</startEvent>', 'triggeredByEvent="true"'),
        "sub", 7, "whole process",
    ),
    "compensation of an activity in another scope": (
        chain(sub(INNER + '<task id="t"/><sequenceFlow sourceRef="i" targetRef="t"/>'),
              throw('<compensateEventDefinition activityRef="t"/>')), "n", 6, "same scope",
    ),
    "an event after a gateway that something else leads to": (
        '<startEvent id="s"/><eventBasedGateway id="g"/>\n' + catch(SIGNAL)
        + '<sequenceFlow sourceRef="s" targetRef="g"/><sequenceFlow sourceRef="g" targetRef="n"/>'
        '<sequenceFlow sourceRef="s" targetRef="n"/>', "n", 4, "nothing else can lead to it",
    ),
    "an event gateway that waits for nothing": (
        '<startEvent id="s"/>\n<eventBasedGateway id="g"/><sequenceFlow sourceRef="s" targetRef="g"/>',
        "g", 4, "Nothing follows",
    ),
    "an element that is not executed": (chain() + '\n<choreographyTask id="c"/>', "c", 7, "choreographyTask"),
    "an unknown element without an id": (chain() + "\n<callChoreography/>", "callChoreography@7", 7, "Remove it"),
}  # fmt: skip


def found(text: str, element: str, line: int) -> list[str]:
    problems = problems_of(text)
    messages = [problem.message for problem in problems if (problem.element, problem.line) == (element, line)]
    assert messages, [str(problem) for problem in problems]
    return messages


@pytest.mark.parametrize("case", IN_A_CHAIN)
def test_b2_a_node_that_cannot_be_executed_is_refused_with_its_line(case: str) -> None:
    content, element, line, words = IN_A_CHAIN[case]
    assert any(words in message for message in found(bpmn_file(chain(content), around=AROUND), element, line))


@pytest.mark.parametrize("case", IN_A_PROCESS)
def test_b2_a_process_that_cannot_be_executed_is_refused_with_its_line(case: str) -> None:
    content, element, line, words = IN_A_PROCESS[case]
    assert any(words in message for message in found(bpmn_file(content, around=AROUND), element, line))


def test_b2_processes_without_an_id_or_with_the_same_one_are_refused() -> None:
    [problem] = problems_of(definitions(f"<process>{chain()}</process>"))
    assert "id of the process" in problem.message
    [problem] = problems_of(definitions(f'<process id="a">{chain()}</process>\n<process id="a">{chain()}</process>'))
    assert (problem.element, problem.line) == ("a", 6)


def test_b2_problems_are_found_beyond_line_65535() -> None:
    text = bpmn_file("\n" * 70_000 + chain('<callActivity id="n"/>'))
    [problem] = problems_of(text)
    assert (problem.element, problem.line) == ("n", 70_004)
    assert "line 70004" in str(problem)


def test_b2_what_looks_unreachable_but_is_not_is_accepted() -> None:
    inside = (
        '<task id="a"/><task id="b"/>'  # a sub-process without a start event: both begin
        '<boundaryEvent id="bound" attachedToRef="a"><signalEventDefinition signalRef="sig"/></boundaryEvent>'
        '<task id="after"/><sequenceFlow sourceRef="bound" targetRef="after"/>'
        '<task id="loop1"/><task id="loop2"/><sequenceFlow sourceRef="a" targetRef="loop1"/>'
        '<sequenceFlow sourceRef="loop1" targetRef="loop2"/><sequenceFlow sourceRef="loop2" targetRef="loop1"/>'
    )
    text = bpmn_file(
        chain(sub(inside)) + sub(EVENT_SUB, 'triggeredByEvent="true"').replace('"sub"', '"es"'), around=AROUND
    )
    assert read(text).processes


def test_b2_a_file_with_very_many_elements_in_one_line_is_read_in_linear_time() -> None:
    """Ids are made for elements without one, also when thousands of them are in the same line."""

    def lines(count: int) -> int:
        tasks = "<task/>" * count
        flows = '<sequenceFlow sourceRef="s" targetRef="e"/>' * count
        bounds = '<boundaryEvent attachedToRef="sub"><signalEventDefinition signalRef="sig"/></boundaryEvent>' * count
        text = bpmn_file(chain(sub(tasks)).replace("\n", " ") + flows + bounds, around=AROUND)
        total = 0

        def count_line(*_: object) -> Any:
            nonlocal total
            total += 1
            return count_line

        before = sys.gettrace()
        sys.settrace(count_line)
        try:
            found = read(text)
        finally:
            sys.settrace(before)
        assert len(found.processes[0].nodes) == 2 * count + 3
        return total

    assert lines(1_000) < 11 * lines(100)
