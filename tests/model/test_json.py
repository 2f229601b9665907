"""Reading and writing JSON: what is kept unchanged, and everything that is refused, in both directions."""

from __future__ import annotations

import copy
import json as stdlib
import math
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import count
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.model import json
from hark.model.errors import InvalidDefinition, InvalidInput, InvalidState, MalformedJson, PayloadTooLarge
from hark.model.input_checks import has_plain_parts
from hark.model.json import DEPTH, MAX_TEXT, Codec, check_text, dump, load, parse

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def same(a: Any, b: Any) -> bool:
    """Equal, and 1 is not 1.0, 0.0 is not -0.0, and keys are in the same order."""
    return repr(a) == repr(b)


# Round trips.


@given(VALUES)
def test_a_value_comes_back_as_it_went_in(value: Any) -> None:
    text = dump(value)
    assert same(load(text), value)
    assert same(parse(text), value)
    assert same(parse(text.encode()), value)
    assert same(stdlib.loads(text), value)


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_json_of_another_encoder_is_read_with_the_same_meaning(value: Any, ascii: bool, indent: int | None) -> None:
    assert same(parse(stdlib.dumps(value, ensure_ascii=ascii, indent=indent)), value)


@given(VALUES)
def test_plain_state_comes_back_as_it_went_in(value: Any) -> None:
    codec = Codec[Any](None)
    assert same(codec.load(codec.dump(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        -0.0, 1e22, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**400,
        "😀", "\u2028\u2029", "\\u0000", "\\\\u0000", '":', '{"a":1,"a":2}', "[" * 500, '\\"[{', "\x7f\x1f",
        "null", {"": ""}, {"a": None}, {'"': {"\\": [{}]}}, True, None, [], {},
    ],
    ids=count(),
)  # fmt: skip
def test_a_value_that_other_encoders_change_keeps_its_meaning(value: Any) -> None:
    for wrapped in (value, [value], {"key": value}):
        assert same(parse(dump(wrapped)), wrapped)


def test_an_escaped_emoji_is_one_character() -> None:
    assert parse(rb'"\ud83d\ude00"') == "😀"


def test_a_backslash_before_u0000_is_text_and_not_a_nul() -> None:
    assert parse(rb'"\\u0000"') == "\\u0000"
    with pytest.raises(MalformedJson, match="NUL"):
        parse(rb'"\\\u0000"')


class Colour(Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    y: float | None = None


class Money(pydantic.BaseModel):
    amount: float
    note: Any = None


@dataclass
class Line:
    money: Any
    points: list[Point] = field(default_factory=list)


def test_typed_objects_are_written_as_json_at_any_depth() -> None:
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    id = uuid.UUID(int=7)
    value = {
        "line": Line(Money(amount=1.5), [Point(1)]),
        "dated": Line({"at": at, "d": Decimal("1.10"), "set": {2}}),
        "id": id,
        "c": Colour.RED,
    }
    assert parse(dump(value)) == {
        "line": {"money": {"amount": 1.5, "note": None}, "points": [{"x": 1, "y": None}]},
        "dated": {"money": {"at": "2024-05-01T12:00:00Z", "d": "1.10", "set": [2]}, "points": []},
        "id": "00000000-0000-0000-0000-000000000007",
        "c": "red",
    }
    assert dump((1, (2,))) == "[1,[2]]"
    assert dump({1: "a"}) == '{"1":"a"}'


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"tags": {"a"}}, "contains set at $.tags, which would be read back as a list"),
        ([1, frozenset()], "contains frozenset at $[1], which would be read back as a list"),
        ({"at": datetime(2024, 5, 1)}, "contains datetime.datetime at $.at, which would be read back as text"),
        ({"day": date(2024, 5, 1)}, "write .isoformat() yourself"),
        ({"for": timedelta(1)}, "write .total_seconds() yourself"),
        (Decimal("1.10"), "contains decimal.Decimal at $, which would be read back as text; write str() yourself"),
        ({date(2024, 5, 1): 1}, "contains datetime.date at $.2024-05-01"),
        ({**dict.fromkeys("abcdefghijklmnopqrstuvwxyz"), "at": time(1)}, "contains datetime.time at $.at"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        dump(value, what="payload")
    assert f"The payload {problem}" in str(refused.value) or problem in str(refused.value)
    assert "use a dataclass, msgspec Struct or pydantic model that has a field of this type" in str(refused.value)
    with pytest.raises(InvalidState):
        Codec[Any]().dump(value)


# What dump refuses.


class Opaque:
    pass


class Explosive(pydantic.BaseModel):
    @pydantic.model_serializer
    def burn(self) -> dict[str, int]:
        raise KeyError("fuse")


def looped() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, r"NaN or an infinity at \$, which"),
        (
            {"a": None, "b": [1, {"c": math.inf}]},
            r"NaN or an infinity at \$\.b\[1\]\.c, which JSON cannot represent; send None",
        ),
        ({"a": -math.inf}, r"at \$\.a,"),
        ([Point(1, math.nan)], r"at \$\[0\]\.y,"),
        (Line(Money(amount=math.nan)), r"at \$\.money\.amount,"),
        (Money(amount=1, note=[math.inf]), r"at \$\.note\[0\],"),
        ({"a": "x\0y"}, r"a NUL character at \$\.a; remove it"),
        ({"a\0": 1}, r"a NUL character at \$\.a\\0; remove it"),
        ("\\\0", "a NUL character"),
        ({"a": ["\ud800"]}, r"half of a surrogate pair at \$\.a\[0\]; decode it"),
        ({"\udfff": 1}, r"half of a surrogate pair at \$\.\\udfff; decode it"),
        ({"a": Line([Opaque()])}, r"contains .*\.Opaque at \$\.a\.money\[0\], which has no JSON; use"),
        (Opaque, "contains builtins.type|contains type"),
        (1 + 2j, r"contains complex at \$, which has no JSON; use"),
        (Money(amount=1, note=Opaque()), "cannot be written as JSON: .*Opaque.*; change it"),
        ([Explosive()], "cannot be written as JSON: .*fuse.*; change it"),
        ({None: 1}, "NoneType"),
        ({(1, 2): 1}, "tuple"),
        ({1: "a", "1": "b"}, 'the key "1" twice in one object: .* use str keys only'),
        ({"deep": [{"x": {2.5: 1, "2.5": 1}}]}, 'the key "2.5" twice in one object'),
        (10**5000, "cannot be written as JSON: .*digits"),
        (-(10**4299), "cannot be read back: Integer value out of range"),
        (looped(), "nests too deep or contains itself; flatten it"),
        (nested(5000), "nests too deep or contains itself; flatten it"),
        (nested(DEPTH + 1), f"nests deeper than {DEPTH} levels; flatten it"),
        ({"a": msgspec.Raw(b'{"b":1,"b":2}')}, 'the key "b" twice'),
        (msgspec.Raw(b"NaN"), "cannot be read back"),
    ],
    ids=count(),
)
def test_dump_refuses_what_json_or_a_store_would_change(value: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        dump(value, what="result")
    assert str(caught.value).startswith("The result ")
    assert type(caught.value) is InvalidInput
    with pytest.raises(InvalidState, match=problem):
        Codec[Any](None).dump(value)


def test_brackets_count_as_levels_only_outside_strings() -> None:
    wide = [{"text": "]}[{" * 3, 'quote"\\': []}] * 300
    assert parse(dump(wide)) == wide
    assert parse(dump(nested(DEPTH))) == nested(DEPTH)
    hidden = ["]" * 500, nested(DEPTH)]
    with pytest.raises(InvalidInput, match="nests deeper"):
        dump(hidden)
    with pytest.raises(MalformedJson, match="nests deeper"):
        parse(stdlib.dumps(hidden))


def test_the_limit_is_in_bytes_of_utf8_and_inclusive() -> None:
    assert dump("é" * 4, limit=10) == '"éééé"'
    with pytest.raises(PayloadTooLarge, match="The payload is 12 bytes of JSON and 10 are allowed; store it") as caught:
        dump("é" * 5, limit=10)
    assert (caught.value.size, caught.value.limit) == (12, 10)
    assert parse('"éééé"', limit=10) == "éééé"
    with pytest.raises(PayloadTooLarge, match="The body is 12 bytes"):
        parse('"ééééé"', limit=10)
    with pytest.raises(PayloadTooLarge, match="The state is 12 bytes"):
        Codec[Any](None).dump("ééééé", 10)


def test_text_for_people_has_one_limit_and_may_be_empty() -> None:
    longest = "x" * (MAX_TEXT - 2)  # and two quotation marks
    assert check_text(longest, "title") is longest
    assert check_text("", "error") == ""
    with pytest.raises(PayloadTooLarge, match="The title is 65537 bytes of JSON and 65536 are allowed; shorten it"):
        check_text(longest + "x", "title")


@pytest.mark.parametrize(
    ("text", "problem"), [(5, "The error must be text, not int; pass a str"), ("a\0", "NUL"), ("\ud800", "surrogate")]
)
def test_text_that_a_store_cannot_keep_is_refused(text: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        check_text(text, "error")


# What parse refuses.


@pytest.mark.parametrize(
    ("data", "line", "column", "problem"),
    [
        (b"", 1, 1, "expecting value"),
        (b"{", 1, 2, "expecting property name"),
        (b'{"a": 1,\n "b" 2}', 2, 6, "expecting ':' delimiter"),
        (b"[1] x", 1, 5, "extra data"),
        (b"[1]\n[2]", 2, 1, "extra data"),
        (b"{'a': 1}", 1, 2, "expecting property name"),
        (b"[1,]", 1, 4, ""),
        (b"01", 1, 2, "extra data"),
        (b"tru", 1, 1, "expecting value"),
        (b'"a', 1, 1, "unterminated string"),
        (b'"\\x"', 1, 2, "escape"),
        (b'"a\x00"', 1, 3, "control character"),
        (b'"a\nb"', 1, 3, "control character"),
        (b"\xef\xbb\xbf{}", 1, 1, "BOM"),
        (b"NaN", 1, 1, "NaN is not a JSON number"),
        (b'{"a":\n [1, -Infinity]}', 2, 6, "-Infinity is not a JSON number"),
        (b"[Infinity]", 1, 2, "Infinity is not a JSON number"),
        (b'{"a": 1e999}', 1, 7, "the number 1e999 is out of range"),
        (b"-1e999", 1, 1, "the number -1e999 is out of range"),
        (b"1" + b"0" * 400 + b".0", 1, 1, r"the number 10+\.\.\. is out of range"),
        (b"[" + b"9" * 5000 + b"]]", 1, 2, r"the number 9+\.\.\. is out of range"),
        (b'{"a": 1, "a": 2}', 1, 10, 'the key "a" twice'),
        (b'{"a": 1,\n"b": [{"c": 1, "\\u0063": 2}]}', 2, 16, 'the key "c" twice'),
        (b'{"": {}, "": {}}', 1, 10, 'the key "" twice'),
        (b'["a\\u0000b"]', 1, 2, "NUL"),
        (b'{"\\u0000": 1}', 1, 2, "NUL"),
        (b'["\\ud800"]', 1, 2, "half of a surrogate pair"),
        (b'["\\ud800\\u0041"]', 1, 2, "half of a surrogate pair"),
        (b'{"\\ude00": 1}', 1, 2, "half of a surrogate pair"),
        ('"\ud800"', 1, 2, "half of a surrogate pair"),
        (b'["\xff"]', 1, 3, "not UTF-8"),
        (b'{"\xc3": 1}', 1, 3, "not UTF-8"),
        (b'"\xed\xa0\x80"', 1, 2, "not UTF-8"),
        (b'"\xc0\x80"', 1, 2, "not UTF-8"),
        ('"é\n'.encode("latin-1"), 1, 2, "not UTF-8"),
    ],
    ids=count(),
)
def test_parse_says_where_and_what_is_broken(data: bytes | str, line: int, column: int, problem: str) -> None:
    with pytest.raises(MalformedJson, match=problem) as caught:
        parse(data, what="payload")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"line {line} column {column}" in str(caught.value)
    assert str(caught.value).startswith("The payload ")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1),
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b'["\\"]",' + b"[" * 1_000 + b"]" * 1_000 + b"]",
    ],
    ids=count(),
)
def test_parse_refuses_very_deep_nesting(data: bytes) -> None:
    with pytest.raises(MalformedJson, match=f"The body nests deeper than {DEPTH} levels; flatten it"):
        parse(data)


