"""Fault 72 on PostgreSQL: a turn costs what it costs among a thousand, whatever else is in the table.

The plans are those of the engine's own connection: prepared, generic, with its settings. What is measured are the
blocks they touch. HARK_PLANS=full makes the crowd a million of each kind.
"""

import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from hark.store import migrate
from hark.store.postgres import PostgresStore
from tests.support import crowd
from tests.support.postgres import Postgres
from tests.support.stores import Store

SMALL = 1_000
LARGE = 1_000_000 if os.environ.get("HARK_PLANS") == "full" else 100_000
FACTOR, SLACK = 5, 50  # a tree over a hundred times the rows is higher, and its leaves are farther apart

pytestmark = pytest.mark.timeout(900)


TABLES = {"instances", "waits", "signals", "events"}
SCRIPTS = [script for _, _, script in migrate.scripts("postgres")]


def fresh(postgres: Postgres) -> Store:
    return Store("postgres", postgres.url, {"schema": f"hark_{secrets.token_hex(6)}"})


async def run(store: Store, *statements: str) -> None:
    db = await asyncpg.connect(store.url, server_settings={"search_path": store.options["schema"]})
    try:
        for statement in statements:
            await db.execute(statement)
    finally:
        await db.close()


async def fill(store: Store, size: int) -> None:
    await run(
        store,
        f"CREATE SCHEMA {store.options['schema']}",
        *SCRIPTS,
        *(f"ALTER TABLE {table} SET UNLOGGED" for table in TABLES),  # the crowd need not survive anything
        *(f"ALTER TABLE {table} SET (autovacuum_enabled = off)" for table in TABLES),
        *crowd.statements(size, "postgres"),
        f"VACUUM ANALYZE {', '.join(TABLES)}, buckets",
    )


def literal(value: Any) -> str:
    """A parameter as text; PostgreSQL gives it the type of its place."""
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        items = ("NULL" if item is None else json.dumps(item, ensure_ascii=False) for item in value)
        return "'{" + ",".join(items).replace("'", "''") + "}'"
    return "'" + str(value).replace("'", "''") + "'"


async def explain(store: Store, question: crowd.Question, size: int, role: str = "clerk") -> dict[str, Any]:
    """The plan as it ran, on a connection as the engine makes it; nothing stays changed."""
    statement = question.statement
    made = PostgresStore(store.url, schema=store.options["schema"], lease=900)
    db = await made.connect(role=role)
    try:
        text, arguments = statement.bind(*question.asked(size))
        await db.execute(f"PREPARE question AS {text}")
        given = ", ".join(map(literal, arguments))
        ask = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE question" + (f"({given})" if given else "")
        transaction = db.transaction()
        await transaction.start()
        try:
            await db.fetchval(ask)  # once to warm up: what is dead is marked as such by the first that sees it
            found = json.loads(await db.fetchval(ask))
        finally:
            await transaction.rollback()
        plan: dict[str, Any] = found[0]["Plan"]
        return plan
    finally:
        await db.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def touched(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def scanned(plan: dict[str, Any]) -> list[str]:
    """Tables read from end to end; what an UPDATE counts as its own target is not a scan."""
    return [node["Relation Name"] for node in nodes(plan) if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")]


def used(plan: dict[str, Any]) -> set[str]:
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


async def test_fault_72_a_turn_touches_as_few_blocks_in_a_crowd_as_among_a_thousand(postgres: Postgres) -> None:
    """One test for all statements: the crowd takes longer to gather than to ask."""
    small, large = fresh(postgres), fresh(postgres)
    try:
        await fill(small, SMALL)
        await fill(large, LARGE)
        problems = {}
        for name, question in crowd.TURN.items():
            few, many = await explain(small, question, SMALL), await explain(large, question, LARGE)
            if name == "claimable":
                assert_reads_only_what_it_may_take(many, 50)
            if (
                scanned(many)
                or not used(many) <= question.indexes
                or many["Actual Rows"] != few["Actual Rows"]
                or touched(many) > FACTOR * touched(few) + SLACK
            ):
                problems[name] = (scanned(many), used(many), touched(few), touched(many))
        for name, question in crowd.READS.items():
            # Readers plan as they like; what counts is that they do not go through the crowd: 200 rows, 4 blocks each.
            many = await explain(large, question, LARGE, "reader")
            whole = {node["Relation Name"] for node in nodes(many) if node["Node Type"] == "Seq Scan"}
            if TABLES & whole or touched(many) > 1000:
                problems[name] = (scanned(many), used(many), touched(many))
        assert problems == {}
    finally:
        for store in (small, large):
            await run(store, f"DROP SCHEMA IF EXISTS {store.options['schema']} CASCADE")


def assert_reads_only_what_it_may_take(plan: dict[str, Any], batch: int) -> None:
    """Not one row more than the batch: neither the codeless, nor the blocked, nor the limited are looked at."""
    assert plan["Actual Rows"] == batch
    for node in nodes(plan):
        assert round(node["Actual Rows"] * node["Actual Loops"]) <= batch
        assert node.get("Rows Removed by Filter", 0) == 0
    assert touched(plan) < 4 * batch


@pytest.mark.parametrize("name", crowd.TURN)
async def test_a_table_without_statistics_is_not_scanned(pg_store: Store, name: str) -> None:
    """FINDINGS 1: planned while the table is empty, and never analysed."""
    await run(pg_store, f"CREATE SCHEMA {pg_store.options['schema']}", *SCRIPTS)
    plan = await explain(pg_store, crowd.TURN[name], SMALL)
    assert scanned(plan) == []
    assert used(plan) <= crowd.TURN[name].indexes


async def test_a_running_row_is_updated_in_place(pg_store: Store) -> None:
    """An update of an indexed column writes to every index of the table; that of a `Next` must not (HOT)."""
    schema = pg_store.options["schema"]
    await run(pg_store, f"CREATE SCHEMA {schema}", *SCRIPTS, *crowd.statements(SMALL, "postgres"))
    made = PostgresStore(pg_store.url, schema=schema, lease=900)
    db = await made.connect(role="clerk")
    try:
        statement = crowd.TURN["advance"].statement
        text, given = statement.bind(*crowd.TURN["advance"].asked(SMALL))
        await db.fetch(text, *given)
        await db.execute("SELECT pg_stat_force_next_flush()")
        counted = await db.fetchrow(
            "SELECT n_tup_upd, n_tup_hot_upd, n_tup_newpage_upd FROM pg_stat_user_tables "
            "WHERE relname = 'instances' AND schemaname = $1",
            schema,
        )
    finally:
        await db.close()
    updated, in_place, elsewhere = counted
    # Side by side as they are here, not all find room on their page; those that do are all in place.
    assert updated == crowd.FEW
    assert in_place + elsewhere == updated
    assert in_place > updated / 3
