"""A shortcut of FEEL and the evaluator agree about every value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hark.programs.expressions import ExpressionError
from hark.programs.expressions.feel.evaluator import FeelEvaluation
from hark.programs.expressions.feel.parser import parse
from hark.programs.expressions.feel.shortcuts import shortcut
from hark.programs.expressions.sources import evaluate

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3), st.lists(st.integers(0, 2), max_size=2), st.just({"a": 1}),
)  # fmt: skip
OPERANDS = st.sampled_from(["a", "b", "missing", "3", "-2", '"x"', "true", "null", "2.5", str(1 << 62), str(1 << 70)])


@st.composite
def expressions(draw: st.DrawFn) -> str:
    def term(depth: int) -> str:
        if not depth or draw(st.booleans()):
            return draw(OPERANDS)
        return f"({term(depth - 1)} {draw(st.sampled_from('+-*'))} {term(depth - 1)})"

    text = term(2)
    compared = draw(st.sampled_from(["", "<", "<=", ">", ">=", "=", "!="]))
    return f"= {text} {compared} {term(1)}" if compared else f"= {text}"


def outcome(work: Any) -> Any:
    try:
        value = work()
    except ExpressionError as error:
        return str(error)
    return type(value), value


@given(expressions(), VALUES, VALUES)
def test_b8_a_shortcut_gives_what_the_evaluator_gives(text: str, a: Any, b: Any) -> None:
    variables, tree = {"a": a, "b": b}, parse(text, 1)
    slow = outcome(lambda: FeelEvaluation(text, variables).result(tree))
    assert outcome(lambda: evaluate(text, variables)) == slow


@pytest.mark.parametrize("text", ["n", '"large"', "n > 100", "n * 2 + 1", 'status = "new"', "null"])
def test_b8_the_commonest_expressions_have_a_shortcut(text: str) -> None:
    assert shortcut(parse(text, 0)) is not None


@pytest.mark.parametrize("text", ["n / 2", "n ** 2", "[1]", "not(n)", "n in [1..2]", "a.b", "2.5"])
def test_b8_what_can_be_other_than_a_number_or_a_text_is_evaluated(text: str) -> None:
    assert shortcut(parse(text, 0)) is None