@pytest.mark.parametrize("data", [None, 5, {"a": 1}, bytearray(b"{}")])
def test_parse_accepts_only_text(data: Any) -> None:
    with pytest.raises(InvalidInput, match=r"The body must be JSON as bytes or str, not .*; encode it first"):
        parse(data)


@given(st.binary() | st.text(st.characters()) | st.text('{}[]":,\\u0d8-+e1.nNaltrufs \n'))
def test_parse_never_raises_anything_but_malformed_json_and_agrees_with_dump(data: bytes | str) -> None:
    try:
        value = parse(data)
    except MalformedJson:
        return
    assert same(parse(dump(value)), value)


# Typed state.


@dataclass
class Order:
    order: int
    n: int = 0
    at: datetime | None = None
    note: Any = None


class OrderStruct(msgspec.Struct):
    order: int
    n: int = 0
    at: datetime | None = None
    note: Any = None


class OrderModel(pydantic.BaseModel):
    order: int
    n: int = 0
    at: datetime | None = None
    note: Any = None


AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
each = pytest.mark.parametrize("type_", [Order, OrderStruct, OrderModel])


@each
def test_a_typed_state_comes_back_as_its_type(type_: Any) -> None:
    codec = Codec(type_)
    state = type_(order=42, n=3, at=AT, note={"a": [1.5, None, "😀"]})
    assert codec.load(codec.dump(state)) == state
    assert codec.load(codec.dump(state).encode()) == state
    assert codec.accepts(state)
    assert not codec.accepts({"order": 42})


