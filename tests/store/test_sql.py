"""One text per statement, compiled for both databases."""

import inspect
import re

import pytest

from hark.store import statements
from hark.store.sql import Sql

STATEMENTS = {name: value for name, value in vars(statements).items() if isinstance(value, Sql)}


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
    assert sql.arguments(None, {"now": 1, "id": "x"}) == [1, "x"]


def test_a_list_is_an_array_in_postgresql_and_json_in_sqlite() -> None:
    sql = Sql("DELETE FROM t WHERE id IN :ids[text] AND n IN :numbers[bigint]")
    assert sql.postgres == "DELETE FROM t WHERE id = ANY($1::text[]) AND n = ANY($2::bigint[])"
    assert sql.sqlite == (
        "DELETE FROM t WHERE id IN (SELECT value FROM json_each(:ids)) AND n IN (SELECT value FROM json_each(:numbers))"
    )


def test_rows_are_columns_in_postgresql_and_json_in_sqlite() -> None:
    sql = Sql("SELECT r.id FROM {rows: id text, weight double precision} WHERE r.ord > :n::bigint")
    assert sql.columns == ("id", "weight")
    assert sql.postgres == (
        "SELECT r.id FROM unnest($1::text[], $2::double precision[]) WITH ORDINALITY AS r(id, weight, ord) "
        "WHERE r.ord > $3::bigint"
    )
    assert sql.sqlite == (
        "SELECT r.id FROM (SELECT value ->> 0 AS id, value ->> 1 AS weight, key + 1 AS ord FROM json_each(:rows)) AS r "
        "WHERE r.ord > :n"
    )


def test_arguments_are_the_columns_and_then_the_values() -> None:
    sql = Sql("SELECT :z::text, :a::text FROM {rows: id text, n bigint}")
    assert sql.arguments([("x", 1), ("y", 2)], {"a": "A", "z": "Z"}) == [("x", "y"), (1, 2), "Z", "A"]


def test_no_rows_are_empty_columns() -> None:
    sql = Sql("SELECT 1 FROM {rows: id text, n bigint}")
    assert sql.arguments([], {}) == [[], []]


def test_rows_of_different_length_are_refused() -> None:
    sql = Sql("SELECT 1 FROM {rows: id text, n bigint}")
    with pytest.raises(ValueError, match="zip"):
        sql.arguments([("x", 1), ("y",)], {})


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
def test_row_locks_are_dropped_for_sqlite(lock: str) -> None:
    sql = Sql(f"SELECT id FROM t i ORDER BY id {lock}")
    assert sql.postgres.endswith(lock)
    assert plain(sql.sqlite) == "SELECT id FROM t i ORDER BY id"


def test_casts_are_dropped_for_sqlite_and_kept_for_postgresql() -> None:
    sql = Sql("SELECT x::text::bigint, :w::double precision, :l::text[]")
    assert sql.sqlite == "SELECT x, :w, :l"
    assert "x::text::bigint" in sql.postgres


def test_a_text_of_its_own_takes_the_same_marks() -> None:
    sql = Sql("SELECT 1 FROM {rows: id text}", sqlite="SELECT 2 FROM {rows: id text} WHERE :now::bigint > 0")
    assert sql.postgres.startswith("SELECT 1 FROM unnest")
    assert sql.sqlite.startswith("SELECT 2 FROM (SELECT value ->> 0 AS id")
    assert sql.sqlite.endswith("WHERE :now > 0")


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_compiled_whole(name: str) -> None:
    """No mark is left over, and PostgreSQL's parameters are numbered without a gap."""
    sql = STATEMENTS[name]
    for text in (sql.postgres, sql.sqlite):
        assert "{rows" not in text
        assert not re.search(r"\[(text|bigint)\](?!\))", text)
    numbers = {int(n) for n in re.findall(r"\$(\d+)", sql.postgres)}
    assert numbers == set(range(1, len(sql.columns) + len(sql.names) + 1))
    assert not re.search(r"(?<![:\w]):[a-z]", sql.postgres)
    assert not re.search(r"\$\d|::|FOR (NO KEY )?UPDATE|\bunnest\b|\bANY\(", sql.sqlite)
    asked = set(re.findall(r":([a-z_]+)", sql.sqlite)) - {"rows"}
    assert asked <= {*sql.names, "most"}  # `most` stands in for a LIMIT that takes no column


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_is_one_round_trip(name: str) -> None:
    """SQLite runs several in one call; PostgreSQL prepares one."""
    assert ";" not in STATEMENTS[name].postgres
    assert not STATEMENTS[name].sqlite.rstrip().endswith(";")


def test_every_statement_is_static_text() -> None:
    """What a caller gives is bound, never pasted: f-strings hold nothing but constants of the same module."""
    pasted = set(re.findall(r"\{([^}:]+)\}", inspect.getsource(statements)))
    assert all(re.fullmatch("_[A-Z]+", name) and isinstance(vars(statements)[name], str) for name in pasted)
