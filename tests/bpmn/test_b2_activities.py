"""B2: activities as they are read: handlers, scripts, calls, loops, mappings, people."""

from typing import Any

import pytest

from hark.programs.bpmn.bpmn_spec import Assignment, CallSpec, LoopSpec, NodeSpec, UserSpec
from tests.bpmn.small_files import bpmn_file, chain, ext, extended, node_of, read, spec_of

HANDLERS = {
    '<serviceTask id="n" camunda:type="external" camunda:topic="pay"/>': "pay",
    '<serviceTask id="n" flowable:type="external-worker" flowable:topic="pay"/>': "pay",
    '<serviceTask id="n" camunda:topic="pay-${country}"/>': "pay-${country}",
    '<serviceTask id="n" camunda:class="org.acme.Pay"/>': "org.acme.Pay",
    '<serviceTask id="n" activiti:delegateExpression="${payer}"/>': "payer",
    '<serviceTask id="n" camunda:delegateExpression="#{ beans.payer }"/>': "beans.payer",
    '<serviceTask id="n" flowable:expression="${payer.pay(order, 3)}"/>': "payer.pay",
    extended("serviceTask", "<zeebe:taskDefinition type='pay'/>", attributes='name="Pay" camunda:topic="no"'): "pay",
    extended("serviceTask", "<zeebe:taskDefinition type='=kind'/>"): "=kind",
    '<serviceTask id="n" name="Charge&#10;the card"/>': "Charge the card",
    '<serviceTask id="n" name="Charge: the card, at once"/>': "Charge: the card, at once",
    '<serviceTask id="n" name="shell"/>': "n",
    '<serviceTask id="n" name="Charge ${card}"/>': "n",
    '<serviceTask id="n"/>': "n",
    '<businessRuleTask id="n" camunda:decisionRef="dish"/>': "n",
    '<sendTask id="n" camunda:class="org.acme.Mail"/>': "org.acme.Mail",
    '<sendTask id="n" name="Send mail"/>': "Send mail",
    extended("scriptTask", "<zeebe:taskDefinition type='run'/>"): "run",
}


@pytest.mark.parametrize("element", HANDLERS)
def test_b2_the_handler_is_found_in_the_file(element: str) -> None:
    node = node_of(element)
    assert (node.kind, node.handler) == ("service", HANDLERS[element])


def test_b2_an_expression_that_calls_no_method_is_computed() -> None:
    node = node_of('<serviceTask id="n" camunda:expression="${a + 1}" camunda:resultVariable="b"/>')
    assert (node.kind, node.script, node.result, node.handler) == ("script", "${a + 1}", "b", None)


RETRIES: dict[str, tuple[int, float | None]] = {
    "": (3, None),
    "<zeebe:taskDefinition type='t' retries='5'/>": (5, None),
    "<zeebe:taskDefinition type='t' retries='= 5'/>": (5, None),
    "<zeebe:taskDefinition type='t' retries='0'/>": (1, None),
    "<camunda:failedJobRetryTimeCycle>R5/PT10S</camunda:failedJobRetryTimeCycle>": (5, 10.0),
    "<flowable:failedJobRetryTimeCycle>R10/P1DT1H</flowable:failedJobRetryTimeCycle>": (10, 90_000.0),
    "<camunda:failedJobRetryTimeCycle>PT1M,PT5M,PT10M</camunda:failedJobRetryTimeCycle>": (4, 60.0),
    "<camunda:failedJobRetryTimeCycle>${cycle}</camunda:failedJobRetryTimeCycle>": (3, None),
}


@pytest.mark.parametrize("extension", RETRIES)
def test_b2_the_number_of_attempts(extension: str) -> None:
    node = node_of(extended("serviceTask", extension))
    assert (node.retries, node.retry_delay) == RETRIES[extension]


def test_b2_what_the_file_has_for_the_handler_are_its_headers() -> None:
    node = node_of(
        extended(
            "serviceTask",
            "<zeebe:taskHeaders><zeebe:header key='a' value='1'/></zeebe:taskHeaders>"
            "<camunda:field name='b' stringValue='2'/>"
            "<flowable:field name='c'><flowable:string>3</flowable:string></flowable:field>",
        )
    )
    assert node.headers == {"a": "1", "b": "2", "c": "3"}
    rule = node_of(extended("businessRuleTask", "<zeebe:calledDecision decisionId='d' resultVariable='r'/>"))
    assert (rule.headers, rule.result) == ({"decisionId": "d"}, "r")