@each
def test_an_input_becomes_a_state_with_its_defaults(type_: Any) -> None:
    codec = Codec(type_)
    assert codec.build({"order": 42}) == type_(order=42)
    assert codec.build({"order": 42, "at": AT}) == type_(order=42, at=AT)
    assert codec.build(Order(order=42, n=1)) == type_(order=42, n=1)


@each
def test_an_instance_as_input_is_copied(type_: Any) -> None:
    given = type_(order=42, note=[1])
    built = Codec(type_).build(given)
    assert built == given
    assert built is not given
    assert built.note is not given.note


@each
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"order": "many"}, r"\$\.order"),
        ({}, "order"),
        (None, "order"),
        ([1], "array|list|dictionary|object"),
        ({"order": 1, "at": "never"}, r"\$\.at"),
    ],
)
def test_an_input_that_does_not_match_is_refused_and_the_field_named(type_: Any, value: Any, path: str) -> None:
    with pytest.raises(
        InvalidInput, match=rf"The input does not match {type_.__name__}: .*{path}.*; correct"
    ) as caught:
        Codec(type_).build(value)
    assert type(caught.value) is InvalidInput


@each
def test_an_input_is_checked_like_a_payload(type_: Any) -> None:
    codec = Codec(type_)
    with pytest.raises(InvalidInput, match=r"The input contains NaN or an infinity at \$\.note"):
        codec.build({"order": 1, "note": math.nan})
    with pytest.raises(PayloadTooLarge):
        codec.build({"order": 1, "note": "x" * 100}, limit=100)


