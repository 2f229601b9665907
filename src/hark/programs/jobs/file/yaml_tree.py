"""Read YAML text as a tree: the part of YAML 1.2 that says the same as JSON.

PyYAML's parser finds the events and their lines; what a plain scalar is, is decided here by the rules of YAML 1.2
without octal surprises: `on`, `no`, `yes` and `012` are texts. Aliases, anchors, tags, merge keys and several documents
are refused: a job file does not need them, and they are how small files become large ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hark.model.extras import import_extra
from hark.programs.jobs.file.file_tree import MAX_DEPTH, MAX_NODES, TreeNode, Unreadable

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_HEX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 30


def from_yaml(text: str) -> TreeNode:
    """The tree of YAML text.

    Raises:
        Unreadable: It is not YAML, or uses a part of YAML that is refused.
        MissingExtra: PyYAML is not installed.
    """
    yaml = import_extra("yaml", extra="jobs", needed_by="A job file in YAML")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times as fast
    try:
        return _YamlBuilder(yaml, yaml.parse(text, Loader=loader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise Unreadable(mark.line + 1 if mark else None, f"The file is not valid YAML: {reason}.") from None
    except yaml.YAMLError as error:
        raise Unreadable(None, f"The file is not valid YAML: {' '.join(str(error).split())}.") from None


class _YamlBuilder:
    """Builds the tree from the events of the parser."""

    def __init__(self, yaml: Any, events: Iterator[Any]) -> None:
        self._yaml = yaml
        self._events = events
        self._nodes = 0

    def document(self) -> TreeNode:
        yaml = self._yaml
        self._take()  # the start of the stream
        if isinstance(self._take(), yaml.StreamEndEvent):
            raise Unreadable(None, "The file is empty.")
        root = self._value(self._take(), 0)
        self._take()  # the end of the document
        after = self._take()
        if not isinstance(after, yaml.StreamEndEvent):
            raise Unreadable(_line(after), "The file has a second document. Put each job into a file of its own.")
        return root

    def _value(self, event: Any, depth: int) -> TreeNode:
        yaml = self._yaml
        line = _line(event)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Unreadable(line, f"The file has more than {MAX_NODES} values. Make it smaller.")
        if depth > MAX_DEPTH:
            raise Unreadable(line, f"The file nests deeper than {MAX_DEPTH} levels. Flatten it.")
        if isinstance(event, yaml.AliasEvent):
            raise Unreadable(line, f"Aliases (*{event.anchor}) are not allowed. Repeat the value, or use `defaults:`.")
        if event.anchor is not None:
            raise Unreadable(line, f"Anchors (&{event.anchor}) are not allowed. Remove it; see `defaults:`.")
        if event.tag is not None:
            raise Unreadable(line, f"The tag {event.tag} is not allowed. Remove it; put a text in quotes.")
        if isinstance(event, yaml.ScalarEvent):
            return TreeNode(_scalar(event, line), line, is_block=event.style == "|")
        if isinstance(event, yaml.SequenceStartEvent):
            return TreeNode(list(self._items(depth)), line)
        return self._mapping(line, depth)

    def _items(self, depth: int) -> Iterator[TreeNode]:
        while not isinstance(event := self._take(), self._yaml.SequenceEndEvent):
            yield self._value(event, depth + 1)

    def _mapping(self, line: int, depth: int) -> TreeNode:
        found: dict[str, TreeNode] = {}
        repeated: list[tuple[str, int | None]] = []
        while not isinstance(event := self._take(), self._yaml.MappingEndEvent):
            key = self._key(event)
            node = self._value(self._take(), depth + 1)
            if key in found:
                repeated.append((key, _line(event)))
            else:
                found[key] = node
        return TreeNode(found, line, tuple(repeated))

    def _key(self, event: Any) -> str:
        """The text of a key, as it is written: `on:` and `no:` are keys like any other."""
        line = _line(event)
        if not isinstance(event, self._yaml.ScalarEvent):
            raise Unreadable(
                line, "A key must be text, not a list, a mapping or an alias. If this is a template, put it in quotes."
            )
        if event.anchor is not None or event.tag is not None:
            raise Unreadable(line, "A key must be plain text, without an anchor or a tag.")
        if event.value == "<<" and event.implicit[0]:
            raise Unreadable(line, "Merge keys (<<) are not allowed. Repeat the values, or use `defaults:`.")
        if event.value == "" and event.implicit[0]:
            raise Unreadable(line, "A key is missing before the colon.")
        return _text(event)

    def _take(self) -> Any:
        return next(self._events)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _text(event: Any) -> str:
    """The text of a scalar. In quotes, `\\0` and the like can write characters that no JSON of Hark may contain."""
    text = str(event.value)
    if re.search("[\0\ud800-\udfff]", text):
        raise Unreadable(_line(event), "A text contains NUL or half of a surrogate pair. Remove it.")
    return text


def _scalar(event: Any, line: int) -> Any:
    """The value of a scalar: text if it is quoted or a block, else what YAML 1.2 takes it for."""
    text = _text(event)
    if not event.implicit[0]:
        return text
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _NOT_FINITE.fullmatch(text):
        raise Unreadable(line, f"{text} is not a number that JSON has. Put it in quotes if it is a text.")
    is_int, is_hex = _INT.fullmatch(text), _HEX.fullmatch(text)
    if (is_int or is_hex or _FLOAT.fullmatch(text)) and len(text) > _MAX_DIGITS:
        raise Unreadable(line, f"A number has more than {_MAX_DIGITS} digits. Put it in quotes if it is a text.")
    if is_int:
        return int(text)
    if is_hex:
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise Unreadable(line, f"{text} is too large for a number. Put it in quotes if it is a text.")
        return number
    return text
