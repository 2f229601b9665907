"""The parser of FEEL: `if order.total > 100 then "large" else "small"`.

Precedence, from the loosest: `if`, `for`, `some` and `every`, `or`, `and`, comparisons with `between` and `in`, `+ -`,
`* /`, `**`, unary `-`, then `.name` and `[filter]`. All operators of one level are read from the left, `**` too.
"""

from __future__ import annotations

from typing import Final, cast

from hark.programs.expressions.error import ExpressionError, suggestion
from hark.programs.expressions.feel.functions import FEEL_FUNCTIONS
from hark.programs.expressions.feel.lexer import read_feel_tokens
from hark.programs.expressions.feel.temporal import read_temporal
from hark.programs.expressions.grammar import TokenReader, check_depth, read_simple_operand
from hark.programs.expressions.tokens import Lexeme
from hark.programs.expressions.tree import (
    Arithmetic,
    ArithmeticOperator,
    Attribute,
    Between,
    Comparison,
    ComparisonOperator,
    Conditional,
    Constant,
    ContextOf,
    Filter,
    FunctionCall,
    IsIn,
    Iteration,
    ListOf,
    Logical,
    Negative,
    Node,
    RangeOf,
    UnaryTest,
    Variable,
)

_KEYWORDS = frozenset({
    "true", "false", "null", "and", "or", "if", "then", "else", "for", "return", "in", "some", "every", "satisfies",
    "between", "instance", "function",
})  # fmt: skip
_LOOSEST, _OR, _AND, _COMPARISON, _SUM, _PRODUCT, _POWER, _UNARY = range(1, 9)
_ARITHMETIC: Final[dict[str, int]] = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "**": _POWER}
_COMPARISONS: Final[dict[str, ComparisonOperator]] = {
    "=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_NOT_HERE: Final = {
    "function": "FEEL functions cannot be defined here; use one of those there are",
    "instance": "'instance of' is not supported; compare the value itself",
}


def parse(text: str, start: int = 0) -> Node:
    """The tree of the expression from this index to the end of the text. Raises ExpressionError."""
    reader = TokenReader(text, read_feel_tokens(text, start))
    tree = _expression(reader, _LOOSEST)
    if reader.peek().kind != "end":
        raise _leftover(reader)
    return check_depth(reader, tree)


def _leftover(reader: TokenReader) -> ExpressionError:
    token = reader.peek()
    if token.kind == "name" and token.value in _NOT_HERE:
        return reader.error(_NOT_HERE[token.value], token.at)
    if token.kind == "name" and reader.peek(1)[:2] == ("sign", "("):
        return _unknown_function(reader, f"{reader.peek(-1).value} {token.value}", token.at)
    if token.kind == "name" and token.value not in _KEYWORDS:
        return reader.error(f"An operator is expected before {token.value!r}; a name with spaces needs `…`", token.at)
    return reader.unexpected("An operator or the end")


def _expression(reader: TokenReader, least: int) -> Node:
    """Read an expression whose operators bind at least this tightly."""
    reader.descend(reader.peek().at)
    left = _operand(reader)
    while (combined := _combine(reader, left, least)) is not None:
        left = combined
    reader.ascend()
    return left


def _combine(reader: TokenReader, left: Node, least: int) -> Node | None:
    """Read the operator that follows `left`, and its right side; None if none follows that binds so tightly."""
    token = reader.peek()
    match token.kind, token.value:
        case ("sign", operator) if operator in _ARITHMETIC and least <= _ARITHMETIC[operator]:
            reader.take()
            right = _expression(reader, _ARITHMETIC[operator] + 1)
            return Arithmetic(cast(ArithmeticOperator, operator), left, right, token.at)
        case ("sign", operator) if operator in _COMPARISONS and least <= _COMPARISON:
            reader.take()
            return Comparison(_COMPARISONS[operator], left, _expression(reader, _COMPARISON + 1), token.at)
        case ("name", "between") if least <= _COMPARISON:
            reader.take()
            low = _expression(reader, _COMPARISON + 1)
            _expect_word(reader, "and")
            return Between(left, low, _expression(reader, _COMPARISON + 1), token.at)
        case ("name", "in") if least <= _COMPARISON:
            reader.take()
            return IsIn(left, _tests(reader), token.at)
        case ("name", "and" | "or" as operator) if least <= (binding := _AND if operator == "and" else _OR):
            operands = [left]
            while reader.take_if("name", operator):
                operands.append(_expression(reader, binding + 1))
            return Logical(operator, tuple(operands), token.at)
    return None