@each
@pytest.mark.parametrize("value", [{"order": 42}, None, 7, Point(1), Order])
def test_a_state_of_another_type_is_refused_naming_both(type_: Any, value: Any) -> None:
    other = type(value).__name__
    with pytest.raises(InvalidState, match=rf"The state must be {type_.__name__}, not {other}; change ctx.state"):
        Codec(type_).dump(value)


@each
def test_a_field_of_the_wrong_type_is_refused_when_it_is_written_not_when_it_is_read(type_: Any) -> None:
    state = type_(order=42)
    state.n = "three"
    with pytest.raises(InvalidState, match=r"The state cannot be read back: .*\$\.n"):
        Codec(type_).dump(state)


@each
@pytest.mark.parametrize(
    ("note", "problem"),
    [
        (math.nan, r"NaN or an infinity at \$\.note"),
        ("\0", r"NUL character at \$\.note"),
        ("\ud800", "surrogate"),
        (Opaque(), "Opaque"),
        (nested(DEPTH + 1), "nest|depth"),
        (looped(), "itself|[Cc]ircular"),
        ({1: 1, "1": 2}, 'the key "1" twice'),
    ],
)
def test_a_state_that_cannot_be_serialised_is_refused(type_: Any, note: Any, problem: str) -> None:
    with pytest.raises(InvalidState, match=problem):
        Codec(type_).dump(type_(order=1, note=note))


