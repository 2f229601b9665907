"""Docstrings of the source begin with what a thing does: with a verb, a name or an article (decision 9)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "hark"
FILES = sorted(SOURCE.rglob("*.py"))
RELATIVE = {"What", "Whatever", "When", "Where", "Whether", "Which", "Who", "Whoever", "Whom", "Whose", "Why", "How"}
PRONOUNS = {"It", "Its", "None", "Nothing", "Their", "These", "They", "Those"}
ACCENT = re.compile(r"\bin vain\b|\bThe same, |\bSaid of\b")


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """The docstrings of a module, its classes and its functions, each with its place."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if text := ast.get_docstring(node):
            yield f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 1)}", text


def first_word(text: str) -> str:
    return re.split(r"\W", text, maxsplit=1)[0]


def test_every_module_with_code_has_a_head() -> None:
    parsed = {path.relative_to(SOURCE): ast.parse(path.read_text("utf-8")) for path in FILES}
    assert [str(path) for path, module in parsed.items() if module.body and not ast.get_docstring(module)] == []


def test_a_docstring_begins_with_a_verb_a_name_or_an_article() -> None:
    found = [(place, text) for path in FILES for place, text in docstrings(path)]
    assert len(found) > 1000
    refused = RELATIVE | PRONOUNS
    assert [f"{place}: {text.splitlines()[0]}" for place, text in found if first_word(text) in refused] == []


@pytest.mark.parametrize("text", ["What a turn does.", "Whether it waits.", "Its box.", "Those of jobs."])
def test_a_relative_clause_or_a_pronoun_is_not_a_beginning(text: str) -> None:
    assert first_word(text) in RELATIVE | PRONOUNS


def test_the_source_does_not_use_the_old_accent() -> None:
    lines = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if ACCENT.search(line)
    ]
    assert lines == []
