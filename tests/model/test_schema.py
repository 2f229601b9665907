"""Schemas of answers (A8): what is accepted as one, what is refused immediately, and the problems of an answer."""

from __future__ import annotations

import enum
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from hark import InvalidInput
from hark.model import schema
from hark.model.schema import compile_schema, example_answer, example_answers
from hark.model.validation import problems

AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer", "minimum": 1}}, "required": ["amount"]}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    item: str
    due: date


@dataclass
class Verdict:
    approve: bool
    colour: Colour = Colour.RED
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Ticket(msgspec.Struct):
    id: UUID
    level: Literal["low", "high"] = "low"


class Address(pydantic.BaseModel):
    street: str
    zip: str = pydantic.Field(alias="zipCode", max_length=5)


class Person(pydantic.BaseModel):
    name: str
    homes: list[Address] = []


@dataclass
class Delivery:
    to: Person
    count: int


@dataclass
class Visit:
    at: datetime
    later: list[datetime | None] = field(default_factory=list)
    by_name: dict[str, datetime] = field(default_factory=dict)
    next: Visit | None = None


class Pair(TypedDict):
    left: int
    right: int


def read(kind: Any, answer: Any) -> Any:
    """The answer as the function receives it, after a check that it fits."""
    text, decode = compile_schema(kind)
    assert text is not None
    assert problems(text, json.dumps(answer)) == []
    return decode(json.dumps(answer))


def found(kind: Any, answer: Any) -> list[str]:
    text, _ = compile_schema(kind)
    assert text is not None
    return problems(text, json.dumps(answer))


def test_a8_without_a_schema_any_json_is_accepted() -> None:
    text, decode = compile_schema(None)
    assert text is None
    assert decode('{"a": [1, null]}') == {"a": [1, None]}


def test_a8_a_json_schema_is_stored_as_it_is_and_gives_plain_values() -> None:
    text, decode = compile_schema(AMOUNT)
    assert text is not None
    assert json.loads(text) == AMOUNT
    assert decode('{"amount": 3}') == {"amount": 3}


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        (Verdict, {"approve": True}, Verdict(True)),
        (
            Verdict,
            {"approve": False, "colour": "blue", "lines": [{"item": "x", "due": "2026-02-01"}], "note": "n"},
            Verdict(False, Colour.BLUE, [Line("x", date(2026, 2, 1))], "n"),
        ),
        (Ticket, {"id": "0191d5d4-0000-7000-8000-000000000000"}, Ticket(UUID("0191d5d4-0000-7000-8000-000000000000"))),
        (Address, {"street": "s", "zipCode": "12345"}, Address(street="s", zipCode="12345")),
        (
            Delivery,
            {"to": {"name": "n", "homes": [{"street": "s", "zipCode": "1"}]}, "count": 2},
            Delivery(Person(name="n", homes=[Address(street="s", zipCode="1")]), 2),
        ),
        (Pair, {"left": 1, "right": 2}, {"left": 1, "right": 2}),
        (int, 5, 5),
        (int | None, None, None),
        (Literal["yes", "no"], "yes", "yes"),
        (list[date], ["2026-02-01"], [date(2026, 2, 1)]),
    ],
)
def test_a8_a_python_type_gives_the_typed_object(kind: Any, answer: Any, expected: Any) -> None:
    assert read(kind, answer) == expected


def test_a8_what_json_schema_calls_an_integer_is_read_as_one() -> None:
    assert read(Delivery, {"to": {"name": "n"}, "count": 2.0}).count == 2


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        (AMOUNT, {"amount": "x"}, ['amount: "x" is not of type "integer"']),
        (AMOUNT, {}, ["amount: is required"]),
        (AMOUNT, 3, ['answer: 3 is not of type "object"']),
        (AMOUNT, {"amount": 0}, ["amount: 0 is less than the minimum of 1"]),
        (Verdict, {"approve": True, "lines": [{"item": "x", "due": "soon"}]}, ['lines[0].due: "soon" is not a "date"']),
        (Verdict, {"approve": True, "note": 3}, ['note: 3 is not of type "string"']),
        (Delivery, {"to": {"name": "n", "homes": [{"street": 1, "zipCode": "1"}]}, "count": 1},
         ['to.homes[0].street: 1 is not of type "string"']),
    ],
)  # fmt: skip
def test_a8_each_problem_says_where_and_what(kind: Any, answer: Any, expected: list[str]) -> None:
    assert found(kind, answer) == expected


