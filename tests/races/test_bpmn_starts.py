"""Start events of processes against concurrent turns: one instance per event and start event (fault 61)."""

from itertools import count
from typing import Any

import pytest

from hark.kernel.requests import Deploy, Message, Publish, StartInstances
from hark.model.decisions import NewInstance
from hark.model.errors import Duplicate, NoTarget
from hark.model.lanes import BPMN, ENGINE_QUEUE
from hark.model.trigger import Trigger
from hark.programs.bpmn.bpmn_spec import START, step_of_start
from tests.support.stage import Duel, Race, Stage, part, race

pytestmark = pytest.mark.asyncio(loop_scope="module")

_texts = count()


def process(*elements: str) -> Deploy:
    """A new version of the process `p`, which a broadcast and a message start."""
    kinds: list[Any] = ["broadcast", "message"]
    starts = [Trigger(kind=kind, name="go", element=step_of_start(e)) for e in elements for kind in kinds]
    return Deploy(
        name="p", kind=BPMN, queue=ENGINE_QUEUE, initial=START, source="{}", digest=str(next(_texts)), starts=starts
    )  # fmt: skip


def message(ttl: int = 0, dedup_key: str | None = None) -> Message:
    return Message(name="go", key="order-1", may_start=True, ttl=ttl, dedup_key=dedup_key)


async def started(stage: Stage) -> list[str]:
    return [row.step for row in (await stage.content()).instances.values()]


@pytest.mark.parametrize("dedup_key", [None, "d"])
@race()
async def test_b4_fault_61_of_two_messages_with_one_key_one_starts_an_instance(
    stage: Stage, dedup_key: str | None
) -> Race:
    await stage.one.run(process("s"))
    messages = [message(dedup_key=dedup_key) for _ in range(2)]
    yield Duel(part(messages[0]), part(messages[1]))
    [id] = (await stage.content()).instances
    results = [getattr(m.result, "holder", m.result) for m in messages]
    assert results == [id, id]
    assert sum(isinstance(m.result, Duplicate) for m in messages) == (1 if dedup_key is None else 0)


@pytest.mark.parametrize("ttl", [0, 10**12])
@race()
async def test_b4_a_message_against_the_undeploy_of_its_process_starts_it_or_has_no_receiver(
    stage: Stage, ttl: int
) -> Race:
    await stage.one.run(process("s"))
    sent = message(ttl)
    yield Duel(part(Deploy(name="p", remove=True)), part(sent))
    kept = await stage.eye.fetchval("SELECT count(*) FROM messages")
    if await started(stage):
        assert (list((await stage.content()).instances), kept) == ([sent.result], 0)
    elif ttl:
        assert (sent.result, kept) == (None, 1)
    else:
        assert isinstance(sent.result, NoTarget)


@race()
async def test_b3_fault_61_a_broadcast_against_a_new_version_starts_one_instance_per_start_event_of_one_version(
    stage: Stage,
) -> Race:
    await stage.one.run(process("a", "b"))
    sent = Publish(name="go")
    yield Duel(part(process("b", "c")), part(sent))
    steps = sorted(await started(stage))
    assert steps in (["start:a", "start:b"], ["start:b", "start:c"])
    assert sent.result == len(steps)
    versions = await stage.eye.fetch("SELECT DISTINCT version FROM instances")
    assert len(versions) == 1


@race()
async def test_b4_a_message_against_a_start_with_its_key_gives_one_holder(stage: Stage) -> Race:
    await stage.one.run(process("s"))
    sent = message()
    start = StartInstances(items=[NewInstance("p", "{}", "x", named=True, correlation_key="order-1")])
    yield Duel(part(start), part(sent))
    [id] = (await stage.content()).instances
    assert [getattr(result, "holder", result) for result in (start.result[0], sent.result)] == [id, id]


@race()
async def test_b4_a_message_against_a_new_version_starts_an_instance_of_either(stage: Stage) -> Race:
    await stage.one.run(process("a"))
    sent = message()
    yield Duel(part(process("b")), part(sent))
    assert list((await stage.content()).instances) == [sent.result]
    assert await started(stage) in (["start:a"], ["start:b"])
