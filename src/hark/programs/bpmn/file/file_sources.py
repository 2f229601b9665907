"""Texts of a BPMN file as sources and conditions: trimmed, marked, and checked to be expressions that can run."""

from __future__ import annotations

from typing import Any

from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.xml_tree import XmlElement
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.sources import check_condition, check_source, is_expression

__all__ = [
    "FEEL", "JUEL", "condition", "flow_condition", "is_computed", "is_expression", "language_of", "marked", "source",
    "variable_source",
]  # fmt: skip

FEEL, JUEL = "feel", "juel"
_FEEL_WORDS = frozenset(
    ("and", "between", "else", "every", "external", "false", "for", "function", "if", "in", "instance", "not", "null",
     "of", "or", "return", "satisfies", "some", "then", "true")
)  # fmt: skip


def language_of(name: str | None) -> str | None:
    """The language that an attribute names: FEEL, JUEL, another one, or None if the text itself shows it."""
    if name is None or not name.strip():
        return None
    word = name.strip().rstrip("/").lower()
    if word.endswith("feel"):
        return FEEL
    if word in ("juel", "el", "uel", "java-el", "unified-el"):
        return JUEL
    return None if word.startswith("http") else word  # modelers write the address of XPath and use something else


def marked(text: str, language: str | None) -> str:
    """The text of a whole expression with the marker of its language."""
    if is_expression(text):
        return text
    return f"${{{text}}}" if language == JUEL else f"={text}"


def variable_source(name: str) -> str:
    """The source that gives a variable, or null if there is none. An expression stays what it is."""
    if is_expression(name):
        return name
    return f"={name}" if name.isidentifier() and name not in _FEEL_WORDS else f"=`{name}`"


def is_computed(value: Any) -> bool:
    """Return True if Hark can compute a source: all its expressions can be compiled, unlike the call of a method."""
    try:
        check_source(value)
    except ExpressionError:
        return False
    return True


def source(process: BpmnDraft, node: NodeDraft, value: Any, what: str, line: int | None = None) -> Any:
    """A source, trimmed; an empty text is None. Reports an expression in it that cannot be compiled."""
    value = value.strip() or None if isinstance(value, str) else value
    try:
        check_source(value)
    except ExpressionError as error:
        process.report(node, f"{what}: {error}", line)
    return value


def condition(process: BpmnDraft, node: NodeDraft, element: XmlElement, what: str) -> str | None:
    """The condition in the text of an element; None if it is empty or has a problem."""
    return flow_condition(process, node.id, element, what)


def flow_condition(process: BpmnDraft, id: str, element: XmlElement, what: str) -> str | None:
    """The condition in the text of an element, reported under this id."""
    text = element.text.strip()
    language = language_of(element.get("language"))
    if language not in (None, FEEL, JUEL):
        process.file.report(
            id,
            element.line,
            f"{what} is written in {language!r}, which Hark does not run. Write it in FEEL or as ${{…}}.",
        )
        return None
    if not text:
        resource = next((value for key, value in element.attributes.items() if key.endswith(":resource")), None)
        where = f" It is in {resource!r}, which Hark does not read." if resource else ""
        process.file.report(id, element.line, f"{what} is empty.{where} Write a condition, such as =total > 100.")
        return None
    text = marked(text, language)
    try:
        check_condition(text)
    except ExpressionError as error:
        process.file.report(id, element.line, f"{what}: {error}")
        return None
    return text
