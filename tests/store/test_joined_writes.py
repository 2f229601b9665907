"""Writes of a turn that are sent together with its next statement (store/joined_writes.py)."""

import re
from typing import Any

import pytest

from hark.store import statements as sql
from hark.store.joined_writes import JoinedWrites
from hark.store.sql import Sql
from tests.store.test_sql import STATEMENTS
from tests.support.inspect import query, table_names
from tests.support.stores import Store

WRITE = Sql("UPDATE a SET n = :n::bigint WHERE id IN :ids[text]", joinable=True)
OTHER = Sql("INSERT INTO b (id) SELECT r.id FROM {rows: id text}", joinable=True)


def _add(waiting: JoinedWrites, statement: Sql, rows: Any = None, **values: Any) -> None:
    assert waiting.allow(statement)
    waiting.add(statement, *statement.bind(rows, values))


def test_writes_become_clauses_of_the_last_statement_with_their_own_parameters() -> None:
    waiting = JoinedWrites()
    _add(waiting, WRITE, n=1, ids=["x"])
    _add(waiting, OTHER, [("y",)])
    _add(waiting, Sql("SELECT :n::bigint FROM c WHERE :n::bigint > 0 AND :m::bigint = 1"), n=2, m=3)
    text, parameters = waiting.take()
    assert re.sub(r"string_to_array\((\$\d)::text, '.', '.'\)", r"\1", text) == (
        "WITH joined_1 AS (UPDATE a SET n = $2::bigint WHERE id = ANY($1)), "
        "joined_2 AS (INSERT INTO b (id) SELECT r.id FROM unnest($3) WITH ORDINALITY AS r(id, ord)) "
        "SELECT $4::bigint FROM c WHERE $4::bigint > 0 AND $5::bigint = 1"
    )
    assert parameters == ["x", 1, "y", 2, 3]
    assert not waiting


def test_a_statement_with_clauses_of_its_own_keeps_them() -> None:
    waiting = JoinedWrites()
    _add(waiting, WRITE, n=1, ids=["x"])
    _add(waiting, Sql("WITH moved AS (DELETE FROM c RETURNING id) SELECT id FROM moved"))
    text, _ = waiting.take()
    assert text.endswith("), moved AS (DELETE FROM c RETURNING id) SELECT id FROM moved")
    assert text.count("WITH ") == 1


def test_a_statement_alone_is_sent_as_it_is() -> None:
    waiting = JoinedWrites()
    _add(waiting, WRITE, n=1, ids=["x"])
    assert waiting.take() == (WRITE.postgres, ["x", 1])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM a",
        "SELECT 1 FROM c JOIN a ON true",
        "DELETE FROM c USING a",
        "WITH RECURSIVE found AS (SELECT 1) SELECT * FROM found",
    ],
)
def test_a_statement_that_could_miss_a_write_does_not_go_with_it(text: str) -> None:
    waiting = JoinedWrites()
    _add(waiting, WRITE, n=1, ids=["x"])
    assert not waiting.allow(Sql(text))


async def test_the_tables_of_every_statement_are_known(store: Store) -> None:
    async with store.opened():  # which creates the tables
        names = await table_names(store)
    for name, statement in STATEMENTS.items():
        words = set(re.findall(r"(?<![.\w:])([a-z_]+)\b(?! ?[=:(])", statement._text))
        # Of a word that is both a table and a column, the table is the one that follows a keyword.
        used = {word for word in words & {*names} if re.search(rf"\b[A-Z]+,? (?:ONLY )?{word}\b", statement._text)}
        columns = {"events", "secrets"} if name == "call_turn" else set()
        assert used - columns <= statement.tables, name


@pytest.mark.parametrize("name", sorted(name for name, one in STATEMENTS.items() if one.joinable))
def test_a_write_that_waits_is_one_plain_write_without_result(name: str) -> None:
    text = STATEMENTS[name]._text
    assert re.match(r"\s*(INSERT|UPDATE|DELETE)\b", text)
    assert "RETURNING" not in text


async def test_a_read_of_the_same_table_finds_what_was_written_before_it(store: Store) -> None:
    async with store.opened() as opened:
        tx = await opened.begin()
        await tx.fetch(sql.insert_waits, [("w", "i", "0", "signal", "go", None, None, None)])
        await tx.fetch(sql.insert_events, [("i", "next", "s", None)], tx=tx.xid)
        assert [row[0] for row in await tx.fetch(sql.waits_of, ids=["i"])] == ["w"]
        await tx.fetch(sql.drop_waits, ids=["i"])
        assert await tx.fetch(sql.waits_of, ids=["i"]) == []
        await tx.commit()
    assert await query(store, "SELECT instance_id, type, step FROM events") == [("i", "next", "s")]


async def test_writes_that_wait_are_gone_after_a_rollback(store: Store) -> None:
    async with store.opened() as opened:
        tx = await opened.begin()
        await tx.fetch(sql.insert_events, [("i", "next", "s", None)], tx=tx.xid)
        await tx.rollback()
        await (await opened.begin()).commit()
    assert await query(store, "SELECT 1 FROM events") == []
