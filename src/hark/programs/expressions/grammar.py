"""What the parsers of all syntaxes share: reading tokens, building nodes, and the limits of a tree."""

from __future__ import annotations

from typing import Any

from hark.programs.expressions.error import ExpressionError, suggestion
from hark.programs.expressions.functions import FUNCTIONS
from hark.programs.expressions.tokens import Kind, Lexeme
from hark.programs.expressions.tree import Arithmetic, FunctionCall, Node, parts

MAX_DEPTH = 50  # levels; an evaluation needs two frames per level, of Python's thousand


class TokenReader:
    """The tokens of one expression, read from the left, and the place of errors."""

    def __init__(self, text: str, tokens: list[Lexeme]) -> None:
        self.text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def peek(self) -> Lexeme:
        """The next token, which stays the next one."""
        return self._tokens[self._next]

    def take(self) -> Lexeme:
        """The next token. The last one, `end`, can be taken any number of times."""
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def is_next(self, kind: Kind, *values: Any) -> bool:
        """Whether the next token is of this kind and has one of these values."""
        token = self._tokens[self._next]
        return token.kind == kind and token.value in values

    def take_if(self, kind: Kind, value: str) -> bool:
        """Take the next token if it is this one, and say so."""
        if found := self.is_next(kind, value):
            self._next += 1
        return found

    def expect_sign(self, sign: str) -> None:
        """Take this sign, or raise."""
        if not self.take_if("sign", sign):
            raise self.unexpected(f"{sign!r}")

    def unexpected(self, expected: str) -> ExpressionError:
        """The error that says what was expected instead of the next token."""
        token = self.peek()
        found = "the end of the expression" if token.kind == "end" else f"{token.value!r}"
        return self.error(f"{expected} is expected, not {found}", token.at)

    def error(self, message: str, at: int) -> ExpressionError:
        return ExpressionError(message, self.text, at)

    def descend(self, at: int) -> None:
        """Enter one more level; raises if there are too many."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"The expression is nested over {MAX_DEPTH} levels", at)

    def ascend(self) -> None:
        self._depth -= 1


def check_call(reader: TokenReader, call: FunctionCall) -> FunctionCall:
    """The call, if the function exists and takes this number of arguments."""
    function = FUNCTIONS.get(call.function)
    if function is None:
        raise reader.error(f"There is no function {call.function!r}; {suggestion(call.function, FUNCTIONS)}", call.at)
    if not function.least <= len(call.arguments) <= function.most:
        raise reader.error(f"{call.function} is called as {function.usage}", call.at)
    return call


def check_depth(reader: TokenReader, tree: Node) -> Node:
    """The tree, if the evaluator can walk it. The left side of arithmetic does not count: it is walked in a loop."""
    pending = [(tree, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise reader.error(f"The expression is nested over {MAX_DEPTH} levels", node.at)
        if isinstance(node, Arithmetic):
            pending += [(node.left, depth), (node.right, depth + 1)]
        else:
            pending += [(part, depth + 1) for part in parts(node)]
    return tree
