"""Where a test keeps its instances: `Hark(store.url, **store.options)`."""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg


@dataclass(frozen=True)
class Store:
    """An empty store on one of the databases."""

    name: str  # "sqlite" or "postgres"
    url: str
    options: dict[str, Any] = field(default_factory=dict)


def sqlite_file(directory: Path) -> Store:
    return Store("sqlite", f"sqlite:///{directory / 'hark.db'}")


@contextmanager
def postgres_schema(url: str) -> Iterator[Store]:
    """A unique schema name; the schema is dropped after the test."""
    schema = f"hark_{secrets.token_hex(6)}"
    try:
        yield Store("postgres", url, {"schema": schema})
    finally:
        # A test that leaks an open transaction fails here, instead of hanging the run.
        run_sql(url, "SET lock_timeout = '10s'", f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def run_sql(url: str, *statements: str) -> Any:
    """Run statements from synchronous code; returns the value of the last one, if any."""

    async def run() -> Any:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1], timeout=30)
        finally:
            await connection.close(timeout=10)

    # Not asyncio.run: it would unset the loop that pytest-asyncio keeps for the test.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(run())
