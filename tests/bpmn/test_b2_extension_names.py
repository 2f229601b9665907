"""B2: each name of the schemas of the vendors is understood, harmless or refused; only harmless ones are ignored."""

import pytest

from hark.programs.bpmn.file.extension_names import (
    HARMLESS_ATTRIBUTES,
    HARMLESS_ELEMENTS,
    REFUSED_ATTRIBUTES,
    REFUSED_ELEMENTS,
    UNDERSTOOD_ATTRIBUTES,
    UNDERSTOOD_ELEMENTS,
)
from tests.bpmn.small_files import bpmn_file, chain, definitions, ext, extended, problems_of, read

ATTRIBUTES = {
    "camunda": (
        "assignee async asyncAfter asyncBefore calledElementBinding calledElementTenantId calledElementVersion "
        "calledElementVersionTag candidateGroups candidateStarterGroups candidateStarterUsers candidateUsers "
        "caseBinding caseRef caseTenantId caseVersion class collection decisionRef decisionRefBinding "
        "decisionRefTenantId decisionRefVersion delegateExpression diagramRelationId dueDate elementVariable "
        "errorCodeVariable errorMessage errorMessageVariable escalationCodeVariable exclusive expression "
        "followUpDate formHandlerClass formKey formRef formRefBinding formRefVersion historyTimeToLive initiator "
        "isStartableInTasklist jobPriority mapDecisionResult modelerTemplate modelerTemplateVersion priority "
        "resource resultVariable taskPriority topic type variableEvents variableMappingClass "
        "variableMappingDelegateExpression variableName versionTag"
    ),
    "flowable": (
        "async asyncLeave autoStoreVariables businessCalendarName businessKey calledElementType category class "
        "collection completeAsync delegateExpression dueDate elementIndexVariable endDate errorVariableLocalScope "
        "errorVariableName errorVariableTransient exclude exclusive extensionId fallbackToDefaultTenant "
        "formFieldValidation formKey idVariableName inheritBusinessKey inheritVariables initiator "
        "isEagerExecutionFetching messageExpression noWaitStatesAsyncLeave owner parallelInSameTransaction priority "
        "processInstanceName resultVariable resultVariableName ruleVariablesInput rules sameDeployment scope "
        "signalExpression skipExpression storeResultVariableAsTransient taskCompleterVariableName "
        "taskIdVariableName terminateAll terminateMultiInstance topic triggerable type "
        "useLocalScopeForOutParameters useLocalScopeForResultVariable"
    ),
    "zeebe": ("modelerConfigurationName modelerConfigurationTemplate modelerTemplate modelerTemplateIcon retryCounter"),
}
ELEMENTS = {
    "camunda": (
        "connector errorEventDefinition executionListener failedJobRetryTimeCycle field formData formProperty in "
        "inputOutput out potentialStarter properties taskListener"
    ),
    "flowable": (
        "collection customResource eventCorrelationParameter eventInParameter eventListener eventOutParameter "
        "eventType executionListener failedJobRetryTimeCycle field formProperty httpRequestHandler "
        "httpResponseHandler in mapException out potentialStarter sendSynchronously "
        "startEventCorrelationConfiguration taskListener triggerEventCorrelationParameter triggerEventType "
        "variableAggregation variableListenerEventDefinition"
    ),
    "zeebe": (
        "agentDefinition assignmentDefinition calledDecision calledElement conditionalFilter executionListeners "
        "formDefinition ioMapping jobPriorityDefinition linkedResources loopCharacteristics priorityDefinition "
        "properties script subscription taskDefinition taskHeaders taskListeners taskSchedule userTask userTaskForm "
        "versionTag"
    ),
}


def test_b2_each_attribute_of_the_vendors_is_in_one_class() -> None:
    classes = (UNDERSTOOD_ATTRIBUTES, HARMLESS_ATTRIBUTES, frozenset(REFUSED_ATTRIBUTES))
    for name in " ".join(ATTRIBUTES.values()).split():
        assert sum(name in names for names in classes) == 1, name


def test_b2_each_extension_element_of_the_vendors_is_in_one_class() -> None:
    for vendor, names in ELEMENTS.items():
        for name in names.split():
            tag = f"{vendor}:{name}"
            assert (tag in UNDERSTOOD_ELEMENTS) + (tag in HARMLESS_ELEMENTS) + (name in REFUSED_ELEMENTS) == 1, tag


