"""SQLite: the file is removed or replaced while it is open, a store at rest is whole in its file, a damaged file."""

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hark import Await, Context, Done, Hark, InvalidInput, Machine, StoreUnavailable, step
from hark.store import sqlite, sqlite_faults, sqlite_log
from hark.store import statements as sql
from hark.store.protocol import Damaged, Replaced
from tests.support.inspect import until
from tests.support.stores import Store

GONE = "removed or replaced"


class Patient(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("tick", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


def file_of(store: Store) -> Path:
    return Path(str(sqlite.path_of(store.url)))


def removed(file: Path) -> None:
    file.unlink()


def replaced(file: Path) -> None:
    other = file.with_name("other.db")
    shutil.copy(file, other)
    os.replace(other, file)


def restored(file: Path) -> None:
    """As people restore a backup: all three files go first."""
    backup = file.with_name("backup.db")
    shutil.copy(file, backup)
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink()
    shutil.copy(backup, file)


def moved_away(file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def log_removed(file: Path) -> None:
    file.with_name(f"{file.name}-wal").unlink()


def index_removed(file: Path) -> None:
    file.with_name(f"{file.name}-shm").unlink()


CHANGES = [removed, replaced, restored, moved_away, emptied, log_removed]


@pytest.mark.parametrize("change", CHANGES)
async def test_x5_fault_85_nothing_is_acknowledged_into_a_file_that_is_gone(
    sqlite_store: Store, change: Callable[[Path], None]
) -> None:
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="before")
        change(file_of(sqlite_store))
        with pytest.raises(StoreUnavailable, match=GONE):
            await app.start(Patient, id="lost")
        with pytest.raises(StoreUnavailable, match=GONE):
            await app.signal("before", "tick", "lost")
        with pytest.raises(StoreUnavailable, match=GONE):
            await app.get("before")


@pytest.mark.parametrize("change", [*CHANGES, index_removed])
async def test_x5_fault_85_an_idle_process_notices_it_too(
    sqlite_store: Store, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="before")
        change(file_of(sqlite_store))
        await until(lambda: "start them again" in caplog.text, "the log to say what to do")
        with pytest.raises(StoreUnavailable, match="Restart that process"):
            await app.list()
    assert caplog.text.count("start them again") == 1


async def test_x5_fault_85_a_file_that_is_replaced_during_a_turn_does_not_get_it_acknowledged(
    sqlite_store: Store,
) -> None:
    async with sqlite_store.opened() as store:
        tx = await store.begin()
        await tx.fetch(sql.insert_tombstones, ids=["x"])
        replaced(file_of(sqlite_store))
        with pytest.raises(Replaced, match="was replaced by another file"):
            await tx.commit()
        with pytest.raises(Replaced):
            await store.begin()


async def test_x5_fault_85_a_file_that_comes_back_does_not_revive_the_process(sqlite_store: Store) -> None:
    """A turn may be in it that this process gave up."""
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        moved_away(file)
        with pytest.raises(StoreUnavailable, match=GONE):
            await app.start(Patient, id="unknown")
        file.with_name("elsewhere.db").rename(file)
        with pytest.raises(StoreUnavailable, match=GONE):
            await app.start(Patient, id="refused")
    async with Hark(sqlite_store.url) as app:
        assert {instance.id for instance in await app.list()} <= {"unknown"}


async def test_x5_fault_85_a_worker_writes_nothing_into_the_new_file(sqlite_store: Store) -> None:
    """Neither an outcome nor a lease; and a process that starts afterwards finds what the backup has."""
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="kept")
    backup = file.with_name("backup.db")
    shutil.copy(file, backup)
    old = Hark(sqlite_store.url, lease=0.3)
    old.register(Patient)
    async with old, old.worker():
        await until(lambda: parked(old), "the park")
        os.replace(backup, file)
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink()
        with pytest.raises(StoreUnavailable, match=GONE):
            await old.signal("kept", "tick", "lost")
        new = Hark(sqlite_store.url)
        new.register(Patient)
        async with new:
            assert [worker.id for worker in await new.workers()] == []
            assert (await new.get("kept")).status == "runnable"
            async with new.worker():
                await new.signal("kept", "tick", "stored")
                assert await new.result("kept", timeout=30) == "stored"
    async with Hark(sqlite_store.url) as app:  # the old process, which ended last, has changed nothing
        assert (await app.get("kept")).result == "stored"


async def parked(app: Hark) -> bool:
    return (await app.get("kept")).status == "awaiting_signal"


@pytest.mark.parametrize("how", ["moved", "removed and copied"])
async def test_x5_fault_85_a_log_that_was_left_behind_does_not_get_into_the_new_file(
    sqlite_store: Store, how: str
) -> None:
    """People restore a backup and leave the -wal where it is: SQLite would copy its pages into the backup."""
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="kept")
    backup = file.with_name("backup.db")
    shutil.copy(file, backup)
    whole = backup.read_bytes()
    async with Hark(sqlite_store.url) as old:
        old.register(Patient)
        for n in range(20):
            await old.start(Patient, {"text": "x" * 1000}, id=f"lost-{n}")
        if how == "moved":
            os.replace(backup, file)
        else:
            removed(file)
            await until(lambda: fails(old), "the process to notice it")
            assert file.with_name("hark.db-wal").exists(), "a file that was only moved may come back"
            shutil.copy(backup, file)
        await until(lambda: not file.with_name("hark.db-wal").exists(), "the log to be set aside")
        assert list(file.parent.glob("hark.db-wal.replaced-*"))
        code = f"import apsw; print(apsw.Connection({str(file)!r}).execute('SELECT id FROM instances').fetchall())"
        other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        found, _ = await other.communicate()
        assert found == b"[('kept',)]\n"
    assert file.read_bytes() == whole


