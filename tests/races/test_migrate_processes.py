"""V4: a process that is moved to another version, whatever comes for it at the same moment: one path is taken, once,
and nothing that has come is lost."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import InstanceMove, Message, Migrate, Publish, Request, SettleAwakeable, SetVariables
from hark.model.decisions import Settle
from hark.model.errors import Conflict
from hark.model.lanes import BPMN, ENGINE_QUEUE
from hark.programs.bpmn.interpreter.instance_state import load_bpmn_state
from hark.programs.bpmn.interpreter.process_migration import migrate_process
from tests.support.bpmn_stage import BpmnStage
from tests.support.claims import a_claim
from tests.support.stage import Duel, Part, Race, Stage, part, race
from tests.support.turns import MINUTE

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEFINITIONS = '<signal id="sig" name="stop"/><message id="msg" name="paid"/>'
TIMER = "<timerEventDefinition><timeDuration>PT1M</timeDuration></timerEventDefinition>"
EVENTS = {
    "signal": '<signalEventDefinition signalRef="sig"/>',
    "message": '<messageEventDefinition messageRef="msg"/>',
    "timer": TIMER,
}


def _script(id: str, variable: str) -> str:
    return (
        f'<scriptTask id="{id}" scriptFormat="feel" xmlns:camunda="http://camunda.org/schema/1.0/bpmn"'
        f' camunda:resultVariable="{variable}"><script>{variable} + 1</script></scriptTask>'
    )


def _process(host: str, *events: str) -> str:
    """A user task with boundary events. Each way that leaves it is counted in a variable of its name."""
    parts = [
        f'<startEvent id="start"/><sequenceFlow id="f1" sourceRef="start" targetRef="{host}"/><userTask id="{host}"/>',
        f'<sequenceFlow id="f2" sourceRef="{host}" targetRef="by_answer"/>{_script("by_answer", "answer")}',
    ]
    for event in events:
        parts.append(
            f'<boundaryEvent id="{event}" attachedToRef="{host}">{EVENTS[event]}</boundaryEvent>'
            f'<sequenceFlow id="f_{event}" sourceRef="{event}" targetRef="by_{event}"/>{_script(f"by_{event}", event)}'
        )
    return "".join(parts)


COUNTS = '{"answer": 0, "signal": 0, "message": 0, "timer": 0}'


@pytest.fixture
def processes(stage: Stage) -> BpmnStage:
    return BpmnStage(stage)


async def _migration(stage: Stage, processes: BpmnStage) -> Migrate:
    """The move of `x`, as it is now, to the newest version."""
    row = await stage.eye.fetchrow("SELECT epoch, version, step, state FROM instances WHERE id = 'x'")
    version = await stage.eye.fetchval("SELECT max(version) FROM definitions WHERE name = 'p'")
    old, new = await processes.bpmn_graph("p", row["version"]), await processes.bpmn_graph("p", version)
    claim = a_claim(id="x", definition="p", kind=BPMN, epoch=row["epoch"], step=row["step"], state=row["state"])
    migrated = migrate_process(old, new, claim, {"host": "host2"})
    move = InstanceMove("x", row["epoch"], "p", BPMN, ENGINE_QUEUE, row["version"], version, migrated)
    return Migrate(moves=[move], bulk="bulk")


def _answer(awakeable: str) -> Request:
    return SettleAwakeable(settle=Settle(awakeable, "RESOLVED", "{}"))


COMES: dict[str, Callable[[str], Part]] = {
    "answer": lambda awakeable: part(_answer(awakeable)),
    "signal": lambda _: part(Publish(name="stop")),
    "message": lambda _: part(Message(name="paid", key="x")),
    "timer": lambda _: part(sweep=True),
}


@pytest.mark.parametrize("way", COMES)
@race()
async def test_v4_what_comes_for_a_process_that_moves_is_handled_once_by_the_new_version(
    stage: Stage, processes: BpmnStage, way: str
) -> Race:
    await processes.deploy(_process("host", "signal", "message", "timer"), DEFINITIONS)
    await processes.resting("x", COUNTS)
    awakeable = await processes.awakeable("x")
    await processes.deploy(_process("host2", "timer", "message", "signal"), DEFINITIONS)
    if way == "timer":
        stage.clock.advance(MINUTE)
    migrate = await _migration(stage, processes)
    yield Duel(part(migrate), COMES[way](awakeable))
    assert migrate.result == ["x"]
    await processes.settle()
    status, variables = await processes.seen("x")
    assert (status, variables) == ("done", {"answer": 0, "signal": 0, "message": 0, "timer": 0, way: 1})


@pytest.mark.parametrize("way", COMES)
@race()
async def test_v4_an_activation_of_the_earlier_version_or_the_move_comes_first(
    stage: Stage, processes: BpmnStage, way: str
) -> Race:
    await processes.deploy(_process("host", "signal", "message", "timer"), DEFINITIONS)
    await processes.resting("x", COUNTS)
    awakeable = await processes.awakeable("x")
    await processes.deploy(_process("host2", "timer", "message", "signal"), DEFINITIONS)
    if way == "timer":
        stage.clock.advance(MINUTE)
    migrate = await _migration(stage, processes)
    come = COMES[way](awakeable)
    await stage.one.run(*come.requests, sweep=way == "timer")
    ours, _ = yield Duel(part(claim=processes.capacity()), part(migrate))
    [result] = migrate.result
    [move] = migrate.moves
    assert isinstance(result, Conflict) == any(claim.version == move.earlier for claim in ours.claims)
    if ours.claims:
        await stage.one.run(*[await processes.decided(claim) for claim in ours.claims])
    await processes.settle()
    status, variables = await processes.seen("x")
    assert (status, variables) == ("done", {"answer": 0, "signal": 0, "message": 0, "timer": 0, way: 1})


@race()
async def test_v4_variables_that_are_set_while_a_process_moves_are_kept(stage: Stage, processes: BpmnStage) -> Race:
    await processes.deploy(_process("host"), DEFINITIONS)
    await processes.resting("x", COUNTS)
    await processes.deploy(_process("host2", "timer"), DEFINITIONS)
    migrate, variables = await _migration(stage, processes), SetVariables(target="x", payload='{"more": 1}')
    yield Duel(part(migrate), part(variables))
    assert (migrate.result, variables.result) == (["x"], "x")
    await processes.settle()
    assert (await processes.seen("x"))[1]["more"] == 1
    state = load_bpmn_state(await stage.eye.fetchval("SELECT state FROM instances WHERE id = 'x'"))
    assert sorted(each.kind for each in state.catchers) == ["awakeable", "timer"]
    assert state.unarmed == []


async def test_v4_an_activation_that_is_lost_after_a_move_is_repeated(stage: Stage, processes: BpmnStage) -> None:
    await processes.deploy(_process("host"), DEFINITIONS)
    await processes.resting("x", COUNTS)
    await processes.deploy(_process("host2", "timer", "signal"), DEFINITIONS)
    await stage.one.run(await _migration(stage, processes))
    lost = await processes.decided(await processes.claim())
    await stage.eye.execute("UPDATE instances SET status = 'runnable', lease_owner = NULL WHERE id = 'x'")
    again = await processes.decided(await processes.claim())
    await stage.one.run(again)
    await stage.two.run(lost)
    assert lost.fenced
    state = load_bpmn_state(await stage.eye.fetchval("SELECT state FROM instances WHERE id = 'x'"))
    assert sorted(each.kind for each in state.catchers) == ["awakeable", "broadcast", "timer"]
    await stage.one.run(Publish(name="stop"))
    await processes.settle()
    assert (await processes.seen("x"))[0] == "done"
