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
from typing import Final

from hark.programs.expressions.grammar import TokenReader, check_call, check_depth, read_simple_operand
from hark.programs.expressions.tokens import Lexeme, Lexicon, read_tokens
from hark.programs.expressions.tree import (
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Comparison,
    ComparisonOperator,
    Conditional,
    Constant,
    FunctionCall,
    Index,
    ListOf,
    Logical,
    Negative,
    Node,
    Not,
    Variable,
)

_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"'}
_SIGNS = re.compile(r"==|!=|<=|>=|&&|\|\||[-+*/%<>!.,:?()\[\]{}]")
_LEXICON = Lexicon(_SIGNS, re.compile(r"[^\W\d]\w*"), _ESCAPES, unicode_escapes=False, close=None)
_LEXICON_IN_TEMPLATE = Lexicon(_SIGNS, re.compile(r"[^\W\d]\w*"), _ESCAPES, unicode_escapes=False, close="}")

_WORDS: Final = {
    "and": "&&", "or": "||", "not": "!", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
    "div": "/", "mod": "%",
}  # fmt: skip
_RESERVED = frozenset({*_WORDS, "empty", "instanceof"})

_CONDITIONAL, _OR, _AND, _EQUALITY, _ORDER, _SUM, _PRODUCT, _UNARY = range(1, 9)
_LOGICAL: Final[dict[str, tuple[int, str]]] = {"&&": (_AND, "and"), "||": (_OR, "or")}
_COMPARISONS: Final[dict[str, tuple[int, ComparisonOperator]]] = {
    "==": (_EQUALITY, "=="), "!=": (_EQUALITY, "!="),
    "<": (_ORDER, "<"), ">": (_ORDER, ">"), "<=": (_ORDER, "<="), ">=": (_ORDER, ">="),
}  # fmt: skip
_ARITHMETIC: Final[dict[str, tuple[int, ArithmeticOperator]]] = {
    "+": (_SUM, "+"), "-": (_SUM, "-"), "*": (_PRODUCT, "*"), "/": (_PRODUCT, "/"), "%": (_PRODUCT, "%"),
}  # fmt: skip


def parse(text: str, start: int = 0, *, in_template: bool = False) -> tuple[Node, int]:
    """The tree of the expression that starts at this index, and the index after it (and after its `}`)."""
    tokens, end = read_tokens(text, start, _LEXICON_IN_TEMPLATE if in_template else _LEXICON)
    reader = TokenReader(text, tokens)
    tree = _expression(reader, _CONDITIONAL)
    if reader.peek().kind != "end":
        raise reader.unexpected("An operator or the end")
    return check_depth(reader, tree), end


def _operator(token: Lexeme) -> str | None:
    """The sign of an operator, also if it is written as a word."""
    if token.kind == "name":
        return _WORDS.get(token.value)
    return str(token.value) if token.kind == "sign" else None


def _expression(reader: TokenReader, least: int) -> Node:
    """An expression whose operators bind at least this tightly."""
    reader.descend(reader.peek().at)
    left = _operand(reader)
    while (combined := _combine(reader, left, least)) is not None:
        left = combined
    reader.ascend()
    return left


def _combine(reader: TokenReader, left: Node, least: int) -> Node | None:
    token = reader.peek()
    operator = _operator(token)
    if operator is None:
        return None
    if operator in _LOGICAL and least <= _LOGICAL[operator][0]:
        binding, word = _LOGICAL[operator]
        operands = [left]
        while _operator(reader.peek()) == operator:
            reader.take()
            operands.append(_expression(reader, binding + 1))
        return Logical("and" if word == "and" else "or", tuple(operands), token.at)
    if operator in _COMPARISONS and least <= _COMPARISONS[operator][0]:
        reader.take()
        binding, comparison = _COMPARISONS[operator]
        return Comparison(comparison, left, _expression(reader, binding + 1), token.at, converts=True)
    if operator in _ARITHMETIC and least <= _ARITHMETIC[operator][0]:
        reader.take()
        binding, arithmetic = _ARITHMETIC[operator]
        return Arithmetic(arithmetic, left, _expression(reader, binding + 1), token.at)
    if operator == "?" and least <= _CONDITIONAL:
        reader.take()
        then = _expression(reader, _CONDITIONAL)
        reader.expect_sign(":")
        return Conditional(left, then, _expression(reader, _CONDITIONAL), token.at)
    return None


def _operand(reader: TokenReader) -> Node:
    token = reader.take()
    match _operator(token):
        case "-":
            return Negative(_expression(reader, _UNARY), token.at)
        case "!":
            return Not(_expression(reader, _UNARY), token.at)
    if token.kind == "name" and token.value == "empty":
        return FunctionCall("empty", (_expression(reader, _UNARY),), token.at)
    return _postfix(reader, _primary(reader, token))


def _primary(reader: TokenReader, token: Lexeme) -> Node:
    if token.kind == "name" and token.value in _PREFIXES and _calls_prefixed(reader, token):
        return _prefixed(reader)
    if token.kind == "sign" and token.value == "(":
        inner = _expression(reader, _CONDITIONAL)
        reader.expect_sign(")")
        return inner
    return read_simple_operand(reader, token, _RESERVED, _call)


