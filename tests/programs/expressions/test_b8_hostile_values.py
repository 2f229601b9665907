"""B8: every function and operator costs what its budget counts, whatever the values: no budget lasts for seconds."""

import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from hark.programs.expressions import functions
from hark.programs.expressions.budget import MAX_CHARACTERS, MAX_STEPS, Budget, OverBudget
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.evaluator import Evaluation
from hark.programs.expressions.feel import parser
from hark.programs.expressions.feel.evaluator import FeelEvaluation
from hark.programs.expressions.feel.registry import FEEL_FUNCTIONS
from hark.programs.expressions.json_values import WrongValue
from hark.programs.expressions.sources import evaluate
from hark.programs.expressions.tree import Arithmetic, Comparison, Constant

Call = Callable[..., Any]

SECONDS = (
    4.0  # of processor time for a whole budget; on an idle machine no call needs 0.4 s, and those of old 2 to 120 s
)
SAMPLE = 12_000
NULL = Constant(None, 0)


def feel(text: str) -> Any:
    return FeelEvaluation(text, {}, 10**15).value(parser.parse(text, 0))


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


JSON = {
    "null": None, "true": True, "one": 1, "minus one": -1, "zero": 0, "half": 2.5, "1e300": 1e300, "1e-300": 1e-300,
    "64 bits": 2**63 - 1, "400 digits": 10**400 + 1, "minus 4,000 digits": -(10**4000), "text": "abc",
    "long": "a" * 200_000, "spaces": " " * 200_000, "digits": "1" * 200_000, "commas": "," * 100_000,
    "exponent": "1e9999", "date text": "2020-01-01T00:00:00Z", "zone text": "10:00:00@Europe/Nowhere", "empty": [],
    "list": list(range(1000)), "nested": nested(400), "lists": [list(range(100))] * 100, "texts": ["a" * 10_000] * 100,
    "object": {str(number): number for number in range(1000)},
}  # fmt: skip
FEEL = JSON | {
    "huge": feel("10**6111"), "minus huge": feel("-(10**6111)"), "tiny": feel("10**(-6111)"), "third": feel("1/3"),
    "huge third": feel("(1/3)*10**6000"), "huge numbers": [feel("10**6111")] * 300,
    "tiny numbers": [feel("10**(-6111)"), 1] * 150, "thirds": [feel("1/3"), feel("(1/3)*10**6000")] * 150,
    "date": feel('@"2020-02-29"'), "far date": feel('@"999999999-12-31"'), "early date": feel('@"-999999999-01-01"'),
    "time": feel('@"10:00:00"'), "in a zone": feel('@"2020-01-01T10:00:00@Europe/Berlin"'),
    "far": feel('@"999999999-12-31T23:59:59Z"'), "days": feel('@"P999999999D"'), "years": feel('@"P99999999999Y"'),
    "range": feel("[1..10**6111]"),
}  # fmt: skip


def calls() -> list[tuple[str, Call, dict[str, Any], int]]:
    """Each function and operator: its name, what calls it with a budget, the values it gets, and how many."""
    found: list[tuple[str, Call, dict[str, Any], int]] = []
    for name, one in FEEL_FUNCTIONS.items():
        if name in ("now", "today"):
            continue
        most = len(one.parameters) + bool(one.repeats)
        found += [(name, _feel_call(one), FEEL, count) for count in range(max(1, one.least), min(3, most) + 1)]
    for function in functions.FUNCTIONS.values():
        counts = range(function.least, min(3, function.most) + 1)
        found += [(f"Hark's {function.usage}", function.run, JSON, count) for count in counts]
    found += [(operator, _feel_operator("_apply", operator), FEEL, 2) for operator in ("+", "-", "*", "/", "**")]
    found += [(operator, _feel_operator("_compare", operator), FEEL, 2) for operator in ("==", "<")]
    for sign in ("+", "-", "*", "/", "//", "%"):
        found.append((f"Hark's {sign}", _operator("_apply", Arithmetic(sign, NULL, NULL, 0)), JSON, 2))
    for test in ("==", "<", "in"):
        found.append((f"JUEL's {test}", _operator("_compare", Comparison(test, NULL, NULL, 0, converts=True)), JSON, 2))
    return found


