"""Broadcasts, messages and timers that start instances of BPMN processes, with definitions that no interpreter runs."""

import json
from typing import Any

import pytest

from hark.kernel.requests import Cancel, Deploy, DeployGroup, Message, Publish, SetVariables, StartInstances
from hark.model.cron import Timing
from hark.model.decisions import Arm, NewInstance, NewTask, Park
from hark.model.errors import Duplicate, InvalidInput, NoTarget
from hark.model.lanes import BPMN, ENGINE_QUEUE
from hark.model.trigger import Trigger
from hark.programs.bpmn.bpmn_spec import START, step_of_start
from tests.promises.support_signals import Turns, outcome, rows
from tests.support.inspect import counted
from tests.support.stores import Store
from tests.support.turns import TickingClock, ask

MINUTE = 60_000_000


@pytest.fixture
def turns(turns_by_hand: Turns) -> Turns:
    return turns_by_hand


def process(name: str, *starts: Trigger, digest: str = "1", initial: str = START) -> Deploy:
    return Deploy(
        name=name, kind=BPMN, queue=ENGINE_QUEUE, initial=initial, source="{}", digest=digest, starts=list(starts)
    )  # fmt: skip


def by_signal(element: str = "s", name: str = "open") -> Trigger:
    return Trigger(kind="broadcast", name=name, element=step_of_start(element))


def by_message(element: str = "m", name: str = "order") -> Trigger:
    return Trigger(kind="message", name=name, element=step_of_start(element))


async def instances(turns: Turns, columns: str = "definition, version, step, state") -> list[tuple[Any, ...]]:
    found = await rows(turns.made_for, f"SELECT {columns} FROM instances ORDER BY created_at, nth")
    return [tuple(row) for row in found]


async def test_b3_a_broadcast_starts_one_instance_per_start_event_of_every_process(turns: Turns) -> None:
    await ask(turns, DeployGroup(deploys=[process("a", by_signal("one"), by_signal("two")), process("b", by_signal())]))
    assert await ask(turns, Publish(name="open", payload='{"n":1}'), Publish(name="other")) == [3, 0]
    found = sorted(await instances(turns))
    assert found == [
        ("a", 1, "start:one", '{"n":1}'), ("a", 1, "start:two", '{"n":1}'), ("b", 1, "start:s", '{"n":1}'),
    ]  # fmt: skip
    assert set(await instances(turns, "kind, queue, lane")) == {(BPMN, ENGINE_QUEUE, BPMN)}


@pytest.mark.parametrize("payload", ["null", "[1]", "3", '"text"', "true"])
async def test_b3_a_payload_that_is_not_an_object_gives_no_variables(turns: Turns, payload: str) -> None:
    await ask(turns, process("a", by_signal(), by_message()))
    await ask(turns, Publish(name="open", payload=payload), Message(name="order", key="k", payload=payload))
    assert await instances(turns, "state") == [("{}",), ("{}",)]
    [(id,), _] = await instances(turns, "id")
    assert await ask(turns, SetVariables(target=id, payload='{"x":1}')) == [id]  # before its first activation
    assert (await instances(turns, "state"))[0] == ('{"x":1}',)


@pytest.mark.parametrize("limit", [50_000, 1])
async def test_b5_fault_56_an_instance_that_a_broadcast_starts_does_not_receive_it(store: Store, limit: int) -> None:
    async with Turns(store, broadcast_limit=limit) as turns:
        await turns.register("M")
        ids = ["x", "y"]  # with a limit of 1, a broadcast to these is marked and delivered later
        await turns.park_all("M", ids, lambda id: Park((Arm("broadcast", f"w-{id}", name="open"),)), "woken")
        await ask(turns, process("a", by_signal()))
        for _ in range(2):
            assert await ask(turns, Publish(name="open", dedup_key="k")) == [3]
        [claim] = [claim for claim in (await turns.run(lanes=["M"], room=3)).claims if claim.kind == BPMN]
        by_name = Arm("broadcast", "v", "catch", name="open")
        await turns.commit(claim, Park((Arm("broadcast", "w", "catch", name="open", fresh=True), by_name)))
        while (await turns.run(pending_deliveries=True)).pending.pending_deliveries:
            pass
        assert await rows(turns.made_for, f"SELECT count(*) FROM inbox WHERE instance_id = '{claim.id}'") == [(0,)]


