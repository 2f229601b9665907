"""A form from a JSON Schema, and an answer from a form. Pure: no HTML, no request, no store.

What can be drawn is drawn; anything else is a box for JSON, so that every schema can be answered. Nothing is
judged here: what was typed becomes a value as well as it can, and whether that fits is the engine's to say, in
the turn that settles. Its problems come back to the fields they name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from hark.model import json
from hark.model.errors import MalformedJson
from hark.model.schema import path

Posted = Mapping[str, Sequence[str]]

_DEEPEST: Final = 4  # groups within groups; below that, JSON
_MOST: Final = 80  # fields
_FEW: Final = 5  # choices that are shown at once; more go into a list
_LONG: Final = 120  # characters that want a larger box
_LENGTHY: Final = frozenset(
    ("body", "comment", "comments", "description", "details", "explanation", "feedback", "message", "note", "notes",
     "reason", "remark", "remarks", "text")
)  # fmt: skip
_INPUTS: Final = {"date": "date", "email": "email", "uri": "url", "date-time": "datetime-local", "password": "password"}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z_0-9-]*")
_NUMBER: Final = re.compile(r"[+-]?\d{1,400}")
_MINUTE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_SECOND: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Option:
    label: str
    value: Any


@dataclass(slots=True)
class Field:
    """One question of a form: a group of others, or something to type or choose."""

    path: tuple[str, ...]
    kind: str  # group, text, lines, number, choice, checks, list, json, fixed
    label: str
    id: str
    hint: str = ""
    required: bool = False
    nullable: bool = False
    input: str = "text"  # the type of the <input>
    item: str = "text"  # of a list: what each line is
    limits: dict[str, Any] = field(default_factory=dict)  # attributes of the <input>
    options: list[Option] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    value: Any = None  # of a fixed one
    typed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in the posted form: no two paths share one."""
        return "v" + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in self.path)

    @property
    def text(self) -> str:
        return self.typed[0] if self.typed else ""

    @property
    def few(self) -> bool:
        """Few and short enough to be seen side by side."""
        return len(self.options) <= _FEW and sum(len(option.label) for option in self.options) <= _LONG