async def fails(app: Hark) -> bool:
    try:
        await app.list()
    except StoreUnavailable:
        return True
    return False


async def test_x5_fault_85_a_link_that_leads_elsewhere_leaves_the_old_database_as_it_is(
    sqlite_store: Store, tmp_path: Path
) -> None:
    link, other = tmp_path / "link.db", tmp_path / "other.db"
    async with sqlite_store.opened():
        pass
    shutil.copy(file_of(sqlite_store), other)
    link.symlink_to(file_of(sqlite_store))
    async with Hark(f"sqlite:///{link}") as app:
        app.register(Patient)
        await app.start(Patient, id="kept")
        link.unlink()
        link.symlink_to(other)
        await until(lambda: fails(app), "the process to notice it")
    async with Hark(sqlite_store.url) as app:
        assert [instance.id for instance in await app.list()] == ["kept"]


async def test_x5_fault_85_a_process_that_stops_saves_a_removed_log(sqlite_store: Store) -> None:
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="only-in-the-log")
        log_removed(file_of(sqlite_store))
    async with Hark(sqlite_store.url) as app:
        assert [instance.id for instance in await app.list()] == ["only-in-the-log"]


async def test_x5_fault_85_a_removed_log_that_others_have_replaced_is_not_saved(sqlite_store: Store) -> None:
    """They have read the file without it: its pages would damage what they have written since."""
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as first:
        first.register(Patient)
        await first.start(Patient, id="a")
    async with Hark(sqlite_store.url) as first:
        first.register(Patient)
        await first.start(Patient, id="lost")
        log_removed(file)
        index_removed(file)
        code = f"import apsw; apsw.Connection({str(file)!r}).execute('CREATE TABLE other AS SELECT 1 AS x')"
        other_process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code
        )  # which shares no memory with us
        assert await other_process.wait() == 0
    other = apsw.Connection(str(file))
    assert other.execute("SELECT x FROM other").fetchall() == [(1,)]
    assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert other.execute("SELECT id FROM instances").fetchall() == [("a",)]
    other.close()


