"""B3, B4, B5, B10: events of a process that race each other: one path is taken, once, and nothing is lost."""

import pytest

from hark.kernel.requests import Message, Publish, RetryInstance, SettleAwakeable, SetVariables
from hark.model.decisions import Settle
from hark.model.errors import AlreadySettled, NoTarget
from tests.support.bpmn_stage import BpmnStage, deployment
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import MINUTE

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEFINITIONS = '<signal id="sig" name="stop"/><message id="msg" name="paid"/>'


def script(id: str, variable: str, value: str) -> str:
    return (
        f'<scriptTask id="{id}" scriptFormat="feel" xmlns:camunda="http://camunda.org/schema/1.0/bpmn"'
        f' camunda:resultVariable="{variable}"><script>{value}</script></scriptTask>'
    )


def hosted(host: str, boundary: str, *, interrupting: bool = True) -> str:
    """A host with a boundary event. Each way counts how often it was taken."""
    cancels = "" if interrupting else ' cancelActivity="false"'
    return f"""
    <startEvent id="start"/><sequenceFlow id="f1" sourceRef="start" targetRef="host"/>
    {host}<sequenceFlow id="f2" sourceRef="host" targetRef="by_end"/>
    <boundaryEvent id="edge" attachedToRef="host"{cancels}>{boundary}</boundaryEvent>
    <sequenceFlow id="f3" sourceRef="edge" targetRef="by_edge"/>
    {script("by_end", "ended", "ended + 1")}{script("by_edge", "edged", "edged + 1")}
    """


USER = '<userTask id="host"/>'
SIGNAL = '<signalEventDefinition signalRef="sig"/>'
TIMER = "<timerEventDefinition><timeDuration>PT1M</timeDuration></timerEventDefinition>"
RECEIVE = '<receiveTask id="host" messageRef="msg"/>'
COUNTS = '{"ended": 0, "edged": 0}'


@pytest.fixture
def processes(stage: Stage) -> BpmnStage:
    return BpmnStage(stage)


def answer(awakeable: str, value: int = 1) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(awakeable, "RESOLVED", f'{{"answer": {value}}}'))


@race()
async def test_b5_fault_59_a_signal_against_the_answer_of_its_host_takes_one_way(
    stage: Stage, processes: BpmnStage
) -> Race:
    await processes.deploy(hosted(USER, SIGNAL), DEFINITIONS)
    await processes.resting("x", COUNTS)
    settle, publish = answer(await processes.awakeable("x")), Publish(name="stop")
    yield Duel(part(settle), part(publish))
    await processes.settle()
    status, variables = await processes.seen("x")
    assert (status, variables["ended"] + variables["edged"]) == ("done", 1), variables
    assert publish.result == 1  # neither has removed the subscription yet
    assert not isinstance(settle.result, Exception)


@race(deep=True)
async def test_b5_fault_59_a_signal_against_the_commit_that_completes_its_host_is_ignored(
    stage: Stage,
    processes: BpmnStage,
) -> Race:
    await processes.deploy(hosted(USER, SIGNAL), DEFINITIONS)
    await processes.resting("x", COUNTS)
    await stage.one.run(answer(await processes.awakeable("x")))
    completes, publish = await processes.decided(await processes.claim()), Publish(name="stop")
    yield Duel(part(completes), part(publish))
    await processes.settle()
    assert await processes.seen("x") == ("done", {"ended": 1, "edged": 0, "answer": 1})
    assert publish.result in (0, 1)


@race(deep=True)
async def test_b5_a_signal_that_does_not_interrupt_against_the_commit_of_an_earlier_one_comes_too(
    stage: Stage,
    processes: BpmnStage,
) -> Race:
    await processes.deploy(hosted(USER, SIGNAL, interrupting=False), DEFINITIONS)
    await processes.resting("x", COUNTS)
    await stage.one.run(Publish(name="stop"))
    first, publish = await processes.decided(await processes.claim()), Publish(name="stop")
    yield Duel(part(first), part(publish))
    assert publish.result == 1
    await processes.settle()
    _, variables = await processes.seen("x")
    assert variables == {"ended": 0, "edged": 2}


@race(deep=True)
async def test_b4_fault_59_a_timer_against_the_answer_of_a_user_task_takes_one_way(
    stage: Stage, processes: BpmnStage
) -> Race:
    await processes.deploy(hosted(USER, TIMER), DEFINITIONS)
    await processes.resting("x", COUNTS)
    settle = answer(await processes.awakeable("x"))
    stage.clock.advance(MINUTE)
    yield Duel(part(settle), part(sweep=True))
    await processes.settle()
    status, variables = await processes.seen("x")
    assert (status, variables["ended"] + variables["edged"]) == ("done", 1), variables
    assert not isinstance(settle.result, Exception)


