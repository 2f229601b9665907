"""B1, very large: one commit marks all subscribers and chunks deliver to each of them exactly once."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import Cancel, Deliver, Publish
from hark.kernel.rules import Rules
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import advance, done, on, park, rules

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def make_rules() -> Callable[[], Rules]:
    return lambda: rules(broadcast_limit=1, chunk=2)


def _news(**options: object) -> object:
    return on("news", "broadcast", **options)


async def _deliver_the_rest(stage: Stage) -> None:
    for _ in range(10):
        if not (await stage.two.run(pending_deliveries=True)).pending.pending_deliveries:
            break
    assert await stage.eye.fetchval("SELECT count(*) FROM deliveries") == 0


@pytest.mark.parametrize("fresh", [False, True])  # the places of a process
@race(deep=True)
async def test_fault_58_two_processes_that_deliver_chunks_reach_every_subscriber_once(
    stage: Stage, fresh: bool
) -> Race:
    for id in "abcde":
        await stage.parked(id, _news(fresh=fresh))
    publish = Publish(name="news")
    await stage.one.run(publish)
    assert publish.result == 5
    yield Duel(part(pending_deliveries=True), part(pending_deliveries=True))
    await _deliver_the_rest(stage)
    content = await stage.audited_content()
    assert [content.kinds(id) for id in "abcde"] == [["broadcast"]] * 5


@pytest.mark.parametrize("fresh", [False, True])
async def test_fault_58_a_chunk_that_is_not_committed_is_delivered_by_another_process(
    stage: Stage, fresh: bool
) -> None:
    for id in "abcde":
        await stage.parked(id, _news(fresh=fresh))
    await stage.one.run(Publish(name="news"))
    dying = stage.one.act(part(pending_deliveries=True))
    await dying.before("commit")
    assert await stage.two.act(part(pending_deliveries=True)).run() == "done", (
        "it skips the marks that the other has locked"
    )
    await dying.drop()
    await _deliver_the_rest(stage)
    content = await stage.audited_content()
    assert [content.kinds(id) for id in "abcde"] == [["broadcast"]] * 5


@race(deep=True)
async def test_fault_60_an_instance_that_subscribes_during_the_marking_is_in_or_out_as_the_count_says(
    stage: Stage,
) -> Race:
    for id in "ab":
        await stage.parked(id, _news())
    claim = await stage.executing("x")
    publish = Publish(name="news")
    yield Duel(part(park(claim, _news())), part(publish))
    await _deliver_the_rest(stage)
    content = await stage.audited_content()
    assert publish.result == 2 + len(content.inbox("x"))


@race(deep=True)
async def test_b1_a_marked_instance_receives_it_also_if_it_woke_and_advanced_meanwhile(stage: Stage) -> Race:
    for id in "ab":
        await stage.parked(id, _news(), on("poke"))
    await stage.one.run(Publish(name="news"))
    await stage.one.run(Deliver(target="a", name="poke"))
    [claim] = await stage.claim()
    yield Duel(part(advance(claim)), part(pending_deliveries=True))
    await _deliver_the_rest(stage)
    content = await stage.audited_content()
    assert content.kinds("a") == ["broadcast"]
    assert content.kinds("b") == ["broadcast"]


@race(deep=True)
async def test_b1_a_marked_instance_that_ended_is_skipped(stage: Stage) -> Race:
    for id in "abc":
        await stage.parked(id, _news())
    await stage.one.run(Publish(name="news"))
    yield Duel(part(Cancel(target="a")), part(pending_deliveries=True))
    await _deliver_the_rest(stage)
    content = await stage.audited_content()
    assert [content.kinds(id) for id in "bc"] == [["broadcast"]] * 2


@race(deep=True)
async def test_fault_60_a_marked_instance_that_parks_again_is_woken_by_the_chunk(stage: Stage) -> Race:
    for id in "ab":
        await stage.parked(id, _news(), on("poke"))
    await stage.one.run(Publish(name="news"))
    await stage.one.run(Deliver(target="a", name="poke"))
    [claim] = await stage.claim()
    yield Duel(part(park(claim, _news())), part(pending_deliveries=True), seen=[s.seq for s in claim.inbox])
    await _deliver_the_rest(stage)
    content = await stage.audited_content(seen=[s.seq for s in claim.inbox])
    assert content.instances["a"].status == "runnable"
    assert content.kinds("a") == ["poke", "broadcast"]


@race(deep=True)
async def test_fault_19_a_large_broadcast_sent_twice_with_one_dedup_key_is_marked_once(stage: Stage) -> Race:
    for id in "abc":
        await stage.parked(id, _news())
    sends = [Publish(name="news", dedup_key="evt") for _ in range(2)]
    yield Duel(part(sends[0]), part(sends[1]))
    await _deliver_the_rest(stage)
    content = await stage.audited_content()
    assert [send.result for send in sends] == [3, 3]
    assert [content.kinds(id) for id in "abc"] == [["broadcast"]] * 3


@race(deep=True)
async def test_b1_a_subscriber_that_ends_during_the_marking_does_not_affect_the_others(stage: Stage) -> Race:
    for id in "abc":
        await stage.parked(id, _news(), on("poke"))
    await stage.one.run(Deliver(target="b", name="poke"))
    [claim] = await stage.claim()
    yield Duel(part(done(claim)), part(Publish(name="news")))
    await _deliver_the_rest(stage)
    content = await stage.audited_content()
    assert [content.kinds(id) for id in "ac"] == [["broadcast"]] * 2
