"""The news of a child for its parent before it ends: an inbox row that counts as no end (B4, escalations)."""

import json
from typing import Any

import pytest

from hark.kernel.requests import Cancel, Commit, CommitNote, RetryInstance
from hark.model.activation import Claim
from hark.model.decisions import Arm, Effect, Finish, Park, TellParent
from hark.model.errors import TaskLost
from hark.model.notes import NoteParent
from tests.kernel.family import ENDS, Family
from tests.promises.support_signals import outcome, rows

ESCALATED = '{"status":"escalated","code":"late"}'


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


async def test_b4_a_child_tells_its_parent_something_and_ends_later(family: Family) -> None:
    child = (await family.parked("p.0"))["p.0"]
    claims = await family.claims(park(child, Arm("signal", "w-go", name="go"), effects=[TellParent(ESCALATED)]))
    assert news(claims["p"]) == [("children", "p.0", ENDS, "escalated")]
    assert json.loads(claims["p"].inbox[0].payload)["code"] == "late"
    assert await family.claims(park(claims["p"])) == {}  # it waits for the end
    claims = await family.claims(Cancel(target="p.0"))
    assert news(claims["p"]) == [("children", "p.0", ENDS, "cancelled")]


async def test_b4_what_a_child_tells_with_its_end_arrives_before_the_end(family: Family) -> None:
    child = (await family.parked("p.0"))["p.0"]
    claims = await family.claims(done(child, TellParent(ESCALATED), TellParent(ESCALATED)))
    assert [status for *_, status in news(claims["p"])] == ["escalated", "escalated", "done"]


async def test_b4_a_running_task_tells_its_parent_by_a_note(family: Family) -> None:
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
    assert await rows(family.store, "SELECT status, epoch FROM instances WHERE id = 'p.0'") == [
        ("executing", child.epoch)
    ]


async def test_b4_a_sender_that_is_fenced_tells_nothing(family: Family) -> None:
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
async def test_b4_a_parent_that_waits_no_more_is_told_nothing(family: Family, end: str) -> None:
    executing = await family.parked("p.0", "p.1")
    parent = (await family.claims(done(executing["p.1"])))["p"]
    if end == "disarmed":
        await family.turns.run(outcome(parent, Park((Arm("signal", "w-go", name="go"),), disarm=(ENDS,))))
    elif end == "done":
        await family.turns.run(outcome(parent, Finish("done")))
    else:
        await rows(
            family.turns.made_for, "UPDATE instances SET parent_id = NULL WHERE id = 'p.0'"
        )  # it outlives the cancel
        await family.turns.run(Cancel(target="p"))
    before = await rows(family.store, "SELECT count(*) FROM inbox")
    request = note(executing["p.0"])
    await family.claims(request)
    await family.claims(done(executing["p.0"], TellParent(ESCALATED)))
    assert request.result is False
    assert await rows(family.store, "SELECT count(*) FROM inbox") == before


async def test_b4_a_failed_parent_finds_what_it_was_told_when_it_is_retried(family: Family) -> None:
    executing = await family.parked("p.0", "p.1")
    parent = (await family.claims(done(executing["p.1"])))["p"]
    consumed = [row.seq for row in parent.inbox]
    await family.turns.run(outcome(parent, Finish("failed", error="no"), consume=consumed))
    await family.claims(note(executing["p.0"]))
    claims = await family.claims(RetryInstance(target="p"))
    assert news(claims["p"]) == [("children", "p.0", ENDS, "escalated")]


async def test_b4_news_change_nothing_for_a_parent_that_counts_or_without_a_parent(family: Family) -> None:
    executing = await family.parked("p.0", "p.1", answers_each=False, join=2)
    request = note(executing["p.0"])
    assert await family.claims(request) == {}
    assert request.result is False
    claims = await family.claims(*(done(claim, TellParent(ESCALATED)) for claim in executing.values()))
    assert [row.payload for row in claims["p"].inbox] == ["null"]  # they have ended
    await family.claims(done(claims["p"], TellParent(ESCALATED)))
    assert await rows(family.store, "SELECT status FROM instances WHERE id = 'p'") == [("done",)]