def _feel_call(function: Call) -> Call:
    return lambda budget, *values: function(budget, list(values))


def _feel_operator(method: str, operator: str) -> Call:
    def call(budget: Budget, left: Any, right: Any) -> Any:
        evaluation = FeelEvaluation("", {}, 10**15)
        evaluation.budget = budget
        return getattr(evaluation, method)(operator, left, right)

    return call


def _operator(method: str, node: Any) -> Call:
    def call(budget: Budget, left: Any, right: Any) -> Any:
        evaluation = Evaluation("", {})
        evaluation.budget = budget
        return getattr(evaluation, method)(node, left, right)

    return call


def _seconds_per_budget(call: Call, values: list[Any]) -> float:
    """How long a budget would last if it were spent on this call."""
    budget = Budget()
    budget.spend(1 + len(values))
    started = time.thread_time()
    with contextlib.suppress(OverBudget, WrongValue, ExpressionError):
        call(budget, *values)
    took = time.thread_time() - started
    used = max((MAX_STEPS - budget._steps) / MAX_STEPS, (MAX_CHARACTERS - budget._characters) / MAX_CHARACTERS)
    return took / min(1.0, used)


@pytest.mark.parametrize("seed", range(3))
def test_b8_a_budget_lasts_for_less_than_seconds_whatever_the_function_and_its_values(seed: int) -> None:
    choose = random.Random(seed)
    known = calls()
    slow = []
    for number in range(SAMPLE):
        name, call, values, count = known[number % len(known)]
        names = [choose.choice(list(values)) for _ in range(count)]
        given = [values[each] for each in names]
        if _seconds_per_budget(call, given) > SECONDS:
            best = min(_seconds_per_budget(call, given) for _ in range(5))  # the first may have been interrupted
            if best > SECONDS:
                slow.append((name, names, best))
    assert not slow, sorted(slow, key=lambda one: -one[2])[:10]


@pytest.mark.parametrize(
    "call",
    [
        'substring("abc", 10**6111)', "remove([1], 10**6111)", "date(10**6111, 1, 1)", "floor(10**6111, 6000)",
        "(10**4000 + i) * 2.5", "i ** 0.3", 'time("10:00:00@Europe/Nowhere")', "modulo(10**6111, 7)",
    ],
)  # fmt: skip
def test_b8_an_expression_of_hostile_numbers_ends_soon(call: str) -> None:
    started = time.thread_time()
    with pytest.raises(ExpressionError, match="too many steps"):
        evaluate(f"=for i in 1..100000 return {call}", {})
    assert time.thread_time() - started < SECONDS


def test_b8_the_sign_of_a_number_changes_none_of_its_34_digits() -> None:
    assert evaluate("=string(-(1/3))", {}) == "-0." + "3" * 34
    assert evaluate("=string(abs(-(1/3)))", {}) == "0." + "3" * 34


def test_b8_numbers_beyond_every_place_are_null_where_a_place_is_meant() -> None:
    for text in ('substring("abc", {})', "remove([1], {})", "date({}, 1, 1)", "[1, 2][{}]", "sublist([1], {})"):
        for number in ("10**6111", "-(10**6111)", "10**400"):
            assert evaluate("=" + text.format(number), {}) is None


def test_b8_rounding_has_the_same_result_for_every_size_of_a_number() -> None:
    for text, result in (
        ("floor(10**6111, 3) = 10**6111", True),
        ("round up(10**(-6111), 2)", 0.01),
        ("round half up(10**(-6111), 2)", 0),
        ("floor(-(10**(-6111)))", -1),
        ("ceiling(-(10**(-6111)))", 0),
        ("round up(0, 2)", 0),
        ("round half up(2.5, 0)", 3),
        ("decimal(1/3, 2)", 0.33),
        ("round up(1234, -2)", 1300),
        ("round half down(0.05, 1)", 0),
        ("floor(0.009, 2)", 0),
        ("ceiling(0.0009, 2)", 0.01),
    ):
        assert evaluate(f"={text}", {}) == result, text


def test_b8_a_deviation_that_cannot_be_calculated_is_null() -> None:
    assert evaluate("=stddev([1, 10**6000])", {}) is None
    assert evaluate("=stddev([2, 4, 7, 5])", {}) == pytest.approx(2.0816659994661)
