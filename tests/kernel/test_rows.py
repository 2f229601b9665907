"""Types that are built from whole rows have the columns of their statement, in its order."""

import re

import pytest

from hark.kernel.buckets import Bucket, Candidate
from hark.model.activation import ChildRow, Claim
from hark.store import statements
from hark.store.sql import Sql


def columns(statement: Sql, dialect: str) -> list[str]:
    """The names of the columns that a statement returns."""
    text = re.sub(r"\s+", " ", getattr(statement, dialect))
    found = re.search(r"RETURNING (.*)$", text) or re.search(r"^ ?SELECT (.*?) FROM", text)
    assert found is not None
    return [name.strip().split(".")[-1] for name in found[1].split(",")]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
@pytest.mark.parametrize(
    ("type", "name"), [(Claim, "claim"), (Candidate, "claimable"), (Bucket, "try_buckets"), (Bucket, "due_buckets")]
)
def test_the_fields_are_the_columns(type: type, name: str, dialect: str) -> None:
    expected = columns(getattr(statements, name), dialect)
    assert list(type.__struct_fields__[: len(expected)]) == expected
    required = len(type.__struct_fields__) - len(type.__struct_defaults__)
    assert len(expected) == required, "a field without a column has a default"


def test_the_fields_of_a_child_are_the_columns_but_for_the_name_of_its_wait() -> None:
    assert ["parent_wait", *ChildRow.__struct_fields__[1:]] == columns(statements.children_of, "sqlite")