class Form:
    """The form of one question. Without a schema: some text, or none."""

    def __init__(self, schema: Any) -> None:
        self._count = 0
        self._schema = schema
        self.is_approval = self._is_approval()
        self.root = (
            Field((), "lines", "Your answer", "f0")
            if schema is None
            else self._draw(schema, (), "Your answer", required=True)
        )

    def _is_approval(self) -> bool:
        """The answer of a gate: approve, or reject with a reason. Two buttons say it better than fields."""
        several = self._schema.get("oneOf") or self._schema.get("anyOf") if isinstance(self._schema, dict) else None
        shapes = [self._plain_shape(one)[0] for one in several or [self._schema]]
        actions: list[Any] = []
        for shape in shapes:
            known = shape.get("properties") if isinstance(shape, dict) else None
            if not known or not {"action"} <= set(known) <= {"action", "reason", "output"}:
                return False
            if shape.get("required", ["action"]) != ["action"]:
                return False
            actions += [option.value for option in _options(known["action"])]
        return sorted(map(str, actions)) == ["approve", "reject"]

    def fields(self) -> list[Field]:
        """What is shown: the parts of an object, or the one question."""
        if self.is_approval:
            return []
        return self.root.fields if self.root.kind == "group" else [self.root]

    def all_fields(self, start: Field | None = None) -> Iterator[Field]:
        start = start or self.root
        yield start
        for inner in start.fields:
            yield from self.all_fields(inner)

    def fill(self, posted: Posted) -> None:
        """Keep what was typed."""
        for one in self.all_fields():
            one.typed = list(posted.get(one.name, ()))

    def answer(self) -> Any:
        """What was typed, as a value. A box of broken JSON is a problem of its own, told by `broken`."""
        if self.is_approval:
            return {"action": "approve"}
        value = self._read(self.root)
        if value is not _ABSENT:
            return value
        return "" if self.root.kind == "text" else None

    @property
    def has_problems(self) -> bool:
        return any(one.problems for one in self.all_fields())

    def attach_problems(self, problems: Sequence[str]) -> list[str]:
        """Put each problem beside the field it names; those that name none are returned."""
        rest = []
        places = {path(one.path): one for one in self.all_fields() if one.path or one.kind != "group"}
        for problem in problems:
            named = [at for at in places if problem.startswith((f"{at}: ", f"{at}[", f"{at}."))]
            if named:
                at = max(named, key=len)
                places[at].problems.append(_plain(problem.removeprefix(f"{at}: ")))
            else:
                rest.append(_plain(problem.removeprefix("answer: ")))
        return rest

    # -- drawing ----------------------------------------------------------------------------------

    def _draw(self, schema: Any, at: tuple[str, ...], label: str, *, required: bool) -> Field:
        shape, nullable = self._plain_shape(schema)
        self._count += 1
        known = isinstance(shape, dict) and self._count <= _MOST
        new = Field(
            at,
            "json",
            str(shape.get("title") or label) if isinstance(shape, dict) and at else label,
            f"f{self._count}",
            hint=str(shape.get("description") or "") if isinstance(shape, dict) else "",
            required=required and not nullable,
            nullable=required and nullable,
        )
        if known and len(at) <= _DEEPEST:
            self._choose_kind(new, shape)
        if known and "default" in shape and new.kind not in ("group", "fixed"):
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
                return  # asks for more than it describes
            new.kind = "group"
            new.fields = [
                self._draw(inner, (*new.path, key), _label(key), required=key in needed) for key, inner in known.items()
            ]

    def _choose_text(self, new: Field, shape: dict[str, Any]) -> None:
        longest, format = shape.get("maxLength"), shape.get("format")
        new.kind, new.input = "text", _INPUTS.get(str(format), "text")
        new.limits = {"maxlength": longest, "minlength": shape.get("minLength")}
        if format == "date-time":
            new.hint = f"{new.hint} The time is UTC.".strip()
        key = new.path[-1].lower() if new.path else ""
        lengthy = (longest is None and key in _LENGTHY) or (isinstance(longest, int) and longest > _LONG)
        if new.input == "text" and (lengthy or format in ("textarea", "multiline", "markdown")):
            new.kind = "lines"

    def _choose_list(self, new: Field, shape: dict[str, Any]) -> None:
        items, _ = self._plain_shape(shape.get("items"))
        if not isinstance(items, dict):
            return
        if options := _options(items):
            new.kind, new.options = "checks", options
        elif items.get("type") in ("string", "integer", "number"):
            new.kind, new.item = "list", "text" if items["type"] == "string" else "number"
            new.hint = f"{new.hint} One per line.".strip()

    def _plain_shape(self, schema: Any) -> tuple[Any, bool]:
        """Without references, and without the null that only says "or nothing"."""
        nullable = False
        for _ in range(20):  # a schema may point in circles
            if not isinstance(schema, dict) or ("$id" in schema and schema is not self._schema):
                return None, nullable
            several = next((word for word in ("anyOf", "oneOf", "allOf") if schema.get(word)), None)
            if "$ref" in schema:
                target = self._find(schema["$ref"])
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

    def _find(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._schema
        for part in filter(None, reference.removeprefix("#").split("/")):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found

    # -- reading ----------------------------------------------------------------------------------

    def _read(self, one: Field) -> Any:
        value = _typed_value(one) if one.kind != "group" else self._read_group(one)
        return None if value is _ABSENT and one.nullable else value

    def _read_group(self, group: Field) -> Any:
        inside = {inner.path[-1]: self._read(inner) for inner in group.fields}
        value = {key: inner for key, inner in inside.items() if inner is not _ABSENT}
        return value if value or group.required else _ABSENT


def _typed_value(one: Field) -> Any:
    text = one.text.replace("\r\n", "\n")
    match one.kind:
        case "fixed":
            return one.value
        case "checks":
            chosen = [one.options[int(index)].value for index in one.typed if _is_index(index, one.options)]
            return chosen if chosen or one.required else _ABSENT
        case "list":
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            items = [_number(line) if one.item == "number" else line for line in lines]
            return items if items or one.required else _ABSENT
    if not text.strip():
        return _ABSENT
    match one.kind:
        case "choice":
            return one.options[int(text)].value if _is_index(text, one.options) else text
        case "number":
            return _number(text.strip())
        case "json":
            try:
                return json.parse(text, what=one.label)
            except MalformedJson as broken:
                one.problems.append(_plain(str(broken)))
                return _ABSENT
    if one.input == "datetime-local":
        return f"{text}:00Z" if _MINUTE.fullmatch(text) else f"{text}Z" if _SECOND.fullmatch(text) else text
    return text


def _is_index(text: str, options: Sequence[Option]) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) < len(options)


def _number(text: str) -> Any:
    """The number that was typed, or the text itself: that it is none is said by the schema."""
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _typed_default(one: Field, default: Any) -> list[str]:
    """A default as if it had been typed."""
    match one.kind:
        case "choice":
            return [str(n) for n, option in enumerate(one.options) if _same(option.value, default)]
        case "checks" if isinstance(default, list):
            return [str(n) for n, option in enumerate(one.options) if any(_same(option.value, d) for d in default)]
        case "list" if isinstance(default, list):
            return ["\n".join(str(item) for item in default)]
        case "json":
            return [json.dump(default)]
        case "text" if one.input == "datetime-local":
            return [str(default)[:16]]
    return [] if default is None else [str(default)]


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)  # True is not 1 here


def _options(shape: dict[str, Any]) -> list[Option]:
    """What can be chosen, when that is all there is: an enum, a const, or constants with titles."""
    if "const" in shape:
        return [Option(_shown(shape["const"], shape.get("title")), shape["const"])]
    if isinstance(shape.get("enum"), list):
        return [Option(_shown(value), value) for value in shape["enum"]]
    for word in ("oneOf", "anyOf"):
        several = shape.get(word)
        if isinstance(several, list) and several and all(isinstance(one, dict) and "const" in one for one in several):
            return [Option(_shown(one["const"], one.get("title")), one["const"]) for one in several]
    return []


def _shown(value: Any, title: Any = None) -> str:
    if title:
        return str(title)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if value is None:
        return "None"
    return _label(value) if isinstance(value, str) else json.dump(value)


def _label(key: str) -> str:
    """A key as words: `order_id` and `orderId` are "Order id"; what is no identifier stays as it is."""
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


def _plain(problem: str) -> str:
    """A problem as a sentence."""
    if problem == "is required":
        return "Please fill this in."
    return problem[:1].upper() + problem[1:] + ("" if problem.endswith(".") else ".")