@race()
async def test_b6_of_two_answers_to_a_user_task_one_counts(stage: Stage, processes: BpmnStage) -> Race:
    await processes.deploy(hosted(USER, SIGNAL), DEFINITIONS)
    await processes.resting("x", COUNTS)
    awakeable = await processes.awakeable("x")
    answers = [answer(awakeable, value) for value in (1, 2)]
    yield Duel(part(answers[0]), part(answers[1]))
    await processes.settle()
    [counts] = [value for value, each in enumerate(answers, 1) if not isinstance(each.result, AlreadySettled)]
    assert await processes.seen("x") == ("done", {"ended": 1, "edged": 0, "answer": counts})


@race(deep=True)
async def test_b3_fault_60_a_broadcast_against_the_commit_that_subscribes_is_in_or_out(
    stage: Stage,
    processes: BpmnStage,
) -> Race:
    await processes.deploy(hosted(USER, SIGNAL), DEFINITIONS)
    subscribes, publish = await processes.begun("x", COUNTS), Publish(name="stop", payload='{"said": true}')
    yield Duel(part(subscribes), part(publish))
    await processes.settle()
    status, variables = await processes.seen("x")
    assert variables == {"ended": 0, "edged": publish.result, **({"said": True} if publish.result else {})}
    assert (status == "done") == bool(publish.result)


@race(deep=True)
async def test_b4_b5_a_message_against_the_signal_that_interrupts_its_receiver_takes_one_way(
    stage: Stage,
    processes: BpmnStage,
) -> Race:
    await processes.deploy(hosted(RECEIVE, SIGNAL), DEFINITIONS)
    await processes.resting("x", COUNTS, correlation_key="k")
    await stage.one.run(Publish(name="stop"))
    interrupts = await processes.decided(await processes.claim())
    message = Message(name="paid", key="k", payload='{"amount": 3}')
    yield Duel(part(interrupts), part(message))
    await processes.settle()
    assert message.result == "x" or isinstance(message.result, NoTarget)
    assert await processes.seen("x") == ("done", {"ended": 0, "edged": 1})


@race()
async def test_b4_b5_a_message_and_an_interrupting_signal_at_once_take_one_way(
    stage: Stage, processes: BpmnStage
) -> Race:
    await processes.deploy(hosted(RECEIVE, SIGNAL), DEFINITIONS)
    await processes.resting("x", COUNTS, correlation_key="k")
    message, publish = Message(name="paid", key="k", payload='{"amount": 3}'), Publish(name="stop")
    yield Duel(part(message), part(publish))
    await processes.settle()
    status, variables = await processes.seen("x")
    assert (status, variables["ended"] + variables["edged"]) == ("done", 1), variables
    assert ("amount" in variables) == (variables["ended"] == 1)
    assert (message.result, publish.result) == ("x", 1)


STUCK = f"""
    <startEvent id="start"/><sequenceFlow id="f1" sourceRef="start" targetRef="sum"/>
    {script("sum", "sum", "${x + 1}")}
"""


@race()
async def test_b10_a_retry_against_set_variables_loses_neither(stage: Stage, processes: BpmnStage) -> Race:
    await processes.deploy(STUCK)
    await processes.resting("x")
    assert (await processes.seen("x"))[0] == "failed"
    again, correct = RetryInstance(target="x"), SetVariables(target="x", payload='{"x": 1}')
    yield Duel(part(again), part(correct))
    assert (again.result, correct.result) == ("x", "x")
    await processes.settle()
    status, variables = await processes.seen("x")
    assert variables["x"] == 1
    if status == "failed":  # it was retried, and failed again, before the variables were set
        await stage.one.run(RetryInstance(target="x"))
        await processes.settle()
    assert await processes.seen("x") == ("done", {"x": 1, "sum": 2})


STARTED = """
    <startEvent id="start"><signalEventDefinition signalRef="sig"/></startEvent>
    <sequenceFlow id="f1" sourceRef="start" targetRef="wait"/><userTask id="wait"/>
"""


@race()
async def test_b3_fault_61_two_processes_that_deploy_one_file_give_one_instance_per_start_event(
    stage: Stage,
    processes: BpmnStage,
) -> Race:
    await stage.eye.execute("DELETE FROM definitions WHERE name = 'p'")
    for side in (stage.one, stage.two):
        side.catalog.pop("p", None)
    deploys = [deployment(STARTED, DEFINITIONS) for _ in range(2)]
    yield Duel(part(deploys[0]), part(deploys[1]))
    assert [deploy.result for deploy in deploys] == [[1], [1]]
    await stage.one.run(Publish(name="stop"))
    await processes.settle()
    assert len((await stage.content()).instances) == 1


@race()
async def test_b3_fault_61_two_senders_of_a_signal_start_one_instance_each(stage: Stage, processes: BpmnStage) -> Race:
    await processes.deploy(STARTED, DEFINITIONS)
    sends = [Publish(name="stop") for _ in range(2)]
    yield Duel(part(sends[0]), part(sends[1]))
    await processes.settle()
    assert len((await stage.content()).instances) == 2
