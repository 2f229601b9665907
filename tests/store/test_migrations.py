"""The schema: the same on both databases, explained column by column, and made once, whoever opens the store.

Migrations bring an older store to the same schema. There are none yet, so a synthetic one proves how they work.
"""

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from hark import Context, Done, Hark, InvalidInput, Machine, StoreTooNew, StoreUnavailable, step
from hark.store import migrate
from hark.store.protocol import Access
from hark.store.sqlite import path_of
from tests.support.inspect import query, table_names
from tests.support.stores import Store, sqlite_file

DATABASES = ("sqlite", "postgres")


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


async def columns(store: Store) -> dict[str, list[tuple[str, str, bool, str]]]:
    """The columns of each table in order: name, text or number, whether it is required, its default."""
    found: dict[str, list[tuple[str, str, bool, str]]] = {}
    for table in await table_names(store):
        if store.name == "sqlite":
            rows = await query(
                store, f"SELECT name, lower(type), \"notnull\" OR pk > 0, dflt_value FROM pragma_table_info('{table}')"
            )
        else:
            rows = await query(
                store,
                "SELECT column_name::text, data_type::text, is_nullable = 'NO', column_default "
                "FROM information_schema.columns "
                f"WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position",
            )
        found[table] = [
            (name, _KINDS.get(kind, kind), bool(required), (default or "").partition("::")[0].replace("false", "0"))
            for name, kind, required, default in rows
        ]
    return found


async def checks(store: Store) -> set[tuple[str, str]]:
    """The checks of each table."""
    if store.name == "sqlite":
        tables = await query(store, "SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
        return {(name, check) for name, sql in tables for check in re.findall(r"CHECK \((.*)\),?$", sql, re.M)}
    found = await query(
        store,
        "SELECT relname::text, pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_class t ON t.oid = conrelid "
        "WHERE connamespace = current_schema()::regnamespace AND contype = 'c'",
    )
    return {(name, check) for name, check in found}


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
        columns = " ".join(re.sub(r"[()]", "", key[1]).split())  # PostgreSQL writes more parentheses
        found[name] = ("UNIQUE" in listed, columns, re.sub(r"[()\s]", "", condition))
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
        "INSERT INTO inbox (instance_id, kind, name, payload, at) VALUES ('i', 'rumour', 'x', 'null', 1)",
    ):
        with pytest.raises((apsw.ConstraintError, asyncpg.CheckViolationError)):
            await query(store, wrong)


@pytest.mark.parametrize("kind", DATABASES)
def test_every_table_column_and_index_is_explained(kind: str) -> None:
    for before, line in itertools.pairwise(migrate.schema(kind).splitlines()):
        if line.startswith("CREATE"):
            assert before.startswith("-- "), line
        elif re.match(r"    [a-z_]+ +(text|real|double|boolean|bigint|integer)", line, re.IGNORECASE):
            assert re.search(r"  -- \w", line), line


def test_both_databases_have_the_same_explanations() -> None:
    found = {}
    for database in DATABASES:
        body = migrate.schema(database).partition("CREATE TABLE")[2]
        found[database] = re.findall(r"^ .*-- (.*)|^-- (.*)", re.sub(r"\n {8,}--", "", body), re.M)
    differing = [one for one, other in zip(found["sqlite"], found["postgres"], strict=True) if one != other]
    assert differing == [("Always 0: with one writer, seq is the order of the commits.", "")]  # events.tx


def test_migrations_of_both_databases_have_the_same_numbers_without_a_gap() -> None:
    names = {database: [(number, name) for number, name, _ in migrate.migrations(database)] for database in DATABASES}
    assert names["sqlite"] == names["postgres"]
    assert [number for number, _ in names["sqlite"]] == list(range(2, 2 + len(names["sqlite"])))


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
    assert await query(store, "SELECT version FROM migrations") == [(migrate.newest(store.name),)]


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


async def test_the_dumped_sql_creates_the_same_schema_as_opening_does(store: Store, tmp_path: Path) -> None:
    await works(store)
    async with neighbour(store, tmp_path / "other") as other:
        await apply(other, dumped(other))
        assert await _shape(other) == await _shape(store)


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


# -- migrating --------------------------------------------------------------------------------------

_RELEASED = Path(__file__).parent / "released"
_TABLE = "CREATE TABLE extras (\n    id text PRIMARY KEY,\n    CHECK (id <> '')\n);\n"
_COLUMN = "ALTER TABLE instances ADD COLUMN extra integer NOT NULL DEFAULT 7;\n"
_INDEX = "CREATE INDEX instances_extra ON instances (extra) WHERE extra > 7;\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the schema and its migrations, for a test to change: those of the next version."""
    package = Path(migrate.__file__).parent
    for folder in ("schema", "migrations"):
        shutil.copytree(package / folder, tmp_path / "next" / folder)
    monkeypatch.setattr(migrate, "_files", lambda: tmp_path / "next")
    return tmp_path / "next"