@pytest.mark.parametrize("vendor", ["camunda", "flowable", "activiti", "zeebe"])
def test_b2_every_harmless_extension_is_listed(vendor: str) -> None:
    names = ATTRIBUTES["flowable" if vendor == "activiti" else vendor].split()
    harmless = [name for name in names if name in HARMLESS_ATTRIBUTES]
    elements = sorted(tag for tag in HARMLESS_ELEMENTS if tag.startswith(f"{vendor}:"))
    attributes = " ".join(f'{vendor}:{name}="x"' for name in harmless)
    inside = "".join(f"<{tag}/>" for tag in elements)
    found = read(bpmn_file(chain(extended("task", inside, attributes=attributes)))).ignored
    listed = [f"{vendor}:{name}" for name in harmless] + elements
    assert [item.message.partition(" is ignored: ")[0] for item in found] == listed
    without = [item.message for item in found if "initiator" not in item.message]  # its note says more
    assert all(message.endswith("it changes nothing in Hark.") for message in without)
    assert {item.element for item in found} == {"n"}


LOOP = (
    '<task id="n"><multiInstanceLoopCharacteristics>%s<loopCardinality>1</loopCardinality>'
    "</multiInstanceLoopCharacteristics></task>"
)
REFUSED = [
    '<callActivity id="n" calledElement="x" camunda:variableMappingClass="a.B"/>',
    '<callActivity id="n" calledElement="x" camunda:variableMappingDelegateExpression="${b}"/>',
    '<callActivity id="n" calledElement="x" flowable:calledElementType="id"/>',
    '<callActivity id="n" calledElement="x" flowable:useLocalScopeForOutParameters="true"/>',
    extended("callActivity", '<flowable:in source="a" target="b" transient="true"/>', attributes='calledElement="x"'),
    '<serviceTask id="n" flowable:class="a.B" flowable:triggerable="true"/>',
    '<serviceTask id="n" flowable:class="a.B" flowable:storeResultVariableAsTransient="true"/>',
    extended("serviceTask", '<camunda:errorEventDefinition errorRef="x" expression="${true}"/>'),
    extended("serviceTask", '<activiti:mapException errorCode="x">a.B</activiti:mapException>'),
    extended("serviceTask", "<flowable:eventType>order</flowable:eventType><flowable:eventInParameter/>"),
    '<userTask id="n" camunda:formHandlerClass="a.B"/>',
    '<userTask id="n" flowable:dueDate="P1D" flowable:businessCalendarName="work"/>',
    extended("userTask", '<camunda:formProperty id="a" expression="#{a.b}"/>'),
    extended("userTask", '<camunda:formData><camunda:formField id="a"><camunda:validation><camunda:constraint '
             'name="validator" config="a.B"/></camunda:validation></camunda:formField></camunda:formData>'),
    '<intermediateCatchEvent id="n"><timerEventDefinition flowable:businessCalendarName="work"><timeDuration>P1D'
    "</timeDuration></timerEventDefinition></intermediateCatchEvent>",
    LOOP % ext('<flowable:collection flowable:class="a.B"><flowable:string>x</flowable:string></flowable:collection>'),
    LOOP % ext('<flowable:variableAggregation target="x" createOverviewVariable="true"/>'),
    LOOP % ext('<flowable:variableAggregation target="x" delegateExpression="${a}"/>'),
]  # fmt: skip


@pytest.mark.parametrize("element", REFUSED)
def test_b2_what_would_change_behaviour_is_refused_with_its_host_and_can_be_ignored(element: str) -> None:
    text = bpmn_file(chain(element))
    [problem] = problems_of(text)
    assert (problem.element, problem.line) == ("n", 4)
    assert problem.message.endswith("To deploy without it, use ignore_extensions=True.")
    assert len(read(text, ignore_extensions=True).ignored) >= 1


@pytest.mark.parametrize(
    "element",
    [
        '<callActivity id="n" calledElement="x" flowable:calledElementType="key" camunda:calledElementVersionTag="1"/>',
        '<serviceTask id="n" flowable:class="a.B" flowable:triggerable="false"/>',
        '<userTask id="n" flowable:dueDate="P1D" flowable:businessCalendarName="dueDate"/>',
        '<intermediateCatchEvent id="n"><timerEventDefinition flowable:businessCalendarName="duration"><timeDuration>'
        "P1D</timeDuration></timerEventDefinition></intermediateCatchEvent>",
        extended("userTask", '<camunda:formProperty id="a" expression="#{a.b}" writable="false"/>'),
    ],
)
def test_b2_a_value_that_is_the_default_is_not_refused(element: str) -> None:
    assert read(bpmn_file(chain(element))).processes


def test_b2_a_long_value_is_shortened_in_the_message() -> None:
    [problem] = problems_of(bpmn_file(chain(f'<userTask id="n" camunda:formHandlerClass="{"x" * 10_000}"/>')))
    assert len(problem.message) < 400


