"""Evaluate a tree as FEEL: what does not exist or does not fit is null, and logic has three values.

The tree is that of feel/parser.py. Reads the variables it is given and, in `now()` and `today()`, the time it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hark.programs.expressions import tree
from hark.programs.expressions.budget import Budget, OverBudget
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.feel import numbers, temporal_arithmetic
from hark.programs.expressions.feel.functions import FEEL_FUNCTIONS
from hark.programs.expressions.feel.temporal import from_local_nanos, property_of
from hark.programs.expressions.feel.values import TEMPORAL, FeelRange, as_json_value, compare, equal, feel_kind, within
from hark.programs.expressions.json_values import WrongValue
from hark.programs.expressions.tree import Node

_LONG: Final = 10**34  # a longer number takes more than a step


class FeelEvaluation:
    """An evaluation of one compiled text: its variables, and what is left of its budget."""

    __slots__ = ("_now", "_scopes", "_text", "_variables", "budget")

    def __init__(self, text: str, variables: Mapping[str, Any], now: int | None = None) -> None:
        self._text = text
        self._variables = variables
        self._scopes: list[Mapping[str, Any]] = []  # entries of contexts, items and the like, the innermost last
        self._now = now
        self.budget = Budget()

    def result(self, node: Node) -> Any:
        """The value of the whole expression as JSON. Raises ExpressionError."""
        value = self.value(node)
        if value is None or value is True or value is False or type(value) is str or _is_read(node):
            return value
        try:
            return as_json_value(value, self.budget)
        except (OverBudget, WrongValue) as problem:
            raise ExpressionError(str(problem), self._text, node.at) from None

    def value(self, node: Node) -> Any:
        """The value of a node. Raises ExpressionError if the budget is used up, or a variable is not JSON."""
        try:
            self.budget.spend()
            return _EVALUATE[type(node)](self, node)
        except (OverBudget, WrongValue) as problem:
            raise ExpressionError(str(problem), self._text, node.at) from None

    def _constant(self, node: tree.Constant) -> Any:
        return node.value

    def _variable(self, node: tree.Variable) -> Any:
        name = node.name
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return self._variables.get(name)

    def _attribute(self, node: tree.Attribute) -> Any:
        return self._property(self.value(node.of), node.name)

    def _property(self, of: Any, name: str) -> Any:
        if isinstance(of, Mapping):
            return of.get(name)
        if isinstance(of, list | tuple):
            self.budget.spend(len(of))
            return [None if isinstance(item, list | tuple) else self._property(item, name) for item in of]
        if isinstance(of, TEMPORAL):
            return property_of(of, name)
        if isinstance(of, FeelRange):
            return {
                "start": of.low, "end": of.high, "start included": of.low_included, "end included": of.high_included,
            }.get(name)  # fmt: skip
        return None

    def _negative(self, node: tree.Negative) -> Any:
        value = self.value(node.of)
        self.budget.spend(numbers.effort(value))
        return numbers.negative(value) if numbers.is_number(value) else temporal_arithmetic.negative(value)

    def _arithmetic(self, node: tree.Arithmetic) -> Any:
        """Calculate. The left side is walked in a loop: `a + b + c + …` may be long, and levels would need frames."""
        waiting = [node]
        while isinstance(first := waiting[-1].left, tree.Arithmetic):
            self.budget.spend()
            waiting.append(first)
        result = self.value(first)
        for each in reversed(waiting):
            result = self._apply(each.operator, result, self.value(each.right))
        return result

    def _apply(self, operator: str, left: Any, right: Any) -> Any:
        if numbers.is_number(left) and numbers.is_number(right):
            if operator == "**":
                self.budget.spend(numbers.POWER_STEPS)
            if _is_long(left) or _is_long(right):
                self.budget.spend(numbers.effort(left, right))
            return numbers.calculate(operator, left, right)
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            self.budget.spend_text(len(left) + len(right))
            return left + right
        if isinstance(left, TEMPORAL) or isinstance(right, TEMPORAL):
            self.budget.spend(numbers.effort(left, right))
            return temporal_arithmetic.combine(operator, left, right)
        return None

    def _comparison(self, node: tree.Comparison) -> bool | None:
        return self._compare(node.operator, self.value(node.left), self.value(node.right))

    def _compare(self, operator: str, left: Any, right: Any) -> bool | None:
        if operator == "==":
            return equal(left, right, self.budget)
        if operator == "!=":
            same = equal(left, right, self.budget)
            return None if same is None else not same
        return compare(operator, left, right, self.budget)

    def _logical(self, node: tree.Logical) -> bool | None:
        """Combine with `and` or `or` of three values; what is neither true nor false counts as null."""
        decisive: bool = node.operator == "or"
        unknown = False
        for operand in node.operands:
            value = self.value(operand)
            if value is decisive:
                return value is True
            unknown = unknown or not isinstance(value, bool)
        return None if unknown else not decisive

    def _conditional(self, node: tree.Conditional) -> Any:
        return self.value(node.then if self.value(node.test) is True else node.otherwise)

    def _between(self, node: tree.Between) -> bool | None:
        limits = FeelRange(self.value(node.low), self.value(node.high), True, True)
        if limits.low is None or limits.high is None:
            return None
        return within(self.value(node.of), limits, self.budget)

    def _is_in(self, node: tree.IsIn) -> bool | None:
        value = self.value(node.of)
        results = [self._meets(value, test) for test in node.tests]
        return True if True in results else None if None in results else False

    def _meets(self, value: Any, test: Node) -> bool | None:
        if isinstance(test, tree.UnaryTest):
            return self._compare(test.operator, value, self.value(test.limit))
        wanted = self.value(test)
        if isinstance(wanted, FeelRange) and not isinstance(value, FeelRange):
            return within(value, wanted, self.budget)
        if isinstance(wanted, list | tuple):
            if any(self._is_item(value, item) for item in wanted):
                return True
            return isinstance(value, list | tuple) and equal(value, wanted, self.budget)
        return equal(value, wanted, self.budget)

    def _is_item(self, value: Any, item: Any) -> bool | None:
        if isinstance(item, FeelRange) and not isinstance(value, FeelRange):
            return within(value, item, self.budget)
        if isinstance(item, list | tuple) and not isinstance(value, list | tuple):
            return any(self._is_item(value, inner) for inner in item if isinstance(inner, FeelRange))
        return equal(value, item, self.budget)

    def _test(self, node: tree.UnaryTest) -> FeelRange | None:
        limit = self.value(node.limit)
        match node.operator:
            case "<" | "<=":
                return FeelRange(None, limit, False, node.operator == "<=")
            case ">" | ">=":
                return FeelRange(limit, None, node.operator == ">=", False)
        return None

    def _range(self, node: tree.RangeOf) -> FeelRange | None:
        low, high = self.value(node.low), self.value(node.high)
        if low is None or high is None or feel_kind(low) != feel_kind(high):
            return None
        return FeelRange(low, high, node.low_included, node.high_included)

    def _list(self, node: tree.ListOf) -> list[Any]:
        return [self.value(item) for item in node.items]

    def _context(self, node: tree.ContextOf) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        self._scopes.append(entries)
        try:
            for name, value in node.entries:
                entries[name] = self.value(value)
        finally:
            self._scopes.pop()
        return entries

    def _call(self, node: tree.FunctionCall) -> Any:
        if node.function in ("now", "today") and not node.arguments:
            return self._time(node.function)
        return FEEL_FUNCTIONS[node.function](self.budget, [self.value(argument) for argument in node.arguments])

    def _time(self, function: str) -> Any:
        if self._now is None:
            raise WrongValue(f"{function}() does not know the time here")
        at = from_local_nanos(self._now * 1000, 0)
        return at if at is None or function == "now" else at.date

    def _filter(self, node: tree.Filter) -> Any:
        of = self.value(node.of)
        if of is None:
            return None
        items: Any = of if isinstance(of, list | tuple) else [of]
        if isinstance(node.condition, tree.Constant | tree.Negative):
            number = self.value(node.condition)
            return _item(items, number) if numbers.is_number(number) else list(items) if number is True else []
        found = []
        for place, item in enumerate(items):
            condition = self._with_item(node.condition, item)
            if place == 0 and numbers.is_number(condition):
                return _item(items, condition)
            if condition is True:
                found.append(item)
        if not items and numbers.is_number(self.value(node.condition)):
            return None
        return found

    def _with_item(self, node: Node, item: Any) -> Any:
        """The value of a condition for an item: its entries are names too, and win over `item`."""
        scopes = self._scopes
        scopes.append({"item": item})
        if entries := isinstance(item, Mapping):
            scopes.append(item)
        try:
            return self.value(node)
        finally:
            if entries:
                scopes.pop()
            scopes.pop()

    def _iteration(self, node: tree.Iteration) -> Any:
        names: dict[str, Any] = {}
        self._scopes.append(names)
        results: list[Any] = []
        unknown = False
        try:
            for complete in self._combinations(node, names, 0):
                if not complete:
                    return None
                if node.kind == "for":
                    names["partial"] = results
                value = self.value(node.body)
                if node.kind == "for":
                    results.append(value)
                elif value is (node.kind == "some"):
                    return value
                else:
                    unknown = unknown or not isinstance(value, bool)
        finally:
            self._scopes.pop()
        if node.kind == "for":
            return results
        return None if unknown else node.kind == "every"

    def _combinations(self, node: tree.Iteration, names: dict[str, Any], depth: int) -> Iterator[bool]:
        """Set the names to each combination of items in turn. A source that has no items yields False."""
        if depth == len(node.over):
            yield True
            return
        name, source = node.over[depth]
        items = self._items(self.value(source))
        if items is None:
            yield False
            return
        for item in items:
            self.budget.spend()
            names[name] = item
            yield from self._combinations(node, names, depth + 1)

    def _items(self, value: Any) -> Any:
        if isinstance(value, FeelRange):
            low, high = value.low, value.high
            if not numbers.is_number(low) or not numbers.is_number(high):
                return None
            low, high = numbers.whole(low) + (not value.low_included), numbers.whole(high) - (not value.high_included)
            return range(low, high + 1) if low <= high else range(low, high - 1, -1)
        if value is None:
            return None
        return value if isinstance(value, list | tuple) else [value]


def _is_long(number: numbers.Number) -> bool:
    return type(number) is int and not -_LONG < number < _LONG


def _item(items: Any, number: Any) -> Any:
    place = numbers.whole(number)
    if place != number or not place or abs(place) > len(items):
        return None
    return items[place - 1 if place > 0 else place]


def _is_read(node: Node) -> bool:
    """Return True if the value is one of the variables, or a part of one: it is JSON already."""
    while isinstance(node, tree.Attribute):
        node = node.of
    return isinstance(node, tree.Variable)


_EVALUATE: Final[dict[type[Node], Callable[[FeelEvaluation, Any], Any]]] = {
    tree.Constant: FeelEvaluation._constant,
    tree.Variable: FeelEvaluation._variable,
    tree.Attribute: FeelEvaluation._attribute,
    tree.Negative: FeelEvaluation._negative,
    tree.Arithmetic: FeelEvaluation._arithmetic,
    tree.Comparison: FeelEvaluation._comparison,
    tree.Logical: FeelEvaluation._logical,
    tree.Conditional: FeelEvaluation._conditional,
    tree.Between: FeelEvaluation._between,
    tree.IsIn: FeelEvaluation._is_in,
    tree.UnaryTest: FeelEvaluation._test,
    tree.RangeOf: FeelEvaluation._range,
    tree.ListOf: FeelEvaluation._list,
    tree.ContextOf: FeelEvaluation._context,
    tree.FunctionCall: FeelEvaluation._call,
    tree.Filter: FeelEvaluation._filter,
    tree.Iteration: FeelEvaluation._iteration,
}