async def test_b4_a_message_starts_an_instance_only_if_no_live_one_takes_it(turns: Turns) -> None:
    await ask(turns, process("a", by_message()))
    [first] = await ask(turns, Message(name="order", key="order-1", payload='{"n":1}'))
    assert await instances(turns, "id, correlation_key, state, step") == [(first, "order-1", '{"n":1}', "start:m")]
    await turns.commit(await turns.claim("a"), Park((Arm("message", "w", name="order", key="order-1"),)))
    assert await ask(turns, Message(name="order", key="order-1", payload='{"n":2}')) == [first]
    [refused, other] = await ask(turns, Message(name="order", key="order-1"), Message(name="order", key="order-2"))
    assert isinstance(refused, Duplicate)
    assert refused.holder == first
    assert other != first
    await turns.run(Cancel(target=first))
    [again] = await ask(turns, Message(name="order", key="order-1"))
    assert again not in (first, other)


async def test_b4_a_message_that_starts_an_instance_is_recognised_by_its_dedup_key(turns: Turns) -> None:
    await ask(turns, process("a", by_message()))
    messages = [Message(name="order", key="order-1", dedup_key="d", ttl=ttl) for ttl in (0, MINUTE)]
    [first, repeated] = await ask(turns, *messages)
    assert first == repeated
    assert await ask(turns, Message(name="order", key="order-1", dedup_key="d")) == [first]
    assert len(await instances(turns)) == 1


async def test_b4_of_several_processes_with_one_message_one_is_started(turns: Turns) -> None:
    await ask(turns, process("a", by_message("x"), by_message("y")), process("b", by_message()))
    await ask(turns, Message(name="order", key="order-1"))
    assert len(await instances(turns)) == 1


async def test_b3_undeploying_removes_start_events_and_deploying_the_same_text_brings_them_back(turns: Turns) -> None:
    deploy, send = process("a", by_signal(), by_message()), Publish(name="open")
    await ask(turns, deploy)
    await ask(turns, Deploy(name="a", remove=True))
    assert await ask(turns, send) == [0]
    [refused] = await ask(turns, Message(name="order", key="k"))
    assert isinstance(refused, NoTarget)
    assert await ask(turns, Message(name="order", key="k", ttl=MINUTE)) == [None]  # not for a start event
    assert await ask(turns, deploy) == [1]
    assert await ask(turns, send) == [1]


async def test_b3_a_new_version_replaces_start_events_and_the_same_text_keeps_them(
    turns: Turns, clock: TickingClock
) -> None:
    def timed(digest: str) -> Deploy:
        """As it is read now: its first tick is a minute from now."""
        timer = Trigger(
            kind="timer", element=step_of_start("t"), state="{}", timing=Timing(every=MINUTE), at=clock.now + MINUTE,
            remaining=2, overlap="allow",
        )  # fmt: skip
        return process("a", timer, by_signal("old" if digest == "1" else "new"), digest=digest)

    async def tick() -> Any:
        [[at]] = await rows(turns.made_for, "SELECT next_at FROM triggers WHERE kind = 'timer'")
        return at

    assert await ask(turns, timed("1")) == [1]
    first = await tick()
    clock.now += 30_000_000
    assert await ask(turns, timed("1")) == [1]
    assert await tick() == first  # its time goes on
    assert await ask(turns, timed("2")) == [2]
    assert await tick() > first
    assert await ask(turns, Publish(name="open")) == [1]
    assert [(version, step) for _, version, step, _ in await instances(turns)] == [(2, "start:new")]


async def test_b2_a_process_without_a_start_by_name_says_how_it_starts(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(turns, process("a", by_signal(), by_message(), initial=""))
    for n in (1, 20):
        request = StartInstances(items=[NewInstance("a", "{}", f"{n}-{i}") for i in range(n)])
        with counted(turns.made_for, monkeypatch) as sent:
            await turns.run(request)
        assert sent.count("deployed_triggers") == 1
        assert {type(answer) for answer in request.result} == {InvalidInput}
        assert all(part in str(request.result[0]) for part in ("the broadcast 'open'", "the message 'order'"))
    assert await instances(turns) == []


async def test_b6_a_child_that_cannot_start_by_name_is_a_failed_child(turns: Turns) -> None:
    await ask(turns, process("a", by_message(), initial=""), process("caller"))
    await turns.start("caller", "p")
    wait = Arm("children", "p~0", "", answers_each=True)
    called = NewTask(NewInstance("a", "{}", "p.1", named=True), "p~0")
    await turns.run(outcome(await turns.claim("caller"), Park((wait,)), effects=[called]))
    [row] = (await turns.claim("caller")).inbox
    assert json.loads(row.payload)["status"] == "refused"
    assert "the message 'order'" in row.payload
