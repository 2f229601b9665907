"""Evaluate a tree over variables. Reads what it is given and nothing else; writes nothing.

Types are never guessed: an operator that does not fit its values is an error with the position of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hark.programs.expressions.budget import Budget, OverBudget
from hark.programs.expressions.error import ExpressionError, MissingValue, suggestion
from hark.programs.expressions.functions import FUNCTIONS, MAX_INTEGER, as_number, check_number, contains
from hark.programs.expressions.json_values import WrongValue, is_same, kind_of
from hark.programs.expressions.tree import (
    Arithmetic,
    Attribute,
    Comparison,
    Conditional,
    Constant,
    FunctionCall,
    Index,
    ListOf,
    Logical,
    Negative,
    Node,
    Not,
    ObjectOf,
    Variable,
)


class Evaluation:
    """An evaluation of one compiled text: its variables, and what is left of its budget."""

    def __init__(self, text: str, variables: Mapping[str, Any]) -> None:
        self._text = text
        self._variables = variables
        self.budget = Budget()
        self._in_default = 0  # how many calls of `default` surround the present node

    def value(self, node: Node) -> Any:
        """The value of a node. Raises ExpressionError."""
        try:
            self.budget.spend()
            match node:
                case Constant():
                    return node.value
                case Variable():
                    return self._variable(node)
                case Attribute():
                    return self._entry(self.value(node.of), node.name, node)
                case Index():
                    return self._item(node)
                case Arithmetic():
                    return self._arithmetic(node)
                case Comparison():
                    return self._compare(node, self.value(node.left), self.value(node.right))
                case Logical():
                    return self._logical(node)
                case Not():
                    return not self.truth(node.of, "not")
                case Negative():
                    return check_number(-_number(self.value(node.of), "-"))
                case Conditional():
                    return self.value(node.then if self.truth(node.test, "The condition") else node.otherwise)
                case FunctionCall():
                    return self._call(node)
                case ListOf():
                    return [self.value(item) for item in node.items]
                case ObjectOf():
                    return {self._key(key): self.value(item) for key, item in node.items}
                case _:
                    raise AssertionError(f"{type(node).__name__} is a node of FEEL")
        except (OverBudget, WrongValue) as problem:
            raise ExpressionError(str(problem), self._text, node.at) from None

    def truth(self, node: Node, what: str) -> bool:
        """Return True if a condition holds: it is true, false, or null, which counts as false. Otherwise raise."""
        value = self.value(node)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise ExpressionError(f"{what} needs true or false, not {_described(value)}", self._text, node.at)

    def checked(self, at: int, work: Callable[[Budget], Any]) -> Any:
        """Do work that uses the budget; its problems become errors at this position."""
        try:
            return work(self.budget)
        except (OverBudget, WrongValue) as problem:
            raise ExpressionError(str(problem), self._text, at) from None

    def _variable(self, node: Variable) -> Any:
        try:
            return self._variables[node.name]
        except KeyError:
            pass
        advice = self._suggestion(node.name, self._variables)
        raise MissingValue(f"There is no {node.name!r} here; {advice}", self._text, node.at)

    def _entry(self, of: Any, key: str, node: Attribute | Index) -> Any:
        """The value of a key of an object."""
        if not isinstance(of, Mapping):
            problem = f"{key!r} cannot be read from {_described(of)}: only an object has keys"
            # `default` replaces what is missing below a value that is null, such as the output of a skipped task.
            raise (MissingValue if of is None else ExpressionError)(problem, self._text, node.at)
        if key in of:
            return of[key]
        advice = self._suggestion(key, of)
        if isinstance(node, Attribute) and "-" in key:
            advice += " To subtract, write spaces around '-'."
        raise MissingValue(f"There is no key {key!r}; {advice}", self._text, node.at)

    def _item(self, node: Index) -> Any:
        of, key = self.value(node.of), self.value(node.key)
        if isinstance(key, str):
            return self._entry(of, key, node)
        if isinstance(key, bool) or not isinstance(key, int):
            raise WrongValue(f"An index is a whole number or a text, not {_described(key)}")
        if of is None:
            raise MissingValue("null has no items", self._text, node.at)
        if not isinstance(of, list | tuple):
            raise WrongValue(f"{_described(of)} has no items by number: only a list has")
        if not -len(of) <= key < len(of):
            raise MissingValue(f"The list has no item {key}; its length is {len(of)}", self._text, node.at)
        return of[key]

    def _key(self, node: Node) -> str:
        key = self.value(node)
        if not isinstance(key, str):
            raise ExpressionError(f"A key of an object is a text, not {_described(key)}", self._text, node.at)
        return key

    def _call(self, node: FunctionCall) -> Any:
        if node.function == "default":
            value = self._value_or_null(node.arguments[0])
            return self.value(node.arguments[1]) if value is None else value
        return FUNCTIONS[node.function].run(self.budget, *[self.value(argument) for argument in node.arguments])

    def _value_or_null(self, node: Node) -> Any:
        """The value of a node; null if it is missing."""
        self._in_default += 1
        try:
            return self.value(node)
        except MissingValue:
            return None
        finally:
            self._in_default -= 1

    def _suggestion(self, name: str, known: Mapping[str, Any]) -> str:
        """The suggestion for an unknown name. To find it takes longer than all the rest: not in `default`."""
        return "" if self._in_default else suggestion(name, [other for other in known if isinstance(other, str)])

    def _logical(self, node: Logical) -> bool:
        stops_at = node.operator == "or"
        return stops_at if any(self.truth(each, node.operator) is stops_at for each in node.operands) else not stops_at

    def _arithmetic(self, node: Arithmetic) -> Any:
        """Calculate. The left side is walked in a loop: `a + b + c + …` may be long, and levels would need frames."""
        waiting = [node]
        while isinstance(first := waiting[-1].left, Arithmetic):
            self.budget.spend()
            waiting.append(first)
        result = self.value(first)
        for each in reversed(waiting):
            right = self.value(each.right)
            try:
                result = self._apply(each, result, right)
            except (OverBudget, WrongValue) as problem:
                raise ExpressionError(str(problem), self._text, each.at) from None
        return result

    def _apply(self, node: Arithmetic, left: Any, right: Any) -> Any:
        operator = node.operator
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            self.budget.spend_text(len(left) + len(right))
            return left + right
        if operator == "+" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
            self.budget.spend(len(left) + len(right))
            return [*left, *right]
        if kind_of(left) != "number" or kind_of(right) != "number":
            advice = ""
            if operator == "+" and (isinstance(left, str) or isinstance(right, str)):
                advice = ". Use text(…) to join texts, number(…) to add numbers"
            raise WrongValue(f"{operator} does not work on {_described(left)} and {_described(right)}{advice}")
        try:
            return check_number(_calculate(operator, check_number(left), check_number(right)))
        except ZeroDivisionError:
            raise WrongValue("Division by zero") from None
        except OverflowError:
            raise WrongValue("The result is too large") from None

    def _compare(self, node: Comparison, left: Any, right: Any) -> bool:
        if node.converts and isinstance(left, str) is not isinstance(right, str):
            self.budget.spend_text(len(left if isinstance(left, str) else right))
            left, right = _converted(left, right), _converted(right, left)
        match node.operator:
            case "in":
                return bool(contains(self.budget, right, left))
            case "not in":
                return not contains(self.budget, right, left)
            case "==" | "!=":
                return self._equals(left, right) is (node.operator == "==")
        if node.converts and (left is None or right is None):
            return left is right and node.operator in ("<=", ">=")
        left_kind, right_kind = kind_of(left), kind_of(right)
        if left_kind != right_kind or left_kind not in ("number", "text"):
            raise WrongValue(f"{node.operator} does not compare {_described(left)} with {_described(right)}")
        if left_kind == "text":
            self.budget.spend_text(min(len(left), len(right)))
        match node.operator:
            case "<":
                return bool(left < right)
            case "<=":
                return bool(left <= right)
            case ">":
                return bool(left > right)
            case ">=":
                return bool(left >= right)

    def _equals(self, left: Any, right: Any) -> bool:
        """Equality of values of one type, or with null. "3" == 3 is a mistake that false would hide."""
        if left is None or right is None:
            return left is right
        if kind_of(left) != kind_of(right):
            advice = ""
            if {kind_of(left), kind_of(right)} == {"number", "text"}:
                advice = ". Use number(…) or text(…) to convert one of them"
            raise WrongValue(f"{_described(left)} and {_described(right)} are never equal{advice}")
        return is_same(left, right, self.budget)


def _calculate(operator: str, left: int | float, right: int | float) -> int | float:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "//":
            return left // right
        case "%":
            return left % right
    if isinstance(left, int) and isinstance(right, int) and right != 0 and left % right == 0:
        return left // right  # 6 / 2 is 3, not 3.0: it may become part of a text
    return left / right


def _converted(value: Any, other: Any) -> Any:
    """A text as a value of the type of the other side of a comparison; as it is, if it does not show one."""
    if not isinstance(value, str):
        return value
    match kind_of(other):
        case "true or false":
            return value.strip().lower() == "true"
        case "number" if (number := as_number(value)) is not None:
            return number
    return value


def _number(value: Any, what: str) -> int | float:
    if kind_of(value) != "number":
        raise WrongValue(f"{what} needs a number, not {_described(value)}")
    return value  # type: ignore[no-any-return]


def _described(value: Any) -> str:
    """A value in a message: its type, and itself if it is a number, true, false or null. Texts may be secret."""
    match kind_of(value):
        case "null":
            return "null"
        case "true or false":
            return "true" if value else "false"
        case "number":
            return f"the number {value}" if abs(value) < MAX_INTEGER else "a large number"
        case "text":
            return "a text"
        case "list":
            return "a list"
        case "object":
            return "an object"
