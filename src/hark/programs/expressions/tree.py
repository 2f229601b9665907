"""The tree of an expression: what the parsers build and the evaluator walks.

`at` is the index of the node in the text it was compiled from, for messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

ArithmeticOperator = Literal["+", "-", "*", "/", "//", "%", "**"]
ComparisonOperator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]


class ExpressionNode:
    """A node of any kind."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Constant(ExpressionNode):
    """A number, a text, true, false or null."""

    value: Any
    at: int


@dataclass(frozen=True, slots=True)
class Variable(ExpressionNode):
    """The value of a variable."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Attribute(ExpressionNode):
    """`of.name`: the value of a key of an object."""

    of: Node
    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Index(ExpressionNode):
    """`of[key]`: an item of a list, or the value of a key of an object."""

    of: Node
    key: Node
    at: int


@dataclass(frozen=True, slots=True)
class FunctionCall(ExpressionNode):
    """`function(arguments)`, or a filter: `arguments[0] | function(the others)`."""

    function: str
    arguments: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Negative(ExpressionNode):
    """`-of`."""

    of: Node
    at: int


@dataclass(frozen=True, slots=True)
class Not(ExpressionNode):
    """`not of`."""

    of: Node
    at: int


@dataclass(frozen=True, slots=True)
class Logical(ExpressionNode):
    """`a and b and c`, `a or b or c`: evaluated from the left until the result is known."""

    operator: Literal["and", "or"]
    operands: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Arithmetic(ExpressionNode):
    """`left + right` and the like."""

    operator: ArithmeticOperator
    left: Node
    right: Node
    at: int


@dataclass(frozen=True, slots=True)
class Comparison(ExpressionNode):
    """`left == right` and the like. If it `converts`, a text is compared with a number, true or false as that, and null
    is neither less nor greater than anything."""

    operator: ComparisonOperator
    left: Node
    right: Node
    at: int
    converts: bool = False


@dataclass(frozen=True, slots=True)
class Conditional(ExpressionNode):
    """`test ? then : otherwise`, or `then if test else otherwise`."""

    test: Node
    then: Node
    otherwise: Node
    at: int


@dataclass(frozen=True, slots=True)
class ListOf(ExpressionNode):
    """`[a, b]`."""

    items: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class ObjectOf(ExpressionNode):
    """`{'a': b}`."""

    items: tuple[tuple[Node, Node], ...]
    at: int


# -- nodes of FEEL alone --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContextOf(ExpressionNode):
    """`{a: 1, b: a + 1}`: an object in which an entry sees those before it."""

    entries: tuple[tuple[str, Node], ...]
    at: int


@dataclass(frozen=True, slots=True)
class RangeOf(ExpressionNode):
    """`[low..high]`, `(low..high)` and the like."""

    low: Node
    high: Node
    low_included: bool
    high_included: bool
    at: int


@dataclass(frozen=True, slots=True)
class Filter(ExpressionNode):
    """`of[condition]`: the items for which it holds, or the item with that number, counted from 1."""

    of: Node
    condition: Node
    at: int


@dataclass(frozen=True, slots=True)
class Between(ExpressionNode):
    """`of between low and high`."""

    of: Node
    low: Node
    high: Node
    at: int


@dataclass(frozen=True, slots=True)
class UnaryTest(ExpressionNode):
    """`< limit` on the right side of `in`."""

    operator: ComparisonOperator
    limit: Node
    at: int


@dataclass(frozen=True, slots=True)
class IsIn(ExpressionNode):
    """`of in test`, `of in (test, test)`: whether one of the tests is met."""

    of: Node
    tests: tuple[Node, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Iteration(ExpressionNode):
    """`some x in list, y in other satisfies body`, `every …`, and `for x in list return body`."""

    kind: Literal["some", "every", "for"]
    over: tuple[tuple[str, Node], ...]
    body: Node
    at: int


FeelNode: TypeAlias = ContextOf | RangeOf | Filter | Between | UnaryTest | IsIn | Iteration

Node: TypeAlias = (
    Constant
    | Variable
    | Attribute
    | Index
    | FunctionCall
    | Negative
    | Not
    | Logical
    | Arithmetic
    | Comparison
    | Conditional
    | ListOf
    | ObjectOf
    | FeelNode
)


def parts(node: Node) -> list[Node]:
    """The nodes directly below a node, in the order of its fields."""
    found: list[Node] = []
    pending: list[Any] = [getattr(node, name) for name in reversed(node.__slots__)]
    while pending:
        match pending.pop():
            case ExpressionNode() as part:
                found.append(cast(Node, part))
            case tuple() as several:
                pending += reversed(several)
    return found


def paths(tree: Node) -> Iterator[tuple[str, tuple[str, ...], int]]:
    """The variables that an expression reads, each with the keys that follow it as far as they are constant, and where.

    `tasks.build.output[0].id` gives `("tasks", ("build", "output"), 0)`, `tasks['build'].output` gives the same.
    """
    pending = [tree]
    while pending:
        node = pending.pop()
        keys: list[str] = []
        while isinstance(node, Attribute | Index):
            match node:
                case Attribute():
                    keys.append(node.name)
                case Index(key=Constant(value=str() as key)):
                    keys.append(key)
                case _:
                    keys.clear()
                    pending.append(node.key)
            node = node.of
        if isinstance(node, Variable):
            yield node.name, tuple(reversed(keys)), node.at
        else:
            pending.extend(parts(node))
