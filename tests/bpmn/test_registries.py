"""Each BPMN element has all its parts, and no other code tests for one: what has a row can be read, run and drawn."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from hark.programs.bpmn.bpmn_elements import (
    ELEMENTS,
    EVENTS,
    ElementRow,
    EventKind,
    EventKindRow,
    EventPlace,
    NodeKind,
    tags_of,
)
from hark.programs.bpmn.drawing.drawing_symbols import EVENT_SYMBOLS, GATEWAY_SYMBOLS, MARKERS, TASK_SYMBOLS
from hark.programs.bpmn.file.element_readers import ELEMENT_READERS
from hark.programs.bpmn.file.read_events import EVENT_READERS
from hark.programs.bpmn.interpreter.activities import Activity
from hark.programs.bpmn.interpreter.activity_kinds import ScriptTask
from hark.programs.bpmn.interpreter.element_behaviour import ElementBehaviour, EventBehaviour
from hark.programs.bpmn.interpreter.elements import ELEMENT_BEHAVIOURS
from hark.programs.bpmn.interpreter.event_kinds import EVENT_BEHAVIOURS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "hark"
REGISTRIES = {"bpmn_elements.py", "element_readers.py", "drawing_symbols.py", "draft.py"}
OTHER_KINDS = {"scope", "catcher", "spec", "loop", "row", "wait", "current"}
"""The names of variables whose `kind` is not that of an element."""


def test_every_kind_of_node_has_a_row_and_a_class() -> None:
    assert {row.kind for row in ELEMENTS.values()} == set(get_args(NodeKind))
    assert tuple(ELEMENT_BEHAVIOURS) == get_args(NodeKind)


def test_every_element_has_a_reader() -> None:
    assert tuple(ELEMENT_READERS) == tuple(ELEMENTS)


def test_every_kind_of_event_has_a_row_a_class_and_a_reader() -> None:
    assert tuple(EVENTS) == tuple(EVENT_BEHAVIOURS) == tuple(EVENT_READERS) == get_args(EventKind)


def test_every_element_has_a_symbol() -> None:
    assert set(TASK_SYMBOLS) == tags_of("task")
    assert set(GATEWAY_SYMBOLS) == tags_of("gateway")
    assert {row.name for row in EVENTS.values()} | {"multiple", "parallelMultiple"} == set(EVENT_SYMBOLS)
    assert {row.marker for row in ELEMENTS.values() if row.marker} <= set(MARKERS)


@pytest.mark.parametrize("row", ELEMENTS.values(), ids=lambda row: row.tag)
def test_an_element_can_do_what_its_row_says(row: ElementRow) -> None:
    behaviour = ELEMENT_BEHAVIOURS[row.kind]
    assert row.words
    assert behaviour.is_activity == row.is_activity
    assert row.is_activity or not ELEMENT_READERS[row.tag].may_be_skipped
    if ELEMENT_READERS[row.tag].may_follow_event_gateway:
        assert behaviour.is_catch
    if behaviour.is_catch:
        assert type(behaviour).fired is not ElementBehaviour.fired
    if isinstance(behaviour, Activity) and behaviour.is_instant:  # a token may pass it: then `work` is not called
        assert type(behaviour).work in (Activity.work, ScriptTask.work)
    if behaviour.joins_by_reach:
        assert type(behaviour).joins_at_rest is not ElementBehaviour.joins_at_rest


@pytest.mark.parametrize("tag", [*ELEMENTS, *(row.tag for row in EVENTS.values() if row.tag)])
def test_an_element_is_drawn_and_in_a_conformance_case(tag: str) -> None:
    name = tag.removeprefix("bpmn:")
    here = Path(__file__).parent
    assert f"<{tag} " in (here / "files/symbols.bpmn").read_text("utf-8")
    files = "".join(path.read_text("utf-8") for path in (here / "conformance/files").iterdir())
    is_refused = tag in ELEMENTS and ELEMENTS[tag].refused is not None
    assert is_refused or re.search(rf"<(bpmn:)?{name}\b", files)


def test_the_guide_lists_every_element_that_is_executed() -> None:
    [listed] = re.findall(r"^## What is executed\n(.*?)^## ", (ROOT / "docs/bpmn.md").read_text("utf-8"), re.M | re.S)
    rows = [row for row in ELEMENTS.values() if row.family != "event" and row.refused is None]
    names = {re.sub(r" (task|gateway)$", "", row.words) for row in rows} | set(EVENTS)
    assert [name for name in sorted(names) if not re.search(rf"\b{name}", listed)] == []


@pytest.mark.parametrize("row", EVENTS.values(), ids=lambda row: row.kind)
def test_an_event_can_do_what_its_row_says(row: EventKindRow) -> None:
    behaviour = EVENT_BEHAVIOURS[row.kind]
    assert set(row.places) <= set(get_args(EventPlace))
    assert ("throw" in row.places or "end" in row.places) == (type(behaviour).throw is not EventBehaviour.throw)
    if "catch" in row.places and not row.is_link:
        assert behaviour.answered_by is not None
    if behaviour.answered_by not in (None, "condition"):
        assert type(behaviour).wait is not EventBehaviour.wait


def test_running_a_process_loads_no_code_that_reads_or_draws() -> None:
    code = "import sys, hark.programs.bpmn.interpreter.bpmn_interpreter; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "hark.programs.bpmn.bpmn_elements" in loaded
    assert [name for name in loaded if re.search(r"hark\..*(drawing|layout|reader|xml_tree)", name)] == []


def test_no_other_code_names_an_element() -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path, node in _nodes()
        if isinstance(node, ast.Constant) and node.value in ELEMENTS
    ]
    assert found == []


def test_no_other_code_tests_for_a_kind() -> None:
    assert [f"{path.name}:{line}" for path, node in _nodes() if (line := _tests_kind(node))] == []


def _nodes() -> Iterator[tuple[Path, ast.AST]]:
    for folder in ("interpreter", "file", "drawing", "layout"):
        for path in (SOURCE / "programs/bpmn" / folder).rglob("*.py"):
            if path.name not in REGISTRIES:
                for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                    yield path, node


def _tests_kind(node: ast.AST) -> int | None:
    """The line of a comparison, or of a match, of the kind of a node or of an event with names of kinds."""
    match node:
        case ast.Compare(left=ast.Attribute(attr="kind", value=of)):
            against: list[ast.AST] = list(node.comparators)
        case ast.Match(subject=ast.Attribute(attr="kind", value=of)):
            against = [case.pattern for case in node.cases]
        case _:
            return None
    if isinstance(of, ast.Subscript) or (isinstance(of, ast.Name) and of.id in OTHER_KINDS):
        return None
    names = {inner.value for each in against for inner in ast.walk(each) if isinstance(inner, ast.Constant)}
    return node.lineno if names & {*get_args(NodeKind), *get_args(EventKind)} else None