def test_a8_a_time_is_checked_at_any_depth() -> None:
    at = datetime(2026, 2, 1, 10, 30, tzinfo=UTC)
    said = {
        "at": "2026-02-01T10:30:00Z",
        "later": [None, "2026-02-01T10:30:00Z"],
        "next": {"at": "2026-02-01T10:30:00Z"},
    }
    assert read(Visit, said) == Visit(at, [None, at], {}, Visit(at))
    wrong = {"at": "soon", "later": ["x"], "by_name": {"a": "y"}, "next": {"at": "z"}}
    assert sorted(line.partition(":")[0] for line in found(Visit, wrong)) == ["at", "by_name.a", "later[0]", "next.at"]
    assert read(datetime, "2026-02-01T10:30:00Z") == at


def test_a8_all_problems_are_reported_together_up_to_a_limit() -> None:
    two = found(Verdict, {"approve": "x", "colour": "green"})
    assert [line.partition(":")[0] for line in two] == ["approve", "colour"]
    assert len(found(list[int], ["x"] * 1000)) == 20


def test_a8_a_problem_stays_short_whatever_the_answer_quotes() -> None:
    [line] = found(AMOUNT, {"amount": "x" * 100_000})
    assert len(line) < 300
    assert line.endswith('is not of type "integer"')


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"type": "nope"}, "at type"),
        ({"properties": {"a": {"minimum": "x"}}}, "at properties.a.minimum"),
        ({"properties": {"a": {"pattern": "("}}}, "at properties.a.pattern"),
        ({"$ref": "#/nowhere"}, "point every \\$ref into the same schema"),
        ({"$schema": "http://example.com/meta"}, "malformed"),
        ({"default": object()}, "no JSON"),
        ({"title": "x" * schema.SIZE}, "make it smaller"),
        ({"default": "\0"}, "NUL"),
        (object, "object cannot be the schema"),
        (lambda: 1, "cannot be the schema"),
        (5, "5 cannot be the schema"),
        ("{}", "cannot be the schema"),
    ],
)
def test_a8_a_malformed_schema_is_refused_immediately(bad: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        compile_schema(bad)


def test_a8_a_schema_that_nests_too_deeply_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"items": deep}
    with pytest.raises(InvalidInput, match="deep"):
        compile_schema(deep)


def test_a8_a_type_that_cannot_be_resolved_is_refused_by_its_name() -> None:
    @dataclass
    class Half:
        other: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidInput, match="Half cannot be the schema"):
        compile_schema(Half)


def test_a8_a_schema_may_refer_to_itself() -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}
    assert found(tree, {"kids": [{"kids": [{"kids": 1}]}]}) == ['kids[0].kids[0].kids: 1 is not of type "array"']
    assert found({"$ref": "#"}, 1) == []


class Coupon(pydantic.BaseModel):
    code: str = pydantic.Field(json_schema_extra={"pattern": "^(?=.*X)[A-Z]+$"})


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ({"pattern": "^(?=a)b"}, "(?=a)"),
        ({"pattern": "(?<!a)b"}, "(?<!a)"),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, r"(a)\\1"),
        ({"patternProperties": {"(?!a)": {}}}, "(?!a)"),
        ({"pattern": "(a{1000}){1000}"}, "(a{1000}){1000}"),
        (Coupon, "^(?=.*X)[A-Z]+$"),
    ],
)
def test_a8_a_pattern_that_cannot_run_in_linear_time_is_refused_immediately(kind: Any, pattern: str) -> None:
    with pytest.raises(InvalidInput, match="linear time") as refused:
        compile_schema(kind)
    assert pattern in str(refused.value)


