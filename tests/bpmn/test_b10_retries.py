"""B10: what a retry finds: children that ended meanwhile, activities that stopped half-way, several incidents."""

from typing import Any

import pytest

from hark import BpmnError, Instance, TaskContext
from hark.testing import Harness
from tests.bpmn.small_files import bpmn_file, chain, definitions, ext

PARALLEL = "<multiInstanceLoopCharacteristics><loopCardinality>2</loopCardinality>{}</multiInstanceLoopCharacteristics>"


async def now(app: Harness, id: str) -> Instance:
    await app.drain()
    return await app.get(id)


async def test_b10_a_called_process_that_is_retried_itself_completes_its_call(app: Harness) -> None:
    called = f'<process id="called">{chain(_script("n", "${total}"))}</process>'
    call = '<callActivity id="call" calledElement="called"/>'
    caller = f'<process id="caller">{chain(call, _ask())}</process>'
    await app.deploy(definitions(called + caller))
    id = (await app.start("caller")).id
    assert (await now(app, id)).status == "failed"
    [child] = [one.id for one in await app.list() if one.parent_id == id]
    await app.set_variables(child, {"total": 7})
    await app.retry(child)
    assert (await now(app, child)).status == "done"
    await app.retry(id)
    state = (await now(app, id)).state
    assert (state["tokens"], state["incidents"]) == (["ask"], [])
    assert state["variables"] == {"total": 7, "n": 7}


async def test_b10_the_end_of_a_called_process_that_was_retried_resolves_the_incident_of_a_live_caller(
    app: Harness,
) -> None:
    called = f'<process id="called">{chain(_script("n", "${total}"))}</process>'
    both = (
        '<startEvent id="s"/><parallelGateway id="g"/><callActivity id="call" calledElement="called"/>'
        '<userTask id="ask"/><userTask id="after"/>' + _flows("s-g", "g-call", "g-ask", "call-after")
    )
    await app.deploy(definitions(called + f'<process id="caller">{both}</process>'))
    id = (await app.start("caller")).id
    assert (await now(app, id)).state["incidents"][0]["element"] == "call"
    [child] = [one.id for one in await app.list() if one.parent_id == id]
    await app.set_variables(child, {"total": 7})
    await app.retry(child)
    state = (await now(app, id)).state
    assert (sorted(state["tokens"]), state["incidents"]) == (["after", "ask"], [])


async def test_b10_a_task_whose_handler_could_not_be_named_starts_with_one_retry(app: Harness) -> None:
    task = '<serviceTask id="work" camunda:type="external" camunda:topic="${topic}"/>'
    call = '<callActivity id="call" calledElement="${callee}"/>'

    @app.handler("work")
    async def work(task: TaskContext) -> Any:
        return {"worked": True}

    await app.deploy(definitions(f'<process id="called">{chain()}</process>' + _process(chain(task, call))))
    id = (await app.start("p")).id
    assert (await now(app, id)).status == "failed"
    await app.set_variables(id, {"topic": "work"})
    await app.retry(id)
    found = await now(app, id)
    assert (found.status, found.state["incidents"][0]["element"]) == ("failed", "call")
    await app.set_variables(id, {"callee": "called"})
    await app.retry(id)
    assert (await now(app, id)).status == "done"


async def test_b10_an_instance_of_a_loop_that_stopped_at_the_condition_keeps_what_its_mapping_gave(
    app: Harness,
) -> None:
    loop = PARALLEL.format("<completionCondition>${done == true}</completionCondition>")
    mapping = ext('<zeebe:ioMapping><zeebe:input source="=5" target="own"/><zeebe:output source="=own + answer" '
                  'target="sum"/></zeebe:ioMapping>')  # fmt: skip
    await app.deploy(bpmn_file(chain(f'<userTask id="ask">{mapping}{loop}</userTask>')))
    id = (await app.start("p")).id
    await _answer(app, {"answer": 10})
    assert (await now(app, id)).status == "failed"
    await app.set_variables(id, {"done": True})
    await app.retry(id)
    found = await now(app, id)
    assert (found.status, found.state["variables"]) == ("done", {"done": True, "sum": 15})


async def test_b10_an_instance_of_a_loop_that_stopped_at_the_condition_can_still_be_compensated(app: Harness) -> None:
    loop = PARALLEL.format("<completionCondition>${done == true}</completionCondition>")
    inner = (
        '<startEvent id="b"/><userTask id="ask"/><boundaryEvent id="undo" attachedToRef="ask">'
        '<compensateEventDefinition/></boundaryEvent><userTask id="undone" isForCompensation="true"/>'
        '<association id="a" associationDirection="One" sourceRef="undo" targetRef="undone"/>' + _flows("b-ask")
    )
    throw = '<intermediateThrowEvent id="back"><compensateEventDefinition/></intermediateThrowEvent>'
    await app.deploy(bpmn_file(chain(f'<subProcess id="sub">{loop}{inner}</subProcess>', throw)))
    id = (await app.start("p")).id
    await _answer(app, {})
    assert (await now(app, id)).status == "failed"
    await app.set_variables(id, {"done": True})
    await app.retry(id)
    assert (await now(app, id)).state["tokens"].count("undone") == 1


async def test_b10_a_sub_process_whose_event_cannot_be_armed_has_not_begun(app: Harness) -> None:
    timer = "<timerEventDefinition><timeDuration>${wait}</timeDuration></timerEventDefinition>"
    event = f'<subProcess id="late" triggeredByEvent="true"><startEvent id="b">{timer}</startEvent></subProcess>'
    inner = chain(_script("n", "${n + 1}")).replace('"s"', '"t"').replace('"e"', '"u"').replace('id="f', 'id="g')
    await app.deploy(bpmn_file(chain(f'<subProcess id="sub">{inner}{event}</subProcess>')))
    id = (await app.start("p", {"n": 0})).id
    found = await now(app, id)
    assert (found.status, found.state["variables"]) == ("failed", {"n": 0})
    await app.set_variables(id, {"wait": "PT1H"})
    await app.retry(id)
    found = await now(app, id)
    assert (found.status, found.state["variables"]) == ("done", {"n": 1, "wait": "PT1H"})


