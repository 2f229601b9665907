"""The checks to validate an answer are counted before they are done (A8)."""

from __future__ import annotations

from typing import Any

import pytest

from hark import InvalidInput
from hark.model.schema_work import SchemaWork

NO_LIMIT = 1 << 40


def checks(schema: Any, answer: Any, *, limit: int = NO_LIMIT, remembered: bool = False) -> int:
    return SchemaWork(schema, len).checks(answer, limit, remembered=remembered)


@pytest.mark.parametrize(
    ("schema", "answer", "expected"),
    [
        (True, [1, 2], 1),
        ({}, 5, 1),
        ({"items": {}}, [1, 2, 3], 4),
        ({"prefixItems": [{"allOf": [{}, {}]}], "items": {}}, [1, 2, 3], 1 + 3 + 2),
        ({"items": [{"allOf": [{}, {}]}], "additionalItems": {}}, [1, 2], 1 + (3 + 1) + 1),
        ({"properties": {"a": {"anyOf": [{}, {}]}}, "additionalProperties": {}}, {"a": 1, "b": 2}, 1 + 3 + 1),
        ({"patternProperties": {"ab": {}, "c": {}}}, {"abc": 1}, 1 + (2 + 1) * 3 + 2),
        ({"pattern": "abc"}, "12345", 1 + 3 * 5),
        ({"propertyNames": {"pattern": "ab"}}, {"abc": 1}, 1 + (1 + 2 * 3)),
        (
            {"propertyNames": {"anyOf": [{}, {"$ref": "#/$defs/a"}], "$defs": {"a": {}}}, "$defs": {"a": {"not": {}}}},
            {"a": 1, "b": 2},
            1 + 2 * (1 + 1 + 1 + 2),
        ),
        ({"multipleOf": 0.01}, 19.99, 1),
        ({"multipleOf": 0.01}, 5e-324, 1 + 1073 - 64),
        ({"items": {"multipleOf": 0.01}}, [10**300, 1e300], 1 + 1 + (1 + 997 - 64)),
        ({"enum": [1, 2, 3]}, 1, 1),
        ({"enum": [[1], {"a": [2]}]}, 1, 1 + 2 + 3),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}}, 1, 3),
        ({"$ref": "#x", "$defs": {"a": {"$anchor": "x"}}}, 1, 2),
        ({"$ref": "#"}, 1, 1),
        ({"$ref": "urn:b", "$defs": {"b": {"$id": "urn:b", "$ref": "#/$defs/c", "$defs": {"c": {}}}}}, 1, 3),
        ({"unevaluatedProperties": {}, "allOf": [{}]}, {"a": 1}, 1 + 2 + 1),
    ],
)
def test_a8_each_part_of_a_schema_is_counted_where_it_applies(schema: Any, answer: Any, expected: int) -> None:
    # What is listed counts the characters of a text less than what is only validated.
    assert checks(schema, answer, remembered=True) == expected


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"required": [f"r{n}" for n in range(500)]}, {f"k{n}": 1 for n in range(1000)}),
        ({"required": [f"r{n}" for n in range(500)]}, {"text": "x" * 100_000}),
        ({"required": [f"r{n}" for n in range(500)]}, {"x" * 100_000: "text"}),
        ({"dependentRequired": {"k0": [f"r{n}" for n in range(500)]}}, {f"k{n}": 1 for n in range(1000)}),
        ({"allOf": [{"maxProperties": 1}] * 500}, {f"k{n}": 1 for n in range(1000)}),
        ({"propertyNames": {"maxLength": 1}}, {f"k{n}": 1 for n in range(1000)}),
    ],
)
def test_a8_an_error_that_is_listed_counts_with_the_value_that_it_copies(schema: Any, answer: Any) -> None:
    assert checks(schema, answer) > 5000
    assert checks(schema, answer, remembered=True) <= 1501


TWICE = {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


def test_a8_ways_multiply_unless_results_are_remembered() -> None:
    assert [checks(TWICE, nested(levels)) for levels in range(4)] == [4, 4 + 10, 4 + 10 + 20, 4 + 10 + 20 + 40]
    assert [checks(TWICE, nested(levels), remembered=True) for levels in range(4)] == [4, 10, 16, 22]


def test_a8_counting_ends_at_the_limit() -> None:
    assert 1000 < checks(TWICE, nested(190), limit=1000) < 10_000


def test_a8_many_different_answers_leave_little_behind() -> None:
    work = SchemaWork(TWICE, len)
    for levels in range(150):
        for _ in range(20):
            work.checks([nested(levels)] * 3, NO_LIMIT, remembered=False)
    assert len(work._states) <= 1001


def test_a8_a_long_chain_of_references_is_no_problem() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3000)}
    assert checks({"$defs": {**chain, "d3000": {}}, "$ref": "#/$defs/d0"}, 1) == 3002


def test_a8_a_reference_that_leaves_the_schema_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not in it"):
        SchemaWork({"$ref": "https://json-schema.org/draft/2020-12/schema"}, len)