def test_a8_the_look_ahead_that_pydantic_gives_a_decimal_is_rewritten() -> None:
    class Price(pydantic.BaseModel):
        amount: str = pydantic.Field(json_schema_extra={"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"})

    for good in ("1", "-1.50", "+.5", "007.", "12345678901234567890.1"):
        assert found(Price, {"amount": good}) == []
    for bad in ("", "-", ".", "+.", "1.2.3", "abc", "1e5"):
        assert len(found(Price, {"amount": bad})) == 1


def seconds(work: Callable[[], Any]) -> float:
    """The processor time of this thread, the better of two: other processes do not count."""
    times = []
    for _ in range(2):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


ROWS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    },
}


@pytest.mark.parametrize("kind", [ROWS, {"anyOf": [ROWS, {"type": "null"}]}])
def test_a8_a_large_wrong_answer_takes_about_as_long_as_a_right_one(kind: Any) -> None:
    right = [{"a": 1, "b": "x"}] * 30_000
    wrong: list[Any] = [{}] * 90_000
    normal = seconds(lambda: found(kind, right))
    assert seconds(lambda: found(kind, wrong)) < 8 * normal
    assert found(kind, wrong)[:3] == ["[0].a: is required", "[0].b: is required", "[1].a: is required"]
    assert len(found(kind, wrong)) == 20


def test_a8_a_large_answer_that_is_wrong_at_its_end_is_refused_and_says_why_there_is_no_detail() -> None:
    [line] = found(ROWS, [{"a": 1, "b": "x"}] * 5000 + [{"a": 1}])
    assert "only its first parts were looked at" in line
    assert found({**ROWS, "minItems": 9000}, [{"a": 1, "b": "x"}] * 5000)[0].startswith("answer: does not match")


def test_a8_problems_of_the_first_parts_are_those_of_the_answer() -> None:
    """What was left out must not be reported as missing."""
    wide = {"type": "object", "required": ["z"], "properties": {"a": ROWS, "z": {"type": "integer"}}}
    lines = found(wide, {"a": [{"a": "no", "b": "x"}] + [{"a": 1, "b": "x"}] * 5000, "z": 1})
    assert lines[0] == 'a[0].a: "no" is not of type "integer"'
    assert not any(line.startswith("z") for line in lines)


TREE = {
    "$defs": {
        "node": {
            "anyOf": [
                {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}}, "required": ["x", kind]}
                for kind in ("a", "b", "c")
            ]
        }
    },
    "$ref": "#/$defs/node",
}


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = {"x": inner}
    return inner


def test_a8_alternatives_that_refer_to_themselves_do_not_multiply() -> None:
    """The errors of all alternatives grow threefold with every level: with 30 levels there are 10 to the 14th."""
    assert found(TREE, nested(30)) == ["answer: does not match the schema; it is too complex to list the problems"]
    assert found(TREE, nested(2))[0].startswith("answer: ")
    expression = {"anyOf": [{"type": "number"}, {"items": {"$ref": "#"}, "type": "array"}, {"items": {"$ref": "#"}}]}
    deep: Any = 1
    for _ in range(100):
        deep = [deep, 2]
    assert found(expression, deep) == []  # the number of ways does not matter to an answer that matches


def test_a8_an_answer_beyond_the_budget_is_refused_with_the_reason() -> None:
    slow = {"type": "string", "pattern": "(a|b)*a(a|b){4000}c"}
    assert found(slow, "ab" * 100)[0].endswith('does not match "(a|b)*a(a|b){4000}c"')
    assert "too much work" in found(slow, "ab" * 100_000)[0]
    objects = {"items": {"enum": [{"a": n} for n in range(3000)]}}
    assert found(objects, [{"a": 2999}] * 5) == []
    assert "too much work" in found(objects, [{"a": 2999}] * 5000)[0]