def change_schema(files: Path, database: str, migration: str) -> None:
    """Make the next version: its schema has a table, a column and an index more, and a migration leads there."""
    schema = files / "schema" / f"{database}.sql"
    begin = "CREATE TABLE instances (\n"
    changed = schema.read_text().replace(begin, f"{begin}    extra integer NOT NULL DEFAULT 7,\n")
    schema.write_text(changed + _TABLE + _INDEX)
    (files / "migrations" / database).mkdir(exist_ok=True)
    (files / "migrations" / database / f"{migrate.newest(database) + 1:04}_extra.sql").write_text(migration)


async def create(store: Store, script: str) -> None:
    """Make a store of version 1 by hand."""
    schema = store.options.get("schema")
    begin = f"CREATE SCHEMA {schema}; SET search_path TO {schema};" if schema else ""
    await apply(store, f"{begin} {script}; INSERT INTO migrations (version) VALUES (1);")


async def test_a_store_of_the_first_release_is_migrated_to_the_schema(store: Store, tmp_path: Path) -> None:
    """Until there is a migration, the first release is the schema itself: see store/migrations/README.md."""
    released = _RELEASED / f"{store.name}.sql"
    assert released.exists() == bool(migrate.migrations(store.name))
    await create(store, released.read_text() if released.exists() else migrate.schema(store.name))
    await works(store)
    async with neighbour(store, tmp_path / "other") as new:
        await works(new)
        assert (await _shape(store))[:-1] == (await _shape(new))[:-1]


async def test_a_store_is_migrated_with_its_rows_to_the_schema_of_a_new_one(
    store: Store, tmp_path: Path, files: Path
) -> None:
    async with Hark(store.url, **store.options) as app:
        waiting = await app.start(Hello)
    change_schema(files, store.name, _TABLE + _COLUMN + _INDEX)
    newest = migrate.newest(store.name)
    app = Hark(store.url, **store.options)
    app.register(Hello)
    async with app, app.worker():
        assert await app.result(waiting.id, timeout=20) == "hello"
    assert await query(store, "SELECT extra FROM instances") == [(7,)]
    async with neighbour(store, tmp_path / "other") as new:
        await works(new)
        *migrated, versions = await _shape(store)
        *fresh, version = await _shape(new)
    assert migrated == fresh
    assert (versions, version) == ([(newest - 1,), (newest,)], [(newest,)])


@pytest.mark.parametrize(
    "migration",
    [_TABLE + _COLUMN, _TABLE + _COLUMN.replace("7", "8") + _INDEX, _TABLE.replace("<>", ">") + _COLUMN + _INDEX],
    ids=["no index", "another default", "another check"],
)
async def test_a_migration_that_does_not_lead_to_the_schema_is_noticed(
    store: Store, tmp_path: Path, files: Path, migration: str
) -> None:
    await store_made(store)
    change_schema(files, store.name, migration)
    await store_made(store)
    async with neighbour(store, tmp_path / "other") as new:
        await store_made(new)
        assert (await _shape(store))[:-1] != (await _shape(new))[:-1]


async def test_a_migration_that_fails_changes_nothing(store: Store, files: Path) -> None:
    await works(store)
    before = await _shape(store)
    change_schema(files, store.name, f"{_TABLE} CREATE TABLE instances (id text);")
    with pytest.raises(StoreUnavailable, match="cannot migrate"):
        await works(store)
    assert await _shape(store) == before


@pytest.mark.parametrize("table", ["signals", "inbox"])
async def test_a_store_from_before_the_first_release_is_refused_and_not_changed(store: Store, table: str) -> None:
    """Its versions have the same numbers, and mean others."""
    await create(store, f"CREATE TABLE migrations (version integer PRIMARY KEY); CREATE TABLE {table} (seq integer)")
    access: Access
    for access in ("migrate", "write", "read"):
        opened = store.make()
        with pytest.raises(InvalidInput, match=r"before the first release.*new file or schema"):
            await opened.open(access)
        await opened.close()
    assert sorted(await table_names(store)) == sorted(["migrations", table])


async def test_a_missing_function_is_created_beside_that_of_another_version(pg_store: Store) -> None:
    [function] = migrate.functions("postgres")
    older = re.sub(r"\d+$", "0", function.name)
    await works(pg_store)
    await query(pg_store, f"ALTER FUNCTION {function.name} RENAME TO {older}")
    await works(pg_store)
    found = await query(pg_store, "SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace")
    assert {name for (name,) in found} == {function.name, older}


async def store_made(store: Store) -> None:
    async with Hark(store.url, **store.options):
        pass


@asynccontextmanager
async def neighbour(store: Store, directory: Path) -> AsyncIterator[Store]:
    """A second empty store on the same database."""
    await asyncio.to_thread(directory.mkdir)
    other = sqlite_file(directory)
    if store.name == "postgres":
        other = Store("postgres", store.url, {"schema": f"{store.options['schema']}_other"})
    try:
        yield other
    finally:
        if store.name == "postgres":
            await query(store, f"DROP SCHEMA IF EXISTS {other.options['schema']} CASCADE")


async def _shape(store: Store) -> tuple[Any, ...]:
    """The tables, whatever the order of their columns; last the versions that were applied."""
    unordered = {table: sorted(found) for table, found in (await columns(store)).items()}
    versions = await query(store, "SELECT version FROM migrations ORDER BY 1")
    return unordered, await indexes(store), await checks(store), versions
