"""Fault 72 on SQLite: a turn costs the same in a large table as among a thousand rows.

The measure is the number of steps of SQLite's virtual machine, and the rows it visits without an index. With and
without statistics: Hark does not run ANALYZE, but a user may. HARK_PLANS=full adds a million unrelated rows of each
kind.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec
import pytest

from hark.store import migrate
from tests.support import crowd

SMALL = 1_000
LARGE = 1_000_000 if os.environ.get("HARK_PLANS") == "full" else 30_000
QUESTIONS = crowd.TURN | crowd.READS

pytestmark = pytest.mark.timeout(900)


def gather(size: int, *, analysed: bool = False) -> apsw.Connection:
    db = apsw.Connection(":memory:")
    db.execute("BEGIN")
    db.execute(migrate.schema("sqlite"))
    for statement in crowd.statements(size, "sqlite"):
        db.execute(statement)
    db.execute("COMMIT")
    if analysed:
        db.execute("ANALYZE")
    return db


@pytest.fixture(scope="module", params=[False, True], ids=["not analysed", "analysed"])
def small(request: pytest.FixtureRequest) -> Iterator[apsw.Connection]:
    """Shared by the tests, which change nothing: `run` rolls back."""
    db = gather(SMALL, analysed=request.param)
    yield db
    db.close()


def bound(name: str, size: int) -> dict[str, Any]:
    """The parameters as the store binds them: each list as one JSON text."""
    rows, values = QUESTIONS[name].asked(size)
    if rows is not None:
        values["rows"] = rows
    return {k: msgspec.json.encode(v).decode() if isinstance(v, list | tuple) else v for k, v in values.items()}


def run(db: apsw.Connection, name: str, size: int) -> tuple[int, dict[str, int]]:
    """Execute a statement and roll it back: the number of rows it returned, and SQLite's counters."""
    spent: dict[str, int] = {}

    def note(event: dict[str, Any]) -> None:
        for what, count in event["stmt_status"].items():
            spent[what] = spent.get(what, 0) + count

    with_status = apsw.SQLITE_TRACE_PROFILE
    db.execute("SAVEPOINT asking")
    try:
        db.trace_v2(with_status, note)
        found = len(db.execute(QUESTIONS[name].statement.sqlite, bound(name, size)).fetchall())
        db.trace_v2(0, None)
    finally:
        db.execute("ROLLBACK TO asking")
        db.execute("RELEASE asking")
    return found, spent


def plan(db: apsw.Connection, name: str, size: int) -> list[str]:
    text = QUESTIONS[name].statement.sqlite
    return [
        row[3]
        for part in text.split(";")
        for row in db.execute(f"EXPLAIN QUERY PLAN {part}", bound(name, size)).fetchall()
    ]


def scans(lines: list[str]) -> list[str]:
    """The steps of a plan that scan a whole table or index of ours, under its name or an alias in a statement."""
    ours = {"instances", "i", "c", "p", "inbox", "s", "waits", "w", "events", "e", "awakeables", "journal", "buckets"}
    ours -= {line.split()[1] for line in lines if line.startswith(("CO-ROUTINE ", "MATERIALIZE "))}  # subqueries
    found = [line for line in lines if line.startswith("SCAN ") and line.split()[1] in ours | {"tags"}]
    return [line for line in found if "VIRTUAL TABLE" not in line]


@pytest.mark.slow
def test_fault_72_a_turn_takes_as_few_steps_among_many_rows_as_among_a_thousand() -> None:
    """One test with and without statistics, because filling the tables takes longer than the statements."""
    small, large = gather(SMALL), gather(LARGE)
    problems = {}
    for statistics in ("without statistics", "with statistics"):
        if statistics == "with statistics":
            small.execute("ANALYZE")
            large.execute("ANALYZE")
        for name in QUESTIONS:
            if QUESTIONS[name].counts_all:
                continue
            (found, few), (as_found, many) = run(small, name, SMALL), run(large, name, LARGE)
            steps = "SQLITE_STMTSTATUS_VM_STEP"
            if as_found != found or many[steps] > 1.5 * few[steps] + 500 or many["SQLITE_STMTSTATUS_AUTOINDEX"]:
                problems[name, statistics] = (found, as_found, few, many, plan(large, name, LARGE))
    assert problems == {}
    small.close()
    large.close()


@pytest.mark.parametrize("name", QUESTIONS)
def test_fault_72_every_statement_uses_its_index(name: str, small: apsw.Connection) -> None:
    lines = plan(small, name, SMALL)
    named = {match for line in lines for match in re.findall(r"(?<!TABLE) INDEX (\w+)", line)}
    named = {index for index in named if not index.startswith("sqlite_autoindex")}  # the index of a PRIMARY KEY
    # A read may follow one of its indexes, or the rowid, until it has enough rows: the number of steps shows that.
    follows = QUESTIONS[name].indexes if name in crowd.READS else set()
    found = [line for line in scans(lines) if not ({f"{line.split()[1]}_pkey", line.split()[-1]} & follows)]
    assert found == [], lines
    assert named <= QUESTIONS[name].indexes, lines


@pytest.mark.parametrize("small", [False], ids=["not analysed"], indirect=True)
def test_fault_72_the_claim_uses_its_own_index(small: apsw.Connection) -> None:
    assert any("instances_claim" in line for line in plan(small, "claimable", SMALL))
    found, spent = run(small, "claimable", SMALL)
    assert found >= 50
    assert spent["SQLITE_STMTSTATUS_SORT"] <= 1  # sorts only the few rows it found
