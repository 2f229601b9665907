"""The parser of Hark's own syntax, that of job files: `inputs.total > 3 and 'eu' in inputs.regions`.

Precedence, from the loosest: `a if b else c` and `b ? a : c`, `or`, `and`, `not`, comparisons and `in`, `+ -`,
`* / // %`, unary `-`, then `.name`, `[index]` and `| filter`, which bind tightest.
"""

from __future__ import annotations

import re
from typing import Final, cast

from hark.programs.expressions.grammar import TokenReader, check_call, check_depth, read_simple_operand
from hark.programs.expressions.tokens import Lexeme, Lexicon, read_tokens
from hark.programs.expressions.tree import (
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Comparison,
    ComparisonOperator,
    Conditional,
    FunctionCall,
    Index,
    ListOf,
    Logical,
    Negative,
    Node,
    Not,
    ObjectOf,
)

_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"', "/": "/", "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SIGNS = re.compile(r"==|!=|<=|>=|//|&&|\|\||[-+*/%<>=!.,:?|()\[\]{}]")
# Task names have hyphens: after a dot, a hyphen between letters belongs to the name. Spaces make it a minus.
_ATTRIBUTE = re.compile(r"\w+(?:-\w+)*")

LEXICON = Lexicon(_SIGNS, _ATTRIBUTE, _ESCAPES, unicode_escapes=True, close=None)
LEXICON_IN_TEMPLATE = Lexicon(_SIGNS, _ATTRIBUTE, _ESCAPES, unicode_escapes=True, close="}}")

_RESERVED = frozenset({"and", "or", "not", "in", "if", "else"})
_INSTEAD: Final = {"&&": "and", "||": "or", "!": "not", "=": "=="}

# How tightly a binary operator binds; what follows it is read with one more.
_CONDITIONAL, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _UNARY = range(1, 9)
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def parse(text: str, start: int = 0, *, in_template: bool = False) -> tuple[Node, int]:
    """The tree of the expression that starts at this index, and the index after it (and after its `}}`)."""
    tokens, end = read_tokens(text, start, LEXICON_IN_TEMPLATE if in_template else LEXICON)
    reader = TokenReader(text, tokens)
    tree = _expression(reader, _CONDITIONAL)
    if reader.peek().kind != "end":
        raise _leftover(reader)
    return check_depth(reader, tree), end


def _leftover(reader: TokenReader) -> Exception:
    token = reader.peek()
    if token.kind == "sign" and token.value in _INSTEAD:
        return reader.error(f"Write {_INSTEAD[token.value]!r} instead of {token.value!r}", token.at)
    return reader.unexpected("An operator or the end")


def _expression(reader: TokenReader, least: int) -> Node:
    """An expression whose operators bind at least this tightly."""
    reader.descend(reader.peek().at)
    left = _operand(reader, least)
    while (combined := _combine(reader, left, least)) is not None:
        left = combined
    reader.ascend()
    return left


def _combine(reader: TokenReader, left: Node, least: int) -> Node | None:
    """Read the operator that follows `left`, and its right side; None if none follows that binds so tightly."""
    token = reader.peek()
    match token.kind, token.value:
        case ("sign", "+" | "-" as operator) if least <= _SUM:
            reader.take()
            return Arithmetic(cast(ArithmeticOperator, operator), left, _expression(reader, _SUM + 1), token.at)
        case ("sign", "*" | "/" | "//" | "%" as operator) if least <= _PRODUCT:
            reader.take()
            return Arithmetic(cast(ArithmeticOperator, operator), left, _expression(reader, _PRODUCT + 1), token.at)
        case ("sign", "==" | "!=" | "<" | "<=" | ">" | ">=") | ("name", "in" | "not") if least <= _COMPARISON:
            return _comparison(reader, left)
        case ("name", "and" | "or" as operator) if least <= (binding := _AND if operator == "and" else _OR):
            operands = [left]
            while reader.take_if("name", operator):
                operands.append(_expression(reader, binding + 1))
            return Logical(operator, tuple(operands), token.at)
        case ("sign", "?") if least <= _CONDITIONAL:
            reader.take()
            then = _expression(reader, _CONDITIONAL)
            reader.expect_sign(":")
            return Conditional(left, then, _expression(reader, _CONDITIONAL), token.at)
        case ("name", "if") if least <= _CONDITIONAL:
            reader.take()
            test = _expression(reader, _OR)
            if not reader.take_if("name", "else"):
                raise reader.unexpected("'else'")
            return Conditional(test, left, _expression(reader, _CONDITIONAL), token.at)
    return None


