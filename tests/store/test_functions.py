"""The function of the database: a version for each change, and the columns of a claim as Python lists them."""

import hashlib
import re
from pathlib import Path

import asyncpg
import pytest

from hark import Hark
from hark.model.activation import CLAIM_COLUMNS, Claim
from hark.store import migrate, statements
from hark.store.sql import Sql
from tests.support.stores import Store

SRC = Path(migrate.__file__).parent.parent
DIGESTS = {"call_turn_v4": "03389dc474805b28"}


@pytest.mark.parametrize("function", migrate.functions("postgres"), ids=lambda function: function.name)
def test_a_function_that_was_changed_has_a_new_version(function: migrate.Function) -> None:
    """A store creates a function only if it has none of this name."""
    code = " ".join(re.sub(r"--[^\n]*", "", function.sql).split())
    assert hashlib.sha256(code.encode()).hexdigest()[:16] == DIGESTS.get(function.name), (
        "The function was changed: raise the number in its name, in functions.sql and statements/functions.py, and "
        "write the new name and digest here."
    )


@pytest.mark.parametrize("name", ["claim", "claim_woken", "claim_tasks", "fetched_task", "call_turn"])
async def test_every_claim_returns_the_columns_of_a_claim_in_their_order(pg_store: Store, name: str) -> None:
    async with Hark(pg_store.url, **pg_store.options):
        pass
    statement: Sql = getattr(statements, name)
    db = await asyncpg.connect(pg_store.url, server_settings={"search_path": pg_store.options["schema"]})
    try:
        columns = [column.name for column in (await db.prepare(statement.postgres)).get_attributes()]
    finally:
        await db.close()
    assert tuple(columns[: len(CLAIM_COLUMNS)]) == CLAIM_COLUMNS == Claim.__struct_fields__[: len(CLAIM_COLUMNS)]


def test_the_columns_of_a_claim_are_listed_once() -> None:
    """Some of them stand side by side in no other statement."""
    written = re.compile(r"parent_wait,\s+(\w+\.)?counted,\s+(\w+\.)?has_inbox_rows")
    files = [path for path in SRC.rglob("*") if path.suffix in (".py", ".sql")]
    assert len(files) > 400
    assert [path for path in files if written.search(path.read_text("utf-8"))] == []
