"""Numbered migrations: read from the package, applied in order, under a lock the store takes.

A store that is ahead of this code is refused: an old worker must not write what it does not understand.
"""

from __future__ import annotations

from hark.model.errors import StoreTooNew


def scripts(dialect: str) -> list[tuple[int, str, str]]:
    """(number, name, SQL) of every migration of one dialect, in order."""
    from importlib import resources  # slow to import

    folder = resources.files("hark.store") / "migrations" / dialect
    found = [
        (int(file.name.split("_")[0]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return sorted(found)


def missing(dialect: str, current: int) -> list[tuple[int, str, str]]:
    """The migrations a store at version `current` still needs; StoreTooNew when it is ahead of us."""
    known = scripts(dialect)
    newest = known[-1][0]
    if current > newest:
        raise StoreTooNew(
            f"The store is at schema version {current}, this Hark knows only up to {newest}. "
            "Upgrade Hark in this process (pip install -U hark), or point it at another store."
        )
    return [script for script in known if script[0] > current]


def dump(dialect: str, schema: str | None = None) -> str:
    """All migrations of a dialect as one script, into `schema` if the database has schemas."""
    parts = [f"-- {name}\n{sql.strip()}\n" for _, name, sql in scripts(dialect)]
    newest = scripts(dialect)[-1][0]
    place = ""
    if schema is not None:
        place = f'CREATE SCHEMA IF NOT EXISTS "{schema}";\nSET search_path TO "{schema}";\n'
    head = "CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY);\n"
    rows = "".join(
        f"INSERT INTO migrations (version) VALUES ({n}) ON CONFLICT DO NOTHING;\n" for n in range(1, newest + 1)
    )
    return place + head + "\n" + "\n".join(parts) + "\n" + rows
