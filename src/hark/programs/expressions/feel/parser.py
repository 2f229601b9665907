"""The parser of FEEL: `if order.total > 100 then "large" else "small"`.

Precedence, from the loosest: `if`, `for`, `some` and `every`, `or`, `and`, comparisons with `between` and `in`, `+ -`,
`* /`, `**`, unary `-`, then `.name` and `[filter]`. All operators of one level are read from the left, `**` too.
"""

from __future__ import annotations

from typing import Final, cast

from hark.programs.expressions import tree
from hark.programs.expressions.error import ExpressionError, suggestion
from hark.programs.expressions.feel.functions import FEEL_FUNCTIONS
from hark.programs.expressions.feel.lexer import read_feel_tokens
from hark.programs.expressions.feel.temporal import read_temporal
from hark.programs.expressions.grammar import LOOSEST, Parser
from hark.programs.expressions.tokens import Lexeme
from hark.programs.expressions.tree import Node

_KEYWORDS = frozenset({
    "true", "false", "null", "and", "or", "if", "then", "else", "for", "return", "in", "some", "every", "satisfies",
    "between", "instance", "function",
})  # fmt: skip
_OR, _AND, _COMPARISON, _SUM, _PRODUCT, _POWER, _UNARY = range(LOOSEST + 1, 9)
_ARITHMETIC: Final[dict[str, int]] = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "**": _POWER}
_COMPARISONS: Final[dict[str, tree.ComparisonOperator]] = {
    "=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_NOT_HERE: Final = {
    "function": "FEEL functions cannot be defined here; use one of those there are",
    "instance": "'instance of' is not supported; compare the value itself",
}


def parse(text: str, start: int = 0) -> Node:
    """The tree of the expression from this index to the end of the text. Raises ExpressionError."""
    return _FeelParser(text, read_feel_tokens(text, start)).parse()


