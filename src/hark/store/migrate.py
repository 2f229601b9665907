"""Numbered migrations: read from the package and applied in order, under a lock that the store takes.

A store that was migrated by a newer version is refused, because an old worker would write rows that the newer schema
does not expect. What a released migration does never changes: a store may have applied it already.
"""

from __future__ import annotations

from typing import NamedTuple

from hark.model.errors import StoreTooNew
from hark.store.protocol import Unmigrated


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


def scripts(database: str) -> list[Migration]:
    """Return every migration of one database (`sqlite`, `postgres`), in order."""
    from importlib import resources  # slow to import

    folder = resources.files("hark.store") / "migrations" / database
    found = [
        Migration(int(file.name.partition("_")[0]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def missing(database: str, current: int) -> list[Migration]:
    """Return the migrations that a store at version `current` still needs.

    Raises:
        StoreTooNew: The store is ahead of this code.
    """
    known = scripts(database)
    newest = known[-1].number
    if current > newest:
        raise StoreTooNew(
            f"The store has schema version {current}; this version of Hark supports versions up to {newest}. "
            "Upgrade Hark in this process (pip install -U hark), or use another store."
        )
    return [migration for migration in known if migration.number > current]


def check_current(database: str, current: int) -> None:
    """Raise unless a store at version `current` has every migration: for a process that must not apply them.

    Raises:
        Unmigrated: Migrations are missing; `current` is 0 if there are no tables.
        StoreTooNew: The store is ahead of this code.
    """
    if wanted := missing(database, current):
        raise Unmigrated(current, wanted[-1].number)


def dump(database: str, schema: str | None = None) -> str:
    """Return all migrations as one script, which creates and uses `schema` if it is given."""
    migrations = scripts(database)
    parts = [f"-- {migration.name}\n{migration.sql.strip()}\n" for migration in migrations]
    place = ""
    if schema is not None:
        place = f'CREATE SCHEMA IF NOT EXISTS "{schema}";\nSET search_path TO "{schema}";\n'
    head = "CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY);\n"
    rows = "".join(
        f"INSERT INTO migrations (version) VALUES ({migration.number}) ON CONFLICT DO NOTHING;\n"
        for migration in migrations
    )
    return place + head + "\n" + "\n".join(parts) + "\n" + rows
