"""The common parts of all parsers: reading tokens, building nodes, and the limits of a tree."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from hark.programs.expressions.error import ExpressionError, suggestion
from hark.programs.expressions.functions import FUNCTIONS
from hark.programs.expressions.tokens import Kind, Lexeme
from hark.programs.expressions.tree import Arithmetic, Constant, FunctionCall, Node, Variable, parts

MAX_DEPTH = 50  # levels; an evaluation needs two frames per level, of Python's thousand


class TokenReader:
    """The tokens of one expression, read from the left, and the place of errors."""

    def __init__(self, text: str, tokens: list[Lexeme]) -> None:
        self.text = text
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self.range_ends = 0  # how many ranges of FEEL are open whose end is being read

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
        """Enter one more level; raise if there are too many."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"The expression is nested over {MAX_DEPTH} levels", at)

    def ascend(self) -> None:
        self._depth -= 1


_CONSTANTS: Final = {"true": True, "false": False, "null": None}


def read_simple_operand(
    reader: TokenReader,
    token: Lexeme,
    reserved: Collection[str],
    call: Callable[[TokenReader, Lexeme], Node],
) -> Node:
    """The operand that begins with this token, if it is one that all syntaxes have: a constant, a variable or a call.

    `reserved` are the names that are not variables; `call` reads a call from behind its `(`. Raises ExpressionError.
    """
    match token.kind, token.value:
        case (("number" | "text"), value):
            return Constant(value, token.at)
        case ("name", "true" | "false" | "null" as name):
            return Constant(_CONSTANTS[name], token.at)
        case ("name", name) if name not in reserved:
            return call(reader, token) if reader.take_if("sign", "(") else Variable(name, token.at)
        case ("end", _):
            raise reader.error("A value is expected, not the end of the expression", token.at)
    raise reader.error(f"A value is expected, not {token.value!r}", token.at)


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
