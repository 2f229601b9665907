"""Fault 72 on PostgreSQL: a turn costs the same in a large table as among a thousand rows.

The plans are those of the engine's own connection: prepared, generic, with its settings. The measure is the number of
blocks that a plan reads. HARK_PLANS=full adds a million unrelated rows of each kind.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from hark.kernel.fast.call_turn import call_parameters
from hark.kernel.requests import Capacity, Deliver, Request, SettleAwakeable
from hark.model.activation import Traits
from hark.model.decisions import Settle
from hark.model.lanes import code_lane
from hark.model.names import awakeable_id
from hark.store import reads, statements
from hark.store.postgres import PostgresStore
from hark.store.sql import Sql
from tests.support import crowd
from tests.support.inspect import query, until
from tests.support.postgres import Postgres
from tests.support.postgres_plans import SCRIPTS, TABLES, analyse, fill, fresh, literal, run
from tests.support.stores import Store, postgres_schema, run_sql

SMALL = 1_000
LARGE = 1_000_000 if os.environ.get("HARK_PLANS") == "full" else 30_000
FACTOR, SLACK = 5, 50  # an index over many times the rows has more levels, and fewer wanted rows share a leaf

_NEW_FILES = """DO $$
DECLARE written text := (
    SELECT string_agg(tablename, ', ') FROM pg_tables
    WHERE schemaname = current_schema() AND pg_relation_size(to_regclass(tablename)) > 0
);
BEGIN
    IF written IS NOT NULL THEN
        EXECUTE 'TRUNCATE ' || written;
    END IF;