async def test_x5_fault_85_doctor_finds_a_process_that_uses_a_removed_file(sqlite_store: Store) -> None:
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url):
        replaced(file)
        async with sqlite_store.opened() as now:
            problem = (await now.server()).problem
            assert problem is not None
            assert f"process {os.getpid()} uses a database that was removed" in problem
    async with sqlite_store.opened() as now:
        assert (await now.server()).problem is None


async def test_v7_fault_86_cursors_go_on_after_a_restore_whose_numbers_were_raised(sqlite_store: Store) -> None:
    """As docs/operations.md says."""
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="kept")
    backup = file.with_name("backup.db")
    shutil.copy(file, backup)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        for n in range(5):
            await app.start(Patient, id=f"lost-{n}")
        lost = (await app.events_after((0, 0)))[-1]
    os.replace(backup, file)
    db = apsw.Connection(str(file))
    db.execute("UPDATE sqlite_sequence SET seq = seq + 1000000000 WHERE name = 'events'")
    db.close()
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="later")
        assert [event.instance_id for event in await app.events_after(lost.cursor)] == ["later"]
        await app.signal("kept", "tick")
        assert [event.type for event in await app.events("kept", after=lost.cursor)] == ["signal"]


# -- at rest ------------------------------------------------------------------------------------------


def instances_in_a_copy(file: Path) -> list[str]:
    """The instances in a copy of the file alone; an empty list if it has no tables."""
    return in_a_copy(file, "SELECT id FROM instances ORDER BY id", table="instances")


def in_a_copy(file: Path, query: str, *, table: str) -> list[str]:
    """What a copy of the file alone has; nothing if it has no such table, or was copied in the middle of a write."""
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    db = apsw.Connection(str(copy))
    try:
        if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return []
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchall():
            return []
        return [str(value) for (value,) in db.execute(query)]
    except apsw.CorruptError:
        return []
    finally:
        db.close()


async def test_v7_fault_85_a_store_at_rest_is_whole_in_its_file(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_REST", 0.05)
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app, app.worker():
        app.register(Patient)
        await app.start(Patient, id="a")
        await until(lambda: instances_in_a_copy(file) == ["a"], "the file to have it")
        await app.start(Patient, id="b")
        await until(lambda: instances_in_a_copy(file) == ["a", "b"], "the file to have the next one")


async def test_v7_fault_85_a_closed_app_leaves_a_whole_file_although_others_have_it_open(sqlite_store: Store) -> None:
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url):
        async with Hark(sqlite_store.url) as app:
            app.register(Patient)
            await app.start(Patient, id="a")
        assert instances_in_a_copy(file) == ["a"]


async def test_v7_commits_of_a_process_that_was_killed_are_copied_by_the_others(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_REST_OF_OTHERS", 0.05)
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url):
        killed = apsw.Connection(str(file))
        killed.execute("CREATE TABLE another AS SELECT 1 AS x")
        await until(lambda: in_a_copy(file, "SELECT x FROM another", table="another") == ["1"], "the table")
        killed.close()