@each
def test_a_state_over_the_limit_is_refused(type_: Any) -> None:
    with pytest.raises(PayloadTooLarge, match="The state is"):
        Codec(type_).dump(type_(order=1, note="x" * 100), 100)


@each
@pytest.mark.parametrize("text", ['{"order":"x"}', '{"n":1}', "[]", "null", "{"])
def test_stored_text_that_no_longer_fits_the_code_is_an_invalid_state(type_: Any, text: str) -> None:
    with pytest.raises(
        InvalidState, match=f"The stored state does not match {type_.__name__}: .*; give new fields a default"
    ):
        Codec(type_).load(text)


def test_without_a_type_none_becomes_an_empty_dict_and_any_json_is_accepted() -> None:
    codec = Codec[Any](None)
    assert codec.build(None) == {}
    assert codec.build([1]) == [1]
    assert codec.accepts(None)
    assert codec.dump(None) == "null"
    given = {"a": [1]}
    assert codec.build(given) == given
    assert codec.build(given)["a"] is not given["a"]


def test_a_subclass_of_the_state_is_accepted() -> None:
    @dataclass
    class Special(Order):
        extra: int = 1

    assert Codec(Order).load(Codec(Order).dump(Special(order=1))) == Order(order=1)


def test_what_post_init_raises_is_an_invalid_state_whatever_it_is() -> None:
    codec = Codec(Fussy)
    with pytest.raises(InvalidState, match="even numbers only"):
        codec.load('{"n":1}')
    with pytest.raises(InvalidState, match="KeyError: 'three'"):
        codec.load('{"n":3}')
    with pytest.raises(InvalidInput, match="KeyError: 'three'"):
        codec.build({"n": 3})


@dataclass
class Fussy:
    n: int

    def __post_init__(self) -> None:
        if self.n == 3:
            raise KeyError("three")
        if self.n % 2:
            raise ValueError("even numbers only")


class Aliased(pydantic.BaseModel, extra="forbid"):
    amount: int = pydantic.Field(alias="Amount")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.amount


@dataclass
class Holder:
    inner: Aliased


def test_a_pydantic_model_with_aliases_and_computed_fields_comes_back_also_inside_a_dataclass() -> None:
    model = Aliased(Amount=3)
    assert Codec(Aliased).load(Codec(Aliased).dump(model)) == model
    assert Codec(Aliased).build(model) == model
    assert Codec(Holder).load(Codec(Holder).dump(Holder(model))) == Holder(model)
    with pytest.raises(InvalidInput, match=r"Field required - at `\$\.Amount` - at `\$\.inner`"):
        Codec(Holder).build({"inner": {}})


class Machine:
    @dataclass
    class Item:
        n: int

    @dataclass
    class State:
        items: list[Machine.Item]

    @dataclass
    class Unqualified:
        items: list[Item]  # type: ignore[name-defined]  # noqa: F821 - what is wrong is the point


