"""The kinds of values in a job file: each reads a node, or says what it should have been, and has a JSON Schema.

`Wrong` is one mistake at one line; a reader of several keys (keys.py) collects them, so that one run shows all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from hark.model.errors import InvalidInput
from hark.model.lanes import lane_name_problem
from hark.model.names import check_name, micros
from hark.model.nearest import did_you_mean
from hark.model.schema import compile_schema
from hark.model.time_zones import time_zone
from hark.programs.jobs.file.file_tree import TreeNode

MAX_NAME = 128
MAX_COUNT = 1_000_000
TAKEN_VARIABLES = ("inputs", "tasks", "output", "event", "iteration")


class Wrong(Exception):
    """A value is not what its key needs."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message if message.endswith((".", "?")) else f"{message}."


class ValueKind(Protocol):
    """The kind of the value of a key."""

    def read(self, node: TreeNode, key: str) -> Any:
        """The value, as the spec has it. Raises Wrong."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the value."""


def described(value: Any) -> str:
    """A value in a message: its type and, if it is short, the value."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r}" if len(value) <= 40 else "a text"
    return "a list" if isinstance(value, list) else "a mapping"


def plain_value(node: TreeNode, key: str) -> Any:
    """The JSON value of a node. A key that occurs twice is a mistake."""
    for repeated, line in node.all_repeated():
        raise Wrong(line, f"The key {repeated!r} occurs twice in {key}.")
    return node.plain()


@dataclass(frozen=True)
class Text:
    """A text, which may be a template where the key takes one. With `empty`, it may be empty."""

    empty: bool = False

    def read(self, node: TreeNode, key: str) -> str:
        if not isinstance(node.value, str):
            quoted = " Put it in quotes." if isinstance(node.value, int | float) else ""
            raise Wrong(node.line, f"{key} must be a text, not {described(node.value)}.{quoted}")
        if not node.value.strip() and not self.empty:
            raise Wrong(node.line, f"{key} is empty.")
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"type": "string"} if self.empty else {"type": "string", "minLength": 1}


@dataclass(frozen=True)
class Name:
    """The name of a task, a handler, a queue and the like: not a template."""

    what: str

    def read(self, node: TreeNode, key: str) -> str:
        value = Text().read(node, key)
        try:
            check_name(value, self.what)
        except InvalidInput as error:
            raise Wrong(node.line, f"{error}.") from None
        if len(value) > MAX_NAME:
            raise Wrong(node.line, f"{key} has {len(value)} characters; give at most {MAX_NAME}.")
        if value != value.strip() or not value.isprintable():
            raise Wrong(node.line, f"{key} {value!r} has spaces around it or characters that cannot be shown.")
        if "{{" in value:
            raise Wrong(node.line, f"{key} cannot be a template: the {self.what} must be known before the job starts.")
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": MAX_NAME}


@dataclass(frozen=True)
class LaneName:
    """The name of a handler, an agent or a gate: workers say by it what they can run."""

    what: str

    def read(self, node: TreeNode, key: str) -> str:
        value = Name(f"{self.what} name").read(node, key)
        if problem := lane_name_problem(value, self.what):
            raise Wrong(node.line, problem)
        return value

    def schema(self) -> dict[str, Any]:
        any_text = Name(self.what).schema()
        return any_text if self.what == "handler" else {**any_text, "pattern": "^[^@:,]+$"}


class ItemName:
    """The name of the item of a map in templates."""

    def read(self, node: TreeNode, key: str) -> str:
        value = Name("name of the item").read(node, key)
        if not re.fullmatch(r"[^\W\d]\w*", value) or value in TAKEN_VARIABLES:
            raise Wrong(
                node.line,
                f"{key}: {value!r} cannot be the name of a variable. Use letters, digits and _, and none of "
                f"{', '.join(TAKEN_VARIABLES)}.",
            )
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^[A-Za-z_]\w*$"}


@dataclass(frozen=True)
class Names:
    """A list of names; one name may stand for a list of one."""

    what: str

    def read(self, node: TreeNode, key: str) -> tuple[str, ...]:
        if isinstance(node.value, str):
            return (Name(self.what).read(node, key),)
        if not isinstance(node.value, list):
            raise Wrong(node.line, f"{key} must be a list of names, not {described(node.value)}.")
        found: dict[str, None] = {}
        for item in node.value:
            name = Name(self.what).read(item, f"An item of {key}")
            if name in found:
                raise Wrong(item.line, f"{key} lists {name!r} twice.")
            found[name] = None
        return tuple(found)

    def schema(self) -> dict[str, Any]:
        one = Name(self.what).schema()
        return {"oneOf": [one, {"type": "array", "items": one, "uniqueItems": True}]}


class ConditionText:
    """An expression that is true or false, with or without `{{ }}`; or just true or false."""

    def read(self, node: TreeNode, key: str) -> str:
        if isinstance(node.value, bool):
            return str(node.value).lower()
        return Text().read(node, key)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "boolean"]}


@dataclass(frozen=True)
class Seconds:
    """A duration in seconds. With `zero` it may be 0; with `template`, it may be a text with a template."""

    zero: bool = False
    template: bool = False

    def read(self, node: TreeNode, key: str) -> float | str:
        value = node.value
        if self.template and isinstance(value, str) and "{{" in value:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Wrong(node.line, f"{key} must be a number of seconds, not {described(value)}.")
        try:
            micros(value, key, zero=self.zero)
        except InvalidInput as error:
            raise Wrong(node.line, f"{error}.") from None
        return float(value)

    def schema(self) -> dict[str, Any]:
        number = {"type": "number", "minimum": 0} if self.zero else {"type": "number", "exclusiveMinimum": 0}
        return {"oneOf": [number, {"type": "string", "pattern": r"\{\{"}]} if self.template else number


@dataclass(frozen=True)
class Number:
    """A number of at least `least`."""

    least: float

    def read(self, node: TreeNode, key: str) -> float:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.least <= value <= MAX_COUNT:
            raise Wrong(node.line, f"{key} must be a number from {self.least:g}, not {described(value)}.")
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least}


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`."""

    least: int = 1
    most: int = MAX_COUNT

    def read(self, node: TreeNode, key: str) -> int:
        value = node.value
        if type(value) is not int or not self.least <= value <= self.most:
            raise Wrong(
                node.line, f"{key} must be a whole number from {self.least} to {self.most}, not {described(value)}."
            )
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