async def test_v7_nothing_is_written_to_the_file_after_the_app_was_closed(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that copies has its turn when the app is closed: the app waits for it."""
    monkeypatch.setattr(sqlite_log, "_REST", 0.05)
    began, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()
    copy = sqlite_log.copy_beside

    def slowly(path: str) -> bool:
        began.set()
        may_go_on.wait(60)
        try:
            return copy(path)
        finally:
            ended.set()

    monkeypatch.setattr(sqlite_log, "copy_beside", slowly)
    app = Hark(sqlite_store.url)
    app.register(Patient)
    async with app:
        await app.start(Patient, id="a")
        await until(began.is_set, "the copy to begin")
        await app.start(Patient, id="b")  # a turn does not wait for it
        asyncio.get_running_loop().call_later(0.2, may_go_on.set)
    assert ended.is_set()
    assert instances_in_a_copy(file_of(sqlite_store)) == ["a", "b"]


async def test_v7_a_reader_that_needs_older_pages_delays_the_copy_and_nothing_else(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "_REST", 0.05)
    monkeypatch.setattr(sqlite_log, "_REST_OF_OTHERS", 0.05)
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="a")
        reader = apsw.Connection(str(file))
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM instances").fetchall() == [(1,)]
        await app.start(Patient, id="b")
        tries = counted_copies(monkeypatch)
        await until(lambda: len(tries) > 2, "some tries")
        await app.start(Patient, id="c")
        assert reader.execute("SELECT count(*) FROM instances").fetchall() == [(1,)]
        reader.close()
        await until(lambda: instances_in_a_copy(file) == ["a", "b", "c"], "the file to have all")


async def test_v7_a_store_that_is_at_rest_stays_so(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes copy once after their last turn, however long they poll."""
    monkeypatch.setattr(sqlite_log, "_REST", 0.05)
    tries = counted_copies(monkeypatch)
    apps = [Hark(sqlite_store.url) for _ in range(3)]
    async with apps[0], apps[1], apps[2]:
        apps[0].register(Patient)
        for n in range(20):
            await apps[0].start(Patient, id=str(n))
        await until(lambda: len(tries) > 0, "the first copy")
        polls = changed_of(apps[0])
        await until(lambda: polls() > 30, "many polls")
    assert len(tries) <= 4  # the migration, and the registration, are turns of their own


def changed_of(app: Hark) -> Callable[[], int]:
    """Counts the polls of an app from now on."""
    store, count = app._clerk.store, 0
    changed = store.changed

    async def counted() -> bool:
        nonlocal count
        count += 1
        return await changed()

    store.changed = counted  # type: ignore[method-assign]
    return lambda: count


def counted_copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    tries: list[str] = []
    copy = sqlite_log.copy_beside

    def counted(path: str) -> bool:
        tries.append(path)
        return copy(path)

    monkeypatch.setattr(sqlite_log, "copy_beside", counted)
    return tries


# -- damaged files ------------------------------------------------------------------------------------


def damage(file: Path) -> None:
    """Overwrite all pages but the first, which SQLite reads when it opens the file."""
    size = file.stat().st_size
    with file.open("r+b") as open_file:
        open_file.seek(4096)
        open_file.write(b"\xff" * (size - 4096))


async def test_x5_a_damaged_file_is_called_damaged_and_the_error_says_how_to_repair_it(sqlite_store: Store) -> None:
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="a")
    damage(file)
    with pytest.raises(StoreUnavailable, match=r"is damaged: .*integrity_check.*backup.*\.recover"):
        async with Hark(sqlite_store.url):
            pass


async def test_x5_damage_that_a_running_process_meets_is_not_called_a_full_disk(sqlite_store: Store) -> None:
    file = file_of(sqlite_store)
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="a")
    async with sqlite_store.opened() as store:
        damage(file)
        tx = await store.begin()
        with pytest.raises(Damaged, match=r"integrity_check.*\.recover"):
            await tx.fetch(sql.insert_tombstones, ids=["a"])
        await tx.rollback()


async def test_x5_callers_are_told_that_the_database_is_damaged(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hark(sqlite_store.url) as app:
        app.register(Patient)
        await app.start(Patient, id="a")

        def corrupt(*_: object) -> None:
            raise sqlite_faults.fault_of(apsw.CorruptError("database disk image is malformed"), app._clerk.store._db)  # type: ignore[attr-defined]

        monkeypatch.setattr(sqlite, "_run", corrupt)
        for call in (lambda: app.get("a"), lambda: app.start(Patient)):
            with pytest.raises(StoreUnavailable, match="The database is damaged"):
                await call()


def test_x5_a_file_whose_first_page_is_damaged_is_not_touched(sqlite_store: Store) -> None:
    file = file_of(sqlite_store)
    file.write_bytes(b"\xff" * 8192)
    with pytest.raises(InvalidInput, match="its first page is damaged: restore a backup"):
        asyncio.run(sqlite_store.make().open())
    assert file.read_bytes() == b"\xff" * 8192
