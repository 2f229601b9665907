"""A schema of PostgreSQL with many rows, to look at the plans of statements and at their work."""

from __future__ import annotations

import json
import secrets
from typing import Any

import asyncpg

from hark.store import migrate
from tests.support import crowd
from tests.support.postgres import Postgres
from tests.support.stores import Store

TABLES = {"instances", "waits", "inbox", "events", "tags", "awakeables", "journal"}
SCRIPTS = [migrate.schema("postgres"), *(function.sql for function in migrate.functions("postgres"))]


def fresh(postgres: Postgres) -> Store:
    return Store("postgres", postgres.url, {"schema": f"hark_{secrets.token_hex(6)}"})


async def run(store: Store, *statements: str) -> None:
    db = await asyncpg.connect(store.url, server_settings={"search_path": store.options["schema"]})
    try:
        for statement in statements:
            await db.execute(statement)
    finally:
        await db.close()


async def fill(store: Store, size: int, *more: str) -> None:
    """Make the schema, with this many rows of each kind and those of the statements `more`."""
    await run(
        store,
        f"CREATE SCHEMA {store.options['schema']}",
        *SCRIPTS,
        *(f"ALTER TABLE {table} SET UNLOGGED" for table in TABLES),  # these rows need not survive a crash
        *(f"ALTER TABLE {table} SET (autovacuum_enabled = off)" for table in TABLES),
        *crowd.statements(size, "postgres"),
        *more,
    )


async def analyse(store: Store) -> None:
    await run(store, f"VACUUM ANALYZE {', '.join(TABLES)}, buckets")


def literal(value: Any) -> str:
    """A parameter as an untyped literal."""
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        items = ("NULL" if item is None else json.dumps(item, ensure_ascii=False) for item in value)
        return "'{" + ",".join(items).replace("'", "''") + "}'"
    return "'" + str(value).replace("'", "''") + "'"