def test_a_state_nested_in_a_class_may_name_its_neighbours_by_qualified_name() -> None:
    codec = Codec(Machine.State).prepare()
    state = Machine.State([Machine.Item(1)])
    assert codec.load(codec.dump(state)) == state
    assert codec.name == "Machine.State"


def test_a_state_defined_inside_a_function_works_with_builtin_hints() -> None:
    @dataclass
    class State:
        items: list[int]
        by_name: dict[str, float | None]

    codec = Codec(State).prepare()
    state = State([1], {"a": None})
    assert codec.load(codec.dump(state)) == state
    assert codec.name == "State"


class Unfinished(pydantic.BaseModel):
    later: Nowhere  # type: ignore[name-defined]  # noqa: F821 - what is wrong is the point


@pytest.mark.parametrize(("type_", "name"), [(Machine.Unqualified, "Item"), (Unfinished, "Nowhere")])
def test_hints_that_cannot_be_resolved_are_an_invalid_definition_that_says_how_to_write_them(
    type_: Any, name: str
) -> None:
    codec = Codec(type_)  # not yet: the class around it may still be under definition
    with pytest.raises(InvalidDefinition, match=rf"{type_.__name__}.*{name}.*; ") as caught:
        codec.prepare()
    assert len(caught.value.problems) == 1
    with pytest.raises(InvalidDefinition):
        codec.load("{}")


@dataclass
class Ambiguous:
    either: Order | Line


@dataclass
class Unreadable:
    thing: Opaque


def test_a_type_that_json_cannot_tell_apart_is_an_invalid_definition() -> None:
    with pytest.raises(InvalidDefinition, match=r"Ambiguous cannot be a state: .*union"):
        Codec(Ambiguous).prepare()


def test_a_field_that_json_cannot_hold_is_named() -> None:
    with pytest.raises(InvalidState, match=r"Opaque at \$\.thing, which has no JSON"):
        Codec(Unreadable).dump(Unreadable(Opaque()))
    with pytest.raises(InvalidInput, match=r"Opaque cannot be read from JSON; use .* - at `\$\.thing`"):
        Codec(Unreadable).build({"thing": 1})


class Basket(TypedDict):
    apples: int


def test_dicts_with_a_declared_shape_are_states_too() -> None:
    assert Codec(Basket).build({"apples": 1}) == {"apples": 1}
    with pytest.raises(InvalidState, match=r"\$\.apples"):
        Codec(Basket).dump({"apples": "x"})  # type: ignore[typeddict-item]
    counts = Codec(dict[str, int])
    assert counts.load(counts.dump({"a": 1})) == {"a": 1}
    with pytest.raises(InvalidState, match=r"The state must be dict\[str, int\], not list"):
        counts.dump([])  # type: ignore[arg-type]


@given(st.builds(Order, order=st.integers(), n=st.integers(), note=VALUES))
def test_any_state_of_json_values_comes_back(state: Order) -> None:
    codec = Codec(Order)
    before = copy.deepcopy(state)
    assert same(codec.load(codec.dump(state)), state)
    assert same(state, before)


# What a typed input or state loses.


@each
def test_a_field_that_does_not_restore_a_type_refuses_it(type_: Any) -> None:
    codec = Codec(type_)
    assert codec.load(codec.dump(type_(order=1, at=AT))).at == AT
    with pytest.raises(InvalidState, match=r"The state contains datetime\.datetime at \$\.note\.at, which would be"):
        codec.dump(type_(order=1, note={"at": AT}))
    with pytest.raises(InvalidInput, match=r"The input contains set at \$\.note, which would be read back as a list"):
        codec.build({"order": 1, "note": {1, 2}})


