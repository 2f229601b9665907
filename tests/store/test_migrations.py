"""Numbered migrations: the same schema on both databases, applied once however many processes open the store."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from hark import Context, Done, Hark, InvalidInput, Machine, StoreTooNew, StoreUnavailable, step
from hark.store import migrate
from hark.store.sqlite import path_of
from tests.support.inspect import query, table_names
from tests.support.stores import Store, sqlite_file

FOLDERS = ("sqlite", "postgres")


class Hello(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done("hello")


async def works(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app, app.worker():
        assert await (await app.start(Hello)).result(timeout=20) == "hello"


# -- both databases --------------------------------------------------------------------------------

_KINDS = {"boolean": "number", "integer": "number", "bigint": "number", "double precision": "number", "real": "number"}


async def columns(store: Store) -> dict[str, list[tuple[str, str, bool]]]:
    """The columns of each table in order: name, text or number, whether it may be null."""
    found: dict[str, list[tuple[str, str, bool]]] = {}
    for table in await table_names(store):
        if store.name == "sqlite":
            rows = await query(
                store, f"SELECT name, lower(type), \"notnull\" OR pk > 0 FROM pragma_table_info('{table}')"
            )
        else:
            rows = await query(
                store,
                "SELECT column_name::text, data_type::text, is_nullable = 'NO' FROM information_schema.columns "
                f"WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position",
            )
        found[table] = [(name, _KINDS.get(kind, kind), not required) for name, kind, required in rows]
    return found


async def indexes(store: Store) -> dict[str, tuple[bool, str, str]]:
    """Each index that has a name: whether it is unique, its columns, its condition."""
    if store.name == "sqlite":
        rows = await query(store, "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    else:
        # Not pg_indexes: it reads the indexes of all schemas, also of one that another test is dropping.
        rows = await query(
            store,
            "SELECT relname::text, pg_get_indexdef(oid) FROM pg_class WHERE relkind = 'i' "
            "AND relnamespace = current_schema()::regnamespace "
            "AND relname NOT LIKE '%\\_pkey' AND relname NOT LIKE '%\\_key1'",
        )
    found = {}
    for name, sql in rows:
        text = re.sub(r"::text|USING btree |\w+\.(?=\w+ )", "", " ".join(sql.split()))
        listed, _, condition = text.partition(" WHERE ")
        key = re.search(r"\((.*)\)", listed)
        assert key is not None
        found[name] = ("UNIQUE" in listed, key[1], re.sub(r"[()\s]", "", condition))
    return found


async def test_both_databases_have_the_same_tables_and_columns(sqlite_store: Store, pg_store: Store) -> None:
    await works(sqlite_store)
    await works(pg_store)
    ours, theirs = await columns(sqlite_store), await columns(pg_store)
    assert sorted(ours) == sorted(theirs)
    for table in ours:
        assert ours[table] == theirs[table], table


async def test_both_databases_have_the_same_indexes(sqlite_store: Store, pg_store: Store) -> None:
    await works(sqlite_store)
    await works(pg_store)
    ours, theirs = await indexes(sqlite_store), await indexes(pg_store)
    named = {name: theirs.get(name) for name in ours}
    assert named == ours
    implied = set(theirs) - set(ours)  # PostgreSQL names the index of a UNIQUE in a table
    assert implied == {"awakeables_instance_id_entry_index_key"}


async def test_both_databases_refuse_the_same_invalid_rows(store: Store) -> None:
    """Invariant 15: an executing row has an owner, a finished row a time, a wait a name, whatever the code does."""
    await works(store)
    for wrong in (
        "UPDATE instances SET status = 'executing'",
        "UPDATE instances SET status = 'runnable'",  # while finished_at is set
        "UPDATE instances SET status = 'asleep'",
        "UPDATE instances SET finished_at = NULL",
        "UPDATE instances SET lease_owner = 'a-worker'",
        "UPDATE instances SET blocked_on = 'slot:x'",
        "UPDATE instances SET due_at = 1",
        "UPDATE instances SET scope = 'sometimes'",
        "INSERT INTO waits (id, instance_id, place, kind, since) VALUES ('w', 'i', '', 'signal', 1)",
        "INSERT INTO waits (id, instance_id, place, kind, since) VALUES ('w', 'i', '', 'timer', 1)",
        "INSERT INTO waits (id, instance_id, place, kind, since) VALUES ('w', 'i', '', 'children', 1)",
        "INSERT INTO waits (id, instance_id, place, kind, name, since) VALUES ('w', 'i', '', 'wish', 'x', 1)",
        "INSERT INTO signals (instance_id, kind, name, payload, at) VALUES ('i', 'rumour', 'x', 'null', 1)",
    ):
        with pytest.raises((apsw.ConstraintError, asyncpg.CheckViolationError)):
            await query(store, wrong)


def test_migrations_of_both_databases_have_the_same_numbers_without_a_gap() -> None:
    names = {folder: [(number, name) for number, name, _ in migrate.scripts(folder)] for folder in FOLDERS}
    assert names["sqlite"] == names["postgres"]
    assert [number for number, _ in names["sqlite"]] == list(range(1, len(names["sqlite"]) + 1))


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_missing_migrations_are_applied(folder: str) -> None:
    newest = migrate.scripts(folder)[-1][0]
    assert [number for number, _, _ in migrate.missing(folder, 0)] == list(range(1, newest + 1))
    assert migrate.missing(folder, newest) == []


# -- opening ---------------------------------------------------------------------------------------


async def test_opening_again_changes_nothing(store: Store) -> None:
    await works(store)
    before = await query(store, "SELECT version FROM migrations ORDER BY 1")
    await works(store)
    assert await query(store, "SELECT version FROM migrations ORDER BY 1") == before
    assert len(await query(store, "SELECT id FROM instances")) == 2


async def test_ten_apps_can_open_a_new_store_at_the_same_time(store: Store) -> None:
    apps = [Hark(store.url, **store.options) for _ in range(10)]
    await asyncio.gather(*(app.__aenter__() for app in apps))
    try:
        ids = [(await app.start(Hello)).id for app in apps]
        assert {instance.id for instance in await apps[0].list()} == set(ids)
    finally:
        await asyncio.gather(*(app.__aexit__() for app in apps))
    assert len(await query(store, "SELECT version FROM migrations")) == len(migrate.scripts("sqlite"))


async def test_a_store_newer_than_the_code_is_refused_and_not_changed(store: Store) -> None:
    await works(store)
    await query(store, "INSERT INTO migrations (version) VALUES (4711)")
    with pytest.raises(StoreTooNew, match=r"version 4711.*[Uu]pgrade"):
        async with Hark(store.url, **store.options):
            pass
    with pytest.raises(StoreTooNew):  # in synchronous code too
        await asyncio.to_thread(Hark(store.url, **store.options).__enter__)
    assert len(await query(store, "SELECT id FROM instances")) == 1
    await query(store, "DELETE FROM migrations WHERE version = 4711")
    await works(store)


async def test_an_app_that_was_refused_can_be_opened_later(store: Store) -> None:
    await works(store)
    await query(store, "INSERT INTO migrations (version) VALUES (4711)")
    app = Hark(store.url, **store.options)
    with pytest.raises(StoreTooNew):
        await app.__aenter__()
    await query(store, "DELETE FROM migrations WHERE version = 4711")
    async with app:
        assert len(await app.list()) == 1


async def test_a_file_that_is_not_a_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "hark.db"
    file.write_text("this is a letter to my mother, and longer than the header of a database file" * 20)
    with pytest.raises(InvalidInput, match="SQLite"):
        async with Hark(f"sqlite:///{file}"):
            pass
    assert file.read_text().startswith("this is a letter")


async def test_the_error_names_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"nowhere.*folder"):
        async with Hark(f"sqlite:///{tmp_path / 'nowhere' / 'hark.db'}"):
            pass


async def test_a_server_that_does_not_answer_is_reported_without_the_password() -> None:
    with pytest.raises(StoreUnavailable, match="PostgreSQL cannot be reached") as refused:
        async with Hark("postgresql://user:hunter2@127.0.0.1:1/db", lease=3):
            pass
    assert "hunter2" not in str(refused.value)


# -- the dump ---------------------------------------------------------------------------------------


def dumped(store: Store) -> str:
    options = ["--schema", store.options["schema"]] if store.name == "postgres" else []
    hark = [sys.executable, "-c", "from hark.doors.cli import main; main()"]
    return subprocess.run(
        [*hark, "migrate", "--dump-sql", "--db", store.url, *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout


async def apply(store: Store, script: str) -> None:
    """As `psql < dump.sql` and `sqlite3 hark.db < dump.sql` do: without a search path."""
    if store.name == "sqlite":
        db = apsw.Connection(path_of(store.url) or "")
        db.execute(script)
        db.close()
    else:
        connection = await asyncpg.connect(store.url)
        await connection.execute(script)
        await connection.close()


async def test_the_dumped_sql_creates_a_working_store(store: Store) -> None:
    await apply(store, dumped(store))
    by_hand = await _shape(store)
    assert "instances" in by_hand[0]
    await works(store)
    assert await _shape(store) == by_hand  # opening had nothing left to do


async def test_a_store_of_the_first_version_is_migrated_with_its_rows(store: Store) -> None:
    [first, *later] = migrate.scripts(store.name)
    schema = store.options.get("schema")
    begin = f"CREATE SCHEMA {schema}; SET search_path TO {schema};" if schema else ""
    await apply(
        store,
        f"{begin} CREATE TABLE migrations (version integer PRIMARY KEY); {first[2]};"
        "INSERT INTO migrations (version) VALUES (1);"
        "INSERT INTO definitions (name, version, kind, queue, initial, created_at)"
        " VALUES ('Hello', 1, 'machine', 'default', 'start', 1);"
        "INSERT INTO instances (id, definition, version, kind, queue, priority, status, step, state, since, created_at,"
        " updated_at) VALUES ('old', 'Hello', 1, 'machine', 'default', 0, 'runnable', 'start', '{}', 1, 1, 1);",
    )
    await works(store)
    app = Hark(store.url, **store.options)
    app.register(Hello)
    async with app, app.worker():
        assert await app.result("old", timeout=20) == "hello"
    versions = [row[0] for row in await query(store, "SELECT version FROM migrations ORDER BY version")]
    assert versions == [1, *(script[0] for script in later)]


async def test_the_numbers_of_signals_go_on_after_a_migration_that_copies_them(store: Store) -> None:
    """A number that was used once is not used again, also if its row was removed: inboxes are read by number."""
    *before, _ = [script for script in migrate.scripts(store.name) if script.number <= 16]
    schema = store.options.get("schema")
    begin = f"CREATE SCHEMA {schema}; SET search_path TO {schema};" if schema else ""
    insert = "INSERT INTO signals (instance_id, kind, name, payload, at) VALUES ('i', '{}', 'go', '{}', 1);"
    await apply(
        store,
        f"{begin} CREATE TABLE migrations (version integer PRIMARY KEY);"
        + ";".join(script.sql for script in before)
        + f"; INSERT INTO migrations (version) VALUES ({before[-1].number});"
        + "".join(insert.format("signal", n) for n in range(3))
        + "DELETE FROM signals WHERE seq = 3;",
    )
    await works(store)
    await query(store, insert.format("control", "new").rstrip(";"))
    found = await query(store, "SELECT seq, kind, payload FROM signals ORDER BY seq")
    assert [tuple(row) for row in found] == [(1, "signal", "0"), (2, "signal", "1"), (4, "control", "new")]


async def test_the_dumped_sql_creates_the_same_schema_as_opening_does(store: Store, tmp_path: Path) -> None:
    await works(store)
    (tmp_path / "other").mkdir()
    other = sqlite_file(tmp_path / "other")
    if store.name == "postgres":
        other = Store("postgres", store.url, {"schema": f"{store.options['schema']}_by_hand"})
    try:
        await apply(other, dumped(other))
        assert await _shape(other) == await _shape(store)
    finally:
        if store.name == "postgres":
            await query(store, f"DROP SCHEMA IF EXISTS {other.options['schema']} CASCADE")


async def test_a_role_without_the_right_to_create_can_use_a_schema_made_from_the_dump(pg_store: Store) -> None:
    schema = pg_store.options["schema"]
    role = f"{schema}_app"
    url = pg_store.url.replace("://hark@", f"://{role}@")
    await apply(pg_store, dumped(pg_store))
    await query(pg_store, f"CREATE ROLE {role} LOGIN")
    try:
        await query(pg_store, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        await query(pg_store, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
        await works(Store("postgres", url, pg_store.options))
        with pytest.raises(StoreUnavailable, match=r"another_one.*dump-sql"):
            async with Hark(url, schema="another_one"):
                pass
    finally:
        await query(pg_store, f"DROP OWNED BY {role}")
        await query(pg_store, f"DROP ROLE {role}")


async def test_dumping_the_sql_opens_no_store(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert "CREATE TABLE instances" in dumped(store)
    assert not (tmp_path / "hark.db").exists()


async def _shape(store: Store) -> Any:
    versions = await query(store, "SELECT version FROM migrations ORDER BY 1")
    return await columns(store), await indexes(store), versions