SCRIPTS: dict[str, tuple[str, str | None]] = {
    '<scriptTask id="n" scriptFormat="feel"><script>a + 1</script></scriptTask>': ("=a + 1", None),
    '<scriptTask id="n" scriptFormat="feel" camunda:resultVariable="b"><script>=a + 1</script></scriptTask>': (
        "=a + 1", "b",
    ),
    '<scriptTask id="n" scriptFormat="juel" flowable:resultVariable="b"><script>a + 1</script></scriptTask>': (
        "${a + 1}", "b",
    ),
    '<scriptTask id="n"><script><![CDATA[ ${a > 1} ]]></script></scriptTask>': ("${a > 1}", None),
    extended("scriptTask", "<zeebe:script expression='a + 1' resultVariable='b'/>"): ("=a + 1", "b"),
}  # fmt: skip


@pytest.mark.parametrize("element", SCRIPTS)
def test_b2_a_script_is_an_expression_in_its_language(element: str) -> None:
    node = node_of(element)
    assert (node.kind, node.script, node.result) == ("script", *SCRIPTS[element])


CALLS: dict[str, CallSpec] = {
    '<callActivity id="n" calledElement="other"/>': CallSpec("other"),
    '<callActivity id="n" calledElement="${which}"/>': CallSpec("${which}"),
    '<callActivity id="n" calledElement="other" camunda:calledElementBinding="version" '
    'camunda:calledElementVersion="2"/>': CallSpec("other", version="2"),
    '<callActivity id="n" calledElement="other" camunda:calledElementBinding="latest"/>': CallSpec("other"),
    extended("callActivity", "<camunda:in source='a' target='b'/>", attributes='calledElement="other"'): CallSpec(
        "other", all_in=False, all_out=False, inputs=(Assignment("b", "=a"),)
    ),
    extended(
        "callActivity",
        "<camunda:in variables='all'/><camunda:in businessKey='${key}'/><camunda:out source='a' target='b'/>",
        attributes='calledElement="other"',
    ): CallSpec("other", all_out=False, outputs=(Assignment("b", "=a"),), key="${key}"),
    extended(
        "callActivity",
        "<flowable:in source='a' target='b'/><flowable:out variables='all'/>",
        attributes='calledElement="other" flowable:inheritVariables="true"',
    ): CallSpec("other", inputs=(Assignment("b", "=a"),)),
    extended("callActivity", "<zeebe:calledElement processId='=which'/>"): CallSpec("=which"),
    extended(
        "callActivity",
        "<zeebe:calledElement processId='other' propagateAllParentVariables='false'/><zeebe:ioMapping>"
        "<zeebe:input source='=a' target='b'/><zeebe:output source='=c' target='d'/></zeebe:ioMapping>",
    ): CallSpec(
        "other", all_in=False, all_out=False, inputs=(Assignment("b", "=a"),), outputs=(Assignment("d", "=c"),)
    ),
}


@pytest.mark.parametrize("element", CALLS)
def test_b2_a_call_activity_says_what_goes_in_and_comes_out(element: str) -> None:
    node = node_of(element)
    assert (node.call, node.outputs) == (CALLS[element], ())


def test_b2_the_key_of_the_caller_is_not_passed_on() -> None:
    extension = ext("<camunda:in businessKey='#{execution.processBusinessKey}'/>")
    found = read(bpmn_file(chain(f'<callActivity id="n" calledElement="x">{extension}</callActivity>')))
    assert found.processes[0].nodes[1].call == CallSpec("x")
    assert "key" in found.ignored[0].message


def loop(content: str, attributes: str = "") -> NodeSpec:
    return node_of(
        f'<userTask id="n"><multiInstanceLoopCharacteristics {attributes}>{content}'
        "</multiInstanceLoopCharacteristics></userTask>"
    )


