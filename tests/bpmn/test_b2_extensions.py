"""B2: extensions that Hark would have to run are refused, unless they are to be ignored; the rest is listed."""

import pytest

from tests.bpmn.small_files import bpmn_file, chain, definitions, ext, extended, problems_of, read

REFUSED = {
    extended("userTask", "<camunda:taskListener event='create' class='a.B'/>"): ("n", "task listener"),
    extended("task", "<flowable:executionListener event='start' class='a.B'/>"): ("n", "execution listener"),
    extended("task", "<zeebe:executionListeners><zeebe:executionListener eventType='start' type='x'/>"
             "</zeebe:executionListeners>"): ("n", "execution listener"),
    extended("userTask", "<zeebe:taskListeners/>"): ("n", "task listener"),
    extended("serviceTask", "<camunda:connector><camunda:connectorId>http</camunda:connectorId></camunda:connector>"): (
        "n", "connector",
    ),
    extended("serviceTask", "<zeebe:taskDefinition type='io.camunda:http-json:1'/>"): ("n", "connector"),
    extended("userTask", "<zeebe:properties><zeebe:property name='inbound.type' value='io.camunda:webhook:1'/>"
             "</zeebe:properties>"): ("n", "connector"),
    '<scriptTask id="n" scriptFormat="groovy"><script>println 1</script></scriptTask>': ("n", "'groovy'"),
    '<scriptTask id="n" scriptFormat="feel" camunda:resource="x.feel"/>': ("n", "outside the file"),
    extended("task", "<camunda:inputOutput><camunda:inputParameter name='a'><camunda:script "
             "scriptFormat='javascript'>1</camunda:script></camunda:inputParameter></camunda:inputOutput>"): (
        "n", "'javascript'",
    ),
    '<callActivity id="n" calledElement="x" camunda:calledElementBinding="versionTag"/>': ("n", "version tag"),
    extended("callActivity", "<zeebe:calledElement processId='x' bindingType='versionTag'/>"): ("n", "version tag"),
    extended("callActivity", "<flowable:out source='a' targetExpression='${b}'/>", attributes='calledElement="x"'): (
        "n", "'${b}'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("element", REFUSED)
def test_b2_an_extension_that_changes_behaviour_is_a_problem_of_its_host_unless_it_is_ignored(element: str) -> None:
    text = bpmn_file(chain(element))
    id, words = REFUSED[element]
    [problem] = problems_of(text)
    assert (problem.element, problem.line) == (id, 4)
    assert words in problem.message
    assert "ignore_extensions=True" in problem.message
    found = read(text, ignore_extensions=True)
    assert found.processes[0].nodes[1].id == "n"
    assert any(words in item.message for item in found.ignored)


def test_b2_listeners_of_the_process_and_of_flows_are_problems_there() -> None:
    listener = ext("<camunda:executionListener event='take' expression='${x}'/>")
    text = bpmn_file(
        f'{listener}\n<startEvent id="s"/><endEvent id="e"/>\n'
        f'<sequenceFlow id="f" sourceRef="s" targetRef="e">{listener}</sequenceFlow>'
    )
    assert [(problem.element, problem.line) for problem in problems_of(text)] == [("p", 3), ("f", 5)]


def test_b2_a_signal_of_one_instance_is_a_problem_and_a_global_one_is_not() -> None:
    def file(scope: str) -> str:
        event = '<intermediateThrowEvent id="t"><signalEventDefinition signalRef="x"/></intermediateThrowEvent>'
        return bpmn_file(chain(event), around=f'<signal id="x" name="go" flowable:scope="{scope}"/>')

    [problem] = problems_of(file("processInstance"))
    assert problem.element == "x"
    assert "processInstance" in problem.message
    assert read(file("global")).processes
    assert read(file("processInstance"), ignore_extensions=True).processes


def test_b2_a_script_that_is_ignored_does_nothing() -> None:
    text = bpmn_file(
        chain('<scriptTask id="n" scriptFormat="groovy" camunda:resultVariable="x"><script>1</script></scriptTask>')
    )
    node = read(text, ignore_extensions=True).processes[0].nodes[1]
    assert (node.kind, node.script, node.result) == ("task", None, None)


def test_b2_a_condition_in_another_language_cannot_be_ignored() -> None:
    text = bpmn_file(
        '<startEvent id="s"/><endEvent id="e"/>\n<sequenceFlow id="f" sourceRef="s" targetRef="e">'
        '<conditionExpression language="groovy">x > 1</conditionExpression></sequenceFlow>'
    )
    assert [problem.element for problem in problems_of(text, ignore_extensions=True)] == ["f"]


def test_b2_what_has_no_meaning_is_listed_once_with_its_first_place() -> None:
    found = read(
        bpmn_file(
            chain(
                '<task id="a" camunda:asyncBefore="true" acme:size="3"/>',
                '<task id="b" camunda:asyncBefore="true" camunda:exclusive="false">'
                + ext("<acme:robot/><camunda:properties/><flowable:value>1</flowable:value>")
                + "</task>",
            )
        )
    )
    assert [(item.element, item.line, item.message.split()[0]) for item in found.ignored] == [
        ("a", 4, "camunda:asyncBefore"),
        ("a", 4, "acme:size"),
        ("b", 5, "camunda:exclusive"),
        ("b", 5, "acme:robot"),
        ("b", 5, "camunda:properties"),
        ("b", 5, "flowable:value"),
    ]


def test_b2_what_is_understood_and_colours_are_not_listed() -> None:
    text = definitions(
        '<process id="p" isExecutable="true">'
        + chain(
            extended(
                "serviceTask",
                "<zeebe:taskDefinition type='x'/><zeebe:ioMapping/><zeebe:taskHeaders/>",
                attributes='xmlns:modeler="http://camunda.org/schema/modeler/1.0" modeler:executionPlatform="x"',
            ),
            '<userTask id="u" camunda:assignee="a" camunda:candidateGroups="b"/>',
        )
        + "</process>"
    )
    assert read(text).ignored == []


def test_b2_a_form_that_is_not_in_the_file_is_ignored() -> None:
    found = read(bpmn_file(chain(extended("userTask", "<zeebe:formDefinition formId='order'/>"))))
    assert found.processes[0].nodes[1].user is not None
    assert [item.message for item in found.ignored] == ["The form 'order' is ignored: it is not in the file."]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", " a ", " a "), ("int", "+3", 3), ("integer", "-3", -3), ("long", "9000000000", 9_000_000_000),
        ("double", "1e3", 1000.0), ("float", "0.5", 0.5), ("boolean", "TRUE", True), ("boolean", "yes", False),
        ("datetime", "2026-01-31T09:00:00", "2026-01-31T09:00:00"), ("date", "2026-01-31", "2026-01-31"),
        ("json", "[1]", [1]), ("int", "", None),
    ],
)  # fmt: skip
def test_b2_the_value_of_a_data_object_has_its_type(kind: str, text: str, value: object) -> None:
    found = read(bpmn_file(_data_object(f'name="x" itemSubjectRef="xsd:{kind}"', text) + '<startEvent id="s"/>'))
    assert found.processes[0].variables == {"x": value}
    assert type(found.processes[0].variables["x"]) is type(value)
    assert found.ignored == []


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ('name="x" itemSubjectRef="xsd:int"', "1.5"), ('name="x" itemSubjectRef="xsd:double"', "NaN"),
        ('name="x" itemSubjectRef="xsd:datetime"', "tomorrow"), ('name="x" itemSubjectRef="xsd:json"', "{"),
        ("", "1"),
    ],
)  # fmt: skip
def test_b2_a_data_object_without_a_name_or_of_another_type_is_a_problem(attributes: str, text: str) -> None:
    found = problems_of(bpmn_file(_data_object(attributes, text) + '<startEvent id="s"/>'))
    assert [problem.element for problem in found] == ["d"]