def test_b2_a_task_type_that_other_engines_do_themselves_is_the_work_of_a_handler() -> None:
    task = extended("serviceTask", '<flowable:field name="to" stringValue="a@b"/>', attributes='flowable:type="mail"')
    found = read(bpmn_file(chain(task)))
    node = found.processes[0].nodes[1]
    assert (node.kind, node.handler, node.headers) == ("service", "n", {"to": "a@b"})
    [item] = found.ignored
    assert (item.element, item.line) == ("n", 4)
    assert item.message == "The type 'mail' is ignored: register a handler 'n' that does this work."


def test_b2_what_is_around_the_processes_is_checked_too() -> None:
    process = f'<process id="p" isExecutable="true">{chain()}</process>'
    around = (
        '<signal id="x" name="x" acme:size="1"/>\n'
        f'<message id="m" name="m">{ext("<acme:robot/><zeebe:subscription/>")}</message>\n'
        '<collaboration id="c"><participant id="pool" camunda:modelerTemplate="t" processRef="p"/></collaboration>\n'
        '<extension definition="acme:robots"/>'
    )
    found = read(definitions(f"{around}\n{process}"))
    assert [(item.element, item.line, item.message.split(" is ignored")[0]) for item in found.ignored] == [
        ("x", 2, "acme:size"),
        ("m", 3, "acme:robot"),
        ("pool", 4, "camunda:modelerTemplate"),
        ("defs", 5, "The extension 'acme:robots'"),
    ]


def test_b2_the_form_of_a_start_event_is_listed_and_never_refused() -> None:
    form = ext('<camunda:formProperty id="a" expression="#{a.b}"/><camunda:formProperty id="b"/>')
    start = f'<startEvent id="s" camunda:formHandlerClass="a.B">{form}</startEvent>'
    assert [str(item) for item in read(bpmn_file(start)).ignored] == [
        "line 3, s: camunda:formHandlerClass is ignored: it changes nothing in Hark.",
        "line 3, s: Its form (camunda:formProperty) is ignored: an instance is started with variables.",
    ]


MAPPING = ext(
    '<camunda:inputOutput><camunda:inputParameter name="a">1</camunda:inputParameter>'
    '<camunda:outputParameter name="b">2</camunda:outputParameter></camunda:inputOutput>'
)


@pytest.mark.parametrize(
    "content",
    [
        chain(f'<parallelGateway id="n">{MAPPING}</parallelGateway>'),
        f'<startEvent id="n">{MAPPING}</startEvent>',
        '<startEvent id="s"/><sequenceFlow sourceRef="s" targetRef="n"/>'
        f'<endEvent id="n">{MAPPING}<terminateEventDefinition/></endEvent>',
        chain('<userTask id="t"/>')
        + f'<boundaryEvent id="n" attachedToRef="t">{MAPPING}<timerEventDefinition><timeDuration>P1D</timeDuration>'
        "</timerEventDefinition></boundaryEvent>",
    ],
)
def test_b2_a_mapping_where_none_is_executed_is_refused(content: str) -> None:
    text = bpmn_file(content)
    [problem] = problems_of(text)
    assert (problem.element, "map" in problem.message) == ("n", True)
    [node] = [node for node in read(text, ignore_extensions=True).processes[0].nodes if node.id == "n"]
    assert (node.inputs, node.outputs) == ((), ())


def test_b2_an_extension_that_must_be_understood_is_refused() -> None:
    text = bpmn_file(chain(), around='<extension mustUnderstand="true" definition="acme:robots"/>')
    [problem] = problems_of(text)
    assert (problem.element, "'acme:robots'" in problem.message) == ("defs", True)
    assert read(text, ignore_extensions=True).processes


STANDARD = {
    '<task id="n" startQuantity="2"/>': "startQuantity",
    '<subProcess id="n" completionQuantity="3"><task id="t"/></subProcess>': "completionQuantity",
    '<task id="n"><multiInstanceLoopCharacteristics behavior="One" oneBehaviorEventRef="x"><loopCardinality>1'
    "</loopCardinality></multiInstanceLoopCharacteristics></task>": 'behavior="One"',
    '<task id="n"><multiInstanceLoopCharacteristics behavior="Complex"><loopCardinality>1</loopCardinality>'
    "<complexBehaviorDefinition/></multiInstanceLoopCharacteristics></task>": 'behavior="Complex"',
    '<receiveTask id="n" instantiate="true" messageRef="m"/>': "message start event",
    '<callActivity id="n" camunda:caseRef="claim"/>': "the case 'claim'",
    '<callActivity id="n" calledElement="shared"/>': "the global task 'shared'",
    '<intermediateCatchEvent id="n" parallelMultiple="true"><timerEventDefinition><timeDuration>P1D</timeDuration>'
    "</timerEventDefinition><conditionalEventDefinition><condition>=x</condition></conditionalEventDefinition>"
    "</intermediateCatchEvent>": "waits for all of its events",
}