def test_a8_a_schema_that_multiplies_for_a_single_value_is_refused_immediately() -> None:
    levels = {f"d{n}": {"oneOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)}
    with pytest.raises(InvalidInput, match="alternatives to one value"):
        compile_schema({"$defs": {**levels, "d20": {"type": "string"}}, "$ref": "#/$defs/d0"})


def test_a8_a_stored_schema_that_cannot_be_used_is_a_problem_not_a_crash() -> None:
    assert "cannot be used" in problems('{"type": "nope"}', "1")[0]


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """A web server that would serve any schema, and the paths that were requested."""
    asked: list[str] = []

    class Door(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a8_no_reference_is_ever_fetched(tmp_path: Any) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}")
    with listening() as (origin, asked):
        for bad in (
            {"$ref": f"{origin}/schema.json"},
            {"$ref": file.as_uri()},
            {"$id": f"{origin}/a", "properties": {"x": {"$ref": "b"}}},
            {"$dynamicRef": f"{origin}/schema.json"},
            {"$schema": f"{origin}/meta"},
        ):
            with pytest.raises(InvalidInput):
                compile_schema(bad)
            assert "cannot be used" in problems(json.dumps(bad), "1")[0]
        assert asked == []


class Item(msgspec.Struct):
    sku: str
    count: int
    note: str = ""


class Basket(msgspec.Struct):
    paid: bool
    first: Item
    lines: list[Item]
    total: float | None


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (Basket, {"paid": True, "first": {"sku": "", "count": 0}, "lines": [], "total": 0}),
        ({"enum": ["yes", "no"]}, "yes"),
        ({"type": ["integer", "null"]}, 0),
        ({"const": 7}, 7),
        ({"minimum": 1}, None),
        ({"$ref": "#"}, None),
        ({"type": "object", "required": ["x"]}, {"x": None}),
        ({"type": "object", "properties": {"ok": {"type": "boolean"}}}, {"ok": True}),
        ({"type": "integer", "default": 5, "minimum": 1}, 5),
        ({"type": "number", "minimum": 1.5}, 1.5),
        ({"type": "array", "items": {"type": "string", "minLength": 3}, "minItems": 2}, ["xxx", "xxx"]),
    ],
)
def test_a8_an_example_has_the_shape_of_an_answer(schema: Any, expected: Any) -> None:
    text, _ = compile_schema(schema)
    assert text is not None
    assert json.loads(example_answer(json.loads(text))) == expected


def test_a8_a_choice_of_schemas_has_an_example_for_each() -> None:
    pay = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    assert example_answers({"oneOf": [pay, {"const": "no"}]}) == [{"sum": 0}, "no"]


@dataclass
class Described:
    """How shall we pay?

    Stored as invoices.decision; see the runbook before you change it.

    Attributes:
        amount: in cents
    """

    amount: int


class DescribedModel(pydantic.BaseModel):
    """How shall
    we pay?

    For programmers.
    """

    amount: int = pydantic.Field(description="In cents.\n\nWithout tax.")


@dataclass
class Inherited(Described):
    more: int = 0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Described, {"How shall we pay?"}),
        (DescribedModel, {"How shall we pay?", "In cents.\n\nWithout tax."}),
        (Inherited, set()),
        (Verdict, set()),
        (Person, set()),
        ({"description": "One.\n\nTwo."}, {"One.\n\nTwo."}),
    ],
)
def test_d3_the_summary_of_a_docstring_is_a_description_and_nothing_else_of_it(kind: Any, expected: set[str]) -> None:
    text, _ = compile_schema(kind)
    assert text is not None
    todo, found = [json.loads(text)], set()
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            found |= {node["description"]} if isinstance(node.get("description"), str) else set()
            todo += node.values()
    assert found == expected