END $$"""

pytestmark = pytest.mark.timeout(900)


async def prepare(db: asyncpg.Connection, text: str, arguments: Sequence[Any]) -> str:
    """Prepare a statement. Returns the one that executes and explains it."""
    await db.execute(f"PREPARE question AS {text}")
    given = ", ".join(map(literal, arguments))
    return "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE question" + (f"({given})" if given else "")


async def explain(store: Store, question: crowd.Question, size: int, role: str = "clerk") -> dict[str, Any]:
    """Execute a statement on a connection of the engine, roll it back, and return the plan as it ran."""
    statement = question.statement
    made = PostgresStore(store.url, schema=store.options["schema"], lease=900)
    db = await made.connect(role=role)
    try:
        ask = await prepare(db, *statement.bind(*question.asked(size)))
        transaction = db.transaction()
        await transaction.start()
        try:
            await db.fetchval(ask)  # warm up: the first reader marks dead index entries, which costs blocks
            found = json.loads(await db.fetchval(ask))
        finally:
            await transaction.rollback()
        plan: dict[str, Any] = found[0]["Plan"]
        return plan
    finally:
        await db.close()


async def major_version(store: Store) -> int:
    [(number,)] = await query(store, "SHOW server_version_num")
    return int(number) // 10_000


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def touched(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def scanned(plan: dict[str, Any]) -> list[str]:
    """The tables that the plan scans. The target of an UPDATE is not a scan."""
    return [node["Relation Name"] for node in nodes(plan) if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")]


def used(plan: dict[str, Any]) -> set[str]:
    found = {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
    return {index for index in found if not index.startswith("pg_")}


@pytest.mark.slow
async def test_fault_72_a_turn_reads_as_few_blocks_among_many_rows_as_among_a_thousand(postgres: Postgres) -> None:
    """One test for all statements, because filling the tables takes longer than the queries."""
    small, large = fresh(postgres), fresh(postgres)
    try:
        await fill(small, SMALL, *more_rows(SMALL))
        await fill(large, LARGE, *more_rows(LARGE))
        problems = {"without statistics": await problems_of_reads(large) | await problems_of_calls(small, large)}
        await analyse(small)
        await analyse(large)
        problems["with statistics"] = await problems_of_reads(large) | await problems_of_calls(small, large)
        problems["turns"] = {}
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
                problems["turns"][name] = (scanned(many), used(many), touched(few), touched(many))
        assert problems == {"without statistics": {}, "with statistics": {}, "turns": {}}
    finally:
        for store in (small, large):
            await run(store, f"DROP SCHEMA IF EXISTS {store.options['schema']} CASCADE")


async def problems_of_reads(large: Store) -> dict[str, Any]:
    """The reads that scan a large table, use another index than theirs, or read more blocks than a page has rows."""
    problems = {}
    # 200 rows, 4 blocks each, and some slack. Twice that before PostgreSQL 17, which descends the index again for every
    # element of a list. `signals_to_others` looks at 2,000 signals, and `results` at each target three times.
    limit = 1000 if await major_version(large) >= 17 else 2000
    for name, question in crowd.READS.items():
        plan = await explain(large, question, LARGE, "reader")
        most = 5 * LARGE if question.counts_all else 2 * limit if name in ("signals_to_others", "results") else limit
        scans = TABLES & set(scanned(plan))
        if scans or not used(plan) <= question.indexes or touched(plan) > most:
            problems[name] = (scans, used(plan), touched(plan))
    return problems


async def problems_of_calls(small: Store, large: Store) -> dict[str, Any]:
    """The turns in one call that scan a table, or fetch more rows or read more blocks in the large tables."""
    problems = {}
    for call, (requests, _) in CALLS.items():
        few, many = await measure(small, call), await measure(large, call)
        assert few.rows == many.rows == (0 if call == "signals to nothing" else len(requests) or 5), call
        if few.scans or many.scans or many.fetched > few.fetched + 10 or many.blocks > 3 * few.blocks + 50:
            problems[call] = (few, many)
    return problems


def assert_reads_only_what_it_may_take(plan: dict[str, Any], batch: int) -> None:
    """No row more than the batch: no row without code here, no blocked row and no row under a limit is read."""
    assert plan["Actual Rows"] == batch
    for node in nodes(plan):
        rows, loops = node["Actual Rows"], node["Actual Loops"]
        # Before PostgreSQL 18 it is the average of the loops, rounded to a whole number.
        rounding = loops / 2 if isinstance(rows, int) and loops > 1 else 0
        assert round(rows * loops - rounding) <= batch
        assert node.get("Rows Removed by Filter", 0) == 0
    assert touched(plan) < 4 * batch


@pytest.fixture(scope="module")
def empty(postgres: Postgres) -> Iterator[Store]:
    """Tables without rows that have never been analysed. `explain` rolls back, and leaves a table pages only."""
    with postgres_schema(postgres.url) as store:
        schema = store.options["schema"]
        run_sql(store.url, f"CREATE SCHEMA {schema}", f"SET search_path = {schema}", *SCRIPTS, "SELECT 1")
        yield store


@pytest.fixture
def never_analysed(empty: Store) -> Store:
    """`empty`, with a new file for each table in which an earlier test has left pages."""
    run_sql(empty.url, f"SET search_path = {empty.options['schema']}", _NEW_FILES)
    return empty


@pytest.mark.parametrize("name", crowd.TURN)
async def test_a_table_without_statistics_is_not_scanned(never_analysed: Store, name: str) -> None:
    """FINDINGS 1: planned while the table is empty and has never been analysed."""
    plan = await explain(never_analysed, crowd.TURN[name], SMALL)
    assert scanned(plan) == []
    assert used(plan) <= crowd.TURN[name].indexes


@pytest.mark.parametrize("name", crowd.READS)
async def test_a_read_of_a_table_without_statistics_uses_its_index(never_analysed: Store, name: str) -> None:
    """Planned by a read connection while the tables are empty and have never been analysed."""
    plan = await explain(never_analysed, crowd.READS[name], SMALL, "reader")
    assert TABLES.isdisjoint(scanned(plan))
    assert used(plan) <= crowd.READS[name].indexes


def test_every_read_has_a_plan_that_is_tested() -> None:
    """Here and in test_plans_sqlite.py: a new read needs a question in tests/support/crowd.py."""
    asked = {question.statement for question in (crowd.TURN | crowd.READS).values()}
    assert [name for name, value in vars(reads).items() if isinstance(value, Sql) and value not in asked] == []


@pytest.mark.no_tables
async def test_the_update_of_a_running_row_touches_no_index(pg_store: Store) -> None:
    """An update of an indexed column writes to every index of the table; the update of a `Next` must not (HOT)."""
    schema = pg_store.options["schema"]
    await run(pg_store, f"CREATE SCHEMA {schema}", *SCRIPTS, *crowd.statements(SMALL, "postgres"))
    made = PostgresStore(pg_store.url, schema=schema, lease=900)
    db = await made.connect(role="clerk")
    try:
        statement = crowd.TURN["advance"].statement
        text, given = statement.bind(*crowd.TURN["advance"].asked(SMALL))
        await db.fetch(text, *given)

        async def counted() -> bool:
            """Versions before 15 report it some time after the transaction."""
            return await updates(db, schema, "n_tup_upd") == crowd.FEW

        await until(counted, "the statistics of the update")
        in_place = await updates(db, schema, "n_tup_hot_upd")
        # These rows fill whole pages, so not every new version finds room on its page; those that do are HOT.
        assert in_place > crowd.FEW / 3
        if db.get_server_version().major >= 16:
            assert in_place + await updates(db, schema, "n_tup_newpage_upd") == crowd.FEW
    finally:
        await db.close()


async def updates(db: asyncpg.Connection, schema: str, column: str) -> int:
    if db.get_server_version().major >= 15:
        await db.execute("SELECT pg_stat_force_next_flush()")
    count: int = await db.fetchval(
        f"SELECT {column} FROM pg_stat_user_tables WHERE relname = 'instances' AND schemaname = $1", schema
    )
    return count


# -- turns in one call ---------------------------------------------------------------------------------

FUNCTIONS, ASKING = [f"mailed-{1_000_000 + n}" for n in (3, 4)], [f"mailed-{1_000_000 + n}" for n in (5, 6, 7)]
MAILED = [f"mailed-{1_000_000 + n}" for n in range(10, 15)]


def more_rows(size: int) -> list[str]:
    """Add the rows that the crowd lacks: journals, those of other functions too, and questions that can be answered."""
    pending = [f"('{awakeable_id(id, 1)}', '{id}', '', 1, '', {crowd.NOW})" for id in ASKING]
    waits = [f"('{id}-answer', '{id}', '', 'awakeable', '{awakeable_id(id, 1)}', {crowd.NOW})" for id in ASKING]
    functions = ", ".join(f"'{id}'" for id in FUNCTIONS)
    return [
        f"UPDATE instances SET kind = 'workflow' WHERE id IN ({functions})",
        "INSERT INTO journal (instance_id, visit, seq, entry, kind, at) "
        f"SELECT 'finished-' || n, 0, s, s, 'run', 1 FROM generate_series(1, {size}) n, generate_series(1, 3) s",
        "INSERT INTO journal (instance_id, visit, seq, entry, kind, at) "
        f"SELECT unnest(ARRAY[{functions}]), v, s, s, 'run', 1 FROM generate_series(0, 3) v, generate_series(1, 9) s",
        f"INSERT INTO awakeables (id, instance_id, place, entry_index, nonce, created_at) VALUES {', '.join(pending)}",
        f"INSERT INTO waits (id, instance_id, place, kind, name, since) VALUES {', '.join(waits)}",
    ]


def _signals(targets: Sequence[str]) -> list[Request]:
    return [Deliver(target=target, name="go", dedup_key="new") for target in targets]


def _worker(*, backlog: bool = False) -> Capacity:
    lanes = [code_lane(definition, 1) for definition in (crowd.HERE, "WithoutRows")]
    return Capacity("me", {"default": 5, "idle": 5}, dict.fromkeys(lanes, Traits()), backlog)


CALLS: dict[str, tuple[list[Request], Capacity | None]] = {
    "signals by id": (_signals(MAILED), _worker()),
    "signals by key": (_signals([f"key-of-{id}" for id in MAILED]), _worker()),
    "signals, without a worker": (_signals(MAILED), None),
    "signals to functions": (_signals(FUNCTIONS), _worker()),
    "answers": (
        [SettleAwakeable(settle=Settle(awakeable_id(id, 1), "RESOLVED", payload="1", by="ann")) for id in ASKING],
        _worker(),
    ),
    "claims": ([], _worker(backlog=True)),
    "signals to nothing": (_signals(["nothing", "key-of-nothing"]), _worker()),
}


@dataclass
class Work:
    """The work that a call did."""

    rows: int  # that it returned
    blocks: int  # that it touched
    scans: dict[str, int]  # sequential scans, by table
    fetched: int  # rows that index scans fetched


async def measure(store: Store, call: str) -> Work:
    """Carry out a call on a connection of the engine, as it is planned there, and roll it back.

    EXPLAIN shows a function as one node. So its work is measured: the sequential scans and the rows that index scans
    fetch, as PostgreSQL counts them for the transaction, and the blocks that the call touches.
    """
    schema = store.options["schema"]
    db = await PostgresStore(store.url, schema=schema, lease=900).connect(role="clerk")
    try:
        values = call_parameters(*CALLS[call])
        assert values is not None
        now = {"now": crowd.NOW, "position": crowd.NOW, "base": 0}
        bound = statements.call_turn.bind(None, {**values, "nonce": 1, **now})
        explain = await prepare(db, *bound)
        await db.execute("BEGIN; SAVEPOINT before")
        await db.fetchval(explain)  # the first call plans, and marks dead index entries
        await db.execute("ROLLBACK TO before")
        scans, fetched = await _counters(db)
        [found] = json.loads(await db.fetchval(explain))
        scans_then, fetched_then = await _counters(db)
        await db.execute("ROLLBACK")
        plan = found["Plan"]
        return Work(
            round(plan["Actual Rows"]),
            plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
            {table: count - scans[table] for table, count in scans_then.items() if count > scans[table]},
            fetched_then - fetched,
        )
    finally:
        await db.close()


async def _counters(db: asyncpg.Connection) -> tuple[dict[str, int], int]:
    rows = await db.fetch(
        "SELECT relname, seq_scan, coalesce(idx_tup_fetch, 0) AS fetched FROM pg_stat_xact_user_tables "
        "WHERE schemaname = current_schema()"
    )
    return {row["relname"]: row["seq_scan"] for row in rows}, sum(row["fetched"] for row in rows)


async def test_a_call_scans_no_table_that_has_no_rows_and_no_statistics(never_analysed: Store) -> None:
    """FINDINGS 1: planned while the tables are empty and have never been analysed."""
    for call in CALLS:
        assert (await measure(never_analysed, call)).scans == {}
