"""Create the schema of a store from one file, and migrate it by numbered scripts, under the lock of the store.

`schema/` has the newest version of the tables, `migrations/` the scripts that bring an older store up to it (see its
README). A store that was migrated by a newer version is refused, because an old worker would write rows that the newer
schema does not expect. A released migration never changes: a store may have applied it already.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from hark.model.activation import CLAIM_COLUMNS
from hark.model.errors import InvalidInput, StoreTooNew
from hark.store.protocol import Unmigrated

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_FUNCTION: Final = re.compile(r"CREATE OR REPLACE FUNCTION (\w+)\(")


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


class Function(NamedTuple):
    """A function of the database. Its name ends with its version."""

    name: str
    sql: str


def _files() -> Traversable:
    from importlib import resources  # slow to import

    return resources.files("hark.store")


def migrations(database: str) -> list[Migration]:
    """Return the migrations of one database (`sqlite`, `postgres`), in order."""
    folder = _files() / "migrations" / database
    found = [
        Migration(int(file.name.partition("_")[0]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in (folder.iterdir() if folder.is_dir() else ())
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def newest(database: str) -> int:
    """Return the version of a new store: the number of the last migration, or 1."""
    return max((migration.number for migration in migrations(database)), default=1)


def schema(database: str) -> str:
    return (_files() / "schema" / f"{database}.sql").read_text("utf-8")


def functions(database: str) -> list[Function]:
    """Return the functions that a store needs, each with the SQL that creates it."""
    if database != "postgres":
        return []
    text = (_files() / "schema" / "functions.sql").read_text("utf-8")
    for name, columns in {"claim": "{0}", "i_claim": "i.{0}", "claim_types": "{0} instances.{0}%TYPE"}.items():
        text = text.replace(f"{{{name}}}", ", ".join(columns.format(column) for column in CLAIM_COLUMNS))
    return [Function(name, text) for name in _FUNCTION.findall(text)]


def missing(database: str, current: int) -> list[Migration]:
    """Return what a store at version `current` still needs: all tables at once if it has none, else migrations.

    Raises:
        StoreTooNew: The store is ahead of this code.
    """
    last = newest(database)
    if current > last:
        raise StoreTooNew(
            f"The store has schema version {current}; this version of Hark supports versions up to {last}. "
            "Upgrade Hark in this process (pip install -U hark), or use another store."
        )
    if not current:
        return [Migration(last, "schema", schema(database))]
    return [migration for migration in migrations(database) if migration.number > current]


def check_current(database: str, current: int) -> None:
    """Raise unless a store at version `current` has every migration: for a process that must not apply them.

    Raises:
        Unmigrated: Migrations are missing; `current` is 0 if there are no tables.
        StoreTooNew: The store is ahead of this code.
    """
    if wanted := missing(database, current):
        raise Unmigrated(current, wanted[-1].number)


def check_released(tables: set[str]) -> None:
    """Refuse a store from before the first release, which has other tables under the same or another version.

    Args:
        tables: Those of `migrations` and `eras` that it has: `eras` is the table that was added last.

    Raises:
        InvalidInput: It has `migrations` and no `eras`.
    """
    if tables == {"migrations"}:
        raise InvalidInput(
            "The store has a table `migrations`, but not the tables of this version: it was made by a Hark from before "
            "the first release, or by another program; nothing was changed. Finish its instances with the Hark that "
            "made it, and use a new file or schema with this one (--db, --schema)."
        )


def dump(database: str, schema_name: str | None = None) -> str:
    """Return the SQL of a new store as one script, which creates and uses the schema `schema_name` if it is given."""
    place = ""
    if schema_name is not None:
        place = f'CREATE SCHEMA IF NOT EXISTS "{schema_name}";\nSET search_path TO "{schema_name}";\n\n'
    texts = [schema(database), *dict.fromkeys(function.sql for function in functions(database))]
    return place + "\n".join(texts) + f"\nINSERT INTO migrations (version) VALUES ({newest(database)});\n"
