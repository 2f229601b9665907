"""The report of a turn to the clerk, so that the work it made or left is done without waiting for a poll."""

from typing import Any

from hark.kernel.requests import Cancel, Deliver, Publish, Reclaim, Retain, StartInstances
from hark.store import statements
from tests.support.turns import capacity, new, on, park, stop

PAGE = 1000  # instances that one turn reclaims


async def _executing(turns: Any, *ids: str) -> list[Any]:
    await turns.run(StartInstances(items=[new(id) for id in ids]))
    return list((await turns.run(claim=capacity("worker", len(ids)))).claims)


async def test_executing_instances_that_receive_a_signal_are_reported(turns: Any) -> None:
    """The worker notifies their functions, which may wait for the signal while they run."""
    claims = await _executing(turns, "busy", "parked", "other")
    await turns.run(*(park(claim, on("go")) for claim in claims if claim.id == "parked"))
    result = await turns.run(Deliver(target="busy", name="go"), Deliver(target="parked", name="go"))
    assert result.signalled == {"busy"}


async def test_a_reclaim_of_more_than_a_page_runs_again_and_keeps_the_dead_worker_until_then(turns: Any) -> None:
    ids = [f"i{n:04}" for n in range(PAGE + 1)]
    assert len(await _executing(turns, *ids)) == PAGE + 1
    tx = await turns.store.begin()
    await tx.fetch(statements.renew, id="worker", until=0, definitions="", info="{}")
    await tx.commit()
    reclaim = Reclaim(owners=["worker"])
    first = await turns.run(reclaim)
    assert first.again == [reclaim]
    assert len(await turns.read("SELECT id FROM instances WHERE status = 'executing'")) == 1
    assert len(await turns.read("SELECT id FROM workers")) == 1
    second = await turns.run(*first.again)
    assert second.again == []
    assert await turns.read("SELECT id FROM instances WHERE status = 'executing'") == []
    assert await turns.read("SELECT id FROM workers") == []


async def test_a_turn_that_writes_no_row_as_proof_of_its_commit_says_so(turns: Any) -> None:
    """After a lost COMMIT the clerk looks for that row; a turn that has none must not be repeated as if it had."""
    assert (await turns.run(Publish(name="news", dedup_key="k"))).provable
    assert not (await turns.run(Publish(name="news", dedup_key="k"))).provable


async def test_x7_old_broadcasts_are_removed_a_batch_at_a_time(turns: Any) -> None:
    await turns.run(*(Publish(name="news", dedup_key=f"k{n}") for n in range(5)))
    left = []
    for _ in range(3):
        retain = Retain(before=1 << 60, size=2)
        await turns.run(retain)
        left.append((len(await turns.read("SELECT id FROM broadcasts")), retain.more))
    assert left == [(3, True), (1, True), (0, False)]


async def test_x9_a_turn_reports_the_failures_it_commits_and_not_those_it_drops(turns: Any) -> None:
    failed, fenced = await _executing(turns, "failed", "fenced")
    await turns.run(Cancel(target="fenced"))
    result = await turns.run(stop(failed), stop(fenced))
    assert [(found.instance, found.type, found.failure.message) for found in result.failures] == [
        ("failed", "stop", "stopped")
    ]
