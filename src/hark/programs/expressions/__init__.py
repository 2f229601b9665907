"""The expressions of jobs and processes: `{{ inputs.total > 3 }}`, `${total > 3}`, `=total > 3`.

A text is compiled once to a tree (tokens.py, parser.py or juel.py, tree.py) and evaluated as often as needed
(evaluator.py, functions.py) over plain JSON values. Nothing is ever given to Python's `eval`: an expression can only
read the variables it is given, and every part has a budget, so evaluating always ends. templates.py puts values into
texts, shell.py quotes them for the place of a shell command at which they stand.

All syntaxes build the same tree. FEEL, whose meaning differs, has an evaluator of its own in feel/; sources.py tells
the syntaxes of a process apart and is imported by itself, so that jobs do without FEEL.
"""

from __future__ import annotations

from hark.programs.expressions.error import ExpressionError, MissingValue
from hark.programs.expressions.templates import (
    CompiledCondition,
    Expression,
    Syntax,
    Template,
    compile_condition,
    compile_expression,
    compile_template,
    names,
    render_all,
)

__all__ = [
    "CompiledCondition",
    "Expression",
    "ExpressionError",
    "MissingValue",
    "Syntax",
    "Template",
    "compile_condition",
    "compile_expression",
    "compile_template",
    "names",
    "render_all",
]
