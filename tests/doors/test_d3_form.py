"""D3: a JSON Schema becomes a form, and what was typed into it an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.doors.http.form import Form
from hark.doors.http.form_fields import Field
from hark.model.schema import compile_schema
from hark.model.validation import problems


def form_of(kind: Any) -> Form:
    text, _ = compile_schema(kind)
    return Form(None if text is None else json.loads(text))


def named(form: Form) -> dict[str, Field]:
    return {".".join(one.path): one for one in form.all_fields()}


def kinds(form: Form) -> dict[str, str]:
    return {name: one.kind for name, one in named(form).items()}


def send(form: Form, **typed: str | list[str]) -> Any:
    """Fill it in as a browser posts it; `a__b` is the field b of a."""
    names = {"__".join(one.path): one for one in form.all_fields()}
    posted = {names[key].name: [value] if isinstance(value, str) else value for key, value in typed.items()}
    form.fill(posted)
    return form.answer()


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Address:
    street: str
    zip: str | None = None


@dataclass
class Order:
    approve: bool
    amount: int
    price: float
    size: Size
    due: date
    at: datetime
    home: Address
    second_home: Address | None = None
    tags: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    kind: Literal["order"] = "order"
    comment: str | None = None
    anything: dict[str, Any] = field(default_factory=dict)


FILLED = {
    "approve": "0", "amount": "3", "price": "2.50", "size": "1", "due": "2026-02-01", "at": "2026-02-01T10:30",
    "home__street": "Main St", "tags": " one \r\n\r\ntwo", "numbers": "1\n2", "sizes": ["0", "1"],
    "comment": "a\r\nb", "anything": '{"x": [1]}',
}  # fmt: skip


def test_d3_every_type_has_its_kind_of_field() -> None:
    assert kinds(form_of(Order)) == {
        "": "group", "approve": "choice", "amount": "number", "price": "number", "size": "choice", "due": "text",
        "at": "text", "home": "group", "home.street": "text", "home.zip": "text", "second_home": "group",
        "second_home.street": "text", "second_home.zip": "text", "tags": "list", "numbers": "list", "sizes": "checks",
        "kind": "choice", "comment": "lines", "anything": "json",
    }  # fmt: skip


def test_d3_what_is_typed_becomes_an_answer_that_matches_the_schema() -> None:
    text, decode = compile_schema(Order)
    assert text is not None
    value = send(form_of(Order), **FILLED)
    sizes = [option.value for option in named(form_of(Order))["sizes"].options]
    assert value == {
        "approve": True, "amount": 3, "price": 2.5, "size": sizes[1], "due": "2026-02-01",
        "at": "2026-02-01T10:30:00Z", "home": {"street": "Main St"}, "tags": ["one", "two"], "numbers": [1, 2],
        "sizes": sizes, "comment": "a\nb", "anything": {"x": [1]},
    }  # fmt: skip
    assert problems(text, json.dumps(value)) == []
    assert decode(json.dumps(value)).home == Address("Main St")


def test_d3_text_that_cannot_be_converted_stays_text_so_that_the_schema_refuses_it() -> None:
    form = form_of(Order)
    text, _ = compile_schema(Order)
    assert text is not None
    value = send(form, **{**FILLED, "amount": "many", "due": "soon", "size": "7", "numbers": "1\nx", "price": "nan"})
    rest = form.attach_problems(problems(text, json.dumps(value)))
    assert rest == []
    wrong = {name for name, one in named(form).items() if one.problems}
    assert wrong == {"amount", "due", "size", "numbers", "price"}
    assert named(form)["amount"].text == "many"


def test_d3_a_missing_value_is_reported_at_its_field() -> None:
    form = form_of(Order)
    text, _ = compile_schema(Order)
    assert text is not None
    form.attach_problems(problems(text, json.dumps(send(form))))
    assert {name for name, one in named(form).items() if one.problems} == {
        "approve", "amount", "price", "size", "due", "at", "home.street",
    }  # fmt: skip
    assert named(form)["amount"].problems == ["Please fill this in."]


def test_d3_a_problem_of_the_whole_answer_belongs_to_no_field() -> None:
    form = Form({"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1})
    assert form.attach_problems(["answer: {} has less than 1 property"]) == ["{} has less than 1 property."]


def test_d3_malformed_json_is_reported_at_its_field() -> None:
    form = form_of(Order)
    send(form, anything='{"a": 1, "a": 2}')
    assert form.has_problems
    assert "twice" in named(form)["anything"].problems[0]


def test_d3_without_a_schema_the_answer_is_text_or_null() -> None:
    assert kinds(Form(None)) == {"": "lines"}
    form = Form(None)
    form.fill({"v": ["yes,\r\nplease"]})
    assert form.answer() == "yes,\nplease"
    form.fill({"v": ["  "]})
    assert form.answer() is None


@pytest.mark.parametrize(
    ("schema", "kind", "typed", "answer"),
    [
        ({"type": "string"}, "text", "x", "x"),
        ({"type": "string"}, "text", "", ""),
        ({"type": "integer"}, "number", "5", 5),
        ({"type": "number"}, "number", "-1e3", -1000.0),
        ({"type": "boolean"}, "choice", "1", False),
        ({"enum": ["a", 1, None]}, "choice", "2", None),
        ({"const": {"a": 1}}, "fixed", "", {"a": 1}),
        ({"type": "array", "items": {"type": "number"}}, "list", "", []),
        ({"oneOf": [{"const": 1, "title": "One"}, {"const": 2}]}, "choice", "1", 2),
        ({"type": ["integer", "null"]}, "number", "", None),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "json", '"x"', "x"),
        ({"type": "array", "items": {"type": "object"}}, "json", "[{}]", [{}]),
        ({"type": "object"}, "json", "{}", {}),
        ({"properties": {"a": {}}, "required": ["b"]}, "json", '{"b": 1}', {"b": 1}),
        ({"type": "string", "maxLength": 500}, "lines", "x", "x"),
        ({"type": "string", "format": "textarea"}, "lines", "x", "x"),
        (True, "json", "1", 1),
        ({}, "json", "null", None),
        ({"$ref": "#/nowhere"}, "json", "1", 1),
        ({"$ref": "#"}, "json", "1", 1),
        ({"$defs": {"a/b": {"type": "integer"}}, "$ref": "#/$defs/a~1b"}, "number", "1", 1),
        ({"allOf": [{"type": "integer"}], "title": "n"}, "number", "1", 1),
    ],
)
def test_d3_a_schema_that_is_not_an_object_is_one_field(schema: Any, kind: str, typed: str, answer: Any) -> None:
    form = Form(schema)
    assert form.root.kind == kind
    form.fill({"v": [typed]})
    assert form.answer() == answer
    assert type(form.answer()) is type(answer)


ACTION = {"enum": ["approve", "reject"]}
APPROVE = {"properties": {"action": {"const": "approve"}, "output": {}}, "required": ["action"]}
REJECT = {"properties": {"action": {"const": "reject"}, "reason": {"type": "string"}}, "required": ["action"]}


@pytest.mark.parametrize(
    ("schema", "approval"),
    [
        (
            {"type": "object", "properties": {"action": ACTION, "reason": {"type": "string"}}, "required": ["action"]},
            True,
        ),
        ({"oneOf": [APPROVE, REJECT]}, True),
        ({"$defs": {"a": APPROVE}, "anyOf": [{"$ref": "#/$defs/a"}, REJECT]}, True),
        ({"oneOf": [APPROVE]}, False),
        ({"properties": {"action": ACTION, "amount": {}}}, False),
        ({"properties": {"action": {"enum": ["approve", "reject", "wait"]}}}, False),
        ({"properties": {"action": ACTION, "reason": {}}, "required": ["action", "reason"]}, False),
        ({"oneOf": [True, REJECT]}, False),
        (True, False),
        (None, False),
    ],
)
def test_d3_an_approval_is_two_buttons(schema: Any, approval: bool) -> None:
    form = Form(schema)
    assert form.is_approval is approval
    if approval:
        assert form.fields() == []
        assert form.answer() == {"action": "approve"}


def test_d3_defaults_are_filled_in() -> None:
    form = Form(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "default": 5},
                "yes": {"type": "boolean", "default": False},
                "which": {"enum": [1, True, "x"], "default": True},
                "tags": {"type": "array", "items": {"type": "string"}, "default": ["a", "b"]},
                "many": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "default": ["a", "c"]},
                "at": {"type": "string", "format": "date-time", "default": "2026-02-01T10:30:00Z"},
                "raw": {"default": {"a": 1}},
            },
        }
    )
    assert form.answer() == {
        "n": 5, "yes": False, "which": True, "tags": ["a", "b"], "many": ["a", "c"], "at": "2026-02-01T10:30:00Z",
        "raw": {"a": 1},
    }  # fmt: skip


def test_d3_limits_labels_and_hints_come_from_the_schema() -> None:
    form = Form(
        {
            "type": "object",
            "required": ["order_id"],
            "properties": {
                "order_id": {"type": "integer", "minimum": 1, "maximum": 9, "description": "From the letter"},
                "dueDate": {"type": "string", "format": "date"},
                "IBAN": {"type": "string", "title": "Account", "maxLength": 34},
            },
        }
    )
    fields = named(form)
    assert (fields["order_id"].label, fields["order_id"].hint) == ("Order id", "From the letter")
    assert fields["order_id"].limits == {"step": 1, "min": 1, "max": 9}
    assert fields["order_id"].required
    assert (fields["dueDate"].label, fields["dueDate"].input) == ("Due date", "date")
    assert (fields["IBAN"].label, fields["IBAN"].limits["maxlength"]) == ("Account", 34)


def test_d3_pydantic_models_have_fields_too() -> None:
    class Inner(pydantic.BaseModel):
        ok: bool

    class Outer(pydantic.BaseModel):
        inner: Inner
        email: str = pydantic.Field(default="", json_schema_extra={"format": "email"})

    form = form_of(Outer)
    assert kinds(form) == {"": "group", "inner": "group", "inner.ok": "choice", "email": "text"}
    assert named(form)["email"].input == "email"


def test_d3_a_recursive_schema_ends_in_a_field_for_json() -> None:
    tree = {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#"}}}
    form = Form(tree)
    assert {one.kind for one in form.all_fields()} == {"group", "text", "json"}
    wide = {"type": "object", "properties": {f"a{n}": {"type": "string"} for n in range(500)}}
    assert sum(one.kind == "text" for one in Form(wide).all_fields()) < 100


def test_d3_every_field_has_a_name_of_its_own() -> None:
    form = Form(
        {
            "type": "object",
            "properties": {
                "a/b": {"type": "string"},
                "a": {"type": "object", "properties": {"b": {"type": "string"}}},
                "a~1b": {"type": "string"},
                "": {"type": "string"},
            },
        }
    )
    names = [one.name for one in form.all_fields()]
    assert len(names) == len(set(names))
    ids = [one.id for one in form.all_fields()]
    assert len(ids) == len(set(ids))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
words = st.sampled_from(
    ["type", "properties", "items", "anyOf", "enum", "const", "$ref", "default", "required", "title", "format"]
)


@given(
    schema=st.recursive(
        json_values | st.sampled_from(["string", "integer", "object", "array", "#", "#/properties/a", "date-time"]),
        lambda inner: (
            st.dictionaries(words | st.sampled_from(["a", "b"]), inner, max_size=4) | st.lists(inner, max_size=3)
        ),
        max_leaves=20,
    ),
    typed=st.lists(st.text(max_size=8), max_size=3),
)
def test_d3_no_schema_and_no_input_breaks_the_form(schema: Any, typed: list[str]) -> None:
    try:
        compile_schema(schema if isinstance(schema, dict) else {"default": schema})
    except ValueError:
        return  # refused when the awakeable is made
    form = Form(schema if isinstance(schema, dict) else {"default": schema})
    form.fill({one.name: typed for one in form.all_fields()})
    json.dumps(form.answer())