LOOPS: dict[tuple[str, str], LoopSpec] = {
    ("<loopCardinality>5</loopCardinality>", ""): LoopSpec("parallel", cardinality="5"),
    ("<loopCardinality>${n}</loopCardinality>", 'isSequential="true"'): LoopSpec("sequential", cardinality="${n}"),
    (
        '<loopDataInputRef>items</loopDataInputRef><inputDataItem name="item"/>'
        "<completionCondition>${nrOfCompletedInstances > 1}</completionCondition>", "",
    ): LoopSpec("parallel", collection="items", item="item", completion="${nrOfCompletedInstances > 1}"),
    (
        "<loopDataInputRef>items</loopDataInputRef><loopDataOutputRef>all</loopDataOutputRef>"
        '<inputDataItem name="item"/><outputDataItem name="one"/>', "",
    ): LoopSpec("parallel", collection="items", item="item", output_collection="all", output="=one"),
    ("", 'camunda:collection="items" camunda:elementVariable="item"'): LoopSpec(
        "parallel", collection="items", item="item"
    ),
    ("", 'flowable:collection="${order.items}" flowable:elementVariable="item"'): LoopSpec(
        "parallel", collection="${order.items}", item="item"
    ),
    (
        ext("<flowable:collection><flowable:string>[1, {\"a\": 2}]</flowable:string></flowable:collection>"),
        'flowable:elementVariable="item"',
    ): LoopSpec("parallel", collection=[1, {"a": 2}], item="item"),
    (ext("<flowable:collection><flowable:expression>${x}</flowable:expression></flowable:collection>"), ""): LoopSpec(
        "parallel", collection="${x}"
    ),
    (
        ext("<flowable:variableAggregation target='all'><variable source='a'/><variable source='b' target='c'/>"
            "</flowable:variableAggregation>") + "<loopCardinality>2</loopCardinality>", "",
    ): LoopSpec("parallel", cardinality="2", output_collection="all", output={"a": "=a", "c": "=b"}),
    (
        ext("<zeebe:loopCharacteristics inputCollection='= items' inputElement='item' outputCollection='all' "
            "outputElement='= item.x'/>"), "",
    ): LoopSpec("parallel", collection="= items", item="item", output_collection="all", output="= item.x"),
}  # fmt: skip


@pytest.mark.parametrize("case", LOOPS)
def test_b2_a_multi_instance_activity_says_how_often_it_runs(case: tuple[str, str]) -> None:
    assert loop(*case).loop == LOOPS[case]


def test_b2_the_index_of_an_item_is_a_local_variable() -> None:
    node = loop("", 'flowable:collection="items" flowable:elementIndexVariable="index"')
    assert node.inputs == (Assignment("index", "=loopCounter"),)


def test_b2_the_collection_of_an_activity_may_be_its_data_input() -> None:
    node = node_of(
        '<task id="n"><ioSpecification><dataInput id="in_1"/></ioSpecification><dataInputAssociation>'
        "<sourceRef>orders</sourceRef><targetRef>in_1</targetRef></dataInputAssociation>"
        "<multiInstanceLoopCharacteristics><loopDataInputRef>in_1</loopDataInputRef></multiInstanceLoopCharacteristics>"
        "</task>"
    )
    assert node.loop == LoopSpec("parallel", collection="orders")


def test_b2_a_standard_loop_repeats_while_its_condition_holds() -> None:
    node = node_of(
        '<task id="n"><standardLoopCharacteristics testBefore="true" loopMaximum="3"><loopCondition>=not(done)'
        "</loopCondition></standardLoopCharacteristics></task>"
    )
    assert node.loop == LoopSpec("standard", condition="=not(done)", test_before=True, maximum=3)
    assert node_of('<task id="n"><standardLoopCharacteristics/></task>').loop == LoopSpec("standard")


def test_b2_camunda_mappings_are_texts_lists_maps_and_scripts() -> None:
    node = node_of(
        extended(
            "task",
            "<camunda:inputOutput><camunda:inputParameter name='a'> ${x} and y </camunda:inputParameter>"
            "<camunda:inputParameter name='b'><camunda:list><camunda:value>1</camunda:value><camunda:value>${x}"
            "</camunda:value><camunda:script scriptFormat='feel'>x + 1</camunda:script></camunda:list>"
            "</camunda:inputParameter><camunda:inputParameter name='c'><camunda:map><camunda:entry key='k'>v"
            "</camunda:entry><camunda:entry key='l'><camunda:list/></camunda:entry></camunda:map>"
            "</camunda:inputParameter><camunda:inputParameter name='d'/>"
            "<camunda:outputParameter name='e'><camunda:script scriptFormat='juel'>x</camunda:script>"
            "</camunda:outputParameter></camunda:inputOutput>",
        )
    )
    assert node.inputs == (
        Assignment("a", "${x} and y"),
        Assignment("b", ["1", "${x}", "=x + 1"]),
        Assignment("c", {"k": "v", "l": []}),
        Assignment("d", None),
    )
    assert node.outputs == (Assignment("e", "${x}"),)


