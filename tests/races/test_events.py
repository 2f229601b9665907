"""Invariant 17: a reader with a cursor skips no event, although seqs and transactions commit out of order."""

import asyncpg
import pytest

from hark.kernel.requests import Cancel, Deliver, StartInstances
from hark.model.notes import NotedEvent
from hark.store import reads
from hark.views import instance_views, run_events
from tests.support.inspect import until
from tests.support.postgres import Postgres
from tests.support.runs import note_events, running
from tests.support.stage import Stage, part
from tests.support.turns import new

pytestmark = pytest.mark.asyncio(loop_scope="module")
Cursor = tuple[int, int]


class Reader:
    """Reads the events after the cursor of the last event it has read."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.seen: list[str] = []
        self.cursor: Cursor = (0, 0)

    async def read(self, size: int = 1000) -> None:
        for event in await instance_views.events_after(self.stage.two.store, self.cursor, size):
            self.seen.append(f"{event.instance_id} {event.type}")
            self.cursor = event.cursor


async def test_fault_71_a_reader_does_not_skip_a_lower_transaction_that_commits_later(stage: Stage) -> None:
    """At every statement of the slow turn, a younger turn begins, writes its events and commits."""
    for at in range(20):
        await stage.clear()
        reader = Reader(stage)
        slow = stage.one.act(part(StartInstances(items=[new("slow")]), Deliver(target="slow", name="hello")))
        over = await slow.to(at) == "done"
        await stage.two.run(StartInstances(items=[new("quick")]))
        await reader.read()
        if not over:
            assert reader.seen == [], "an older turn has not committed yet"
        await slow.finish()
        await until(lambda reader=reader: _read_all(reader, 3), "the log to be read to its end")
        assert sorted(reader.seen) == ["quick started", "slow signal", "slow started"]
        if over:
            return
    raise AssertionError("the turn never ended")


async def test_fault_71_a_reader_of_small_pages_reads_every_event_once_and_in_order(stage: Stage) -> None:
    reader = Reader(stage)
    slow = stage.one.act(part(*(StartInstances(items=[new(f"slow-{n}")]) for n in range(3))))
    await slow.before("commit")
    for n in range(3):
        await stage.two.run(StartInstances(items=[new(f"quick-{n}")]))
        await reader.read(size=1)
    await slow.finish()
    await until(lambda: _read_all(reader, 6, size=1), "the log to be read to its end")
    assert reader.seen == [f"slow-{n} started" for n in range(3)] + [f"quick-{n} started" for n in range(3)]


async def test_fault_71_a_turn_that_rolls_back_does_not_block_readers(stage: Stage) -> None:
    reader = Reader(stage)
    doomed = stage.one.act(part(StartInstances(items=[new("doomed")])))
    await doomed.before("commit")
    await stage.two.run(StartInstances(items=[new("quick")]))
    await doomed.drop()
    await until(lambda: _read_all(reader, 1), "the log to be read to its end")
    assert reader.seen == ["quick started"]


async def test_fault_71_a_transaction_of_another_program_does_not_block_readers(
    stage: Stage, postgres: Postgres
) -> None:
    """In this database or in another one of the server, however old it is."""
    reader = Reader(stage)
    writers = [await asyncpg.connect(postgres.url) for _ in range(2)]
    try:
        for writer in writers:
            await writer.execute("BEGIN; SELECT pg_current_xact_id()")
        await writers[1].execute("SELECT pg_advisory_xact_lock_shared(1, -1)")  # with an advisory lock of its own
        await stage.two.run(StartInstances(items=[new("quick")]))
        await reader.read()
        assert reader.seen == ["quick started"]
    finally:
        for writer in writers:
            await writer.close()


async def test_fault_71_a_reader_waits_for_a_turn_that_has_no_transaction_number_yet(stage: Stage) -> None:
    """The turn holds the shared lock, and may still get a lower number than a turn that has committed."""
    reader = Reader(stage)
    async with stage.eye.transaction():
        await stage.eye.execute("SELECT pg_advisory_xact_lock_shared(hashtext('hark:' || current_schema()), -1)")
        [[horizon]] = await stage.two.store.read(reads.horizon)
        oldest = await stage.eye.fetchval("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        assert horizon <= oldest
    await stage.two.run(StartInstances(items=[new("quick")]))
    await until(lambda: _read_all(reader, 1), "the log to be read to its end")


async def _read_all(reader: Reader, count: int, size: int = 1000) -> bool:
    await reader.read(size)
    return len(reader.seen) >= count


async def test_fault_71_the_stream_of_a_run_skips_no_event_of_a_task_that_commits_later(stage: Stage) -> None:
    """The page, the scan for new events and the end of the stream: none passes a turn that is still running."""
    first, second = await running(stage.one.run, "run", "run.0", "run.1")
    store = stage.two.store
    _, start, _ = await run_events.follow(store, "run", (0, 0), 100)
    slow = stage.one.act(part(note_events(first, NotedEvent("stream", "1"))))
    await slow.before("commit")
    await stage.two.run(note_events(second, NotedEvent("stream", "2")))
    seen, cursor, ended = await run_events.follow(store, "run", start, 100)
    scanned, behind, _, _ = await run_events.scan(store, ["run"], start)
    assert (seen, ended, scanned) == ([], False, []), "an older turn has not committed yet"
    await slow.finish()
    await until(lambda: _has_read(stage, cursor, 2), "the older turn to be read")
    later, _, _ = await run_events.follow(store, "run", cursor, 100)
    assert [event.data for event in later] == [1, 2]
    scanned, _, _, _ = await run_events.scan(store, ["run"], behind)
    assert [event.data for event in scanned] == [1, 2]


async def test_fault_71_the_stream_of_a_run_does_not_end_before_its_last_events_can_be_read(stage: Stage) -> None:
    await running(stage.one.run, "run", "run.0")
    await stage.start("other")
    store = stage.two.store
    _, start, _ = await run_events.follow(store, "run", (0, 0), 100)
    slow = stage.one.act(part(Deliver(target="other", name="x")))
    await slow.before("commit")
    await stage.two.run(Cancel(target="run"))
    _, cursor, ended = await run_events.follow(store, "run", start, 100)
    _, _, over, _ = await run_events.scan(store, ["run"], start)
    assert (ended, over) == (False, set())
    await slow.finish()
    await until(lambda: _has_read(stage, cursor, 2), "the older turn to be read")
    found, _, ended = await run_events.follow(store, "run", cursor, 100)
    assert ([event.type for event in found], ended) == (["cancelled", "cancelled"], True)


async def _has_read(stage: Stage, cursor: Cursor, count: int) -> bool:
    return len((await run_events.follow(stage.two.store, "run", cursor, 100))[0]) == count