@pytest.mark.parametrize("element", STANDARD)
def test_b2_what_the_standard_has_and_hark_does_not_execute_is_refused(element: str) -> None:
    around = '<message id="m" name="m"/><globalUserTask id="shared"/>'
    found = problems_of(bpmn_file(chain(element), around=around), ignore_extensions=True)
    assert [(problem.element, problem.line) for problem in found] == [("n", 4)]
    assert STANDARD[element] in found[0].message


@pytest.mark.parametrize(
    "element",
    [
        '<task id="n"><dataInputAssociation><assignment><from>1</from></assignment></dataInputAssociation></task>',
        '<task id="n"><dataOutputAssociation><transformation>1</transformation></dataOutputAssociation></task>',
    ],
)
def test_b2_a_data_association_that_computes_is_refused_unless_extensions_are_ignored(element: str) -> None:
    text = bpmn_file(chain(element))
    assert [problem.element for problem in problems_of(text)] == ["n"]
    assert "computes a value" in read(text, ignore_extensions=True).ignored[0].message


def test_b2_an_event_gateway_that_waits_for_all_and_a_correlation_subscription_are_refused() -> None:
    catch = (
        '<intermediateCatchEvent id="c"><timerEventDefinition><timeDuration>P1D</timeDuration></timerEventDefinition>'
        "</intermediateCatchEvent>"
    )
    gateway = '<eventBasedGateway id="g" eventGatewayType="Parallel"/>'
    found = problems_of(bpmn_file('<correlationSubscription correlationKeyRef="k"/>' + chain(gateway, catch)))
    assert [problem.element for problem in found] == ["p", "g"]


@pytest.mark.parametrize(
    "element",
    [
        '<task id="n" startQuantity="1" completionQuantity="1"/>',
        '<userTask id="n" implementation="##WebService"><ioSpecification><dataInput id="d" name="d"/><inputSet/>'
        "<outputSet/></ioSpecification><dataInputAssociation><sourceRef>x</sourceRef><targetRef>d</targetRef>"
        "</dataInputAssociation></userTask>",
        '<serviceTask id="n" implementation="##WebService" operationRef="o"><resourceRole/></serviceTask>',
        '<intermediateThrowEvent id="n"><compensateEventDefinition waitForCompletion="true"/></intermediateThrowEvent>',
        '<task id="n"><multiInstanceLoopCharacteristics behavior="All"><loopCardinality>1</loopCardinality>'
        "</multiInstanceLoopCharacteristics></task>",
        '<transaction id="n" method="##Compensate"><task id="t"/></transaction>',
        '<exclusiveGateway id="n" gatewayDirection="Converging"/>',
    ],
)
def test_b2_what_the_standard_has_for_people_and_tools_changes_nothing(element: str) -> None:
    found = read(bpmn_file(chain(element), attributes='isClosed="true" processType="Private"'))
    assert found.processes[0].nodes[1].id == "n"
    assert found.ignored == []


def test_b2_a_compensation_that_is_not_to_be_waited_for_is_listed_as_in_camunda() -> None:
    definition = '<compensateEventDefinition waitForCompletion="false"/>'
    found = read(bpmn_file(chain(f'<intermediateThrowEvent id="n">{definition}</intermediateThrowEvent>')))
    assert [(note.element, note.message[:17]) for note in found.ignored] == [("n", "waitForCompletion")]


def test_b2_a_calendar_that_every_engine_has_and_one_without_a_date_change_nothing() -> None:
    built_in = '<userTask id="a" flowable:dueDate="PT1H" flowable:businessCalendarName="duration"/>'
    unused = '<userTask id="b" flowable:businessCalendarName="mine"/>'
    assert read(bpmn_file(chain(built_in, unused))).processes
    own = '<userTask id="c" flowable:dueDate="PT1H" flowable:businessCalendarName="mine"/>'
    assert [problem.element for problem in problems_of(bpmn_file(chain(own)))] == ["c"]


def test_b2_what_cannot_be_evaluated_in_an_extension_is_waived_with_it() -> None:
    timer = (
        '<timerEventDefinition><timeCycle flowable:endDate="${bean.end()}">R3/PT1H</timeCycle></timerEventDefinition>'
    )
    boundary = f'<boundaryEvent id="b" attachedToRef="u" cancelActivity="false">{timer}</boundaryEvent>'
    text = bpmn_file(chain('<userTask id="u" flowable:skipExpression="${rule.check(execution)}"/>') + boundary)
    assert [problem.element for problem in problems_of(text)] == ["b"]
    assert [note.element for note in read(text, ignore_extensions=True).ignored] == ["u", "b"]
