"""An instance parks on any number of waits of every kind at once, each at its place.

One instance waits for a signal, a message, two timers, two joins, a broadcast and an awakeable together. Functions,
jobs and BPMN need this. The tests run the turns themselves: no worker, no interpreter, and a clock that only the test
moves.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from hark.kernel.requests import Cancel, Deliver, Message, Publish, Reclaim, Request, RetryInstance, SettleAwakeable
from hark.model.activation import Claim
from hark.model.decisions import Arm, Finish, NewAwakeable, NewInstance, Park, Settle
from hark.model.epochs import count_of
from hark.model.errors import NoTarget
from tests.promises.support_signals import Turns, count, outcome, rows
from tests.support.stores import Store

SECOND = 1_000_000
PLACES = {
    "w-signal": "inbox", "w-message": "post", "w-soon": "soon", "w-later": "later", "w-left": "left",
    "w-right": "right", "w-broadcast": "radio", "w-awakeable": "door",
}  # fmt: skip


def children(*ids: str) -> tuple[NewInstance, ...]:
    return tuple(NewInstance("C", "{}", id, named=True) for id in ids)


EVERYTHING = Park(
    arm=(
        Arm("signal", "w-signal", "inbox", name="go"),
        Arm("message", "w-message", "post", name="paid", key="order-1"),
        Arm("timer", "w-soon", "soon", timeout=10 * SECOND),
        Arm("timer", "w-later", "later", timeout=20 * SECOND),
        Arm("children", "w-left", "left", children=children("left-1", "left-2"), join=2),
        Arm("children", "w-right", "right", children=children("right-1", "right-2"), join=1),
        Arm("broadcast", "w-broadcast", "radio", name="x"),
        Arm("awakeable", "w-awakeable", "door", name="prom_1x", timeout=30 * SECOND),
    ),
    awakeables=(NewAwakeable("prom_1x", 0, place="door"),),
)


class Stage:
    """The parked instance `m`, its executing children, and the clock."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 1_000 * SECOND
        self.turns = Turns(store, lambda: self.now)
        self.children: dict[str, Claim] = {}

    async def end(self, *ids: str) -> None:
        await self.turns.run(*(outcome(self.children.pop(id), Finish("done")) for id in ids))

    async def pass_time(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        await self.turns.run(sweep=True)

    async def send(self, *requests: Request) -> None:
        await self.turns.run(*requests)

    async def claim(self) -> Claim:
        return await self.turns.claim("M")

    async def poked(self) -> Claim:
        """Wake it with its signal."""
        await self.send(Deliver(target="m", name="go"))
        return await self.claim()

    async def sleeps(self) -> bool:
        return await self.turns.nobody_runs("M")

    async def park(self, claim: Claim, *arm: Arm, disarm: Sequence[str] = (), consume: bool = True) -> None:
        """Park as an interpreter does: the signals it was handed are consumed, or left and named as handed."""
        seqs = [row.seq for row in claim.inbox]
        move = Park(arm, disarm=tuple(disarm))
        await self.turns.commit(claim, move, consume=seqs if consume else (), handed=seqs)

    async def waits(self) -> dict[str, tuple[str, Any, bool]]:
        found = await rows(self.store, "SELECT id, place, deadline, fired_at FROM waits ORDER BY id")
        return {id: (place, deadline, fired is not None) for id, place, deadline, fired in found}

    async def due(self) -> float | None:
        """Seconds until `m` is due."""
        [[due]] = await rows(self.store, "SELECT due_at FROM instances WHERE id = 'm'")
        return None if due is None else (due - self.now) / SECOND

    async def status(self) -> str:
        [[status]] = await rows(self.store, "SELECT status FROM instances WHERE id = 'm'")
        return str(status)


@pytest.fixture
async def stage(store: Store) -> AsyncIterator[Stage]:
    stage = Stage(store)
    async with stage.turns as turns:
        await turns.register("M", "C")
        await turns.start("M", "m")
        await turns.commit(await stage.claim(), EVERYTHING, step="woken")
        stage.children = {claim.id: claim for claim in (await turns.run(lanes=["C"], room=4)).claims}
        assert len(stage.children) == 4
        yield stage


# Each way to wake the instance: what happens, and the row that is then in its inbox.
SOURCES: dict[str, tuple[Callable[[Stage], Awaitable[None]], tuple[str, str, str | None]]] = {
    "signal": (lambda s: s.send(Deliver(target="m", name="go")), ("signal", "go", None)),
    "message": (lambda s: s.send(Message(name="paid", key="order-1")), ("message", "paid", "w-message")),
    "the sooner timer": (lambda s: s.pass_time(10), ("timer", "soon", "w-soon")),
    "all of the left children": (lambda s: s.end("left-1", "left-2"), ("children", "", "w-left")),
    "one of the right children": (lambda s: s.end("right-2"), ("children", "", "w-right")),
    "broadcast": (lambda s: s.send(Publish(name="x")), ("broadcast", "x", None)),
    "awakeable": (
        lambda s: s.send(SettleAwakeable(settle=Settle("prom_1x", "RESOLVED", "1"))),
        ("awakeable", "prom_1x", None),
    ),
}


@pytest.mark.parametrize("source", SOURCES)
async def test_each_answer_wakes_it_and_leaves_the_other_waits_armed(stage: Stage, source: str) -> None:
    happen, (kind, name, wait_id) = SOURCES[source]
    assert await stage.status() == "awaiting_children"
    assert await stage.sleeps()
    await happen(stage)
    claim = await stage.claim()
    assert claim.step == "woken"
    assert [(row.kind, row.name, row.wait_id) for row in claim.inbox] == [(kind, name, wait_id)]
    assert {wait.id: wait.place for wait in claim.waits} == PLACES
    assert await stage.sleeps()


@pytest.mark.parametrize("source", SOURCES)
async def test_an_answer_while_it_executes_is_not_lost(stage: Stage, source: str) -> None:
    happen, (kind, name, wait_id) = SOURCES[source]
    await stage.send(Deliver(target="m", name="go", payload='"first"'))
    claim = await stage.claim()
    await happen(stage)
    assert await stage.sleeps()
    await stage.park(claim)
    again = await stage.claim()
    assert [(row.kind, row.name, row.wait_id) for row in again.inbox] == [(kind, name, wait_id)]
    assert {wait.id for wait in again.waits} == set(PLACES)


@pytest.mark.parametrize("source", SOURCES)
async def test_an_answer_it_was_handed_and_left_does_not_wake_it_again(stage: Stage, source: str) -> None:
    happen, _ = SOURCES[source]
    await happen(stage)
    claim = await stage.claim()
    await stage.park(claim, consume=False)
    assert await stage.sleeps()
    # The next answer does, and both are in the inbox.
    await stage.send(Deliver(target="m", name="go", payload='"next"'))
    assert len((await stage.claim()).inbox) == 2


async def test_the_waits_are_answered_and_disarmed_one_after_the_other(stage: Stage) -> None:
    left = dict(await stage.waits())
    order = [
        ("w-signal", SOURCES["signal"]), ("w-message", SOURCES["message"]), ("w-soon", SOURCES["the sooner timer"]),
        ("w-left", SOURCES["all of the left children"]), ("w-broadcast", SOURCES["broadcast"]),
        ("w-right", SOURCES["one of the right children"]), ("w-awakeable", SOURCES["awakeable"]),
    ]  # fmt: skip
    for wait, (happen, answer) in order:
        await happen(stage)
        claim = await stage.claim()
        assert [(row.kind, row.name, row.wait_id) for row in claim.inbox] == [answer]
        await stage.park(claim, disarm=[wait])
        del left[wait]
        assert await stage.waits() == left  # same ids, same places, same deadlines
        assert await stage.sleeps()
    assert left == {"w-later": ("later", 1_020 * SECOND, False)}
    await stage.pass_time(10)
    claim = await stage.claim()
    assert [(row.kind, row.name, row.wait_id) for row in claim.inbox] == [("timer", "later", "w-later")]
    await stage.turns.commit(claim, Finish("done"))
    assert await count(stage.store, "waits") == 0
    # The last child is still live; its end has no effect on the parent.
    await stage.end("right-1")
    assert await stage.status() == "done"


async def test_due_at_is_the_earliest_open_deadline(stage: Stage) -> None:
    assert await stage.due() == 10
    await stage.send(Deliver(target="m", name="go"))
    assert await stage.due() is None  # runnable: the sweep has nothing to fire
    claim = await stage.claim()
    stage.now += 4 * SECOND
    await stage.park(claim)
    assert await stage.due() == 6  # the deadline has not moved
    await stage.park(await stage.poked(), disarm=["w-soon"])
    assert await stage.due() == 16
    await stage.park(await stage.poked(), Arm("timer", "w-new", "new", timeout=SECOND))
    assert await stage.due() == 1
    await stage.park(await stage.poked(), disarm=["w-new", "w-later", "w-awakeable"])
    assert await stage.due() is None
    await stage.pass_time(3600)
    assert await stage.sleeps()


async def test_each_timer_fires_at_its_time_and_once(stage: Stage) -> None:
    for seconds, place in ((10, "soon"), (10, "later")):
        await stage.pass_time(seconds)
        claim = await stage.claim()
        assert [(row.kind, row.name) for row in claim.inbox] == [("timer", place)]
        await stage.park(claim)  # not disarmed, but fired already
    await stage.pass_time(5)
    assert await stage.sleeps()
    assert {id: fired for id, (_, _, fired) in (await stage.waits()).items() if fired} == {
        "w-soon": True, "w-later": True,
    }  # fmt: skip


async def test_two_timers_that_are_due_together_are_one_wake_up_and_two_inbox_rows(stage: Stage) -> None:
    await stage.pass_time(25)
    claim = await stage.claim()
    assert sorted(row.name for row in claim.inbox) == ["later", "soon"]


async def test_the_deadline_of_an_awakeable_settles_it(stage: Stage) -> None:
    await stage.pass_time(10)
    await stage.park(await stage.claim(), disarm=["w-soon", "w-later"])
    await stage.pass_time(20)
    claim = await stage.claim()
    assert [(row.kind, row.name, row.payload) for row in claim.inbox] == [
        ("awakeable", "prom_1x", '{"status":"TIMEOUT"}')
    ]  # fmt: skip
    assert await rows(stage.store, "SELECT status FROM awakeables") == [("TIMEOUT",)]


async def test_a_deadline_that_passes_while_it_executes_fires_when_it_parks(stage: Stage) -> None:
    claim = await stage.poked()
    await stage.pass_time(15)
    await stage.park(claim)
    assert [row.name for row in (await stage.claim()).inbox] == ["soon"]


@pytest.mark.parametrize("source", ["message", "awakeable"])
async def test_a_wait_that_was_answered_while_it_executed_and_is_kept_does_not_time_out_later(
    stage: Stage, source: str
) -> None:
    """No second answer comes from its deadline, and no sweep finds it due again and again."""
    claim = await stage.poked()
    timed = Arm("message", "w-timed", "post", name="billed", key="order-1", timeout=5 * SECOND)
    await stage.park(claim, timed, disarm=["w-soon", "w-later"])
    claim = await stage.poked()
    if source == "message":
        await stage.send(Message(name="billed", key="order-1"))
    else:
        await stage.send(SettleAwakeable(settle=Settle("prom_1x", "RESOLVED", "1")))
    park = Park(disarm=("w-timed",) if source == "awakeable" else ("w-awakeable",))
    parking = outcome(claim, park, consume=[row.seq for row in claim.inbox])
    [answered] = (await stage.turns.run(parking, lanes=["M"])).claims  # in the turn that parks it
    assert [row.kind for row in answered.inbox] == [source]
    await stage.park(answered)
    await stage.pass_time(60)
    assert await stage.sleeps()
    assert await stage.due() is None
    assert await count(stage.store, "inbox", "consumed_at IS NULL") == 0


async def test_all_answers_in_one_turn_are_one_wake_up_and_none_is_lost(stage: Stage) -> None:
    stage.now += 10 * SECOND
    ends = [outcome(stage.children[id], Finish("done")) for id in ("left-1", "left-2", "right-1", "right-2")]
    message, answer = (
        Message(name="paid", key="order-1"),
        SettleAwakeable(settle=Settle("prom_1x", "REJECTED", error="no")),
    )
    turn = await stage.turns.run(
        Deliver(target="m", name="go"), message, answer, *ends, lanes=["M"], room=5, sweep=True
    )
    assert message.result == "m"
    [claim] = turn.claims
    assert sorted((row.kind, row.wait_id) for row in claim.inbox) == [
        ("awakeable", None), ("children", "w-left"), ("children", "w-right"), ("message", "w-message"),
        ("signal", None),
    ]  # fmt: skip
    # The signals won over the deadline, which fires when the instance parks on it again.
    await stage.park(claim, disarm=["w-signal", "w-message", "w-left", "w-right", "w-awakeable"])
    assert [row.name for row in (await stage.claim()).inbox] == ["soon"]


async def test_fault_69_near_misses_wake_no_instance(stage: Stage) -> None:
    for name in ("x", "paid", "soon", "left", "w-soon", "w-left", "prom_1x", "children", "timer"):
        signal = Deliver(target="m", name=name)
        await stage.send(signal)
        assert signal.result.status == "stored"
    for name in ("go", "paid", "prom_1x", "soon"):
        publish = Publish(name=name)
        await stage.send(publish)
        assert publish.result == 0
    for name, key in (("paid", "order-2"), ("go", "order-1"), ("prom_1x", "order-1")):
        message = Message(name=name, key=key)
        await stage.send(message)
        assert isinstance(message.result, NoTarget)
    await stage.end("left-1")
    assert await stage.sleeps()
    assert await rows(stage.store, "SELECT status FROM awakeables") == [("PENDING",)]
    assert not any(fired for _, _, fired in (await stage.waits()).values())


async def test_a_message_is_received_once(stage: Stage) -> None:
    first, second = (Message(name="paid", key="order-1") for _ in range(2))
    await stage.send(first, second)
    assert first.result == "m"
    assert isinstance(second.result, NoTarget)
    claim = await stage.claim()
    late = Message(name="paid", key="order-1")
    await stage.send(late)
    assert isinstance(late.result, NoTarget)
    await stage.park(claim, Arm("message", "w-again", "post", name="paid", key="order-1"), disarm=["w-message"])
    await stage.send(again := Message(name="paid", key="order-1"))
    assert again.result == "m"
    assert [row.wait_id for row in (await stage.claim()).inbox] == ["w-again"]


async def test_the_children_of_a_disarmed_join_continue_and_answer_nothing(stage: Stage) -> None:
    await stage.park(await stage.poked(), disarm=["w-left"])
    await stage.end("left-1", "left-2")
    assert await stage.sleeps()
    assert await count(stage.store, "inbox", "kind = 'children'") == 0


async def test_without_a_join_the_status_is_awaiting_signal(stage: Stage) -> None:
    await stage.park(await stage.poked(), disarm=["w-left", "w-right"])
    assert await stage.status() == "awaiting_signal"


async def test_a_park_that_names_no_waits_to_disarm_disarms_all_of_them(stage: Stage) -> None:
    claim = await stage.poked()
    await stage.turns.commit(
        claim, Park((Arm("signal", "w-only", name="only"),)), consume=[row.seq for row in claim.inbox]
    )
    assert set(await stage.waits()) == {"w-only"}
    await stage.pass_time(3600)
    assert await stage.sleeps()


async def test_a_crash_loses_no_wait_and_no_answer(stage: Stage) -> None:
    await SOURCES["message"][0](stage)
    lost = await stage.claim()
    await stage.send(Reclaim(owners=["by-hand"]))
    again = await stage.claim()
    assert count_of(again.epoch) > count_of(lost.epoch)
    assert [row.seq for row in again.inbox] == [row.seq for row in lost.inbox]
    assert {wait.id for wait in again.waits} == set(PLACES)


async def test_a_cancel_deletes_all_waits_and_ends_the_children(stage: Stage) -> None:
    await stage.send(Cancel(target="m"))
    assert await count(stage.store, "waits") == 0
    assert await rows(stage.store, "SELECT DISTINCT status FROM instances") == [("cancelled",)]
    assert await rows(stage.store, "SELECT status FROM awakeables") == [("CANCELLED",)]
    await stage.send(message := Message(name="paid", key="order-1"))
    assert isinstance(message.result, NoTarget)
    assert await count(stage.store, "inbox") == 0


async def test_a_retry_has_all_its_waits_again(stage: Stage) -> None:
    await stage.turns.commit(await stage.poked(), Finish("failed", error="broken"))
    await stage.send(message := Message(name="paid", key="order-1"), publish := Publish(name="x"))
    assert isinstance(message.result, NoTarget)
    assert publish.result == 0
    await stage.send(RetryInstance(target="m"))
    claim = await stage.claim()
    assert {wait.id for wait in claim.waits} == set(PLACES)
    await stage.park(claim)
    assert await stage.due() == 10
    await stage.send(Message(name="paid", key="order-1"))
    assert [row.kind for row in (await stage.claim()).inbox] == ["message"]
