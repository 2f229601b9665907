"""The parser of JUEL, the syntax of `${…}` in BPMN files: `${order.total > 100 && not empty order.items}`.

It builds the tree of the other syntaxes and has their meaning: an unknown name is an error. Unlike there, a comparison
converts a text to the number, true or false on its other side, and null is neither less nor greater than anything,
because files rely on it: `${approved == 'true'}` is written for a form that gives a text, and gets true from a program.
Of the methods of Java objects those that files use on texts, lists and maps are understood, such as `items.size()`, and
`execution.getVariable('x')`; calling another one is an error that says so. So are the functions of Flowable on
variables that may be missing: `vars:getOrDefault(count, 0)`.

Precedence, from the loosest: `? :`, `|| or`, `&& and`, `== != eq ne`, `< > <= >= lt gt le ge`, `+ -`,
`* / div % mod`, unary `- ! not empty`, then `.name` and `[index]`.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from hark.programs.expressions import tree
from hark.programs.expressions.grammar import LOOSEST, Parser
from hark.programs.expressions.tokens import Lexeme, Lexicon, read_tokens
from hark.programs.expressions.tree import Node

_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"'}
_SIGNS = re.compile(r"==|!=|<=|>=|&&|\|\||[-+*/%<>!.,:?()\[\]{}]")
_LEXICON = Lexicon(_SIGNS, re.compile(r"[^\W\d]\w*"), _ESCAPES, unicode_escapes=False, close=None)
_LEXICON_IN_TEMPLATE = Lexicon(_SIGNS, re.compile(r"[^\W\d]\w*"), _ESCAPES, unicode_escapes=False, close="}")

_WORDS: Final = {
    "and": "&&", "or": "||", "not": "!", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
    "div": "/", "mod": "%",
}  # fmt: skip

_CONDITIONAL, _OR, _AND, _EQUALITY, _ORDER, _SUM, _PRODUCT, _UNARY = range(LOOSEST, 9)
_LOGICAL: Final[dict[str, tuple[int, Literal["and", "or"]]]] = {"&&": (_AND, "and"), "||": (_OR, "or")}
_COMPARISONS: Final[dict[str, tuple[int, tree.ComparisonOperator]]] = {
    "==": (_EQUALITY, "=="), "!=": (_EQUALITY, "!="),
    "<": (_ORDER, "<"), ">": (_ORDER, ">"), "<=": (_ORDER, "<="), ">=": (_ORDER, ">="),
}  # fmt: skip
_ARITHMETIC: Final[dict[str, tuple[int, tree.ArithmeticOperator]]] = {
    "+": (_SUM, "+"), "-": (_SUM, "-"), "*": (_PRODUCT, "*"), "/": (_PRODUCT, "/"), "%": (_PRODUCT, "%"),
}  # fmt: skip

_PREFIXES = frozenset(("variables", "vars", "var"))
_PREFIXED_COMPARISONS: Final[dict[str, tree.ComparisonOperator]] = {
    "eq": "==", "equals": "==", "ne": "!=", "notEquals": "!=", "lt": "<", "lowerThan": "<", "lessThan": "<",
    "lte": "<=", "lowerThanOrEquals": "<=", "lessThanOrEquals": "<=", "gt": ">", "greaterThan": ">",
    "gte": ">=", "greaterThanOrEquals": ">=",
}  # fmt: skip
_METHODS: Final[dict[str, tuple[str, int]]] = {
    "size": ("length", 0), "length": ("length", 0), "isEmpty": ("empty", 0), "contains": ("contains", 1),
    "containsKey": ("contains", 1), "startsWith": ("starts_with", 1), "endsWith": ("ends_with", 1),
    "toUpperCase": ("upper", 0), "toLowerCase": ("lower", 0), "trim": ("trim", 0), "toString": ("text", 0),
}  # fmt: skip


def parse(text: str, start: int = 0, *, in_template: bool = False) -> tuple[Node, int]:
    """The tree of the expression that starts at this index, and the index after it (and after its `}`)."""
    tokens, end = read_tokens(text, start, _LEXICON_IN_TEMPLATE if in_template else _LEXICON)
    return _JuelParser(text, tokens).parse(), end


def _operator(token: Lexeme) -> str | None:
    """The sign of an operator, also if it is written as a word."""
    if token.kind == "name":
        return _WORDS.get(token.value)
    return str(token.value) if token.kind == "sign" else None


def _or_null(variable: str, at: int) -> Node:
    """The value of a variable, or null if there is none of this name."""
    return tree.FunctionCall("default", (tree.Variable(variable, at), tree.Constant(None, at)), at)


class _JuelParser(Parser):
    reserved = frozenset({*_WORDS, "empty", "instanceof"})

    def combine(self, left: Node, least: int) -> Node | None:
        token = self.peek()
        operator = _operator(token)
        if operator is None:
            return None
        if operator in _LOGICAL and least <= _LOGICAL[operator][0]:
            binding, word = _LOGICAL[operator]
            operands = [left]
            while _operator(self.peek()) == operator:
                self.take()
                operands.append(self.expression(binding + 1))
            return tree.Logical(word, tuple(operands), token.at)
        if operator in _COMPARISONS and least <= _COMPARISONS[operator][0]:
            self.take()
            binding, comparison = _COMPARISONS[operator]
            return tree.Comparison(comparison, left, self.expression(binding + 1), token.at, converts=True)
        if operator in _ARITHMETIC and least <= _ARITHMETIC[operator][0]:
            self.take()
            binding, arithmetic = _ARITHMETIC[operator]
            return tree.Arithmetic(arithmetic, left, self.expression(binding + 1), token.at)
        return self.conditional(left) if operator == "?" and least <= _CONDITIONAL else None

    def operand(self, least: int) -> Node:
        token = self.take()
        match _operator(token):
            case "-":
                return tree.Negative(self.expression(_UNARY), token.at)
            case "!":
                return tree.Not(self.expression(_UNARY), token.at)
        if token.kind == "name" and token.value == "empty":
            return tree.FunctionCall("empty", (self.expression(_UNARY),), token.at)
        return self._postfix(self._primary(token))

    def _primary(self, token: Lexeme) -> Node:
        if token.kind == "name" and token.value in _PREFIXES and self._calls_prefixed(token):
            return self._prefixed()
        if token.kind == "sign" and token.value == "(":
            return self.enclosed(")")
        return self.simple_operand(token)

    def call(self, token: Lexeme) -> Node:
        return self.checked_call(tree.FunctionCall(token.value, tuple(self._arguments()), token.at))

    def _arguments(self) -> list[Node]:
        return self.items(")", self.expression)

    def _calls_prefixed(self, prefix: Lexeme) -> bool:
        """Return True if `vars` is the prefix of a function, as in `vars:get(x)`: no space is before the colon."""
        colon, name, bracket = (self.peek(further) for further in range(3))
        follows = colon.kind == "sign" and colon.value == ":" and colon.at == prefix.at + len(prefix.value)
        return follows and name.kind == "name" and bracket.kind == "sign" and bracket.value == "("

    def _prefixed(self) -> Node:
        """A Flowable function on a variable that may be missing, read from its colon: `vars:equals(state, 'new')`."""
        self.take()
        name = self.take()
        self.take()
        arguments = self._arguments()
        match arguments:
            case [tree.Variable(name=variable), *others] | [tree.Constant(value=str(variable)), *others]:
                value = _or_null(variable, name.at)
            case _:
                raise self.error(f"The first argument of {name.value} has to be the name of a variable", name.at)
        match name.value, others:
            case ("get", []):
                return value
            case ("getOrDefault", [other]):
                return tree.FunctionCall("default", (tree.Variable(variable, name.at), other), name.at)
            case ("exists", []):
                return tree.Comparison("!=", value, tree.Constant(None, name.at), name.at, converts=True)
            case ("isEmpty" | "empty", []):
                return tree.FunctionCall("empty", (value,), name.at)
            case ("isNotEmpty" | "notEmpty", []):
                return tree.Not(tree.FunctionCall("empty", (value,), name.at), name.at)
            case (function, [other]) if function in _PREFIXED_COMPARISONS:
                return tree.Comparison(_PREFIXED_COMPARISONS[function], value, other, name.at, converts=True)
        known = ", ".join(sorted([*_PREFIXED_COMPARISONS, "exists", "get", "getOrDefault", "isEmpty", "isNotEmpty"]))
        raise self.error(
            f"There is no function {name.value!r} of variables with these arguments, only: {known}", name.at
        )

    def _postfix(self, node: Node) -> Node:
        while True:
            at = self.peek().at
            if self.take_if("sign", "."):
                name = self.attribute_name()
                node = self._method(node, name, at) if self.take_if("sign", "(") else tree.Attribute(node, name, at)
            elif self.take_if("sign", "["):
                node = tree.Index(node, self.enclosed("]"), at)
            else:
                return node

    def _method(self, of: Node, name: str, at: int) -> Node:
        """The call of a method, read from behind its `(`: the function or operator that means the same."""
        arguments = self._arguments()
        match name, arguments:
            case ("get", [key]):
                return tree.Index(of, key, at)
            case ("getVariable", [tree.Constant(value=str(variable))]) if (
                isinstance(of, tree.Variable) and of.name == "execution"
            ):
                return _or_null(variable, at)
            case ("concat", [other]):
                return tree.Arithmetic("+", of, tree.FunctionCall("text", (other,), at), at)
            case ("equals", [other]):
                # Unlike `==`, values of different types are not equal, rather than a mistake.
                return tree.Comparison("in", other, tree.ListOf((of,), at), at)
            case _ if name in _METHODS and len(arguments) == _METHODS[name][1]:
                return tree.FunctionCall(_METHODS[name][0], (of, *arguments), at)
        known = ", ".join(sorted([*_METHODS, "concat", "equals", "get"]))
        raise self.error(f"{name!r} is called as a method; values here are data and have only these: {known}", at)
