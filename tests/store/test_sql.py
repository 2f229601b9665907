"""One text per statement, compiled for both databases."""

import asyncio
import importlib
import inspect
import itertools
import pkgutil
import re
from types import ModuleType
from typing import Any

import apsw.ext
import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark.store import migrate, reads, statements
from hark.store.sql import Row, Sql
from tests.support.postgres import Postgres
from tests.support.stores import Store

STATEMENTS = {name: value for name, value in (vars(statements) | vars(reads)).items() if isinstance(value, Sql)}


def plain(text: str) -> str:
    return " ".join(text.split())


def test_a_value_is_numbered_in_postgresql_and_named_in_sqlite() -> None:
    sql = Sql("SELECT :a::text, :b::bigint")
    assert sql.postgres == "SELECT $1::text, $2::bigint"
    assert sql.sqlite == "SELECT :a, :b"
    assert sql.names == ["a", "b"]


def test_a_value_used_twice_is_one_parameter() -> None:
    sql = Sql("SELECT :now::bigint, :id::text, :now::bigint")
    assert sql.postgres == "SELECT $1::bigint, $2::text, $1::bigint"
    assert sql.bind(None, {"now": 1, "id": "x"}) == (sql.postgres, [1, "x"])


def test_a_list_is_one_text_in_postgresql_and_json_in_sqlite() -> None:
    sql = Sql("DELETE FROM t WHERE id IN :ids[text] AND n IN :numbers[bigint]")
    assert sql.postgres == (
        "DELETE FROM t WHERE id = ANY(string_to_array($1::text, '\x1f', '\x1e')) "
        "AND n = ANY(string_to_array($2::text, '\x1f', '\x1e')::bigint[])"
    )
    assert sql.arrays == "DELETE FROM t WHERE id = ANY($1::text[]) AND n = ANY($2::bigint[])"
    assert sql.bind(None, {"ids": ["a", "b"], "numbers": [1, 2]}) == (sql.postgres, ["a\x1fb", "1\x1f2"])
    assert sql.sqlite == (
        "DELETE FROM t WHERE id IN (SELECT value FROM json_each(:ids)) AND n IN (SELECT value FROM json_each(:numbers))"
    )


def test_rows_are_columns_in_postgresql_and_json_in_sqlite() -> None:
    sql = Sql("SELECT r.id FROM {rows: id text, weight double precision} WHERE r.ord > :n::bigint")
    assert sql.columns == ("id", "weight")
    assert sql.arrays == (
        "SELECT r.id FROM unnest($1::text[], $2::double precision[]) WITH ORDINALITY AS r(id, weight, ord) "
        "WHERE r.ord > $3::bigint"
    )
    assert sql.sqlite == (
        "SELECT r.id FROM (SELECT value ->> 0 AS id, value ->> 1 AS weight, key + 1 AS ord FROM json_each(:rows)) AS r "
        "WHERE r.ord > :n"
    )


def test_arguments_are_the_columns_and_then_the_values() -> None:
    sql = Sql("SELECT :z::text, :a::text FROM {rows: id text, n bigint}")
    assert sql.bind([("x", 1), ("y", 2)], {"a": "A", "z": "Z"}) == (sql.postgres, ["x\x1fy", "1\x1f2", "Z", "A"])


def test_an_empty_list_of_rows_is_sent_as_empty_columns() -> None:
    sql = Sql("SELECT 1 FROM {rows: id text, n bigint}")
    assert sql.bind([], {}) == (sql.postgres, ["", ""])


@pytest.mark.parametrize("odd", ["a\x1fb", "\x1f", "\x1e", "x\x1e", ""])
def test_lists_with_separators_in_an_item_are_sent_as_arrays(odd: str) -> None:
    sql = Sql("SELECT 1 FROM {rows: id text, n bigint} WHERE x IN :xs[text]")
    assert sql.bind([(odd, None)], {"xs": ["x"]}) == (sql.arrays, [(odd,), (None,), ["x"]])
    assert sql.bind([("id", None)], {"xs": [odd]}) == (sql.arrays, [("id",), (None,), [odd]])


