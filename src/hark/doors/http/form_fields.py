"""The fields of a form, from a JSON Schema. Pure: no HTML, no request, no store.

A part of a schema that has no field of its own becomes a box for JSON, so that every schema can be answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from hark.model import json

_MAX_DEPTH: Final = 4  # groups within groups; below that, JSON
_MAX_FIELDS: Final = 80
_MAX_RADIO_BUTTONS: Final = 5  # more options become a drop-down list
_LONG_TEXT: Final = 120  # characters; longer text gets a larger box
_MULTILINE_NAMES: Final = frozenset(
    ("body", "comment", "comments", "description", "details", "explanation", "feedback", "message", "note", "notes",
     "reason", "remark", "remarks", "text")
)  # fmt: skip
_INPUT_TYPES: Final = {
    "date": "date", "email": "email", "uri": "url", "date-time": "datetime-local", "password": "password"
}  # fmt: skip
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9-]*")


@dataclass(frozen=True, slots=True)
class Option:
    """One value of a choice."""

    label: str
    value: Any


@dataclass(slots=True)
class Field:
    """One field of a form: a group of other fields, or something to type or choose."""

    path: tuple[str, ...]
    kind: str  # group, text, lines, number, choice, checks, list, json, fixed
    label: str
    id: str
    hint: str = ""
    required: bool = False
    nullable: bool = False
    input: str = "text"  # the type of the <input>
    item: str = "text"  # of a list: the kind of each line
    limits: dict[str, Any] = field(default_factory=dict)  # attributes of the <input>
    options: list[Option] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    value: Any = None  # of a fixed field
    typed: list[str] = field(default_factory=list)  # what the person typed or chose, or the default
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name in the posted form; different for every path."""
        return "v" + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in self.path)

    @property
    def text(self) -> str:
        return self.typed[0] if self.typed else ""

    @property
    def has_few_options(self) -> bool:
        """True if the options are few and short enough to be shown side by side."""
        return (
            len(self.options) <= _MAX_RADIO_BUTTONS and sum(len(option.label) for option in self.options) <= _LONG_TEXT
        )

    def all_fields(self) -> Iterator[Field]:
        yield self
        for inner in self.fields:
            yield from inner.all_fields()