def _call(reader: TokenReader, token: Lexeme) -> Node:
    return check_call(reader, FunctionCall(token.value, tuple(_arguments(reader)), token.at))


_PREFIXES = frozenset(("variables", "vars", "var"))
_PREFIXED_COMPARISONS: Final[dict[str, ComparisonOperator]] = {
    "eq": "==", "equals": "==", "ne": "!=", "notEquals": "!=", "lt": "<", "lowerThan": "<", "lessThan": "<",
    "lte": "<=", "lowerThanOrEquals": "<=", "lessThanOrEquals": "<=", "gt": ">", "greaterThan": ">",
    "gte": ">=", "greaterThanOrEquals": ">=",
}  # fmt: skip


def _calls_prefixed(reader: TokenReader, prefix: Lexeme) -> bool:
    """Return True if `vars` is the prefix of a function. `a ? vars : f(x)` is not one: there is a space before the
    colon."""
    colon, name, bracket = (reader.peek(further) for further in range(3))
    follows = colon.kind == "sign" and colon.value == ":" and colon.at == prefix.at + len(prefix.value)
    return follows and name.kind == "name" and bracket.kind == "sign" and bracket.value == "("


def _prefixed(reader: TokenReader) -> Node:
    """A function of Flowable on a variable that may be missing, read from its colon: `vars:equals(state, 'new')`."""
    reader.take()
    name = reader.take()
    reader.take()
    arguments = _arguments(reader)
    match arguments:
        case [Variable(name=variable), *others] | [Constant(value=str(variable)), *others]:
            value = _or_null(variable, name.at)
        case _:
            raise reader.error(f"The first argument of {name.value} has to be the name of a variable", name.at)
    match name.value, others:
        case ("get", []):
            return value
        case ("getOrDefault", [other]):
            return FunctionCall("default", (Variable(variable, name.at), other), name.at)
        case ("exists", []):
            return Comparison("!=", value, Constant(None, name.at), name.at, converts=True)
        case ("isEmpty" | "empty", []):
            return FunctionCall("empty", (value,), name.at)
        case ("isNotEmpty" | "notEmpty", []):
            return Not(FunctionCall("empty", (value,), name.at), name.at)
        case (function, [other]) if function in _PREFIXED_COMPARISONS:
            return Comparison(_PREFIXED_COMPARISONS[function], value, other, name.at, converts=True)
    known = ", ".join(sorted([*_PREFIXED_COMPARISONS, "exists", "get", "getOrDefault", "isEmpty", "isNotEmpty"]))
    raise reader.error(f"There is no function {name.value!r} of variables with these arguments, only: {known}", name.at)


def _or_null(variable: str, at: int) -> Node:
    """The value of a variable, or null if there is none of this name."""
    return FunctionCall("default", (Variable(variable, at), Constant(None, at)), at)


def _arguments(reader: TokenReader) -> list[Node]:
    arguments: list[Node] = []
    while not reader.take_if("sign", ")"):
        if arguments:
            reader.expect_sign(",")
        arguments.append(_expression(reader, _CONDITIONAL))
    return arguments


def _postfix(reader: TokenReader, node: Node) -> Node:
    while True:
        at = reader.peek().at
        if reader.take_if("sign", "."):
            if reader.peek().kind != "attribute":
                raise reader.unexpected("A name after '.'")
            name = reader.take().value
            node = _method(reader, node, name, at) if reader.take_if("sign", "(") else Attribute(node, name, at)
        elif reader.take_if("sign", "["):
            key = _expression(reader, _CONDITIONAL)
            reader.expect_sign("]")
            node = Index(node, key, at)
        else:
            return node


_METHODS: Final[dict[str, tuple[str, int]]] = {
    "size": ("length", 0), "length": ("length", 0), "isEmpty": ("empty", 0), "contains": ("contains", 1),
    "containsKey": ("contains", 1), "startsWith": ("starts_with", 1), "endsWith": ("ends_with", 1),
    "toUpperCase": ("upper", 0), "toLowerCase": ("lower", 0), "trim": ("trim", 0), "toString": ("text", 0),
}  # fmt: skip


def _method(reader: TokenReader, of: Node, name: str, at: int) -> Node:
    """The call of a method, read from behind its `(`: the function or operator that means the same."""
    arguments = _arguments(reader)
    match name, arguments:
        case ("get", [key]):
            return Index(of, key, at)
        case ("getVariable", [Constant(value=str(variable))]) if isinstance(of, Variable) and of.name == "execution":
            return _or_null(variable, at)
        case ("concat", [other]):
            return Arithmetic("+", of, FunctionCall("text", (other,), at), at)
        case ("equals", [other]):
            # Unlike `==`, values of different types are not equal, rather than a mistake.
            return Comparison("in", other, ListOf((of,), at), at)
        case _ if name in _METHODS and len(arguments) == _METHODS[name][1]:
            return FunctionCall(_METHODS[name][0], (of, *arguments), at)
    known = ", ".join(sorted([*_METHODS, "concat", "equals", "get"]))
    raise reader.error(f"{name!r} is called as a method; values here are data and have only these: {known}", at)