@given(st.lists(st.tuples(st.text(), st.none() | st.text(), st.none() | st.integers(-(2**63), 2**63 - 1)), max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_statement_reads_exactly_the_rows_that_were_sent(postgres: Postgres, rows: list[tuple[Any, ...]]) -> None:
    rows = [tuple(one.replace("\0", "") if isinstance(one, str) else one for one in row) for row in rows]
    sql = Sql("SELECT r.a, r.b, r.c, r.ord FROM {rows: a text, b text, c bigint} ORDER BY r.ord")

    async def read() -> list[tuple[Any, ...]]:
        db = await asyncpg.connect(postgres.url)
        try:
            text, arguments = sql.bind(rows, {})
            return [tuple(row)[:3] for row in await db.fetch(text, *arguments)]
        finally:
            await db.close()

    assert asyncio.run(read()) == rows


def test_rows_of_different_length_are_refused() -> None:
    sql = Sql("SELECT 1 FROM {rows: id text, n bigint}")
    with pytest.raises(ValueError, match="zip"):
        sql.bind([("x", 1), ("y",)], {})


@pytest.mark.parametrize(
    "lock",
    [
        "FOR UPDATE",
        "FOR NO KEY UPDATE",
        "FOR NO KEY UPDATE SKIP LOCKED",
        "FOR UPDATE OF i SKIP LOCKED",
        "FOR NO KEY UPDATE OF i",
    ],
)
def test_row_locks_are_removed_for_sqlite(lock: str) -> None:
    sql = Sql(f"SELECT id FROM t i ORDER BY id {lock}")
    assert sql.postgres.endswith(lock)
    assert plain(sql.sqlite) == "SELECT id FROM t i ORDER BY id"


def test_casts_are_removed_for_sqlite_and_kept_for_postgresql() -> None:
    sql = Sql("SELECT x::text::bigint, :w::double precision, :l::text[]")
    assert sql.sqlite == "SELECT x, :w, :l"
    assert "x::text::bigint" in sql.postgres


def test_a_separate_text_for_sqlite_has_the_same_placeholders() -> None:
    sql = Sql("SELECT 1 FROM {rows: id text}", sqlite="SELECT 2 FROM {rows: id text} WHERE :now::bigint > 0")
    assert sql.postgres.startswith("SELECT 1 FROM unnest")
    assert sql.sqlite.startswith("SELECT 2 FROM (SELECT value ->> 0 AS id")
    assert sql.sqlite.endswith("WHERE :now > 0")


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_placeholder_of_every_statement_is_compiled(name: str) -> None:
    """No placeholder is left, and the parameters of PostgreSQL are numbered without a gap."""
    sql = STATEMENTS[name]
    for text in (sql.postgres, sql.arrays, sql.sqlite):
        assert "{rows" not in text
        assert not re.search(r"\[(text|bigint)\](?!\))", text)
    numbers = {int(n) for n in re.findall(r"\$(\d+)", sql.postgres)}
    assert numbers == set(range(1, len(sql.columns) + len(sql.names) + 1))
    assert not re.search(r"(?<![:\w]):[a-z]", sql.postgres)
    assert not re.search(r"\$\d|::|FOR (NO KEY )?UPDATE|\bunnest\b|\bANY\(", sql.sqlite)
    bound = set(re.findall(r":([a-z_]+)", sql.sqlite)) - {"rows"}
    assert bound <= {*sql.names, "most"}  # `most` replaces a LIMIT, which cannot be a column in SQLite


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_one_round_trip(name: str) -> None:
    """SQLite executes several statements in one call; PostgreSQL prepares one."""
    assert ";" not in STATEMENTS[name].postgres
    assert not STATEMENTS[name].sqlite.rstrip().endswith(";")


TOPICS = {
    package: [
        importlib.import_module(found.name) for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    ]
    for package in (statements, reads)
}


@pytest.mark.parametrize("package", [statements, reads], ids=["statements", "reads"])
def test_a_statement_belongs_to_one_topic(package: ModuleType) -> None:
    """The package gathers them all: two statements of one name would hide each other."""
    names = [name for topic in TOPICS[package] for name, value in vars(topic).items() if isinstance(value, Sql)]
    assert sorted(names) == sorted({*names})
    assert {*names} == {name for name, value in vars(package).items() if isinstance(value, Sql)}
    assert len(names) > 30
    assert not {topic.__name__.rpartition(".")[2] for topic in TOPICS[package]} & {*names}


def test_every_statement_has_a_sentence() -> None:
    """The comment above it says which promise it keeps, or what it is for."""
    for topic in (*TOPICS[statements], *TOPICS[reads]):
        lines = inspect.getsource(topic).splitlines()
        for above, line in itertools.pairwise(lines):
            assert not re.match(r"[a-z_]+ = Sql\(", line) or above.startswith("# "), (topic, line)


def test_every_statement_is_static_text() -> None:
    """Values are bound, never pasted: f-strings contain nothing but constants of the module."""
    for module in (*TOPICS[statements], *TOPICS[reads]):
        pasted = set(re.findall(r"\{([^}:]+)\}", inspect.getsource(module)))
        assert all(re.fullmatch("[A-Z_]+", name) and isinstance(vars(module)[name], str) for name in pasted)


# -- row types -------------------------------------------------------------------------------------

TYPED = {name: sql for name, sql in STATEMENTS.items() if sql.row is not None}


def misplaced(row: type[Any], columns: list[str]) -> list[str]:
    """The faults of a row type: too few or too many fields, or a column with the name of another field."""
    fields = [field.name for field in msgspec.structs.fields(row)]
    if len(fields) != len(columns):
        return [f"{row.__name__} has {len(fields)} fields for {len(columns)} columns"]
    return [
        f"{field}: {column}" for field, column in zip(fields, columns, strict=True) if column in {*fields} - {field}
    ]


def test_a_row_type_has_one_field_per_column_of_sqlite() -> None:
    db = apsw.Connection(":memory:")
    db.execute(migrate.schema("sqlite"))
    wrong = {}
    for name, sql in TYPED.items():
        values = dict.fromkeys(re.findall(r":([a-z_]+)", sql.sqlite), "[]")
        columns = [column for column, *_ in apsw.ext.query_info(db, sql.sqlite, values).description]
        wrong[name] = misplaced(sql.row, columns)
    assert {name: found for name, found in wrong.items() if found} == {}


async def test_a_row_type_has_one_field_per_column_of_postgresql(pg_store: Store) -> None:
    wrong = {}
    schema = pg_store.options["schema"]
    db = await asyncpg.connect(pg_store.url, server_settings={"search_path": schema})
    try:
        await db.execute(f"CREATE SCHEMA {schema}")
        for script in (migrate.schema("postgres"), *(function.sql for function in migrate.functions("postgres"))):
            await db.execute(script)
        for name, sql in TYPED.items():
            columns = [column.name for column in (await db.prepare(sql.postgres)).get_attributes()]
            wrong[name] = misplaced(sql.row, columns)
    finally:
        await db.close()
    assert {name: found for name, found in wrong.items() if found} == {}


def test_a_row_type_with_two_fields_swapped_is_found() -> None:
    class Three(Row, frozen=True):
        id: str
        status: str
        step: str

    assert misplaced(Three, ["status", "id", "x"]) == ["id: status", "status: id"]
    assert misplaced(Three, ["id"]) == ["Three has 3 fields for 1 columns"]


async def test_a_statement_with_a_row_type_returns_rows_of_that_type(store: Store) -> None:
    class Sum(Row, frozen=True):
        a: int
        b: str

    typed, plain = Sql("SELECT :a::bigint, :b::text", row=Sum), Sql("SELECT :a::bigint, :b::text")
    async with store.opened() as made:
        tx = await made.begin()
        assert await tx.fetch(typed, a=1, b="x") == [Sum(1, "x")]
        [[a, b]] = await tx.fetch(plain, a=1, b="x")
        await tx.rollback()
        assert await made.read(typed, a=a, b=b) == [Sum(1, "x")]
