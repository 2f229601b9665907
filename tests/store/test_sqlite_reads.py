"""SQLite: reads have connections of their own, so they do not wait for a write that another program blocks (X5)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from hark import Context, Done, Hark, Machine, step
from hark.store.sqlite import path_of
from tests.doors.support_cli import run_process
from tests.support.stores import Store


class Short(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done("done")


@contextmanager
def write_lock(store: Store) -> Iterator[apsw.Connection]:
    """Another program has the write lock of the file."""
    other = apsw.Connection(str(path_of(store.url)))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        other.close()  # rolls back


async def test_x5_reads_are_answered_while_a_write_waits_for_the_lock(sqlite_store: Store) -> None:
    app = Hark(sqlite_store.url)
    app.register(Short)
    async with app:
        async with app.worker():
            done = await app.start(Short, id="i-1")
            await done.result(timeout=60)
        with write_lock(sqlite_store):
            blocked = app.start(Short, id="i-2")
            for _ in range(3):  # the first may be asked before the turn of the write begins
                assert (await app.get("i-1")).status == "done"
                assert [instance.id for instance in await app.list()] == ["i-1"]
                assert await app.result("i-1", timeout=60) == "done"
                assert [event.type for event in await app.events("i-1")] == ["started", "done"]
                await asyncio.sleep(0.02)
            assert not blocked.done()
        assert (await blocked).id == "i-2"


def test_x5_a_program_that_reads_opens_the_store_while_another_one_writes(sqlite_store: Store) -> None:
    with Hark(sqlite_store.url) as app:
        app.start(Short, id="i-1").result()
    with write_lock(sqlite_store), Hark(sqlite_store.url) as reader:
        assert reader.get("i-1").result().status == "runnable"
        listed = run_process("instance", "list", "--db", sqlite_store.url)
        assert "i-1" in listed.out