def _tests(reader: TokenReader) -> tuple[Node, ...]:
    """The right side of `in`: a test, or several in parentheses."""
    token = reader.peek()
    if not reader.take_if("sign", "("):
        return (_test(reader, _COMPARISON + 1),)
    first = _test(reader, _LOOSEST)
    if reader.take_if("sign", ".."):
        return (_postfix(reader, _range(reader, first, token)),)
    tests = [first]
    while reader.take_if("sign", ","):
        tests.append(_test(reader, _LOOSEST))
    reader.expect_sign(")")
    if len(tests) > 1 or isinstance(first, UnaryTest):
        return tuple(tests)
    # They were the parentheses of a value, which may go on: `x in (a)[1]`, `x in (1 + 2) * 3`.
    value = _postfix(reader, first)
    while (combined := _combine(reader, value, _COMPARISON + 1)) is not None:
        value = combined
    return (value,)


def _test(reader: TokenReader, least: int) -> Node:
    token = reader.peek()
    if token.kind == "sign" and token.value in _COMPARISONS:
        reader.take()
        return UnaryTest(_COMPARISONS[token.value], _expression(reader, _COMPARISON + 1), token.at)
    return _expression(reader, least)


def _operand(reader: TokenReader) -> Node:
    token = reader.take()
    match token.kind, token.value:
        case ("sign", "-"):
            return Negative(_expression(reader, _UNARY), token.at)
        case ("name", "if"):
            test = _expression(reader, _LOOSEST)
            _expect_word(reader, "then")
            then = _expression(reader, _LOOSEST)
            _expect_word(reader, "else")
            return Conditional(test, then, _expression(reader, _LOOSEST), token.at)
        case ("name", "some" | "every" | "for" as kind):
            return _iteration(reader, token, kind)
    return _postfix(reader, _primary(reader, token))


def _iteration(reader: TokenReader, token: Lexeme, kind: str) -> Node:
    over: list[tuple[str, Node]] = []
    while not over or reader.take_if("sign", ","):
        name = reader.take()
        if name.kind not in ("name", "attribute") or (name.kind == "name" and name.value in _KEYWORDS):
            raise reader.error(f"A name is expected after {kind!r}", name.at)
        _expect_word(reader, "in")
        source = _expression(reader, _COMPARISON + 1)
        if reader.take_if("sign", ".."):
            source = RangeOf(source, _expression(reader, _COMPARISON + 1), True, True, source.at)
        over.append((name.value, source))
    _expect_word(reader, "return" if kind == "for" else "satisfies")
    body = _expression(reader, _LOOSEST)
    match kind:
        case "some" | "every" | "for":
            return Iteration(kind, tuple(over), body, token.at)
    raise AssertionError(kind)


def _primary(reader: TokenReader, token: Lexeme) -> Node:
    match token.kind, token.value:
        case ("attribute", name):
            return Variable(name, token.at)
        case ("sign", "("):
            inner = _expression(reader, _LOOSEST)
            if reader.take_if("sign", ".."):
                return _range(reader, inner, token)
            reader.expect_sign(")")
            return inner
        case ("sign", "["):
            return _list_or_range(reader, token)
        case ("sign", "]"):
            low = _expression(reader, _LOOSEST)
            reader.expect_sign("..")
            return _range(reader, low, token)
        case ("sign", "{"):
            return _context(reader, token)
        case ("sign", "@") if reader.peek().kind == "text":
            written = reader.take()
            if (value := read_temporal(written.value)) is None:
                raise reader.error(f"{written.value!r} is not a date, a time or a duration", written.at)
            return Constant(value, token.at)
        case ("name", name) if name in _NOT_HERE:
            raise reader.error(_NOT_HERE[name], token.at)
    return read_simple_operand(reader, token, _KEYWORDS, _call)


