"""Parser: the common parts of the parsers of all syntaxes: tokens, levels of operators, and the limits of a tree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Final, Literal, TypeVar

from hark.programs.expressions.error import ExpressionError, suggestion
from hark.programs.expressions.functions import FUNCTIONS
from hark.programs.expressions.tokens import Kind, Lexeme
from hark.programs.expressions.tree import (
    Arithmetic,
    Conditional,
    Constant,
    FunctionCall,
    Logical,
    Node,
    Variable,
    parts,
)

MAX_DEPTH = 50  # levels; an evaluation needs two frames per level, of Python's thousand
LOOSEST = 1  # the level of the operators that bind least tightly, in every syntax

_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_T = TypeVar("_T")


class Parser(ABC):
    """Reads the tokens of one expression from the left, and builds its tree. Each syntax has a subclass.

    Attributes:
        reserved: The names that are not variables.
    """

    reserved: ClassVar[Collection[str]]

    def __init__(self, text: str, tokens: list[Lexeme]) -> None:
        self.text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    # -- the syntax -------------------------------------------------------------------------------

    @abstractmethod
    def operand(self, least: int) -> Node:
        """Read an operand, with the operators before and behind it that bind tightest."""

    @abstractmethod
    def combine(self, left: Node, least: int) -> Node | None:
        """Read the operator that follows `left`, and its right side; None if none follows that binds so tightly."""

    @abstractmethod
    def call(self, token: Lexeme) -> Node:
        """Read a call of the function with this name from behind its `(`."""

    def leftover(self) -> ExpressionError:
        """The error about tokens that are left behind the expression."""
        return self.unexpected("An operator or the end")

    # -- expressions ------------------------------------------------------------------------------

    def parse(self) -> Node:
        """The tree of all tokens. Raises ExpressionError."""
        tree = self.expression()
        if self.peek().kind != "end":
            raise self.leftover()
        self._check_depth(tree)
        return tree

    def expression(self, least: int = LOOSEST) -> Node:
        """Read an expression whose operators bind at least this tightly."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep(self.peek().at)
        tree = self.continued(self.operand(least), least)
        self._depth -= 1
        return tree

    def continued(self, left: Node, least: int) -> Node:
        """`left` with all operators that follow it and bind at least this tightly."""
        while (combined := self.combine(left, least)) is not None:
            left = combined
        return left

    def logical(self, left: Node, word: Literal["and", "or"], binding: int) -> Node:
        """`left` with each `and`, or each `or`, that follows it, and its right side."""
        at, operands = self.peek().at, [left]
        while self.take_if("name", word):
            operands.append(self.expression(binding + 1))
        return Logical(word, tuple(operands), at)

    def conditional(self, test: Node) -> Node:
        """`test` with the `?` that follows it, and the two expressions behind it."""
        at, then = self.take().at, self.expression()
        self.expect_sign(":")
        return Conditional(test, then, self.expression(), at)

    def enclosed(self, close: str) -> Node:
        """Read an expression and the bracket behind it."""
        inner = self.expression()
        self.expect_sign(close)
        return inner

    def simple_operand(self, token: Lexeme) -> Node:
        """The operand that begins with this token, if all syntaxes have it: a constant, a variable or a call."""
        match token.kind, token.value:
            case (("number" | "text"), value):
                return Constant(value, token.at)
            case ("name", "true" | "false" | "null" as name):
                return Constant(_CONSTANTS[name], token.at)
            case ("name", name) if name not in self.reserved:
                return self.call(token) if self.take_if("sign", "(") else Variable(name, token.at)
            case ("end", _):
                raise self.error("A value is expected, not the end of the expression", token.at)
        raise self.error(f"A value is expected, not {token.value!r}", token.at)

    def attribute_name(self) -> str:
        """Read the name behind a dot."""
        if self.peek().kind != "attribute":
            raise self.unexpected("A name after '.'")
        return str(self.take().value)

    def items(self, close: str, read: Callable[[], _T], *, trailing_comma: bool = False) -> list[_T]:
        """Read items with commas between them, and the sign that closes them."""
        items: list[_T] = []
        while not self.take_if("sign", close):
            if items:
                self.expect_sign(",")
                if trailing_comma and self.take_if("sign", close):
                    break
            items.append(read())
        return items

    def checked_call(self, call: FunctionCall) -> FunctionCall:
        """The call, if the function exists and takes this number of arguments."""
        function = FUNCTIONS.get(call.function)
        if function is None:
            raise self.error(f"There is no function {call.function!r}; {suggestion(call.function, FUNCTIONS)}", call.at)
        if not function.least <= len(call.arguments) <= function.most:
            raise self.error(f"{call.function} is called as {function.usage}", call.at)
        return call

    def _check_depth(self, tree: Node) -> None:
        """Refuse a tree that the evaluator cannot walk. The left side of arithmetic does not count: see there."""
        pending = [(tree, 1)]
        while pending:
            node, depth = pending.pop()
            if depth > MAX_DEPTH:
                raise self._too_deep(node.at)
            if isinstance(node, Arithmetic):
                pending += [(node.left, depth), (node.right, depth + 1)]
            else:
                pending += [(part, depth + 1) for part in parts(node)]

    # -- tokens -----------------------------------------------------------------------------------

    def peek(self, further: int = 0) -> Lexeme:
        """The next token, or one further on; the next one stays the next one."""
        return self._tokens[min(self._next + further, len(self._tokens) - 1)]

    def take(self) -> Lexeme:
        """The next token. The last one, `end`, can be taken any number of times."""
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def is_next(self, kind: Kind, *values: Any) -> bool:
        """Return True if the next token is of this kind and has one of these values."""
        token = self._tokens[self._next]
        return token.kind == kind and token.value in values

    def take_if(self, kind: Kind, value: str) -> bool:
        """Take the next token if it is this one. Return whether it was."""
        if found := self.is_next(kind, value):
            self._next += 1
        return found

    def expect_sign(self, sign: str) -> None:
        if not self.take_if("sign", sign):
            raise self.unexpected(f"{sign!r}")

    def expect_word(self, word: str) -> None:
        if not self.take_if("name", word):
            raise self.unexpected(f"{word!r}")

    def unexpected(self, expected: str) -> ExpressionError:
        """The error that says what was expected instead of the next token."""
        token = self.peek()
        found = "the end of the expression" if token.kind == "end" else f"{token.value!r}"
        return self.error(f"{expected} is expected, not {found}", token.at)

    def error(self, message: str, at: int) -> ExpressionError:
        return ExpressionError(message, self.text, at)

    def _too_deep(self, at: int) -> ExpressionError:
        return self.error(f"The expression is nested over {MAX_DEPTH} levels", at)
