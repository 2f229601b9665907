"""Sources and conditions of processes: which texts are expressions, and in which syntax (B8)."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from hark.programs.expressions import ExpressionError
from hark.programs.expressions.sources import check_condition, check_source, evaluate, holds, is_expression

VARIABLES: dict[str, Any] = {
    "id": 42,
    "x": 5,
    "name": "Ada",
    "var": "spare",
    "flag": True,
    "nothing": None,
    "list": ["a", "b"],
    "empty_list": [],
    "order": {"total": 120.5, "address": {"city": "Bonn"}, "items": [{"sku": "a"}]},
}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a = b", "a = b"),
        ("$x {y} #z", "$x {y} #z"),
        (7, 7),
        (None, None),
        ("=x + 1", 6),
        (" =x + 1", 6),
        ("=missing", None),
        ("${x}", 5),
        ("#{x}", 5),
        ("${order.address.city}", "Bonn"),
        ("${order.items[0].sku}", "a"),
        ("${order['total'] > 100}", True),
        ("order-${id}", "order-42"),
        ("${name}-${id}/#{flag}", "Ada-42/true"),
        ("<${nothing}>", "<>"),
        ("${nothing}", None),
        ("\\${x}", "${x}"),
        ("${name == 'Ada'}", True),
        ('${name eq "Ada" and not empty list}', True),
        ("${empty nothing}", True),
        ("${empty empty_list}", True),
        ("${flag && x > 3 || false}", True),
        ("${!flag}", False),
        ("${x > 3 ? 'big' : 'small'}", "big"),
        ("${'a' + 'b'}", "ab"),
        ("${x % 2 == 1}", True),
        ("${x div 2}", 2.5),
        ("${list.size()}", 2),
        ("${list.isEmpty()}", False),
        ("${list.contains('b')}", True),
        ("${list.get(1)}", "b"),
        ("${order.get('total')}", 120.5),
        ("${order.containsKey('total')}", True),
        ("${name.equals('Ada')}", True),
        ("${name.equals(5)}", False),
        ("${name.length() == 3}", True),
        ("${name.toUpperCase().startsWith('A')}", True),
        ("${name.concat('-').concat(1)}", "Ada-1"),
        ("${execution.getVariable('name')}", "Ada"),
        ("${execution.getVariable('missing') == null}", True),
        ("${vars:equals(name, 'Ada')}", True),
        ("${variables:get('name')}", "Ada"),
        ("${var:get(missing) == null}", True),
        ("${vars:getOrDefault(missing, 7) * 2}", 14),
        ("${vars:getOrDefault(x, 7)}", 5),
        ("${vars:exists(x) && !vars:exists(missing)}", True),
        ("${vars:isEmpty(missing) && vars:isNotEmpty(name)}", True),
        ("${vars:notEquals(missing, 1)}", True),
        ("${vars:gt(x, 4) && vars:lowerThanOrEquals(x, 5)}", True),
        ("${vars:gt(missing, 4)}", False),
        ("${x > 4 ? var : 0}", "spare"),
        ("${order.items.size() > 0 && order.items.get(0).sku == 'a'}", True),
        ({"a": ["=x", {"b": "${id}"}], "=x": "plain"}, {"a": [5, {"b": 42}], "=x": "plain"}),
        ({"${name}": "=x", "n-${id}": 1}, {"Ada": 5, "n-42": 1}),
        (("=x", 1), [5, 1]),
    ],
)
def test_b8_the_value_of_a_source(source: Any, value: Any) -> None:
    assert evaluate(source, MappingProxyType(VARIABLES)) == value
    check_source(source)


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        ("=x > 3", True),
        ("=x > 9", False),
        ("=missing > 3", False),
        ("=null", False),
        ("${x > 3}", True),
        (" ${x > 3}\n", True),
        ("#{flag}", True),
        ("${nothing}", False),
        ('=list contains(list, "a")', True),
    ],
)
def test_b8_whether_a_condition_holds(condition: str, result: bool) -> None:
    assert holds(condition, VARIABLES) is result
    check_condition(condition)


@pytest.mark.parametrize("condition", ["=x", "=name", "=list", "=order", "${x}", "${name}", "${list}", "=now()"])
def test_b8_a_condition_that_is_neither_true_false_nor_null_is_an_error(condition: str) -> None:
    check_condition(condition)
    with pytest.raises(ExpressionError):
        holds(condition, VARIABLES)


@pytest.mark.parametrize("condition", ["x > 3", "", "yes ${x > 3}", "${a} && ${b}", "=", "=1 +", "${1 +}", "${x"])
def test_b8_a_condition_that_is_not_one_expression_is_refused(condition: str) -> None:
    with pytest.raises(ExpressionError):
        check_condition(condition)


@pytest.mark.parametrize(
    "source",
    ["${", "${x.foo()}", "${vars:foo(x)}", "${vars:get(1)}", "${x.size(1)}", "=1 +", ["a", {"b": "=("}], "a ${} b"],
)
def test_b8_a_source_that_cannot_be_compiled_is_refused(source: Any) -> None:
    with pytest.raises(ExpressionError):
        check_source(source)
    with pytest.raises(ExpressionError):
        evaluate(source, VARIABLES)


def test_b8_an_unknown_name_is_an_error_in_juel_and_null_in_feel() -> None:
    with pytest.raises(ExpressionError, match="did you mean 'order'"):
        evaluate("${ordr.total}", VARIABLES)
    assert evaluate("=ordr.total", VARIABLES) is None


def test_b8_a_method_that_there_is_not_is_named_with_those_there_are() -> None:
    with pytest.raises(ExpressionError, match=r"'getVariables' is called as a method.*size"):
        check_source("${execution.getVariables()}")


def test_b8_texts_that_are_expressions() -> None:
    assert is_expression("=x")
    assert is_expression("order-${id}")
    assert is_expression("#{x}")
    assert not is_expression("plain = text")


def test_b8_a_text_too_long_to_keep_is_compiled_each_time() -> None:
    assert evaluate("=1" + " + 1" * 2000, {}) == 2001
    assert holds("=" + "true and " * 1000 + "true", {})
    with pytest.raises(ExpressionError):
        check_source("=" + " " * 70_000 + "1")