def _data_object(attributes: str, value: str) -> str:
    return f'<dataObject id="d" {attributes}>' + ext(f"<flowable:value>{value}</flowable:value>") + "</dataObject>"


def test_b2_an_end_date_that_cannot_be_read_is_a_problem_and_a_skip_expression_is_listed() -> None:
    timer = "<timerEventDefinition><timeCycle flowable:endDate='soon'>R/PT1H</timeCycle></timerEventDefinition>"
    text = bpmn_file(
        f'<startEvent id="s">{timer}</startEvent><userTask id="u" flowable:skipExpression="${{1 +}}"/>\n'
        '<sequenceFlow id="f" sourceRef="s" targetRef="u" skipExpression="${(}"/>'
    )
    assert [(problem.element, problem.line) for problem in problems_of(text)] == [("s", 3)]
    ignored = read(text, ignore_extensions=True).ignored
    assert [(note.element, note.line) for note in ignored] == [("s", 3), ("u", 3), ("f", 4)]


def test_b2_what_flowable_itself_ignores_of_end_dates_and_skip_expressions_is_listed() -> None:
    timer = "<timerEventDefinition><timeCycle flowable:endDate='${end}'>R/PT1H</timeCycle></timerEventDefinition>"
    text = bpmn_file(
        chain(
            f'<intermediateCatchEvent id="c">{timer}</intermediateCatchEvent>',
            '<callActivity id="call" calledElement="p" flowable:skipExpression="${skip}"/>',
        )
    )
    found = read(text)
    assert [item.element for item in found.ignored] == ["c", "call"]
    assert all("as in Flowable" in item.message for item in found.ignored)
    assert all(
        node.skip is None and (node.event is None or node.event.until is None) for node in found.processes[0].nodes
    )


@pytest.mark.parametrize(
    ("vendor", "text", "until"),
    [
        ("http://flowable.org/bpmn", "R3/PT1H", "2026-01-01"),
        ("http://camunda.org/schema/1.0/bpmn", "R3/PT1H/2026-01-01", None),
    ],
)
def test_b2_a_cycle_with_an_end_means_what_it_means_in_the_engine_of_the_file(
    vendor: str, text: str, until: str | None
) -> None:
    timer = "<timerEventDefinition><timeCycle>R3/PT1H/2026-01-01</timeCycle></timerEventDefinition>"
    file = (
        f'<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:vendor="{vendor}"><process id="p">'
        f'<startEvent id="s">{timer}</startEvent></process></definitions>'
    )
    event = read(file).processes[0].nodes[0].event
    assert event is not None
    assert (event.text, event.until) == (text, until)


def test_b2_html_in_documentation_is_not_an_extension() -> None:
    html = '<documentation><h:p xmlns:h="http://www.w3.org/1999/xhtml" h:class="x">Sign it.</h:p></documentation>'
    found = read(bpmn_file(chain(f'<userTask id="u">{html}</userTask>')))
    assert found.ignored == []
    assert (user := found.processes[0].nodes[1].user) is not None
    assert user.description == "Sign it."