def test_b2_zeebe_mappings_have_paths() -> None:
    node = node_of(
        extended(
            "subProcess",
            "<zeebe:ioMapping><zeebe:input source='=x.y' target='a.b'/><zeebe:output source='plain' target='c'/>"
            "</zeebe:ioMapping>",
            content='<task id="t"/>',
        )
    )
    assert node.inputs == (Assignment("a.b", "=x.y"),)
    assert node.outputs == (Assignment("c", "plain"),)


USERS: dict[str, UserSpec] = {
    '<userTask id="n"/>': UserSpec(),
    "<userTask id=\"n\" camunda:assignee='${who}' camunda:candidateUsers='a, b' camunda:candidateGroups='sales' "
    "camunda:dueDate='P1D'><documentation>Look at it.</documentation></userTask>": UserSpec(
        "${who}", "a, b", "sales", "P1D", "Look at it."
    ),
    '<userTask id="n"><documentation>Costs ${</documentation></userTask>': UserSpec(),
    '<userTask id="n"><documentation>\n<p>Look <b>at <i>it</i></b>.</p><p>Sign.</p></documentation></userTask>': (
        UserSpec(description="Look at it.\nSign.")
    ),
    "<userTask id=\"n\" flowable:assignee='anna'/>": UserSpec("anna"),
    extended(
        "userTask",
        '<zeebe:assignmentDefinition assignee="=who" candidateGroups="=groups" candidateUsers="a"/>'
        '<zeebe:taskSchedule dueDate="=due"/>',
    ): UserSpec("=who", "a", "=groups", "=due"),
    '<userTask id="n"><humanPerformer><resourceAssignmentExpression><formalExpression>anna</formalExpression>'
    "</resourceAssignmentExpression></humanPerformer></userTask>": UserSpec("anna"),
    '<userTask id="n"><potentialOwner><resourceAssignmentExpression><formalExpression>user(anna), group(sales), boss'
    "</formalExpression></resourceAssignmentExpression></potentialOwner></userTask>": UserSpec(
        users="anna", groups="sales,boss"
    ),
}


@pytest.mark.parametrize("element", USERS)
def test_b2_a_user_task_says_who_it_is_for(element: str) -> None:
    assert node_of(element).user == USERS[element]


def test_b2_messages_that_are_received_and_sent_by_tasks() -> None:
    message = '<message id="m" name="paid"/>'
    received = node_of('<receiveTask id="n" messageRef="m"/>', around=message)
    sent = node_of('<sendTask id="n" messageRef="m"/>', around=message)
    assert [(node.kind, node.event and node.event.name) for node in (received, sent)] == [
        ("receive", "paid"), ("send", "paid"),
    ]  # fmt: skip


def test_b2_gateways_and_conditions() -> None:
    flows: list[Any] = [
        '<sequenceFlow id="a" sourceRef="g" targetRef="x"><conditionExpression language="feel">n &gt; 1'
        "</conditionExpression></sequenceFlow>",
        '<sequenceFlow id="b" sourceRef="g" targetRef="x"><conditionExpression language="juel">n > 1'
        "</conditionExpression></sequenceFlow>",
        '<sequenceFlow id="c" sourceRef="g" targetRef="x"><conditionExpression '
        'language="http://www.w3.org/1999/XPath">${n > 1}</conditionExpression></sequenceFlow>',
        '<sequenceFlow id="d" sourceRef="g" targetRef="x"><conditionExpression/></sequenceFlow>',
    ]
    for tag, conditions in {
        "inclusiveGateway": ["=n > 1", "${n > 1}", "${n > 1}", None],
        "userTask": ["=n > 1", "${n > 1}", "${n > 1}", None],
        "parallelGateway": [None, None, None, None],
    }.items():
        spec = spec_of(
            f'<startEvent id="s"/><{tag} id="g"/><endEvent id="x"/><sequenceFlow sourceRef="s" targetRef="g"/>'
            + "".join(flows)
        )
        assert [flow.condition for flow in spec.flows[1:]] == conditions
    complex = node_of(
        '<complexGateway id="n"><activationCondition>=activationCount &gt; 1</activationCondition></complexGateway>'
    )
    assert complex.activation == "=activationCount > 1"
