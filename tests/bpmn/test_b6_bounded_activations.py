"""B6: an activation of a process is bounded: what is left is done by another one (fault 88)."""

import asyncio

import pytest

from hark import Hark
from hark.programs.bpmn.interpreter import bpmn_interpreter, execution
from hark.testing import Harness
from tests.bpmn.conformance.language import Case, run_case
from tests.bpmn.conformance.test_cases import CASES
from tests.bpmn.small_files import bpmn_file, chain
from tests.support.stores import Store

HEAVY = "=count(for i in 1..9000 return i * 2)"


def script(result: str, text: str, loop: str) -> str:
    return (
        f'<scriptTask id="again" scriptFormat="feel" camunda:resultVariable="{result}">{loop}'
        f"<script>{text}</script></scriptTask>"
    )


def repeated(times: int) -> str:
    return f'<standardLoopCharacteristics loopMaximum="{times}"/>'


ENDLESS = "<standardLoopCharacteristics/>"
GATEWAYS = (
    '<startEvent id="s"/><exclusiveGateway id="in"/>'
    '<scriptTask id="add" scriptFormat="feel" camunda:resultVariable="x">'
    '<script>=get or else(x, 0) + 1</script></scriptTask><exclusiveGateway id="out" default="end"/><endEvent id="e"/>'
    '<sequenceFlow id="f1" sourceRef="s" targetRef="in"/><sequenceFlow id="f2" sourceRef="in" targetRef="add"/>'
    '<sequenceFlow id="f3" sourceRef="add" targetRef="out"/><sequenceFlow id="end" sourceRef="out" targetRef="e"/>'
    '<sequenceFlow id="back" sourceRef="out" targetRef="in"><conditionExpression>=x &lt; 300</conditionExpression>'
    "</sequenceFlow>"
)
MANY = "<multiInstanceLoopCharacteristics><loopCardinality>${300}</loopCardinality></multiInstanceLoopCharacteristics>"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations of one action each."""
    monkeypatch.setattr(execution, "PAUSE_AFTER", 1)
    monkeypatch.setattr(execution, "YIELD_AFTER", 1)
    monkeypatch.setattr(execution, "_PER_CHARACTER", 1 << 30)


async def activations(app: Harness, id: str) -> int:
    """How many activations an instance has had that left work for another."""
    return [event.type for event in await app.events(id, limit=1000)].count("next")


@pytest.mark.parametrize("case", CASES[::5], ids=[case.id for case in CASES[::5]])
@pytest.mark.usefixtures("small")
async def test_b6_a_process_does_the_same_in_many_small_activations(case: Case) -> None:
    async with Harness() as app:
        await run_case(app, case)


@pytest.mark.parametrize(
    "content",
    [
        chain(script("x", "=get or else(x, 0) + 1", repeated(300))),
        chain(script("x", "=300", MANY)),
        GATEWAYS,
    ],
    ids=["a standard loop", "a multi-instance", "gateways"],
)
async def test_b6_a_loop_without_a_wait_is_committed_in_pieces(
    app: Harness, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(execution, "YIELD_AFTER", 100)
    monkeypatch.setattr(execution, "PAUSE_AFTER", 20)
    monkeypatch.setattr(execution, "_PER_CHARACTER", 1 << 30)
    await app.deploy(bpmn_file(content))
    one = await app.start("p")
    await app.drain()
    found = await one.get()
    assert (found.status, found.result) == ("done", {"x": 300})
    assert 2 < await activations(app, one.id) < 40


async def test_b6_what_expressions_do_counts_as_work_of_the_activation(app: Harness) -> None:
    await app.deploy(bpmn_file(chain(script("x", HEAVY, repeated(40)))))
    one = await app.start("p")
    await app.drain()
    assert (await one.get()).result == {"x": 9000}
    assert 1 < await activations(app, one.id) < 20


async def test_b6_an_endless_loop_is_seen_and_cancelled_and_others_go_on(store: Store) -> None:
    async with Hark(store.url, **store.options) as app:
        await app.deploy(bpmn_file(chain(script("x", f"=get or else(x, 0) + {HEAVY[1:]}", ENDLESS))))
        await app.deploy(bpmn_file(chain('<task id="t"/>')).replace('id="p"', 'id="other"'))
        async with app.worker():
            endless = await app.start("p")
            while not (found := await endless.get()).state["variables"]:
                await asyncio.sleep(0)
            assert (found.status, set(found.state["tokens"])) == ("executing", {"again"})
            other = await app.start("other")
            assert await other.result() == {}
            assert (await endless.get()).status == "executing"
            await app.cancel(endless.id)
            assert (await endless.get()).status == "cancelled"


async def test_b6_expressions_that_work_without_an_end_are_an_incident_that_a_retry_resumes(
    app: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpmn_interpreter, "MAX_WORK", 10_000)
    loop = (
        '<standardLoopCharacteristics loopMaximum="60"><loopCondition>=goes</loopCondition>'
        "</standardLoopCharacteristics>"
    )
    await app.deploy(bpmn_file(chain(script("x", HEAVY, loop))))
    one = await app.start("p", {"goes": True})
    await app.drain()
    found = await one.get()
    assert found.status == "failed"
    assert "about a minute without waiting. It came to 'again' last." in str(found.error)
    assert [each["element"] for each in found.state["incidents"]] == ["again"]
    before = len(found.state["tokens"])
    await app.retry(one.id)
    await app.drain()
    assert (await one.get()).status == "failed"  # it went on, and has not ended yet
    assert len((await one.get()).state["tokens"]) == before
    await app.set_variables(one.id, {"goes": False})
    await app.retry(one.id)
    await app.drain()
    assert (await one.get()).result == {"goes": False, "x": 9000}


@pytest.mark.usefixtures("small")
async def test_b6_what_comes_while_a_process_works_waits_until_its_tokens_rest(app: Harness) -> None:
    """The user task is answered first, so its boundary event does not fire, although much is to be done between."""
    content = chain('<userTask id="ask"/>', script("x", "=get or else(x, 0) + 1", repeated(50)))
    edge = '<boundaryEvent id="edge" attachedToRef="ask"><signalEventDefinition signalRef="sig"/></boundaryEvent>'
    await app.deploy(bpmn_file(content + edge, around='<signal id="sig" name="sig"/>'))
    one = await app.start("p")
    await app.drain()
    [question] = await app.awakeables(status="PENDING")
    await app.resolve(question.id, {})
    await app.broadcast("sig")
    await app.drain()
    assert (await one.get()).result == {"x": 50}