def _comparison(reader: TokenReader, left: Node) -> Node:
    token = reader.take()
    operator = token.value
    if operator == "not":
        if not reader.take_if("name", "in"):
            raise reader.unexpected("'in' after 'not'")
        operator = "not in"
    right = _expression(reader, _COMPARISON + 1)
    if reader.is_next("sign", *_COMPARISONS) or reader.is_next("name", "in"):
        raise reader.error("Comparisons cannot be chained; combine two of them with 'and'", reader.peek().at)
    return Comparison(cast(ComparisonOperator, operator), left, right, token.at)


def _operand(reader: TokenReader, least: int) -> Node:
    token = reader.take()
    match token.kind, token.value:
        case ("sign", "-"):
            return Negative(_expression(reader, _UNARY), token.at)
        case ("name", "not") if least <= _NOT:
            return Not(_expression(reader, _NOT), token.at)
        case ("name", "not"):
            raise reader.error("'not' needs parentheses here: (not …)", token.at)
    return _postfix(reader, _primary(reader, token))


def _primary(reader: TokenReader, token: Lexeme) -> Node:
    match token.kind, token.value:
        case ("sign", "("):
            inner = _expression(reader, _CONDITIONAL)
            reader.expect_sign(")")
            return inner
        case ("sign", "["):
            return ListOf(tuple(_items(reader, "]")), token.at)
        case ("sign", "{"):
            return ObjectOf(_pairs(reader), token.at)
        case ("sign", sign) if sign in _INSTEAD:
            raise reader.error(f"Write {_INSTEAD[sign]!r} instead of {sign!r}", token.at)
    return read_simple_operand(reader, token, _RESERVED, _call)


def _call(reader: TokenReader, token: Lexeme) -> Node:
    return check_call(reader, FunctionCall(token.value, _arguments(reader), token.at))


def _postfix(reader: TokenReader, node: Node) -> Node:
    while True:
        at = reader.peek().at
        if reader.take_if("sign", "."):
            if reader.peek().kind != "attribute":
                raise reader.unexpected("A name after '.'")
            node = Attribute(node, reader.take().value, at)
        elif reader.take_if("sign", "["):
            key = _expression(reader, _CONDITIONAL)
            reader.expect_sign("]")
            node = Index(node, key, at)
        elif reader.take_if("sign", "|"):
            name = reader.take()
            if name.kind != "name":
                raise reader.error("The name of a filter is expected after '|'", name.at)
            further = _arguments(reader) if reader.take_if("sign", "(") else ()
            node = check_call(reader, FunctionCall(name.value, (node, *further), name.at))
        else:
            return node


def _arguments(reader: TokenReader) -> tuple[Node, ...]:
    return tuple(_items(reader, ")"))


def _items(reader: TokenReader, close: str) -> list[Node]:
    items: list[Node] = []
    while not reader.take_if("sign", close):
        if items:
            reader.expect_sign(",")
            if reader.take_if("sign", close):  # a comma after the last item
                break
        items.append(_expression(reader, _CONDITIONAL))
    return items


def _pairs(reader: TokenReader) -> tuple[tuple[Node, Node], ...]:
    pairs: list[tuple[Node, Node]] = []
    while not reader.take_if("sign", "}"):
        if pairs:
            reader.expect_sign(",")
            if reader.take_if("sign", "}"):
                break
        # A key binds tighter than `?`, whose `:` it would take otherwise.
        key = _expression(reader, _OR)
        reader.expect_sign(":")
        pairs.append((key, _expression(reader, _CONDITIONAL)))
    return tuple(pairs)
