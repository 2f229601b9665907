"""Fault 72: each statement inside the function of call turns uses an index, in any table and with any statistics.

EXPLAIN shows a function as one node. So its work is measured: the sequential scans and the rows that index scans fetch,
as PostgreSQL counts them for the transaction, and the blocks that the call touches.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import pytest

from hark.kernel.fast.call_turn import call_parameters
from hark.kernel.requests import Capacity, Deliver, Request, SettleAwakeable
from hark.model.activation import Traits
from hark.model.decisions import Settle
from hark.model.lanes import code_lane
from hark.model.names import awakeable_id
from hark.store import statements as sql
from hark.store.postgres import PostgresStore
from tests.support import crowd
from tests.support.postgres import Postgres
from tests.support.postgres_plans import SCRIPTS, analyse, fill, fresh, literal, run
from tests.support.stores import Store

SMALL = 1_000
LARGE = 1_000_000 if os.environ.get("HARK_PLANS") == "full" else 30_000
FUNCTIONS, ASKING = [f"mailed-{1_000_000 + n}" for n in (3, 4)], [f"mailed-{1_000_000 + n}" for n in (5, 6, 7)]
MAILED = [f"mailed-{1_000_000 + n}" for n in range(10, 15)]


def more_rows(size: int) -> list[str]:
    """What the crowd does not have: journals, those of other functions too, and questions that can be answered."""
    pending = [f"('{awakeable_id(id, 1)}', '{id}', '', 1, '', {crowd.NOW})" for id in ASKING]
    waits = [f"('{id}-answer', '{id}', '', 'awakeable', '{awakeable_id(id, 1)}', {crowd.NOW})" for id in ASKING]
    functions = ", ".join(f"'{id}'" for id in FUNCTIONS)
    return [
        f"UPDATE instances SET kind = 'workflow' WHERE id IN ({functions})",
        "INSERT INTO journal (instance_id, visit, seq, entry, kind) "
        f"SELECT 'finished-' || n, 0, s, s, 'run' FROM generate_series(1, {size}) n, generate_series(1, 3) s",
        "INSERT INTO journal (instance_id, visit, seq, entry, kind) "
        f"SELECT unnest(ARRAY[{functions}]), v, s, s, 'run' FROM generate_series(0, 3) v, generate_series(1, 9) s",
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
    """What a call did."""

    rows: int  # that it returned
    blocks: int  # that it touched
    scans: dict[str, int]  # sequential scans, by table
    fetched: int  # rows that index scans fetched


async def measure(store: Store, call: str) -> Work:
    """Carry out a call on a connection of the engine, as it is planned there, and roll it back."""
    schema = store.options["schema"]
    db = await PostgresStore(store.url, schema=schema, lease=900).connect(role="clerk")
    try:
        values = call_parameters(*CALLS[call])
        assert values is not None
        text, arguments = sql.one_call_turn.bind(None, {**values, "now": crowd.NOW, "position": crowd.NOW})
        await db.execute(f"PREPARE question AS {text}")
        given = ", ".join(map(literal, arguments))
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE question({given})"
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


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_fault_72_a_call_does_as_little_among_many_rows_as_among_a_thousand(postgres: Postgres) -> None:
    """One test for all calls, because filling the tables takes longer than the calls."""
    problems = {}
    small, large = fresh(postgres), fresh(postgres)
    try:
        await fill(small, SMALL, *more_rows(SMALL))
        await fill(large, LARGE, *more_rows(LARGE))
        for statistics in ("without statistics", "with statistics"):
            if statistics == "with statistics":
                await analyse(small)
                await analyse(large)
            for call, (requests, _) in CALLS.items():
                few, many = await measure(small, call), await measure(large, call)
                assert few.rows == many.rows == (0 if call == "signals to nothing" else len(requests) or 5), call
                if few.scans or many.scans or many.fetched > few.fetched + 10 or many.blocks > 3 * few.blocks + 50:
                    problems[call, statistics] = (few, many)
        assert problems == {}
    finally:
        for store in (small, large):
            await run(store, f"DROP SCHEMA IF EXISTS {store.options['schema']} CASCADE")


@pytest.mark.no_tables
async def test_a_call_scans_no_table_that_has_no_rows_and_no_statistics(pg_store: Store) -> None:
    """FINDINGS 1: planned while the tables are empty and have never been analysed."""
    await run(pg_store, f"CREATE SCHEMA {pg_store.options['schema']}", *SCRIPTS)
    for call in CALLS:
        assert (await measure(pg_store, call)).scans == {}
