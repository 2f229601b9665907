"""Shortcuts: the commonest FEEL expressions as closures, several times as fast as a walk over their tree.

`n`, `"large"`, `total > 100`, `n * 2 + 1`, `status = "new"`: names, constants, and whole numbers or texts that are
calculated or compared. They are too small to need a budget. A shortcut gives up when a value is of another type:
the evaluator, which says what FEEL means, then does the work.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from hark.programs.expressions.tree import Arithmetic, Comparison, Constant, Node, Variable

Shortcut = Callable[[Mapping[str, Any]], Any]

_DEEPEST = 8  # operators within operators
_LARGEST = 1 << 63  # whole numbers in JSON are below this one
_WHOLE: Final[dict[str, Callable[[int, int], int]]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


class NoShortcut(Exception):
    """A value is of a type that a shortcut does not handle."""


def shortcut(tree: Node) -> Shortcut | None:
    """A function that gives the value of an expression, or raises NoShortcut; None if it has to be evaluated."""
    if isinstance(tree, Comparison):
        return _compared(tree)
    return _operand(tree, _DEEPEST)


def _operand(node: Node, depth: int) -> Shortcut | None:
    if isinstance(node, Variable):
        name = node.name
        return lambda variables: variables.get(name)
    if isinstance(node, Constant) and _is_small(value := node.value):
        return lambda variables: value
    if isinstance(node, Arithmetic) and depth:
        return _calculated(node, depth)
    return None


def _is_small(value: Any) -> bool:
    """Return True if this is null, true, false, a text, or a whole number that JSON has too."""
    return value is None or type(value) in (str, bool) or (type(value) is int and -_LARGEST <= value < _LARGEST)


def _calculated(node: Arithmetic, depth: int) -> Shortcut | None:
    left, right, calculate = _operand(node.left, depth - 1), _operand(node.right, depth - 1), _WHOLE.get(node.operator)
    if left is None or right is None or calculate is None:
        return None

    def calculated(variables: Mapping[str, Any]) -> int:
        one, other = left(variables), right(variables)
        if type(one) is int and type(other) is int:
            result = calculate(one, other)
            if -_LARGEST <= result < _LARGEST:
                return result
        raise NoShortcut

    return calculated


def _compared(node: Comparison) -> Shortcut | None:
    left, right = _operand(node.left, _DEEPEST), _operand(node.right, _DEEPEST)
    if left is None or right is None:
        return None
    compare = _COMPARED[node.operator]

    def compared(variables: Mapping[str, Any]) -> bool:
        one, other = left(variables), right(variables)
        kind = type(one)
        if kind is type(other) and (kind is int or kind is str):
            return compare(one, other)
        raise NoShortcut

    return compared
