"""Templates: texts with expressions in them, compiled once and rendered with variables.

`{{ … }}` in Hark's own syntax, `${…}` in JUEL. A template that is exactly one expression gives its value; any other
gives a text, in which a value that is not a text appears as its JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from hark.programs.expressions import juel, parser
from hark.programs.expressions.budget import Meter
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.evaluator import Evaluation
from hark.programs.expressions.json_values import as_text
from hark.programs.expressions.shell import ShellText, UnsafePlace
from hark.programs.expressions.tree import FunctionCall, Node, parts, paths

Syntax = Literal["hark", "juel"]

MAX_EXPRESSION = 1 << 16  # characters
MAX_TEMPLATE = 1 << 20
_KEPT = 1024  # compiled texts of each kind
_SHORT = 4096  # characters; a longer text is compiled each time: the callers that use one often keep it


@dataclass(frozen=True)
class _Markup:
    """The marks of an expression in a text, in one syntax."""

    parse: Callable[..., tuple[Node, int]]
    opening: re.Pattern[str]
    literal: str  # how to write the opening itself


_MARKUP: Final[dict[Syntax, _Markup]] = {
    "hark": _Markup(parser.parse, re.compile(r"\{\{"), "{{ '{{' }}"),
    "juel": _Markup(juel.parse, re.compile(r"[$#]\{"), "\\${"),
}


@dataclass(frozen=True)
class Output:
    """An expression in a template; `raw` if it ends with that filter."""

    tree: Node
    at: int
    raw: bool


Piece: TypeAlias = str | Output


@dataclass(frozen=True)
class Expression:
    text: str
    tree: Node

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """The value of the expression. Raises ExpressionError."""
        return Evaluation(self.text, variables).value(self.tree)


@dataclass(frozen=True)
class CompiledCondition:
    text: str
    tree: Node

    def holds(self, variables: Mapping[str, Any], meter: Meter | None = None) -> bool:
        """Return True if it is true; null counts as false. Any other value raises ExpressionError, as a mistake in it
        does. `meter` counts the work."""
        evaluation = Evaluation(self.text, variables)
        try:
            return evaluation.truth(self.tree, "A condition")
        finally:
            if meter is not None:
                meter.count(evaluation.budget)


@dataclass(frozen=True)
class Template:
    text: str
    pieces: tuple[Piece, ...]
    null_is_empty: bool = False  # as JUEL has it; in Hark's own syntax null is written as its JSON

    def render(self, variables: Mapping[str, Any], meter: Meter | None = None) -> Any:
        """The value of the expression, if the template is exactly one; otherwise the text. `meter` counts the work.
        Raises ExpressionError."""
        evaluation = Evaluation(self.text, variables)
        try:
            if len(self.pieces) == 1 and isinstance(only := self.pieces[0], Output):
                return evaluation.value(only.tree)
            return self._joined(evaluation)
        finally:
            if meter is not None:
                meter.count(evaluation.budget)

    def render_text(self, variables: Mapping[str, Any]) -> str:
        """The text, also if the template is exactly one expression. Raises ExpressionError."""
        return self._joined(Evaluation(self.text, variables))

    def _joined(self, evaluation: Evaluation) -> str:
        return "".join(piece if isinstance(piece, str) else self._text(evaluation, piece) for piece in self.pieces)

    def _text(self, evaluation: Evaluation, piece: Output) -> str:
        value = evaluation.value(piece.tree)
        return "" if value is None and self.null_is_empty else _text_of(evaluation, piece, value)

    def render_shell(self, variables: Mapping[str, Any]) -> str:
        """The text as a shell command: each value is a variable that is assigned before it, and quoted for its place,
        unless the expression ends with `| raw`.

        Raises ExpressionError, also for a value at a place where it cannot be quoted safely.
        """
        evaluation = Evaluation(self.text, variables)
        return self._shell(lambda piece: evaluation.value(piece.tree), evaluation)

    def check_shell(self) -> None:
        """Raise ExpressionError if a value stands where `render_shell` could not quote it."""
        self._shell(lambda piece: "" if piece.raw else 0, Evaluation(self.text, {}))

    def _shell(self, value_of: Callable[[Output], Any], evaluation: Evaluation) -> str:
        shell, written = ShellText(), list[str]()
        for piece in self.pieces:
            if isinstance(piece, str):
                shell.feed(piece)
                written.append(piece)
                continue
            value = value_of(piece)
            text = _text_of(evaluation, piece, value)
            if piece.raw:
                shell.feed(text)
            else:
                try:
                    text = shell.quote(text, is_number=isinstance(value, int | float) and not isinstance(value, bool))
                except UnsafePlace as problem:
                    raise ExpressionError(str(problem), self.text, piece.at) from None
            written.append(text)
        return shell.assignments() + "".join(written)


def _text_of(evaluation: Evaluation, piece: Output, value: Any) -> str:
    text: str = evaluation.checked(piece.at, lambda budget: as_text(value, budget))
    return text


def compile_expression(text: str, syntax: Syntax = "hark") -> Expression:
    """Compile one expression, with or without the brackets of its syntax around it. Raises ExpressionError."""
    return _kept_expression(text, syntax) if len(text) <= _SHORT else _expression(text, syntax)


def compile_template(text: str, syntax: Syntax = "hark") -> Template:
    """Compile a text with any number of expressions in it, or none. Raises ExpressionError."""
    return _kept_template(text, syntax) if len(text) <= _SHORT else _template(text, syntax)


def _expression(text: str, syntax: Syntax) -> Expression:
    if opened := _MARKUP[syntax].opening.match(text.strip()):
        template = compile_template(text.strip(), syntax)
        if len(template.pieces) == 1 and isinstance(only := template.pieces[0], Output):
            return Expression(template.text, only.tree)
        raise ExpressionError(f"This must be one expression, without text around {opened[0]!r}", text, 0)
    _check_size(text, 0, len(text))
    tree, _ = _MARKUP[syntax].parse(text)
    return Expression(text, _without_raw(text, tree).tree)


def compile_condition(text: str, syntax: Syntax = "hark") -> CompiledCondition:
    """Compile a condition, with or without the brackets of its syntax around it. Raises ExpressionError."""
    expression = compile_expression(text, syntax)
    return CompiledCondition(expression.text, expression.tree)


def _template(text: str, syntax: Syntax) -> Template:
    if len(text) > MAX_TEMPLATE:
        raise ExpressionError(f"The text has over {MAX_TEMPLATE:,} characters", text, 0)
    markup = _MARKUP[syntax]
    pieces: list[Piece] = []
    at = 0
    while opened := markup.opening.search(text, at):
        if syntax == "juel" and text[max(at, opened.start() - 1) : opened.start()] == "\\":
            pieces += [text[at : opened.start() - 1] + opened[0]]
            at = opened.end()
            continue
        if opened.start() > at:
            pieces.append(text[at : opened.start()])
        try:
            tree, at = markup.parse(text, opened.end(), in_template=True)
        except ExpressionError as error:
            hint = f"{error.problem}. To write {opened[0]} itself, write {markup.literal}"
            raise ExpressionError(hint, text, error.position) from None
        _check_size(text, opened.start(), at)
        pieces.append(_without_raw(text, tree))
    if at < len(text):
        pieces.append(text[at:])
    return Template(text, tuple(pieces), null_is_empty=syntax == "juel")


_kept_expression = lru_cache(maxsize=_KEPT)(_expression)
_kept_template = lru_cache(maxsize=_KEPT)(_template)


def render_all(value: Any, variables: Mapping[str, Any]) -> Any:
    """A value of JSON in which every text is rendered as a template: the `input:` of a task. Keys stay as they are.

    Raises ExpressionError.
    """
    if isinstance(value, str):
        return compile_template(value).render(variables)
    if isinstance(value, list | tuple):
        return [render_all(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: render_all(item, variables) for key, item in value.items()}
    return value


def names(compiled: Template | CompiledCondition | Expression) -> dict[tuple[str, tuple[str, ...]], int]:
    """The variables that are read, each with the keys after it as far as they are constant, and one of its positions.

    `{{ tasks.build.output.id }}` gives `{("tasks", ("build", "output", "id")): 3}`.
    """
    if isinstance(compiled, Template):
        trees = [piece.tree for piece in compiled.pieces if isinstance(piece, Output)]
    else:
        trees = [compiled.tree]
    return {(name, keys): at for tree in trees for name, keys, at in paths(tree)}


def _check_size(text: str, start: int, end: int) -> None:
    if end - start > MAX_EXPRESSION:
        raise ExpressionError(f"The expression has over {MAX_EXPRESSION:,} characters", text, start)


def _without_raw(text: str, tree: Node) -> Output:
    """The expression without the filter `raw` at its end. Anywhere else, `raw` is an error: it would do nothing."""
    top, raw = tree, False
    if isinstance(tree, FunctionCall) and tree.function == "raw":
        top, raw = tree.arguments[0], True
    pending = [top]
    while pending:
        node = pending.pop()
        if isinstance(node, FunctionCall) and node.function == "raw":
            raise ExpressionError("raw has an effect only as the last filter of an expression", text, node.at)
        pending.extend(parts(node))
    return Output(top, top.at, raw)
