"""The advance turn is one statement that locks, fences, updates and writes the events (X2, S3)."""

from collections.abc import Callable

import pytest

from hark.kernel.fast.advance_turn import are_advances
from hark.kernel.requests import Cancel, Commit, Deliver, HandBack, Reclaim, Request
from hark.model.activation import Claim
from hark.model.decisions import JournalLine, Proceed
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import advance, capacity, done, on, park, same_nonces

pytestmark = pytest.mark.asyncio(loop_scope="module")


TAKE: dict[str, Callable[[Claim], Request]] = {
    "cancel": lambda claim: Cancel(target=claim.id),
    "reclaim": lambda claim: Reclaim(owners=["worker"]),
    "hand back": lambda claim: HandBack(claims=[claim]),
}


async def _two(stage: Stage) -> tuple[Claim, Claim]:
    """`a` and `b`, executing."""
    await stage.start("a", "b")
    a, b = sorted(await stage.claim(room=2), key=lambda claim: claim.id)
    assert (a.id, b.id) == ("a", "b")
    return a, b


def _plain(*claims: Claim) -> list[Commit]:
    commits = [advance(claim) for claim in claims]
    assert are_advances(commits)
    return commits


async def _events(stage: Stage, id: str) -> int:
    return int(await stage.eye.fetchval("SELECT count(*) FROM events WHERE instance_id = $1 AND type = 'next'", id))


@pytest.mark.parametrize("take", TAKE.values(), ids=TAKE)
@race(every=True)
async def test_x2_an_advance_turn_concurrent_with_a_cancel_reclaim_or_hand_back_fences_what_was_taken(
    stage: Stage, take: Callable[[Claim], Request], fates: set[bool]
) -> Race:
    a, b = await _two(stage)
    late = _plain(b, a)
    _, running = yield Duel(part(take(a)), part(*late, plain=True))
    fates.add(late[1].fenced)
    for commit in late:
        id, fenced = commit.claim.id, commit.fenced
        assert commit.result is (None if fenced else True)
        assert await _events(stage, id) == (0 if fenced else 1), "a fenced outcome has no event"
        row = (await stage.content()).instances[id]
        assert (row.step == "after-next") is not fenced
    assert [c.claim.id for c in running.ran_ahead] == [c.claim.id for c in late if not c.fenced]
    if not isinstance(take(a), Reclaim):
        assert not late[0].fenced, "the other outcome is not affected"


@race(every=True)
async def test_s3_a_signal_concurrent_with_an_advance_turn_is_read_by_it_or_by_the_park(
    stage: Stage, fates: set[bool]
) -> Race:
    """One turn delivers to both, and the advance turn has them in another order: the turns do not deadlock."""
    a, b = await _two(stage)
    late = _plain(b, a)
    signals = [Deliver(target=id, name="go", payload=f'"{id}"') for id in ("b", "a")]
    _, running = yield Duel(part(*signals), part(*late, plain=True))
    assert not any(commit.fenced for commit in late)
    fates.add(bool(running.inboxes))
    if running.inboxes:
        assert {id: [row.payload for row in rows] for id, rows in running.inboxes.items()} == {
            "a": ['"a"'], "b": ['"b"'],
        }  # fmt: skip
    for commit in late:
        commit.claim.run_ahead(commit.decision, running.now, running.inboxes.get(commit.claim.id))
    await stage.one.run(*[park(commit.claim, on("go")) for commit in late])
    claims = await stage.claim(room=2)
    assert {claim.id: [row.payload for row in claim.inbox] for claim in claims} == {"a": ['"a"'], "b": ['"b"']}


@race(every=True)
async def test_an_advance_turn_does_not_wait_for_the_row_of_a_fenced_outcome(stage: Stage) -> Race:
    """It has locked the rows that moved: waiting for a lower id would break the lock order (invariant 3)."""
    a, b = await _two(stage)
    late = _plain(a, b)
    await stage.two.run(HandBack(claims=[a]))
    signals = [Deliver(target=id, name="go", payload="1") for id in ("a", "b")]
    yield Duel(part(*signals), part(*late, plain=True))
    assert [commit.fenced for commit in late] == [True, False]
    assert [await _events(stage, id) for id in ("a", "b")] == [0, 1]


async def test_m2_an_advance_turn_writes_the_same_rows_as_a_full_turn(stage: Stage) -> None:
    columns = "status, step, state, attempt, crashes, epoch, rate_limit, weight, lease_owner, due_at, has_inbox_rows"
    found = []
    for plain in (False, True):
        await stage.clear()
        await stage.start("a", "b")
        await stage.one.run(Reclaim(owners=["worker"]))
        with same_nonces():
            claims = await stage.claim(room=2)
        await stage.one.run(*_plain(*claims), plain=plain)
        rows = await stage.eye.fetch(f"SELECT {columns} FROM instances ORDER BY id")
        events = await stage.eye.fetch("SELECT instance_id, type, step, data FROM events ORDER BY seq")
        found.append((rows, events))
    assert found[0] == found[1]


async def test_an_advance_turn_writes_journal_lines_and_none_of_a_fenced_outcome(stage: Stage) -> None:
    a, b = await _two(stage)
    commits = _plain(a, b)
    for commit in commits:
        commit.decision.move = Proceed(keep_slot=True)
        commit.decision.journal = [JournalLine(0, 0, "run", "f", "1")]
    assert are_advances(commits)
    await stage.two.run(Cancel(target="b"))
    await stage.one.run(*commits, plain=True)
    lines = await stage.eye.fetch("SELECT instance_id, seq, kind, name, value FROM journal ORDER BY instance_id")
    assert [tuple(line) for line in lines] == [("a", 0, "run", "f", "1")]
    await stage.eye.execute("DELETE FROM journal")


async def test_only_outcomes_that_bring_nothing_else_along_are_plain(stage: Stage) -> None:
    a, b = await _two(stage)
    plain = advance(a)
    assert are_advances([plain, advance(b)])
    assert not are_advances([plain, plain]), "two outcomes of one instance: one is from a zombie"
    assert not are_advances([plain, done(b)])
    assert not are_advances([plain, Cancel(target="b")])
    assert not are_advances([advance(a, rate_limit="rate")])
    assert not are_advances([advance(a, rekey=True)])
    await stage.one.run(park(b, on("go")))
    await stage.one.run(Deliver(target="b", name="go"))
    [woken] = (await stage.one.run(claim=capacity("worker", 1))).claims
    assert not are_advances([advance(woken)]), "it consumes a signal and deletes a wait"


async def test_an_advance_turn_locks_in_id_order_whatever_the_order_of_its_outcomes(stage: Stage) -> None:
    """Invariant 3, within the one statement: while it waits for `b`, it has locked `a`."""
    a, b = await _two(stage)
    async with stage.eye.transaction():
        await stage.eye.fetch("SELECT id FROM instances WHERE id = 'b' FOR UPDATE")
        running = stage.two.act(part(*_plain(b, a), plain=True))
        assert await running.run() == "blocked"
        assert await stage.eye.fetch("SELECT id FROM instances WHERE id = 'a' FOR UPDATE SKIP LOCKED") == []
    turn = await running.finish()
    assert len(turn.ran_ahead) == 2
