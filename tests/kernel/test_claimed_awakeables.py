"""B6: user tasks are awakeables with groups and a due date, which one person at a time claims."""

from typing import Any

import pytest

from hark.kernel.requests import AssignAwakeable, Cancel, RetryInstance, SettleAwakeable
from hark.model.decisions import Arm, Finish, NewAwakeable, Park, Settle
from hark.model.errors import AlreadyClaimed, AlreadySettled, NotAssigned, NotFound
from hark.model.names import awakeable_id
from hark.model.values import Awakeable
from hark.store import reads
from hark.views import instance_views
from tests.promises.support_signals import Turns, outcome, rows
from tests.support.turns import ask

ID = awakeable_id("m", 0)


@pytest.fixture
def turns(turns_by_hand: Turns) -> Turns:
    return turns_by_hand


async def asks(turns: Turns, instance: str = "m", **options: Any) -> str:
    """The instance asks, and waits for the answer."""
    id = options.pop("id", awakeable_id(instance, 0))
    await turns.start("M", instance)
    new = NewAwakeable(id, 0, **options)
    arm = Arm("awakeable", f"w-{instance}", name=id, timeout=options.get("timeout"))
    await turns.commit(await turns.claim("M"), Park((arm,), awakeables=(new,)))
    return id


def claim(by: str | None, id: str = ID) -> AssignAwakeable:
    return AssignAwakeable(awakeable=id, by=by, via="python")


def resolve(by: str | None = None, id: str = ID) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(id, "RESOLVED", payload="1", by=by, via="python"))


async def shown(turns: Turns, id: str = ID) -> Awakeable:
    [row] = await turns.store.read(reads.read_awakeables, ids=[id])
    return instance_views.awakeable(row, lambda *_: "")


async def test_b6_an_awakeable_has_groups_and_a_due_date(turns: Turns) -> None:
    await asks(turns, groups='["managers","board"]', due_at=1_800_000_060_000_000)
    one = await shown(turns)
    assert (one.groups, one.claimed_by) == (("managers", "board"), None)
    assert one.due_at is not None
    assert one.due_at.isoformat() == "2027-01-15T08:01:00+00:00"
    [row] = await ask(turns, resolve())
    assert (row.groups, row.due_at) == ('["managers","board"]', 1_800_000_060_000_000)


async def test_b6_one_person_at_a_time_claims_an_awakeable(turns: Turns) -> None:
    await asks(turns)
    [row] = await ask(turns, claim("ann"))
    assert instance_views.awakeable(row, lambda *_: "") == await shown(turns)
    assert (await shown(turns)).claimed_by == "ann"
    [again, refused] = await ask(turns, claim("ann"), claim("bob"))
    assert again.claimed_by == "ann"
    assert isinstance(refused, AlreadyClaimed)
    assert (refused.by, refused.status) == ("ann", "PENDING")
    assert "claimed by ann" in str(refused)
    [given_back, taken, refused] = await ask(turns, claim(None), claim("bob"), claim("ann"))
    assert (given_back.claimed_by, taken.claimed_by, refused.by) == (None, "bob", "bob")
    await ask(turns, claim(None), claim(None))
    assert (await shown(turns)).claimed_by is None
    found = await rows(turns.made_for, "SELECT type, data FROM events WHERE type LIKE '%claimed' ORDER BY seq")
    by = [f'{{"awakeable":"{ID}","by":"{name}","via":"python"}}' for name in ("ann", "ann", "bob", "bob")]
    assert [tuple(row) for row in found] == list(zip(("claimed", "unclaimed", "claimed", "unclaimed"), by, strict=True))


async def test_b6_a_claim_is_advice_for_those_who_answer(turns: Turns) -> None:
    await asks(turns)
    await ask(turns, claim("ann"))
    [row] = await ask(turns, resolve(by="bob"))
    assert (row.status, row.answered_by, row.claimed_by) == ("RESOLVED", "bob", "ann")
    one = await shown(turns)
    assert (one.answered_by, one.claimed_by) == ("bob", "ann")


async def test_b6_a_settled_or_unknown_awakeable_cannot_be_claimed(turns: Turns) -> None:
    await asks(turns)
    await asks(turns, "late", timeout=1)
    await ask(turns, resolve(by="ann"))
    late = awakeable_id("late", 0)  # its deadline has passed, and no sweep has come yet
    results = await ask(turns, claim("bob"), claim(None), claim("bob", late), claim("bob", "prom_1nowhere"))
    assert [type(result) for result in results] == [AlreadySettled, AlreadySettled, AlreadySettled, NotFound]
    assert (results[0].by, results[2].status) == ("ann", "TIMEOUT")


async def test_b6_of_assignees_only_those_can_claim_unless_there_are_groups(turns: Turns) -> None:
    await asks(turns, assignees='["ann"]')
    [refused, taken] = await ask(turns, claim("bob"), claim("ann"))
    assert isinstance(refused, NotAssigned)
    assert "may not claim" in str(refused)
    assert taken.claimed_by == "ann"
    id = await asks(turns, "grouped", assignees='["ann"]', groups='["managers"]')
    [taken] = await ask(turns, claim("bob", id))
    assert taken.claimed_by == "bob"
    [row] = await ask(turns, resolve("carl", id))  # who is a member of a group is not known here
    assert row.answered_by == "carl"


async def test_b6_an_awakeable_whose_id_does_not_name_its_instance_is_claimed_too(turns: Turns) -> None:
    await asks(turns, id="prom_1abc123")
    [row] = await ask(turns, claim("ann", "prom_1abc123"))
    assert row.claimed_by == "ann"
    [refused] = await ask(turns, claim("bob", "prom_1abc123"))
    assert isinstance(refused, AlreadyClaimed)


async def test_b6_a_claim_outlives_the_retry_of_its_instance(turns: Turns) -> None:
    await turns.start("M", "m")
    poke = Arm("timer", "w-poke", timeout=1)
    asked = Arm("awakeable", "w", name=ID)
    await turns.commit(await turns.claim("M"), Park((asked, poke), awakeables=(NewAwakeable(ID, 0),)))
    await ask(turns, claim("ann"))
    [woken] = (await turns.run(lanes=["M"], sweep=True)).claims
    await turns.run(outcome(woken, Finish("failed", error="no"), consume=[row.seq for row in woken.inbox]))
    [refused] = await ask(turns, claim("bob"))
    assert (type(refused), refused.status) == (AlreadySettled, "CANCELLED")
    await turns.run(RetryInstance(target="m"))
    [refused] = await ask(turns, claim("bob"))
    assert isinstance(refused, AlreadyClaimed)
    await turns.run(Cancel(target="m"))
    assert (await shown(turns)).status == "CANCELLED"
