"""The registry of events is complete: what the reference page says about events is what the code writes."""

import ast
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import hark
from hark.model.events import EVENTS, EventType, NoteType, OutcomeType, ProgramEventType

SOURCE = Path(hark.__file__).parent
MORE = {  # keys that are not always there
    "started": {"schedule", "scheduled_at"},
    "awakeable": {"by", "via", "awaited"},
    "migrated": {"by"},
    "forked": {"at", "by"},
    "await": {"more"},
    "spawn": {"more"},
    "timeout": {"more"},
    "retry": {"retries"},
    "error": {"retries"},
    "undo_failed": {"retries"},
    "reclaimed": {"error", "traceback"},
}


def types_of(alias: object) -> set[str]:
    found = set()
    for part in typing.get_args(alias):
        found |= {part} if isinstance(part, str) else types_of(part)
    return found


def written() -> Iterator[tuple[set[str], set[str], bool]]:
    """Per call of `History.event`: the types it may write, the keys of its data, and whether more keys may follow."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "event"
                and len(node.args) > 1
            ):
                type = node.args[1]
                types = {type.value} if isinstance(type, ast.Constant) else {"await", "spawn"}
                keys = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
                yield types, keys, any(keyword.arg is None for keyword in node.keywords)


def test_every_type_is_in_the_registry() -> None:
    assert set(EVENTS) == types_of(EventType)  # and mypy refuses any other type


def test_every_type_is_written_somewhere() -> None:
    by_kernel = set().union(*(types for types, _, _ in written()))
    assert by_kernel | types_of(OutcomeType) | types_of(NoteType) | types_of(ProgramEventType) == set(EVENTS)


def test_the_data_of_every_event_is_in_the_registry() -> None:
    always: dict[str, set[str]] = {}
    at_times: dict[str, set[str]] = {}
    for types, keys, more in written():
        for type in types:
            always[type] = always.get(type, keys) & keys
            at_times[type] = at_times.get(type, set()) | keys | (MORE[type] if more else set())
    for type, info in EVENTS.items():
        if type in types_of(NoteType) | types_of(ProgramEventType) | {"held"}:
            continue  # their data comes from programs
        documented = {key.removesuffix("?") for key in info.data}
        assert at_times.get(type, set()) == documented, type
        assert {key for key in info.data if not key.endswith("?")} == always.get(type, set()), type


def test_an_event_that_a_statement_writes_itself_is_in_the_registry() -> None:
    """The statements that run ahead write their events in the same statement."""
    texts = [path.read_text() for path in sorted((SOURCE / "store" / "statements").glob("*.py"))]
    found = re.findall(r"INSERT INTO events \([^)]*\)\s+SELECT :tx::bigint, [\w.]+, ('?[\w.]+'?),", "".join(texts))
    assert set(found) == {"r.type", "'next'"}