class FieldBuilder:
    """Builds the fields of one schema."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._count = 0

    def build(self) -> Field:
        """The root field; without a schema it is a box for text that may stay empty."""
        if self._schema is None:
            return Field((), "lines", "Your answer", "f0")
        return self._build(self._schema, (), "Your answer", required=True)

    def is_approval(self) -> bool:
        """Return True for the schema of a gate (approve, or reject with a reason): it gets two buttons, not fields."""
        several = self._schema.get("oneOf") or self._schema.get("anyOf") if isinstance(self._schema, dict) else None
        shapes = [self._simplify(one)[0] for one in several or [self._schema]]
        actions: list[Any] = []
        for shape in shapes:
            known = shape.get("properties") if isinstance(shape, dict) else None
            if not known or not {"action"} <= set(known) <= {"action", "comment", "output", "reason"}:
                return False
            if shape.get("required", ["action"]) != ["action"]:
                return False
            actions += [option.value for option in _options(known["action"])]
        return sorted(map(str, actions)) == ["approve", "reject"]

    def _build(self, schema: Any, at: tuple[str, ...], label: str, *, required: bool) -> Field:
        shape, nullable = self._simplify(schema)
        self._count += 1
        supported = isinstance(shape, dict) and self._count <= _MAX_FIELDS
        new = Field(
            at,
            "json",
            str(shape.get("title") or label) if isinstance(shape, dict) and at else label,
            f"f{self._count}",
            hint=str(shape.get("description") or "") if isinstance(shape, dict) else "",
            required=required and not nullable,
            nullable=required and nullable,
        )
        if supported and len(at) <= _MAX_DEPTH:
            self._choose_kind(new, shape)
        if supported and "default" in shape and new.kind not in ("group", "fixed"):
            new.typed = _typed_default(new, shape["default"])
        return new

    def _choose_kind(self, new: Field, shape: dict[str, Any]) -> None:
        kind = shape.get("type")
        if options := _options(shape):
            if len(options) == 1 and new.required:
                new.kind, new.value, new.options = "fixed", options[0].value, options
            else:
                new.kind, new.options = "choice", options
        elif kind == "boolean":
            new.kind, new.options = "choice", [Option("Yes", True), Option("No", False)]
        elif kind == "string":
            self._choose_text(new, shape)
        elif kind in ("integer", "number"):
            new.kind, new.input = "number", "number"
            new.limits = {"step": _step(shape), "min": shape.get("minimum"), "max": shape.get("maximum")}
        elif kind == "array":
            self._choose_list(new, shape)
        elif kind in ("object", None) and (known := shape.get("properties")):
            needed = shape.get("required") or ()
            if not set(needed) <= set(known):
                return  # it requires properties that it does not describe
            new.kind = "group"
            new.fields = [
                self._build(inner, (*new.path, key), label_of(key), required=key in needed)
                for key, inner in known.items()
            ]

    def _choose_text(self, new: Field, shape: dict[str, Any]) -> None:
        longest, format = shape.get("maxLength"), shape.get("format")
        new.kind, new.input = "text", _INPUT_TYPES.get(str(format), "text")
        new.limits = {"maxlength": longest, "minlength": shape.get("minLength")}
        if format == "date-time":
            new.hint = f"{new.hint} The time is UTC.".strip()
        key = new.path[-1].lower() if new.path else ""
        is_long = (longest is None and key in _MULTILINE_NAMES) or (isinstance(longest, int) and longest > _LONG_TEXT)
        if new.input == "text" and (is_long or format in ("textarea", "multiline", "markdown")):
            new.kind = "lines"

    def _choose_list(self, new: Field, shape: dict[str, Any]) -> None:
        items, _ = self._simplify(shape.get("items"))
        if not isinstance(items, dict):
            return
        if options := _options(items):
            new.kind, new.options = "checks", options
        elif items.get("type") in ("string", "integer", "number"):
            new.kind, new.item = "list", "text" if items["type"] == "string" else "number"
            new.hint = f"{new.hint} One per line.".strip()

    def _simplify(self, schema: Any) -> tuple[Any, bool]:
        """Resolve references, and remove a null that only means "or nothing".

        Returns:
            The schema as one dict, None if that is not possible; and whether the value may be null.
        """
        nullable = False
        for _ in range(20):  # references may form a circle
            if not isinstance(schema, dict) or ("$id" in schema and schema is not self._schema):
                return None, nullable
            several = next((word for word in ("anyOf", "oneOf", "allOf") if schema.get(word)), None)
            if "$ref" in schema:
                target = self._resolve(schema["$ref"])
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = {**target, **rest} if isinstance(target, dict) else None
                continue
            if several is not None and not _options(schema):
                inner = [one for one in schema[several] if one != {"type": "null"}]
                nullable = nullable or len(inner) < len(schema[several])
                if len(inner) == 1 and isinstance(inner[0], dict):
                    schema = {**inner[0], **{key: value for key, value in schema.items() if key != several}}
                    continue
                return (schema if "properties" in schema else None), nullable
            if isinstance(schema.get("type"), list):
                kinds = [kind for kind in schema["type"] if kind != "null"]
                nullable = nullable or len(kinds) < len(schema["type"])
                return ({**schema, "type": kinds[0]} if len(kinds) == 1 else None), nullable
            return schema, nullable
        return None, nullable

    def _resolve(self, reference: Any) -> Any:
        """The part of this schema that a reference names; None for any other document."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._schema
        for part in filter(None, reference.removeprefix("#").split("/")):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found


def _typed_default(new: Field, default: Any) -> list[str]:
    """A default, as if the person had typed it."""
    match new.kind:
        case "choice":
            return [str(n) for n, option in enumerate(new.options) if same_value(option.value, default)]
        case "checks" if isinstance(default, list):
            return [str(n) for n, option in enumerate(new.options) if any(same_value(option.value, d) for d in default)]
        case "list" if isinstance(default, list):
            return ["\n".join(str(item) for item in default)]
        case "json":
            return [json.dump(default)]
        case "text" if new.input == "datetime-local":
            return [str(default)[:16]]
    return [] if default is None else [str(default)]


def same_value(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)  # True is not 1 here


def _options(shape: dict[str, Any]) -> list[Option]:
    """The options of a schema that is nothing but a choice: an enum, a const, or constants with titles."""
    if "const" in shape:
        return [Option(option_label(shape["const"], shape.get("title")), shape["const"])]
    if isinstance(shape.get("enum"), list):
        return [Option(option_label(value), value) for value in shape["enum"]]
    for word in ("oneOf", "anyOf"):
        several = shape.get(word)
        if isinstance(several, list) and several and all(isinstance(one, dict) and "const" in one for one in several):
            return [Option(option_label(one["const"], one.get("title")), one["const"]) for one in several]
    return []


def option_label(value: Any, title: Any = None) -> str:
    if title:
        return str(title)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if value is None:
        return "None"
    return label_of(value) if isinstance(value, str) else json.dump(value)


def label_of(key: str) -> str:
    """A key as words: `order_id` and `orderId` become "Order id"; text that is not an identifier stays as it is."""
    if not _IDENTIFIER.fullmatch(key):
        return key
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])", "_", key).replace("-", "_").strip("_").split("_")
    if len(words) > 1:
        words = [word if word.isupper() and len(word) > 1 else word.lower() for word in words if word]
    text = " ".join(words) or key
    return text[:1].upper() + text[1:]


def _step(shape: dict[str, Any]) -> Any:
    if shape.get("multipleOf"):
        return shape["multipleOf"]
    return 1 if shape.get("type") == "integer" else "any"
