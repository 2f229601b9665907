"""Expressions: what they mean, what they refuse, and that no text and no value can make them do anything else."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.programs.expressions import ExpressionError, compile_condition, compile_expression, compile_template, names
from hark.programs.expressions.budget import MAX_RESULT

VARIABLES: dict[str, Any] = {
    "inputs": {"service": "api", "count": 3, "ratio": 0.5, "on": True, "none": None, "list": [3, 1, 2], "my-key": 7},
    "tasks": {"build-image": {"output": {"id": 42, "tags": ["a", "b"]}, "status": "completed", "error": None}},
    "item": "it's",
    "iteration": 2,
}

VALUES = [
    ("1", 1),
    ("1.0", 1.0),
    ("1e3", 1000.0),
    ("-2", -2),
    (r"'a\'b\n\u00e9\ud83d\ude00'", "a'b\né😀"),
    ('"}}"', "}}"),
    ("inputs.service", "api"),
    ("inputs['service']", "api"),
    ("inputs.my-key", 7),
    ("inputs.count - 1", 2),
    ("iteration-1", 1),
    ("tasks.build-image.output.tags[-1]", "b"),
    ("1 + 2 * 3", 7),
    ("(1 + 2) * 3", 9),
    ("7 / 2", 3.5),
    ("6 / 2", 3),
    ("7 // 2", 3),
    ("-7 % 3", 2),
    ("2 - 1 - 1", 0),
    ("'a' + 'b'", "ab"),
    ("[1] + [2, 3,]", [1, 2, 3]),
    ("{'a': [1], 'b': {'c': null}}", {"a": [1], "b": {"c": None}}),
    ("1 == 1.0", True),
    ("[1, {'a': 2}] == [1.0, {'a': 2}]", True),
    ("[1] == [true]", False),
    ("null == inputs.none", True),
    ("inputs.count != null", True),
    ("3 in inputs.list and 'x' not in inputs.list", True),
    ("'pi' in inputs.service", True),
    ("'count' in inputs", True),
    ("not inputs.on or inputs.none", False),
    ("not 1 == 2", True),
    ("'yes' if inputs.count > 2 else 'no'", "yes"),
    ("inputs.count > 5 ? 'yes' : inputs.on ? 'maybe' : 'no'", "maybe"),
    ("{'a' : inputs.on ? 1 : 2}", {"a": 1}),
    ("false and 1 / 0 == 1", False),
    ("inputs.list | length + 1", 4),
    ("inputs.missing | default('x') | upper", "X"),
    ("default(inputs.none.deeper[0], 5)", 5),
    ("inputs.list[7] | default(null)", None),
    ("inputs.list | sort | join(', ')", "1, 2, 3"),
    ("inputs.list | first", 3),
    ("inputs.list | last", 2),
    ("[] | first", None),
    ("min(inputs.list) + max(1, 5) + sum(inputs.list)", 12),
    ("round(2.5)", 3),
    ("round(-2.5)", -3),
    ("round(2.345, 2)", 2.35),
    ("round(1e300, 2)", 1e300),
    ("floor(-1.5) + ceil(1.2)", 0),
    ("keys({'b': 1, 'a': 2})", ["b", "a"]),
    ("values({'b': 1})", [1]),
    ("'a,b' | split(',') | reverse", ["b", "a"]),
    ("'aXbX' | replace('X', '-') | trim", "a-b-"),
    ("json({'a': [1, 1.0, null]})", '{"a":[1,1.0,null]}'),
    ("from_json('[1]')", [1]),
    ("number(' 42 ') + number('1.5')", 43.5),
    ("text(1.0) + text(null) + text('x')", "1.0nullx"),
    ("contains(inputs.list, 3) and starts_with('abc', 'a') and ends_with('abc', 'c')", True),
    ("empty('') and empty([]) and empty(null) and not empty(0)", True),
]


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_the_value_of(text: str, expected: Any) -> None:
    value = compile_expression(text).evaluate(VARIABLES)
    assert value == expected
    assert type(value) is type(expected)
    assert compile_template("{{" + text + "}}").render(VARIABLES) == expected


JUEL = [
    ("${inputs.count == 3 && !(inputs.count gt 5)}", True),
    ("${not empty inputs.list and inputs['on']}", True),
    ("#{inputs.count mod 2 eq 1 ? 'odd' : \"even\"}", "odd"),
    ("${7 div 2}", 3.5),
    ("alert-${item}-${iteration}", "alert-it's-2"),
    (r"\${x} costs ${iteration}$", "${x} costs 2$"),
    ("${1 < 2 == true}", True),
    (r"${'a\'b'}", "a'b"),
    ("${inputs.count == '3' and ' 3.0 ' eq inputs.count and inputs.count != '4'}", True),
    ("${inputs.on == 'true' and 'no' == false and inputs.on ne 'no'}", True),
    ("${inputs.count < '10' and '10' >= inputs.count}", True),
    ("${'10' < '9'}", True),
    ("${inputs.none > 5 or inputs.none < 5 or 5 <= inputs.none}", False),
    ("${inputs.none <= null}", True),
]


@pytest.mark.parametrize(("text", "expected"), JUEL)
def test_the_value_in_juel_of(text: str, expected: Any) -> None:
    assert compile_template(text, "juel").render(VARIABLES) == expected


WRONG = [
    ("", "value is expected", 0),
    ("1 +", "not the end", 3),
    ("1 2", "not 2", 2),
    ("a &&b", "Write 'and'", 2),
    ("a = 1", "Write '=='", 2),
    ("1 < 2 < 3", "chained", 6),
    ("(1", "not closed", 0),
    ("[1)", "where ']'", 2),
    ("'abc", "not closed", 0),
    (r"'a\x'", "not an escape", 2),
    (r"'\ud800'", "surrogate", 0),
    (r"'\u0000'", "NUL", 0),
    ("1e999", "too large", 0),
    ("12ab", "not a number", 0),
    ("a.", "after '.'", 2),
    ("a | lenght", "did you mean 'length'", 4),
    ("length()", "length(text, list or object)", 0),
    ("x if y", "'else'", 6),
    ("a @ b", "not part of the language", 2),
    ("upper(x | raw)", "last filter", 10),
    ("__import__('os')", "no function '__import__'", 0),
    ("x.__class__(1)", "not '('", 11),
    ("1 + not x", "parentheses", 4),
    ("(" * 60 + ")" * 60, "nested", 50),
    ("a" + ".b" * 60, "nested", 19),
    ("1 +" * 10_000 + "1", "parts", 25_000 - 1),
    ("'" + "a" * 70_000 + "'", "characters", 0),
]


@pytest.mark.parametrize(("text", "problem", "position"), WRONG, ids=[text[:20] for text, _, _ in WRONG])
def test_a_mistake_is_refused_with_its_position(text: str, problem: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text)
    assert problem in str(caught.value)
    if position < 20_000:
        assert caught.value.position == position
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.expression, again.position) == (str(caught.value), text, caught.value.position)


FAILING = [
    ("inputz.count", "did you mean 'inputs'", 0),
    ("1 + inputs.coumt", "did you mean 'count'", 10),
    ("inputs.count-iteration", "spaces around '-'", 6),
    ("inputs.service.x", "only an object has keys", 14),
    ("inputs.list[3]", "its length is 3", 11),
    ("inputs.list['a']", "only an object", 11),
    ("inputs.list[1.0]", "whole number", 11),
    ("inputs.service[0]", "only a list", 14),
    ("1 + '1'", "Use text(…)", 2),
    ("true + 1", "does not work", 5),
    ("1 < 'a'", "does not compare", 2),
    ("true < false", "does not compare", 5),
    ("null < 1", "does not compare", 5),
    ("inputs.count == '3'", "number(…) or text(…)", 13),
    ("true == 1", "never equal", 5),
    ("1 and true", "needs true or false", 0),
    ("'x' ? 1 : 2", "needs true or false", 0),
    ("1 / 0", "Division by zero", 2),
    ("1.5 % 0", "Division by zero", 4),
    ("9223372036854775807 + 1", "64 bits", 20),
    ("1e308 * 10", "finite", 6),
    ("-'a'", "needs a number", 0),
    ("upper(1)", "upper needs a text, not a number", 0),
    ("max([1, 'a'])", "numbers only", 0),
    ("min([])", "empty list", 0),
    ("number('x1')", "not a number", 0),
    ("from_json('{')", "from_json", 0),
    ("{1: 2}", "key of an object", 1),
    ("1 in 5", "needs a text or a list", 2),
]


@pytest.mark.parametrize(("text", "problem", "position"), FAILING, ids=[text for text, _, _ in FAILING])
def test_a_value_that_does_not_fit_is_an_error_with_its_position(text: str, problem: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(text).evaluate(VARIABLES)
    assert problem in str(caught.value)
    assert caught.value.position == position


def test_a_secret_text_is_not_in_the_error() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression("inputs.token + 1").evaluate({"inputs": {"token": "hunter2"}})
    assert "hunter2" not in str(caught.value)


def test_a_condition_is_true_false_or_null() -> None:
    assert compile_condition("{{ inputs.service != 'docs' }}").holds(VARIABLES)
    assert compile_condition("inputs.service != 'docs'").holds(VARIABLES)
    assert not compile_condition("inputs.none").holds(VARIABLES)
    assert not compile_condition("${inputs.count > 3}", "juel").holds(VARIABLES)
    for text in ("inputs.service", "inputs.count", "inputs.list"):
        with pytest.raises(ExpressionError, match="needs true or false"):
            compile_condition(text).holds(VARIABLES)
    with pytest.raises(ExpressionError, match="one expression"):
        compile_condition("{{ inputs.on }} or not")


def test_a_template_is_a_value_or_a_text() -> None:
    assert compile_template("{{ inputs.list }}").render(VARIABLES) == [3, 1, 2]
    assert compile_template("{{ inputs.list }}").render_text(VARIABLES) == "[3,1,2]"
    assert compile_template("n={{ inputs.count }} {{inputs.none}}").render(VARIABLES) == "n=3 null"
    assert compile_template("plain }} text").render({}) == "plain }} text"
    assert compile_template("-f '{{ '{{' }}.Names}}'").render({}) == "-f '{{.Names}}'"
    with pytest.raises(ExpressionError, match=r"To write \{\{ itself"):
        compile_template("docker ps -f '{{.Names}}'")


def test_names_are_the_variables_with_their_constant_keys() -> None:
    template = compile_template("{{ tasks.a-b.output.id }} {{ tasks['c d'][inputs.x].y | default(item) }}")
    assert names(template) == {
        ("tasks", ("a-b", "output", "id")): 3,
        ("tasks", ("c d",)): 29,
        ("inputs", ("x",)): 42,
        ("item", ()): 64,
    }
    assert names(compile_condition("event.id == [tasks.a.output][0]")) == {
        ("event", ("id",)): 0,
        ("tasks", ("a", "output")): 13,
    }


def test_the_budget_ends_what_would_take_too_long() -> None:
    long, many = "x" * 1_000_000, list(range(50_000))
    for text in (
        "+".join(["sum(many)"] * 5),
        " + ".join(["long"] * 10),
        "[" + ",".join(["json(long)"] * 30) + "]",
        "join(many, long)",
        "replace(long, 'x', long)",
        "[" + ",".join(["many == other"] * 5) + "]",
    ):
        with pytest.raises(ExpressionError, match=r"too many steps|too much text"):
            compile_expression(text).evaluate({"long": long, "many": many, "other": list(many)})


@pytest.mark.parametrize(
    "text", ["part + part", "join([part, part])", "replace(twos, '2', '22')", "json([part, part])"]
)
def test_no_text_is_longer_than_a_result_may_be(text: str) -> None:
    """The characters that an evaluation may spend would allow for it."""
    half = MAX_RESULT // 2
    expression = compile_expression(text)
    fits = expression.evaluate({"part": "x" * (half - 9), "twos": "2" * (half - 9)})
    assert MAX_RESULT - 20 < len(fits) <= MAX_RESULT
    with pytest.raises(ExpressionError, match="too much text"):
        expression.evaluate({"part": "x" * (half + 1), "twos": "2" * (half + 1)})


def test_default_does_not_look_for_the_name_that_was_meant() -> None:
    class Keys(dict[str, int]):
        def __iter__(self) -> Any:
            raise AssertionError("a missing key is compared with the others, which takes long")

    for text in ("inputs.missing | default(5)", "default(missing, 5)", "[inputs['missing']] | first | default(5)"):
        assert compile_expression(text).evaluate({"inputs": Keys(found=1)}) == 5
    with pytest.raises(ExpressionError, match="did you mean 'found'"):
        compile_expression("inputs.fuond").evaluate({"inputs": {"found": 1}})


def test_a_long_sum_needs_no_depth() -> None:
    assert compile_expression(" + ".join(["1"] * 4_000)).evaluate({}) == 4_000
    assert compile_expression(" and ".join(["true"] * 4_000)).evaluate({}) is True


FRAGMENTS = st.sampled_from(
    [*"()[]{}.,:?|+-*/%<>=!'\"\\ #$", "{{", "}}", "${", "==", "!=", "<=", "//", "&&", "||", " and ", " or ", " not ",
     " in ", " if ", " else ", "true", "null", "1", "2.5", "1e9", "'a'", '"b"', "inputs", ".list", ".count", "[0]",
     "x", "tasks", " | default(1)", " | json", " | length", "sum(", "join(", "upper(", "round(", "from_json(", "empty ",
     "\\u12", "é"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=500, deadline=None)
@given(st.lists(FRAGMENTS, max_size=25).map("".join) | st.text(max_size=40), JSON)
def test_any_text_gives_a_value_or_an_expression_error(text: str, value: Any) -> None:
    variables = {"inputs": {"list": [value], "count": 1}, "x": value, "tasks": {}}
    uses = [
        lambda syntax: compile_expression(text, syntax).evaluate(variables),
        lambda syntax: compile_condition(text, syntax).holds(variables),
        lambda syntax: compile_template(text, syntax).render(variables),
        lambda syntax: compile_template(text, syntax).render_shell(variables),
        lambda syntax: names(compile_template(text, syntax)),
    ]
    for syntax in ("hark", "juel"):
        for use in uses:
            with suppress(ExpressionError):
                use(syntax)
