"""The floor: what the databases themselves do with rows shaped like instances, without an engine.

`batches` is how many rows per second one connection updates in batches of 200, one commit each; an engine that
stores each step as an update of a row cannot be faster. `bare_commit` is the median time of a single-row
update with its commit on an otherwise idle database: the unit of latencies.
`python -m bench.floor` prints both for PostgreSQL and for SQLite, one JSON line each.
"""

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from bench.postgres import create_database, postgres, settings

ROWS = 4_000
BATCH = 200
BATCHES = 4_000
COMMITS = 2_000

Row = tuple[str, str, str, int, int, int]

IDS = [f"0198f2c4-7b1e-7000-8000-{number:012x}" for number in range(ROWS)]
COLUMNS = """step text NOT NULL, state text NOT NULL, attempt int NOT NULL, epoch int NOT NULL,
             updated_at bigint NOT NULL"""
SQLITE = {"journal_mode": "wal", "synchronous": "full"}

# On PostgreSQL the table leaves room in its pages, so that an update stays in its page and touches no index.
POSTGRES_TABLE = f"""
    DROP TABLE IF EXISTS instances;
    CREATE TABLE instances (id text COLLATE "C" PRIMARY KEY, {COLUMNS}) WITH (fillfactor = 70)"""
POSTGRES_BATCH = """
    UPDATE instances SET step = new.step, state = new.state, attempt = new.attempt, epoch = new.epoch,
        updated_at = new.updated_at
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::int[], $6::bigint[])
        AS new (id, step, state, attempt, epoch, updated_at)
    WHERE instances.id = new.id"""
POSTGRES_ROW = """
    UPDATE instances SET step = $2, state = $3, attempt = $4, epoch = $5, updated_at = $6 WHERE id = $1"""
SQLITE_TABLE = f"""
    DROP TABLE IF EXISTS instances;
    CREATE TABLE instances (id text PRIMARY KEY, {COLUMNS}) WITHOUT ROWID"""
SQLITE_ROW = """
    UPDATE instances SET step = ?2, state = ?3, attempt = ?4, epoch = ?5, updated_at = ?6 WHERE id = ?1"""


def rows(ids: list[str], epoch: int) -> list[Row]:
    """A row for each id, like that of an instance after `epoch` steps."""
    state = json.dumps({"order": f"o-{epoch:06d}", "paid": True, "n": epoch % 10})
    return [(id, f"step_{epoch % 10}", state, 0, epoch, time.time_ns() // 1_000) for id in ids]


def batches(size: int, count: int) -> Iterator[list[Row]]:
    """Batches of random rows in id order, every row new: SQLite does not write a row that stays the same."""
    chosen = random.Random(size)
    return (rows(sorted(chosen.sample(IDS, size)), epoch) for epoch in range(1, count + 1))


async def postgres_batches(url: str) -> float:
    """Rows updated per second by `UPDATE … FROM unnest(…)` on the PostgreSQL database at `url`."""
    connection = await _postgres_table(url)
    seconds = 0.0
    for batch in batches(BATCH, BATCHES):
        columns = [list(column) for column in zip(*batch, strict=True)]
        begin = time.perf_counter()
        await connection.execute(POSTGRES_BATCH, *columns)
        seconds += time.perf_counter() - begin
    await connection.close()
    return BATCHES * BATCH / seconds


async def postgres_bare_commit(url: str) -> float:
    """Median seconds of a single-row update with its commit on the PostgreSQL database at `url`."""
    connection = await _postgres_table(url)
    seconds = []
    for [row] in batches(1, COMMITS):
        begin = time.perf_counter()
        await connection.execute(POSTGRES_ROW, *row)
        seconds.append(time.perf_counter() - begin)
    await connection.close()
    return statistics.median(seconds)


def sqlite_batches(file: Path) -> float:
    """Rows updated per second on the SQLite database in `file`."""
    connection = _sqlite_table(file)
    seconds = 0.0
    for batch in batches(BATCH, BATCHES):
        begin = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(SQLITE_ROW, batch)
        connection.execute("COMMIT")
        seconds += time.perf_counter() - begin
    connection.close()
    return BATCHES * BATCH / seconds


def sqlite_bare_commit(file: Path) -> float:
    """Median seconds of a single-row update with its commit on the SQLite database in `file`."""
    connection = _sqlite_table(file)
    seconds = []
    for [row] in batches(1, COMMITS):
        begin = time.perf_counter()
        connection.execute(SQLITE_ROW, row)
        seconds.append(time.perf_counter() - begin)
    connection.close()
    return statistics.median(seconds)


async def _postgres_table(url: str) -> "asyncpg.Connection[asyncpg.Record]":
    connection = await asyncpg.connect(url)
    await connection.execute(POSTGRES_TABLE)
    await connection.copy_records_to_table("instances", records=rows(IDS, 0))
    await connection.execute("VACUUM ANALYZE instances")
    return connection


def _sqlite_table(file: Path) -> apsw.Connection:
    connection = apsw.Connection(str(file))
    for name, value in SQLITE.items():
        connection.pragma(name, value)
    connection.execute(SQLITE_TABLE)
    with connection:
        connection.executemany("INSERT INTO instances VALUES (?, ?, ?, ?, ?, ?)", rows(IDS, 0))
    return connection


def _print(database: str, rate: float, commit: float, database_settings: dict[str, Any]) -> None:
    batch = {"floor": "batches", "rows": ROWS, "batch": BATCH, "per_second": round(rate)}
    single = {"floor": "bare_commit", "commits": COMMITS, "median_seconds": round(commit, 6)}
    for line in (batch, single):
        print(json.dumps({"database": database, **line, "settings": database_settings}), flush=True)


def main() -> None:
    with postgres() as server:
        url = create_database(server, "bench_floor")
        rate, commit = asyncio.run(postgres_batches(url)), asyncio.run(postgres_bare_commit(url))
        _print("postgres", rate, commit, settings(server))
    with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as directory:
        file = Path(directory) / "floor.db"
        rate, commit = sqlite_batches(file), sqlite_bare_commit(file)
        _print("sqlite", rate, commit, {"version": apsw.sqlite_lib_version(), **SQLITE})


if __name__ == "__main__":
    main()
