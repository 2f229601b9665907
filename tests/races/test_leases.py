"""M5: work of a dead worker is reclaimed once, of a live one never; renew, reclaim and hand back do not deadlock."""

import asyncio

import pytest

from hark.kernel.requests import HandBack, Reclaim
from hark.store import statements as sql
from tests.support.stage import IN_BOTH_WAYS, Duel, Race, Side, Stage, part, race
from tests.support.turns import MINUTE, capacity, done

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _dead(stage: Stage, side: Side, me: str) -> list[str]:
    """The owners from which a worker would reclaim now."""
    now = stage.clock()
    late = {row.id for row in await side.store.read(sql.leases) if row.until < now}
    return sorted((late | {owner for (owner,) in await side.store.read(sql.unknown_owners)}) - {me})


@IN_BOTH_WAYS
@race(deep=True)
async def test_x2_two_workers_that_claim_concurrently_never_claim_the_same_row(stage: Stage) -> Race:
    await stage.start("a", "b", "c")
    one, two = yield Duel(part(claim=capacity("ours", 2)), part(claim=capacity("theirs", 2)))
    claims = [claim.id for claim in (*one.claims, *two.claims, *await stage.drain())]
    assert sorted(claims) == ["a", "b", "c"]


async def test_fault_28_two_live_workers_never_reclaim_from_each_other(stage: Stage) -> None:
    await stage.renew("ours", "theirs")
    await stage.executing("a", owner="ours")
    await stage.executing("b", owner="theirs")
    assert await _dead(stage, stage.one, "ours") == []
    assert await _dead(stage, stage.two, "theirs") == []


async def test_fault_28_a_worker_reclaims_only_from_workers_whose_lease_has_expired(stage: Stage) -> None:
    await stage.renew("ours", "theirs")
    await stage.executing("a", owner="ours")
    await stage.executing("b", owner="theirs")
    stage.clock.advance(2 * MINUTE)
    await stage.renew("ours")
    assert await _dead(stage, stage.one, "ours") == ["theirs"]
    assert await _dead(stage, stage.two, "theirs") == []
    await stage.one.run(Reclaim(owners=["theirs"]))
    rows = (await stage.audited_content()).instances
    assert (rows["a"].lease_owner, rows["a"].crashes) == ("ours", 0)
    assert (rows["b"].status, rows["b"].crashes) == ("runnable", 1)


@race(deep=True)
async def test_fault_28_two_concurrent_reclaims_count_one_crash(stage: Stage) -> Race:
    await stage.executing("x", owner="dead")
    await stage.executing("y", owner="dead", concurrency_key="k")
    yield Duel(part(Reclaim(owners=["dead"])), part(Reclaim(owners=["dead"])))
    rows = (await stage.content()).instances
    assert [(row.status, row.attempt, row.crashes) for row in rows.values()] == [("runnable", 1, 1)] * 2


@race(deep=True)
async def test_fault_28_two_workers_that_reclaim_from_the_same_one_and_claim_do_not_reclaim_from_each_other(
    stage: Stage,
) -> Race:
    await stage.executing("x", owner="dead")
    await stage.executing("y", owner="dead", concurrency_key="k")
    reclaim = Reclaim(owners=["dead"])
    first, second = yield Duel(part(reclaim, claim=capacity("ours", 2)), part(reclaim, claim=capacity("theirs", 2)))
    assert {row.crashes for row in (await stage.content()).instances.values()} == {1}
    claims = [claim.id for claim in (*first.claims, *second.claims, *await stage.drain())]
    assert sorted(claims) == ["x", "y"], "each step is repeated once"


@race(deep=True)
async def test_m5_two_concurrent_reclaims_quarantine_once_and_the_parent_counts_one_end(stage: Stage) -> Race:
    await stage.family("parent", "x", "y")
    await stage.eye.execute("UPDATE instances SET crashes = 2, lease_owner = 'dead' WHERE id = 'x'")
    yield Duel(part(Reclaim(owners=["dead"])), part(Reclaim(owners=["dead"])))
    content = await stage.content()
    assert content.instances["x"].status == "failed"
    assert [w.remaining for w in content.waits_of("parent")] == [1]


async def test_fault_34_renew_reclaim_and_hand_back_overlap_without_a_deadlock(stage: Stage) -> None:
    """A worker that was taken for dead renews and stops while another worker reclaims its work."""
    for at in range(20):
        await stage.clear()
        await stage.renew("ours", "theirs")
        claims = [await stage.executing(id, owner="theirs") for id in ("a", "b", "c")]
        reclaim = stage.one.act(part(Reclaim(owners=["theirs"])))
        over = await reclaim.to(at) == "done"
        renewing = asyncio.create_task(stage.renew("theirs", beside=True))
        leaving = stage.two.act(part(HandBack(claims=list(reversed(claims)), retire="theirs")))
        await leaving.run()
        async with asyncio.timeout(60):
            await asyncio.gather(reclaim.finish(), leaving.finish(), renewing)
        content = await stage.audited_content()
        assert {row.status for row in content.instances.values()} == {"runnable"}
        assert len({row.crashes for row in content.instances.values()}) == 1, "one of them reclaimed all rows"
        if over:
            return
    raise AssertionError("the turn never ended")


@race(deep=True)
async def test_fault_34_two_workers_that_stop_while_they_retire_each_other_do_not_deadlock(stage: Stage) -> Race:
    await stage.renew("ours", "theirs")
    stage.clock.advance(2 * MINUTE)
    yield Duel(
        part(Reclaim(owners=["theirs"]), HandBack(retire="ours")),
        part(Reclaim(owners=["ours"]), HandBack(retire="theirs")),
    )
    assert await stage.eye.fetchval("SELECT count(*) FROM workers") == 0


@race(deep=True)
async def test_m5_a_reclaim_and_an_outcome_of_another_row_do_not_wait_for_each_other(stage: Stage) -> Race:
    await stage.executing("a", owner="dead")
    claim = await stage.executing("b", owner="alive")
    await stage.executing("c", owner="dead")
    yield Duel(part(Reclaim(owners=["dead"])), part(done(claim)))
    rows = (await stage.content()).instances
    assert [rows[id].status for id in "abc"] == ["runnable", "done", "runnable"]


@race(deep=True)
async def test_m5_fault_90_the_last_outcome_of_a_process_that_is_gone_counts_once_or_not_at_all(stage: Stage) -> Race:
    """Its lease is valid for another minute, and what it had sent may still reach the database."""
    await stage.renew("gone")
    claim = await stage.executing("x", owner="gone")
    lease = await stage.eye.fetchval("SELECT until FROM workers")
    yield Duel(part(Reclaim(owners=["gone"], leases={"gone": lease})), part(done(claim)))
    row = (await stage.content()).instances["x"]
    assert (row.status, row.crashes) in {("done", 0), ("runnable", 1)}


@pytest.mark.parametrize("renewed", [False, True])
async def test_m5_fault_90_a_process_that_is_gone_is_reclaimed_during_its_lease_unless_it_was_renewed(
    stage: Stage, renewed: bool
) -> None:
    await stage.renew("gone")
    claim = await stage.executing("x", owner="gone")
    lease = await stage.eye.fetchval("SELECT until FROM workers")
    if renewed:
        stage.clock.advance(1)
        await stage.renew("gone")
    await stage.one.run(Reclaim(owners=["gone"], leases={"gone": lease}))
    assert (await stage.content()).instances["x"].status == ("executing" if renewed else "runnable")
    late = done(claim)
    await stage.two.run(late)
    assert late.fenced is not renewed