@each
def test_an_input_with_an_unknown_key_is_refused_and_a_stored_state_with_one_is_loaded(type_: Any) -> None:
    codec = Codec(type_)
    with pytest.raises(
        InvalidInput, match=r"The input has the unknown key \$\.ordr; correct the name, or add the field"
    ):
        codec.build({"order": 1, "ordr": 2})
    assert codec.load('{"order": 1, "removed": 2}') == type_(order=1)


class Renamed(msgspec.Struct, rename="camel", tag="renamed"):
    first_name: str
    inner: Point | None = None


class Labelled(pydantic.BaseModel):
    name: str = pydantic.Field(alias="Name")
    other: str = pydantic.Field("", validation_alias=pydantic.AliasChoices("o", pydantic.AliasPath("deep", "o")))


class Extra(pydantic.BaseModel, extra="allow"):
    name: str


class Ignored(pydantic.BaseModel, extra="ignore"):
    name: str


class Normalised(pydantic.BaseModel):
    name: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def join(cls, data: Any) -> Any:
        return {"name": f"{data['first']} {data['last']}"}


class Doubled(pydantic.BaseModel):
    number: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.number


class Sizes(TypedDict):
    small: int


@dataclass
class Hamper:
    points: list[Point]
    by_day: dict[date, int] = field(default_factory=dict)
    sizes: Sizes | None = None
    days: set[date] = field(default_factory=set)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Renamed, {"firstName": "Ann", "type": "renamed", "inner": {"x": 1}}),
        (Labelled, {"Name": "Ann", "o": "x"}),
        (Labelled, {"Name": "Ann", "deep": {"o": "x"}}),
        (Extra, {"name": "Ann", "age": 5}),
        (Ignored, {"name": "Ann", "age": 5}),
        (Normalised, {"first": "Ann", "last": "Lee"}),
        (Doubled, Doubled(number=1).model_dump()),
        (Hamper, {"points": [{"x": 1}], "by_day": {date(2024, 5, 1): 1}, "sizes": {"small": 1}, "days": {AT.date()}}),
        (Hamper, {"points": [Point(1)], "by_day": {"2024-05-01": 1}, "days": ["2024-05-01"]}),
    ],
)
def test_keys_and_types_that_a_type_knows_are_accepted(type_: Any, value: Any) -> None:
    assert isinstance(Codec(type_).build(value), type_)


@pytest.mark.parametrize(
    ("type_", "value", "path"),
    [
        (Renamed, {"firstName": "Ann", "type": "renamed", "first_name": "Ann"}, "$.first_name"),
        (Renamed, {"firstName": "Ann", "type": "renamed", "inner": {"x": 1, "z": 1}}, "$.inner.z"),
        (Labelled, {"Name": "Ann", "nmae": "x"}, "$.nmae"),
        (Hamper, {"points": [{"x": 1}, {"x": 1, "z": 2}]}, "$.points[1].z"),
        (Hamper, {"points": [], "sizes": {"small": 1, "large": 2}}, "$.sizes.large"),
    ],
)
def test_an_unknown_key_is_found_at_any_depth(type_: Any, value: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Codec(type_).build(value)
    assert f"the unknown key {path};" in str(refused.value)


def test_an_equality_that_raises_does_not_disturb_the_comparison() -> None:
    class Touchy(dict[str, Any]):
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

    assert dump({"a": Touchy(b=[])}) == '{"a":{"b":[]}}'


@dataclass
class Closed:
    """Nothing in it is plain JSON."""

    n: int
    at: datetime
    inner: list[Point | None]
    again: Closed | None = None


@pytest.mark.parametrize(
    ("type_", "plain"), [(Closed, False), (Point, False), (Order, True), (Line, True), (OrderModel, True), (dict, True)]
)
def test_only_types_with_plain_parts_are_searched_for_look_alikes(type_: Any, plain: bool) -> None:
    assert has_plain_parts(type_) is plain


def test_an_input_that_comes_back_equal_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(json, "look_alike", refuse)
    monkeypatch.setattr(json, "unknown_key", refuse)
    json.check_input({"rows": [{"a": [1, {"b": 2}]}]}, {"rows": [{"a": [1, {"b": 2}]}]}, "input")
