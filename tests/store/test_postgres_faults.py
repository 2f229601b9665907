"""Errors of PostgreSQL that a person has to end are told apart from a full disk (X5)."""

import asyncpg
import pytest

from hark import StoreUnavailable
from hark.engine.turns import caller_errors
from hark.store.postgres_faults import fault_of
from hark.store.protocol import Damaged, Full


@pytest.mark.parametrize("kind", [asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError])
def test_x5_a_damaged_table_or_index_is_called_damaged_and_the_error_says_what_to_do(
    kind: type[asyncpg.PostgresError],
) -> None:
    fault = fault_of(kind("invalid page in block 7 of relation base/5/16401"))
    assert isinstance(fault, Damaged)
    assert "invalid page in block 7" in str(fault)
    assert "REINDEX" in str(fault)
    error = caller_errors.unavailable(fault)
    assert isinstance(error, StoreUnavailable)
    assert "is damaged" in str(error)
    assert "block 7" not in str(error)  # anyone may read it


def test_x5_a_full_disk_is_not_called_damaged() -> None:
    fault = fault_of(asyncpg.DiskFullError("could not extend file"))
    assert type(fault) is Full
    assert "disk may be full" in str(caller_errors.unavailable(fault))
