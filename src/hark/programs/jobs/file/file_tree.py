"""The tree of a definition file: JSON values that know their lines. Made from JSON text or from Python values.

YAML is read in yaml_tree.py. Both refuse what cannot be read at all with `Unreadable`; what a value means is checked
in keys.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from hark.model import json
from hark.model.errors import InvalidInput, MalformedJson
from hark.model.problem import Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 50
MAX_NODES = 200_000

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


class Unreadable(Exception):
    """The text cannot be read as a tree at all. `problem` says why, and where."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(None, line, message if message.endswith(".") else f"{message}.")


@dataclass(slots=True)
class TreeNode:
    """A value with its line. `value` is a scalar, a list of nodes, or a dict of nodes by key.

    `repeated` has the lines of keys that occur again in the same mapping, with the key.
    """

    value: Any
    line: int | None
    repeated: tuple[tuple[str, int | None], ...] = ()
    is_block: bool = False  # a text whose first line is below the key, as after `run: |`

    def line_of(self, position: int) -> int | None:
        """The line of a character of the text."""
        if self.line is None:
            return None
        return self.line + self.is_block + (str(self.value).count("\n", 0, position) if self.is_block else 0)

    def plain(self) -> Any:
        """The JSON value, without lines."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def texts(self) -> Iterator[TreeNode]:
        """The nodes of all texts in it, at any depth; keys are not among them."""
        if isinstance(self.value, str):
            yield self
        elif isinstance(self.value, list):
            for node in self.value:
                yield from node.texts()
        elif isinstance(self.value, dict):
            for node in self.value.values():
                yield from node.texts()

    def all_repeated(self) -> Iterator[tuple[str, int | None]]:
        """Every key that occurs twice in one mapping, at any depth."""
        yield from self.repeated
        inner = self.value.values() if isinstance(self.value, dict) else self.value
        if isinstance(inner, str) or not hasattr(inner, "__iter__"):
            return
        for node in inner:
            yield from node.all_repeated()


def decode(data: bytes) -> str:
    """The text of a file. Refuses what is too large, not UTF-8, or not text."""
    if len(data) > MAX_BYTES:
        raise Unreadable(None, f"The file has {len(data)} bytes; a job file may have {MAX_BYTES}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Unreadable(line, "The file is not UTF-8 text. Save it as UTF-8.") from None
    return check_text(text)


def check_text(text: str) -> str:
    """The text; refuses what is too large or contains characters that no text file has."""
    if len(text) > MAX_BYTES:
        raise Unreadable(None, f"The text has {len(text)} characters; a job file may have {MAX_BYTES}.")
    if found := re.search("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", text):
        line = text.count("\n", 0, found.start()) + 1
        raise Unreadable(
            line, f"The file contains the character U+{ord(found[0]):04X}, so it is not a text file. Remove it."
        )
    return text


def from_json(text: str) -> TreeNode:
    """The tree of JSON text."""
    try:
        json.parse(text, what="file")
    except MalformedJson as error:
        if "twice in one object" not in str(error) or not _is_json(text):  # the tree reports all repeated keys
            raise Unreadable(error.line, str(error).partition("; correct it and")[0] + ".") from None
    tokens = [(match[0], match.start()) for match in _JSON_TOKEN.finditer(text)]
    return _JsonBuilder(text, tokens).value(0)


def _is_json(text: str) -> bool:
    try:
        json.load(text)
    except (ValueError, msgspec.MsgspecError):  # MsgspecError is a ValueError only since msgspec 0.21
        return False
    return True


class _JsonBuilder:
    """Builds the tree of JSON text that is known to be valid."""

    def __init__(self, text: str, tokens: list[tuple[str, int]]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._line, self._counted = 1, 0

    def value(self, depth: int) -> TreeNode:
        token, line = self._take()
        if depth > MAX_DEPTH:
            raise Unreadable(line, f"The file nests deeper than {MAX_DEPTH} levels. Flatten it.")
        if token == "[":
            return TreeNode(list(self._items(depth)), line)
        if token == "{":
            return self._mapping(line, depth)
        return TreeNode(json.load(token), line)

    def _items(self, depth: int) -> Iterator[TreeNode]:
        if self._peek() == "]":
            self._take()
            return
        while True:
            yield self.value(depth + 1)
            if self._take()[0] == "]":
                return

    def _mapping(self, line: int, depth: int) -> TreeNode:
        found: dict[str, TreeNode] = {}
        repeated: list[tuple[str, int | None]] = []
        if self._peek() == "}":
            self._take()
            return TreeNode(found, line)
        while True:
            token, key_line = self._take()
            key = json.load(token)
            self._take()  # the colon
            node = self.value(depth + 1)
            if key in found:
                repeated.append((key, key_line))
            else:
                found[key] = node
            if self._take()[0] == "}":
                return TreeNode(found, line, tuple(repeated))

    def _peek(self) -> str:
        return self._tokens[self._next][0]

    def _take(self) -> tuple[str, int]:
        token, place = self._tokens[self._next]
        self._next += 1
        self._line += self._text.count("\n", self._counted, place)
        self._counted = place
        return token, self._line


def from_value(value: Any) -> TreeNode:
    """The tree of a Python value, which has no lines."""
    try:
        plain = json.load(json.dump(value, what="job"))
    except InvalidInput as error:
        raise Unreadable(None, str(error)) from None
    return _without_lines(plain, 0)


def _without_lines(value: Any, depth: int) -> TreeNode:
    if depth > MAX_DEPTH:
        raise Unreadable(None, f"The job nests deeper than {MAX_DEPTH} levels. Flatten it.")
    if isinstance(value, dict):
        return TreeNode({key: _without_lines(inner, depth + 1) for key, inner in value.items()}, None)
    if isinstance(value, list):
        return TreeNode([_without_lines(inner, depth + 1) for inner in value], None)
    return TreeNode(value, None)