class _FeelParser(Parser):
    reserved = _KEYWORDS

    def __init__(self, text: str, tokens: list[Lexeme]) -> None:
        super().__init__(text, tokens)
        self._range_ends = 0  # how many ranges are open whose end is being read

    def leftover(self) -> ExpressionError:
        token = self.peek()
        if token.kind == "name" and token.value in _NOT_HERE:
            return self.error(_NOT_HERE[token.value], token.at)
        if token.kind == "name" and self.peek(1)[:2] == ("sign", "("):
            return self._unknown_function(f"{self.peek(-1).value} {token.value}", token.at)
        if token.kind == "name" and token.value not in _KEYWORDS:
            return self.error(f"An operator is expected before {token.value!r}; a name with spaces needs `…`", token.at)
        return super().leftover()

    def combine(self, left: Node, least: int) -> Node | None:
        token = self.peek()
        match token.kind, token.value:
            case ("sign", operator) if operator in _ARITHMETIC and least <= _ARITHMETIC[operator]:
                self.take()
                right = self.expression(_ARITHMETIC[operator] + 1)
                return tree.Arithmetic(cast(tree.ArithmeticOperator, operator), left, right, token.at)
            case ("sign", operator) if operator in _COMPARISONS and least <= _COMPARISON:
                self.take()
                return tree.Comparison(_COMPARISONS[operator], left, self.expression(_COMPARISON + 1), token.at)
            case ("name", "between") if least <= _COMPARISON:
                self.take()
                low = self.expression(_COMPARISON + 1)
                self.expect_word("and")
                return tree.Between(left, low, self.expression(_COMPARISON + 1), token.at)
            case ("name", "in") if least <= _COMPARISON:
                self.take()
                return tree.IsIn(left, self._tests(), token.at)
            case ("name", "and" | "or" as word) if least <= (binding := _AND if word == "and" else _OR):
                return self.logical(left, word, binding)
        return None

    def _tests(self) -> tuple[Node, ...]:
        """The right side of `in`: a test, or several in parentheses."""
        token = self.peek()
        if not self.take_if("sign", "("):
            return (self._test(_COMPARISON + 1),)
        first = self._test(LOOSEST)
        if self.take_if("sign", ".."):
            return (self._postfix(self._range(first, token)),)
        tests = [first]
        while self.take_if("sign", ","):
            tests.append(self._test(LOOSEST))
        self.expect_sign(")")
        if len(tests) > 1 or isinstance(first, tree.UnaryTest):
            return tuple(tests)
        # They were the parentheses of a value, which may go on: `x in (a)[1]`, `x in (1 + 2) * 3`.
        return (self.continued(self._postfix(first), _COMPARISON + 1),)

    def _test(self, least: int) -> Node:
        token = self.peek()
        if token.kind == "sign" and token.value in _COMPARISONS:
            self.take()
            return tree.UnaryTest(_COMPARISONS[token.value], self.expression(_COMPARISON + 1), token.at)
        return self.expression(least)

    def operand(self, least: int) -> Node:
        token = self.take()
        match token.kind, token.value:
            case ("sign", "-"):
                return tree.Negative(self.expression(_UNARY), token.at)
            case ("name", "if"):
                test = self.expression()
                self.expect_word("then")
                then = self.expression()
                self.expect_word("else")
                return tree.Conditional(test, then, self.expression(), token.at)
            case ("name", "some" | "every" | "for" as kind):
                return self._iteration(token, kind)
        return self._postfix(self._primary(token))

    def _iteration(self, token: Lexeme, kind: str) -> Node:
        over: list[tuple[str, Node]] = []
        while not over or self.take_if("sign", ","):
            name = self.take()
            if name.kind not in ("name", "attribute") or (name.kind == "name" and name.value in _KEYWORDS):
                raise self.error(f"A name is expected after {kind!r}", name.at)
            self.expect_word("in")
            source = self.expression(_COMPARISON + 1)
            if self.take_if("sign", ".."):
                source = tree.RangeOf(source, self.expression(_COMPARISON + 1), True, True, source.at)
            over.append((name.value, source))
        self.expect_word("return" if kind == "for" else "satisfies")
        body = self.expression()
        match kind:
            case "some" | "every" | "for":
                return tree.Iteration(kind, tuple(over), body, token.at)
        raise AssertionError(kind)

    def _primary(self, token: Lexeme) -> Node:
        match token.kind, token.value:
            case ("attribute", name):
                return tree.Variable(name, token.at)
            case ("sign", "("):
                inner = self.expression()
                if self.take_if("sign", ".."):
                    return self._range(inner, token)
                self.expect_sign(")")
                return inner
            case ("sign", "["):
                return self._list_or_range(token)
            case ("sign", "]"):
                low = self.expression()
                self.expect_sign("..")
                return self._range(low, token)
            case ("sign", "{"):
                return self._context(token)
            case ("sign", "@") if self.peek().kind == "text":
                written = self.take()
                if (value := read_temporal(written.value)) is None:
                    raise self.error(f"{written.value!r} is not a date, a time or a duration", written.at)
                return tree.Constant(value, token.at)
            case ("name", name) if name in _NOT_HERE:
                raise self.error(_NOT_HERE[name], token.at)
        return self.simple_operand(token)

    def call(self, token: Lexeme) -> Node:
        """The call of a function. One with a wrong number of arguments gives null, as FEEL says: it is not refused."""
        arguments = self.items(")", self._item)
        if token.value not in FEEL_FUNCTIONS:
            raise self._unknown_function(token.value, token.at)
        return tree.FunctionCall(token.value, tuple(arguments), token.at)

    def _unknown_function(self, name: str, at: int) -> ExpressionError:
        return self.error(f"There is no function {name!r} in FEEL; {suggestion(name, FEEL_FUNCTIONS)}", at)

    def _item(self) -> Node:
        item = self.expression()
        if self.is_next("sign", ":"):
            raise self.error("Arguments are given by position, not by name", self.peek().at)
        return item

    def _list_or_range(self, token: Lexeme) -> Node:
        if self.take_if("sign", "]"):
            return tree.ListOf((), token.at)
        items = [self.expression()]
        if self.take_if("sign", ".."):
            return self._range(items[0], token)
        while not self.take_if("sign", "]"):
            self.expect_sign(",")
            items.append(self._item())
        return tree.ListOf(tuple(items), token.at)

    def _range(self, low: Node, opened: Lexeme) -> Node:
        """A range, read after its `..`. `]` before it and `[` behind it exclude the ends, as `(` and `)` do."""
        self._range_ends += 1
        high = self.expression()
        self._range_ends -= 1
        if not self.is_next("sign", ")", "]", "["):
            raise self.unexpected("')' or ']' at the end of the range")
        return tree.RangeOf(low, high, opened.value == "[", self.take().value == "]", opened.at)

    def _context(self, opened: Lexeme) -> Node:
        """A context. One in which a name occurs twice is null, as FEEL says."""
        entries = self.items("}", self._entry)
        if len({name for name, _ in entries}) < len(entries):
            return tree.Constant(None, opened.at)
        return tree.ContextOf(tuple(entries), opened.at)

    def _entry(self) -> tuple[str, Node]:
        name = self._entry_name()
        self.expect_sign(":")
        return name, self.expression()

    def _entry_name(self) -> str:
        """The name of an entry: a text, or all that is written before the colon: `first name`, `a+b`."""
        key = self.take()
        if key.kind in ("text", "attribute"):
            return str(key.value)
        if key.kind != "name":
            raise self.error("The name of an entry is expected", key.at)
        while self.peek().kind in ("name", "number") or self.is_next("sign", "+", "-", "*", "/", "."):
            self.take()
        return " ".join(self.text[key.at : self.peek().at].split())

    def _postfix(self, node: Node) -> Node:
        while True:
            at = self.peek().at
            if self.take_if("sign", "."):
                node = tree.Attribute(node, self.attribute_name(), at)
            elif self.is_next("sign", "[") and not self._closes_range():
                self.take()
                ends, self._range_ends = self._range_ends, 0
                node = tree.Filter(node, self.expression(), at)
                self._range_ends = ends
                self.expect_sign("]")
            else:
                return node

    def _closes_range(self) -> bool:
        """Return True if this `[` is the end of a range: `]1..3[`. A filter would go on with a value."""
        if not self._range_ends:
            return False
        following = self.peek(1)
        match following.kind, following.value:
            case ("end", _) | ("sign", ")" | "]" | "}" | "," | "." | "=" | "!=" | "<" | "<=" | ">" | ">="):
                return True
            case ("name", word):
                return word in ("and", "or", "then", "else", "in", "between", "satisfies", "return")
        return False
