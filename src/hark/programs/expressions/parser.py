"""The parser of Hark's own syntax, that of job files: `inputs.total > 3 and 'eu' in inputs.regions`.

Precedence, from the loosest: `a if b else c` and `b ? a : c`, `or`, `and`, `not`, comparisons and `in`, `+ -`,
`* / // %`, unary `-`, then `.name`, `[index]` and `| filter`, which bind tightest.
"""

from __future__ import annotations

import re
from typing import Final, cast

from hark.programs.expressions import tree
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.grammar import LOOSEST, Parser
from hark.programs.expressions.tokens import Lexeme, Lexicon, read_tokens
from hark.programs.expressions.tree import Node

_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"', "/": "/", "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SIGNS = re.compile(r"==|!=|<=|>=|//|&&|\|\||[-+*/%<>=!.,:?|()\[\]{}]")
# Task names have hyphens: after a dot, a hyphen between letters belongs to the name. Spaces make it a minus.
_ATTRIBUTE = re.compile(r"\w+(?:-\w+)*")

LEXICON = Lexicon(_SIGNS, _ATTRIBUTE, _ESCAPES, unicode_escapes=True, close=None)
LEXICON_IN_TEMPLATE = Lexicon(_SIGNS, _ATTRIBUTE, _ESCAPES, unicode_escapes=True, close="}}")

_INSTEAD: Final = {"&&": "and", "||": "or", "!": "not", "=": "=="}

# How tightly a binary operator binds; what follows it is read with one more.
_CONDITIONAL, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _UNARY = range(LOOSEST, 9)
_ARITHMETIC: Final = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def parse(text: str, start: int = 0, *, in_template: bool = False) -> tuple[Node, int]:
    """The tree of the expression that starts at this index, and the index after it (and after its `}}`)."""
    tokens, end = read_tokens(text, start, LEXICON_IN_TEMPLATE if in_template else LEXICON)
    return _OwnParser(text, tokens).parse(), end


class _OwnParser(Parser):
    reserved = frozenset({"and", "or", "not", "in", "if", "else"})

    def leftover(self) -> ExpressionError:
        token = self.peek()
        if token.kind == "sign" and token.value in _INSTEAD:
            return self._written_otherwise(token)
        return super().leftover()

    def _written_otherwise(self, token: Lexeme) -> ExpressionError:
        return self.error(f"Write {_INSTEAD[token.value]!r} instead of {token.value!r}", token.at)

    def combine(self, left: Node, least: int) -> Node | None:
        token = self.peek()
        match token.kind, token.value:
            case ("sign", operator) if operator in _ARITHMETIC and least <= _ARITHMETIC[operator]:
                self.take()
                right = self.expression(_ARITHMETIC[operator] + 1)
                return tree.Arithmetic(cast(tree.ArithmeticOperator, operator), left, right, token.at)
            case ("sign", "==" | "!=" | "<" | "<=" | ">" | ">=") | ("name", "in" | "not") if least <= _COMPARISON:
                return self._comparison(left)
            case ("name", "and" | "or" as word) if least <= (binding := _AND if word == "and" else _OR):
                return self.logical(left, word, binding)
            case ("sign", "?") if least <= _CONDITIONAL:
                return self.conditional(left)
            case ("name", "if") if least <= _CONDITIONAL:
                self.take()
                test = self.expression(_OR)
                self.expect_word("else")
                return tree.Conditional(test, left, self.expression(), token.at)
        return None

    def _comparison(self, left: Node) -> Node:
        token = self.take()
        operator = token.value
        if operator == "not":
            if not self.take_if("name", "in"):
                raise self.unexpected("'in' after 'not'")
            operator = "not in"
        right = self.expression(_COMPARISON + 1)
        if self.is_next("sign", *_COMPARISONS) or self.is_next("name", "in"):
            raise self.error("Comparisons cannot be chained; combine two of them with 'and'", self.peek().at)
        return tree.Comparison(cast(tree.ComparisonOperator, operator), left, right, token.at)

    def operand(self, least: int) -> Node:
        token = self.take()
        match token.kind, token.value:
            case ("sign", "-"):
                return tree.Negative(self.expression(_UNARY), token.at)
            case ("name", "not") if least <= _NOT:
                return tree.Not(self.expression(_NOT), token.at)
            case ("name", "not"):
                raise self.error("'not' needs parentheses here: (not …)", token.at)
        return self._postfix(self._primary(token))

    def _primary(self, token: Lexeme) -> Node:
        match token.kind, token.value:
            case ("sign", "("):
                return self.enclosed(")")
            case ("sign", "["):
                return tree.ListOf(self._list("]"), token.at)
            case ("sign", "{"):
                return tree.ObjectOf(tuple(self.items("}", self._pair, trailing_comma=True)), token.at)
            case ("sign", sign) if sign in _INSTEAD:
                raise self._written_otherwise(token)
        return self.simple_operand(token)

    def call(self, token: Lexeme) -> Node:
        return self.checked_call(tree.FunctionCall(token.value, self._list(")"), token.at))

    def _postfix(self, node: Node) -> Node:
        while True:
            at = self.peek().at
            if self.take_if("sign", "."):
                node = tree.Attribute(node, self.attribute_name(), at)
            elif self.take_if("sign", "["):
                node = tree.Index(node, self.enclosed("]"), at)
            elif self.take_if("sign", "|"):
                name = self.take()
                if name.kind != "name":
                    raise self.error("The name of a filter is expected after '|'", name.at)
                further = self._list(")") if self.take_if("sign", "(") else ()
                node = self.checked_call(tree.FunctionCall(name.value, (node, *further), name.at))
            else:
                return node

    def _list(self, close: str) -> tuple[Node, ...]:
        return tuple(self.items(close, self.expression, trailing_comma=True))

    def _pair(self) -> tuple[Node, Node]:
        # A key binds tighter than `?`, whose `:` it would take otherwise.
        key = self.expression(_OR)
        self.expect_sign(":")
        return key, self.expression()