@pytest.mark.parametrize("interrupting", ["true", "false"])
async def test_b10_an_event_sub_process_whose_mapping_failed_begins_when_it_is_retried(
    app: Harness, interrupting: str
) -> None:
    trigger = '<signalEventDefinition signalRef="sig"/>'
    start = f'<startEvent id="b" isInterrupting="{interrupting}">{trigger}</startEvent>{_flows("b-in")}'
    mapping = ext('<camunda:inputOutput><camunda:inputParameter name="x">${given + 1}</camunda:inputParameter>'
                  '</camunda:inputOutput>')  # fmt: skip
    content = f'{mapping}{start}<userTask id="in"/>'
    event = f'<subProcess id="event" triggeredByEvent="true">{content}</subProcess>'
    await app.deploy(bpmn_file(chain(_ask()) + event, around='<signal id="sig" name="sig"/>'))
    id = (await app.start("p")).id
    await app.drain()
    await app.broadcast("sig")
    assert (await now(app, id)).status == "failed"
    await app.set_variables(id, {"given": 1})
    await app.retry(id)
    expected = ["event", "in"] if interrupting == "true" else ["ask", "event", "in"]
    assert sorted((await now(app, id)).state["tokens"]) == expected
    while tasks := await app.awakeables(job=id, status="PENDING"):
        await app.resolve(tasks[0].id, {})
        await app.drain()
    assert (await now(app, id)).status == "done"


async def test_b10_a_retry_that_fails_at_one_incident_has_not_forgotten_the_others(app: Harness) -> None:
    failing = [True]

    @app.handler("work")
    async def work(task: TaskContext) -> Any:
        if failing[0]:
            raise BpmnError("NO")
        return {"worked": True}

    await app.deploy(bpmn_file(WORK_AND_ASK))
    id = (await app.start("p")).id
    await _answer(app, {})
    found = await now(app, id)
    assert (found.status, len(found.state["incidents"])) == ("failed", 2)
    failing[0] = False
    await app.retry(id)
    found = await now(app, id)
    assert (found.status, {each["element"] for each in found.state["incidents"]}) == ("failed", {"work", "n"})
    await app.set_variables(id, {"total": 1})
    await app.retry(id)
    found = await now(app, id)
    assert (found.status, found.state["variables"]) == ("done", {"total": 1, "n": 1, "worked": True})


async def test_b10_a_task_that_failed_while_its_process_had_failed_is_retried_once(app: Harness) -> None:
    failing, calls = [True], []

    @app.handler("work")
    async def work(task: TaskContext) -> Any:
        calls.append(task.attempt)
        if failing[0]:
            raise ValueError("no")
        return {"worked": True}

    await app.deploy(bpmn_file(WORK_AND_ASK))
    id = (await app.start("p")).id
    await _answer(app, {})
    assert (await now(app, id)).status == "failed"
    for _ in range(3):
        await app.advance(3600)
        await app.drain()
    failing[0] = False
    count = len(calls)
    await app.set_variables(id, {"total": 1})
    await app.retry(id)
    found = await now(app, id)
    assert (found.status, len(calls) - count) == ("done", 1), found
    assert found.state["variables"] == {"total": 1, "n": 1, "worked": True}


async def test_b10_a_task_that_is_interrupted_while_it_is_retried_does_not_run(app: Harness) -> None:
    ran = []
    edge = (
        '<boundaryEvent id="edge" attachedToRef="work"><signalEventDefinition signalRef="sig"/></boundaryEvent>'
        '<userTask id="after"/>' + _flows("edge-after")
    )
    task = '<serviceTask id="work" camunda:type="external" camunda:topic="work"/>'

    @app.handler("work")
    async def work(task: TaskContext) -> Any:
        ran.append(1)
        raise BpmnError("NO")

    await app.deploy(bpmn_file(chain(task) + edge, around='<signal id="sig" name="sig"/>'))
    id = (await app.start("p")).id
    assert (await now(app, id)).state["incidents"][0]["element"] == "work"
    await app.retry(id)
    await app.broadcast("sig")
    state = (await now(app, id)).state
    assert (state["tokens"], state["incidents"], len(ran)) == (["after"], [], 1)


def _process(content: str) -> str:
    return f'<process id="p">{content}</process>'


def _script(variable: str, text: str) -> str:
    result = f'camunda:resultVariable="{variable}"'
    return f'<scriptTask id="{variable}" scriptFormat="juel" {result}><script>{text}</script></scriptTask>'


def _ask() -> str:
    return '<userTask id="ask"/>'


def _flows(*pairs: str) -> str:
    split = (pair.split("-") for pair in pairs)
    return "".join(f'<sequenceFlow id="{a}_{b}" sourceRef="{a}" targetRef="{b}"/>' for a, b in split)


async def _answer(app: Harness, value: Any) -> None:
    await app.drain()
    task = (await app.awakeables(status="PENDING"))[0]
    await app.resolve(task.id, value)


WORK_AND_ASK = (
    '<startEvent id="s"/><parallelGateway id="g"/><userTask id="ask"/>'
    '<serviceTask id="work" camunda:type="external" camunda:topic="work"/>'
    + _script("n", "${total}") + _flows("s-g", "g-work", "g-ask", "ask-n")
)  # fmt: skip