class TruthValue:
    """true or false."""

    def read(self, node: TreeNode, key: str) -> bool:
        if not isinstance(node.value, bool):
            meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(str(node.value).lower())
            hint = f" Write {meant}." if meant else ""
            raise Wrong(node.line, f"{key} must be true or false, not {described(node.value)}.{hint}")
        return node.value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice:
    """A word out of several."""

    words: tuple[str, ...]

    def read(self, node: TreeNode, key: str) -> str:
        if node.value not in self.words:
            hint = did_you_mean(node.value, self.words) if isinstance(node.value, str) else ""
            raise Wrong(node.line, f"{key} must be one of {', '.join(self.words)}, not {described(node.value)}.{hint}")
        return str(node.value)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.words)}


class AnyJson:
    """Any value. Its texts may be templates."""

    def read(self, node: TreeNode, key: str) -> Any:
        return plain_value(node, key)

    def schema(self) -> dict[str, Any]:
        return {}


class ListOrTemplate:
    """A list, or a template that gives one."""

    def read(self, node: TreeNode, key: str) -> Any:
        if isinstance(node.value, list) or (isinstance(node.value, str) and "{{" in node.value):
            return plain_value(node, key)
        raise Wrong(node.line, f"{key} must be a list or a template that gives one, not {described(node.value)}.")

    def schema(self) -> dict[str, Any]:
        return {"oneOf": [{"type": "array"}, {"type": "string", "pattern": r"\{\{"}]}


class RateLimit:
    """The name of a rate limit, or a list of the name and the partition, which may be a template."""

    def read(self, node: TreeNode, key: str) -> str | tuple[str, str]:
        if not isinstance(node.value, list):
            return Name("rate limit").read(node, key)
        if len(node.value) != 2:
            raise Wrong(node.line, f"{key} must be a name, or a list of the name and the partition.")
        name, partition = node.value
        return Name("rate limit").read(name, key), Text().read(partition, f"The partition of {key}")

    def schema(self) -> dict[str, Any]:
        one = Name("rate limit").schema()
        pair = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 2, "maxItems": 2}
        return {"oneOf": [one, pair]}


class AnswerSchema:
    """A JSON Schema of an answer."""

    def read(self, node: TreeNode, key: str) -> dict[str, Any]:
        if not isinstance(node.value, dict):
            raise Wrong(node.line, f"{key} must be a JSON Schema as a mapping, not {described(node.value)}.")
        plain: dict[str, Any] = plain_value(node, key)
        try:
            compile_schema(plain)
        except InvalidInput as error:
            raise Wrong(node.line, f"{key}: {error}") from None
        return plain

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


class InputDefaults:
    """The names of the inputs, with their defaults."""

    def read(self, node: TreeNode, key: str) -> dict[str, Any]:
        if not isinstance(node.value, dict):
            raise Wrong(
                node.line,
                f"{key} must be a mapping of names and defaults, not {described(node.value)}. "
                "An input without a default has the default null.",
            )
        for name, inner in node.value.items():
            Name("input name").read(TreeNode(name, inner.line), f"The name of an input, {name!r},")
        plain: dict[str, Any] = plain_value(node, key)
        return plain

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


class TimeZone:
    """The name of a time zone, such as Europe/Berlin."""

    def read(self, node: TreeNode, key: str) -> str:
        name = Name("time zone").read(node, key)
        try:
            time_zone(name)
        except InvalidInput:
            raise Wrong(node.line, f"{key}: there is no time zone {name!r}. Give one such as Europe/Berlin.") from None
        return name

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}