def _call(reader: TokenReader, token: Lexeme) -> Node:
    """The call of a function. One with a wrong number of arguments gives null, as FEEL says: it is not refused."""
    arguments = _items(reader, ")")
    if token.value not in FEEL_FUNCTIONS:
        raise _unknown_function(reader, token.value, token.at)
    return FunctionCall(token.value, tuple(arguments), token.at)


def _unknown_function(reader: TokenReader, name: str, at: int) -> ExpressionError:
    return reader.error(f"There is no function {name!r} in FEEL; {suggestion(name, FEEL_FUNCTIONS)}", at)


def _items(reader: TokenReader, close: str, first: tuple[Node, ...] = ()) -> list[Node]:
    items = list(first)
    while not reader.take_if("sign", close):
        if items:
            reader.expect_sign(",")
        items.append(_expression(reader, _LOOSEST))
        if reader.is_next("sign", ":"):
            raise reader.error("Arguments are given by position, not by name", reader.peek().at)
    return items


def _list_or_range(reader: TokenReader, token: Lexeme) -> Node:
    if reader.take_if("sign", "]"):
        return ListOf((), token.at)
    first = _expression(reader, _LOOSEST)
    if reader.take_if("sign", ".."):
        return _range(reader, first, token)
    return ListOf(tuple(_items(reader, "]", (first,))), token.at)


def _range(reader: TokenReader, low: Node, opened: Lexeme) -> Node:
    """A range, read after its `..`. `]` before it and `[` behind it exclude the ends, as `(` and `)` do."""
    reader.range_ends += 1
    high = _expression(reader, _LOOSEST)
    reader.range_ends -= 1
    if not reader.is_next("sign", ")", "]", "["):
        raise reader.unexpected("')' or ']' at the end of the range")
    return RangeOf(low, high, opened.value == "[", reader.take().value == "]", opened.at)


def _context(reader: TokenReader, opened: Lexeme) -> Node:
    """A context. One in which a name occurs twice is null, as FEEL says."""
    entries: list[tuple[str, Node]] = []
    while not reader.take_if("sign", "}"):
        if entries:
            reader.expect_sign(",")
        name = _entry_name(reader)
        reader.expect_sign(":")
        entries.append((name, _expression(reader, _LOOSEST)))
    if len({name for name, _ in entries}) < len(entries):
        return Constant(None, opened.at)
    return ContextOf(tuple(entries), opened.at)


def _entry_name(reader: TokenReader) -> str:
    """The name of an entry: a text, or all that is written before the colon: `first name`, `a+b`."""
    key = reader.take()
    if key.kind in ("text", "attribute"):
        return str(key.value)
    if key.kind != "name":
        raise reader.error("The name of an entry is expected", key.at)
    while reader.peek().kind in ("name", "number") or reader.is_next("sign", "+", "-", "*", "/", "."):
        reader.take()
    return " ".join(reader.text[key.at : reader.peek().at].split())


def _postfix(reader: TokenReader, node: Node) -> Node:
    while True:
        at = reader.peek().at
        if reader.take_if("sign", "."):
            if reader.peek().kind != "attribute":
                raise reader.unexpected("A name after '.'")
            node = Attribute(node, reader.take().value, at)
        elif reader.is_next("sign", "[") and not _closes_range(reader):
            reader.take()
            ends, reader.range_ends = reader.range_ends, 0
            node = Filter(node, _expression(reader, _LOOSEST), at)
            reader.range_ends = ends
            reader.expect_sign("]")
        else:
            return node


def _closes_range(reader: TokenReader) -> bool:
    """Return True if this `[` is the end of a range: `]1..3[`. A filter would go on with a value."""
    if not reader.range_ends:
        return False
    following = reader.peek(1)
    match following.kind, following.value:
        case ("end", _) | ("sign", ")" | "]" | "}" | "," | "." | "=" | "!=" | "<" | "<=" | ">" | ">="):
            return True
        case ("name", word):
            return word in ("and", "or", "then", "else", "in", "between", "satisfies", "return")
    return False


def _expect_word(reader: TokenReader, word: str) -> None:
    if not reader.take_if("name", word):
        raise reader.unexpected(f"{word!r}")
