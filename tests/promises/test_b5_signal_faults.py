"""B5: one signal and several catchers of processes: each is reached, and what one does to itself stays its own."""

import pytest

from tests.promises.support_machines import harness
from tests.support.bpmn_files import END, START, bpmn, process
from tests.support.harness import drained
from tests.support.stores import Store

SIGNAL = '<signal id="s" name="stop"/>'


def catch(id: str) -> str:
    return f'<intermediateCatchEvent id="{id}"><signalEventDefinition signalRef="s"/></intermediateCatchEvent>'


def flow(source: str, target: str) -> str:
    return f'<sequenceFlow id="{source}-{target}" sourceRef="{source}" targetRef="{target}"/>'


TERMINATES = bpmn(
    process(
        "terminates", START, '<parallelGateway id="split"/>', catch("first"),
        '<endEvent id="over"><terminateEventDefinition/></endEvent>',
        more="".join((catch("second"), '<userTask id="never"/>', flow("split", "second"), flow("second", "never"))),
    ),
    definitions=SIGNAL,
)  # fmt: skip
SCRIPT = '<scriptTask id="count" camunda:resultVariable="n"><script>${n + 1}</script></scriptTask>'
COUNTS = bpmn(process("counts", START, catch("wait"), SCRIPT, END), definitions=SIGNAL)
THROWS = bpmn(
    process(
        "throws", START, '<parallelGateway id="split"/>', catch("wait"), '<userTask id="caught"/>',
        more="".join((
            '<endEvent id="throw"><signalEventDefinition signalRef="s"/></endEvent>', flow("split", "throw"),
        )),
    ),
    definitions=SIGNAL,
)  # fmt: skip


async def test_b5_fault_55_after_the_first_catcher_has_ended_the_instance_the_second_one_is_skipped(
    store: Store,
) -> None:
    async with harness(store) as app:
        await app.deploy(TERMINATES)
        one = await drained(app, app.start("terminates"))
        assert len(await app.waits(kind="broadcast")) == 2
        assert await app.broadcast("stop") == 1
        await app.drain()
        assert (await one.get()).status == "done"
        assert await app.awakeables() == []
        assert await app.waits() == []
        assert await app.broadcast("stop") == 0


@pytest.mark.parametrize("limit", [50_000, 2])
async def test_b5_fault_57_a_process_that_fails_on_a_signal_does_not_keep_it_from_the_others(
    store: Store, limit: int
) -> None:
    async with harness(store, broadcast_limit=limit) as app:
        await app.deploy(COUNTS)
        handles = [await app.start("counts", {"n": n}) for n in (1, "no number", 3)]
        await app.drain()
        assert await app.broadcast("stop") == 3
        await app.drain()
        found = [await handle.get() for handle in handles]
        assert [one.status for one in found] == ["done", "failed", "done"]
        assert [found[n].result["n"] for n in (0, 2)] == [2, 4]
        await app.set_variables(handles[1], {"n": 5})
        await drained(app, app.retry(handles[1]))
        assert (await handles[1].get()).result == {"n": 6}


async def test_b5_fault_54_a_thrower_catches_its_own_signal_once_and_reaches_the_others(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(THROWS)
        await app.deploy(COUNTS)
        other = await drained(app, app.start("counts", {"n": 1}))
        thrower = await drained(app, app.start("throws"))
        assert (await thrower.get()).state["tokens"] == ["caught"]
        assert (await other.get()).result == {"n": 2}
        assert await app.waits(kind="broadcast") == []
