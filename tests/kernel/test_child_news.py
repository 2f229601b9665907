"""What a child tells its parent before it ends: an inbox row of the parent that counts nothing (B4, escalations)."""

import json
from typing import Any

import pytest

from hark.kernel.requests import Cancel, Capacity, Commit, CommitNote, DefinitionRow, Register, RetryInstance
from hark.model.activation import Claim, Traits
from hark.model.decisions import Arm, Effect, Finish, NewInstance, NewTask, Park, TellParent
from hark.model.errors import TaskLost
from hark.model.lanes import BPMN, GRAPHS
from hark.model.notes import NoteParent
from tests.promises.support_signals import Turns, outcome, rows
from tests.support.stores import Store

LANE = "task:charge"
ENDS = "w-ends"
ESCALATED = '{"status":"escalated","code":"late"}'


class Family:
    """A process `p` whose children end against one wait that each end answers."""

    def __init__(self, store: Store) -> None:
        self.turns = Turns(store)

    async def __aenter__(self) -> "Family":
        await self.turns.__aenter__()
        await self.turns.run(Register(rows=[DefinitionRow("P", 1, BPMN, GRAPHS, "start")]))
        await self.turns.start("P", "p")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.turns.__aexit__(*exc)

    async def claims(self, *requests: Any) -> dict[str, Claim]:
        room = Capacity("by-hand", {"default": 200, GRAPHS: 9}, dict.fromkeys((LANE, BPMN), Traits()))
        return {claim.id: claim for claim in (await self.turns.run(*requests, capacity=room)).claims}

    async def parked(self, *ids: str, **arm: Any) -> dict[str, Claim]:
        """The process is parked, and these children execute."""
        parent = (await self.claims())["p"]
        wait = Arm("children", ENDS, "ends", **{"answers_each": True, **arm})
        return await self.claims(outcome(parent, Park((wait,), disarm=()), effects=[child(id) for id in ids]))


def child(id: str) -> Effect:
    item = NewInstance("P", "{}", id, named=True, version=1, step="charge", lane=LANE, kind="task", queue="default")
    return NewTask(item, ENDS)


def park(claim: Claim, *arms: Arm, effects: Any = ()) -> Commit:
    return outcome(claim, Park(arms, disarm=()), consume=[row.seq for row in claim.inbox], effects=effects)


def done(claim: Claim, *effects: Effect) -> Commit:
    return outcome(claim, Finish("done", result="1"), effects=effects)


def news(claim: Claim) -> list[tuple[str, str, str | None, str]]:
    return [(row.kind, row.name, row.wait_id, json.loads(row.payload)["status"]) for row in claim.inbox]


def note(claim: Claim, payload: str = ESCALATED) -> CommitNote:
    return CommitNote(
        note=NoteParent(claim.id, claim.epoch, claim.parent_id or "", claim.parent_wait or "", payload=payload)
    )


async def test_b4_a_child_tells_its_parent_something_and_ends_later(store: Store) -> None:
    async with Family(store) as family:
        child = (await family.parked("p.0"))["p.0"]
        claims = await family.claims(park(child, Arm("signal", "w-go", name="go"), effects=[TellParent(ESCALATED)]))
        assert news(claims["p"]) == [("children", "p.0", ENDS, "escalated")]
        assert json.loads(claims["p"].inbox[0].payload)["code"] == "late"
        assert await family.claims(park(claims["p"])) == {}  # it waits for the end
        claims = await family.claims(Cancel(target="p.0"))
        assert news(claims["p"]) == [("children", "p.0", ENDS, "cancelled")]


async def test_b4_what_a_child_tells_with_its_end_arrives_before_the_end(store: Store) -> None:
    async with Family(store) as family:
        child = (await family.parked("p.0"))["p.0"]
        claims = await family.claims(done(child, TellParent(ESCALATED), TellParent(ESCALATED)))
        assert [status for *_, status in news(claims["p"])] == ["escalated", "escalated", "done"]


async def test_b4_a_running_task_tells_its_parent_by_a_note(store: Store) -> None:
    async with Family(store) as family:
        child = (await family.parked("p.0"))["p.0"]
        request = note(child)
        parent = (await family.claims(request))["p"]
        assert request.result is True
        assert news(parent) == [("children", "p.0", ENDS, "escalated")]
        again = note(child, '{"status":"escalated","code":"again"}')
        await family.claims(again)  # while the parent executes
        assert again.result is True
        parent = (await family.claims(park(parent)))["p"]
        assert [json.loads(row.payload)["code"] for row in parent.inbox] == ["again"]
        assert await rows(store, "SELECT status, epoch FROM instances WHERE id = 'p.0'") == [("executing", child.epoch)]


async def test_b4_a_sender_that_is_fenced_tells_nothing(store: Store) -> None:
    async with Family(store) as family:
        child = (await family.parked("p.0"))["p.0"]
        child.epoch -= 1
        stale, late = done(child, TellParent(ESCALATED)), note(child)
        assert await family.claims(stale, late) == {}
        assert stale.fenced
        assert isinstance(late.result, TaskLost)
        child.epoch += 1
        cancelled, late = done(child, TellParent(ESCALATED)), note(child)
        claims = await family.claims(cancelled, late, Cancel(target="p.0"))
        assert news(claims["p"]) == [("children", "p.0", ENDS, "cancelled")]
        assert isinstance(late.result, TaskLost)


@pytest.mark.parametrize("end", ["done", "cancelled", "disarmed"])
async def test_b4_a_parent_that_waits_no_more_is_told_nothing(store: Store, end: str) -> None:
    async with Family(store) as family:
        executing = await family.parked("p.0", "p.1")
        parent = (await family.claims(done(executing["p.1"])))["p"]
        if end == "disarmed":
            await family.turns.run(outcome(parent, Park((Arm("signal", "w-go", name="go"),), disarm=(ENDS,))))
        elif end == "done":
            await family.turns.run(outcome(parent, Finish("done")))
        else:
            await rows(store, "UPDATE instances SET parent_id = NULL WHERE id = 'p.0'")  # it outlives the cancel
            await family.turns.run(Cancel(target="p"))
        before = await rows(store, "SELECT count(*) FROM inbox")
        request = note(executing["p.0"])
        await family.claims(request)
        await family.claims(done(executing["p.0"], TellParent(ESCALATED)))
        assert request.result is False
        assert await rows(store, "SELECT count(*) FROM inbox") == before


async def test_b4_a_failed_parent_finds_what_it_was_told_when_it_is_retried(store: Store) -> None:
    async with Family(store) as family:
        executing = await family.parked("p.0", "p.1")
        parent = (await family.claims(done(executing["p.1"])))["p"]
        consumed = [row.seq for row in parent.inbox]
        await family.turns.run(outcome(parent, Finish("failed", error="no"), consume=consumed))
        await family.claims(note(executing["p.0"]))
        claims = await family.claims(RetryInstance(target="p"))
        assert news(claims["p"]) == [("children", "p.0", ENDS, "escalated")]


async def test_b4_a_parent_that_counts_its_children_and_an_instance_without_a_parent_change_nothing(
    store: Store,
) -> None:
    async with Family(store) as family:
        executing = await family.parked("p.0", "p.1", answers_each=False, join=2)
        request = note(executing["p.0"])
        assert await family.claims(request) == {}
        assert request.result is False
        claims = await family.claims(*(done(claim, TellParent(ESCALATED)) for claim in executing.values()))
        assert [row.payload for row in claims["p"].inbox] == ["null"]  # they have ended
        await family.claims(done(claims["p"], TellParent(ESCALATED)))
        assert await rows(store, "SELECT status FROM instances WHERE id = 'p'") == [("done",)]
