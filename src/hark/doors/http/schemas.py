"""The JSON Schemas of the OpenAPI document, from the types of bodies, queries and responses.

msgspec derives the shape. Added here: descriptions, from the docstrings (the `Attributes` of a class describe its
properties); the words of statuses and kinds; and the examples (examples.py).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET

from hark.doors.http.examples import EXAMPLES
from hark.model.values import AwakeableStatus, Kind, Status, WaitKind

REF: Final = "#/components/schemas/{name}"
_WORDS: Final[dict[str, tuple[Any, str]]] = {
    "Status": (Status, "Where an instance is. `done`, `failed` and `cancelled` are final."),
    "Kind": (Kind, "The kind of a definition."),
    "AwakeableStatus": (AwakeableStatus, "Whether an awakeable is open (`PENDING`), or how it was settled."),
    "WaitKind": (WaitKind, "What a wait is for."),
}
# The model has these as plain text, because a client of an older version may meet a new word.
_PROPERTIES_OF_WORDS: Final = {
    "Instance.status": "Status", "Instance.kind": "Kind", "InstancesQuery.status": "Status",
    "InstancesQuery.kind": "Kind", "Why.status": "Status", "Wait.kind": "WaitKind", "Waiting.kind": "WaitKind",
    "WaitsQuery.kind": "WaitKind", "Awakeable.status": "AwakeableStatus", "AwakeablesQuery.status": "AwakeableStatus",
    "Question.status": "AwakeableStatus",
}  # fmt: skip
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def components(bodies: Sequence[Any], responses: Sequence[Any]) -> dict[str, Any]:
    """The schemas of these types, and of those they refer to, by name."""
    _, found = msgspec.json.schema_components([*bodies, *responses], ref_template=REF)
    classes = {kind.__name__: kind for shape in (*bodies, *responses) for kind in _classes(shape)}
    inputs = {kind.__name__ for kind in bodies}
    for name, schema in found.items():
        _complete(schema, classes[name])
        if name not in inputs:  # a response has all its properties, also those that have a default in Python
            schema["required"] = [key for key in schema["properties"] if key not in _left_out(classes[name])]
            for described in schema["properties"].values():
                described.pop("default", None)
    for name, (words, description) in _WORDS.items():
        values = [*get_args(words)]
        found[name] = {"type": "string", "description": description, "enum": values, "examples": values[:1]}
    return found


def _left_out(kind: type) -> set[str]:
    """The properties that a response may lack: those without a value."""
    if not issubclass(kind, msgspec.Struct):
        return set()
    return {field.encode_name for field in msgspec.structs.fields(kind) if field.default is UNSET}


def reference(shape: Any) -> dict[str, Any]:
    """The schema of a body or response, by reference; `Any` is any JSON, `list[…]` an array, a union one of several."""
    if isinstance(shape, UnionType):
        return {"oneOf": [reference(one) for one in get_args(shape)]}
    if get_origin(shape) is list:
        return {"type": "array", "items": reference(*get_args(shape))}
    return {} if shape is Any else {"$ref": REF.format(name=shape.__name__)}


def parameters(query: type[msgspec.Struct]) -> Iterator[dict[str, Any]]:
    described = msgspec.json.schema_components([query], ref_template=REF)[1][query.__name__]
    _complete(described, query)
    for name, schema in described["properties"].items():
        # An absent parameter is left out, never null.
        [branch] = [one for one in schema.pop("anyOf", [schema]) if one.get("type") != "null"]
        schema = {**schema, **branch}
        if schema.get("default") is None:
            schema.pop("default", None)
        yield {
            "name": name, "in": "query", "required": name in described.get("required", ()),
            "description": schema.pop("description"), "schema": schema, "example": EXAMPLES[query.__name__][name],
        }  # fmt: skip


def summary(kind: Any) -> str:
    """The first paragraph of a docstring; of a list, that of its items."""
    if get_origin(kind) is list:
        return summary(*get_args(kind))
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def _complete(schema: dict[str, Any], kind: Any) -> None:
    del schema["title"]  # the same as the name
    schema["description"] = summary(kind)
    schema["examples"] = [EXAMPLES.get(kind.__name__)]
    descriptions, hints = _descriptions(kind), get_type_hints(kind)
    for name, described in schema["properties"].items():
        words = _PROPERTIES_OF_WORDS.get(f"{kind.__name__}.{name}")
        if words is not None:
            described.clear()
            described["$ref"] = REF.format(name=words)
        for branch in described.get("anyOf", [described]):
            _complete_branch(branch, hints[name])
        described["description"] = descriptions.get(name, "")


def _complete_branch(schema: dict[str, Any], hint: Any) -> None:
    if "enum" in schema:
        schema["type"] = "string"
    elif schema.get("type") == "string" and datetime in (hint, *get_args(hint)):
        schema["format"] = "date-time"
    elif "prefixItems" in schema:  # a tuple of equal types: the plain form, which all generators of clients know
        schema["items"] = schema.pop("prefixItems")[0]
    elif schema.get("type") == "array":  # of anything: generators of clients refuse an array without items
        schema.setdefault("items", {})


def _descriptions(kind: type) -> dict[str, str]:
    """The attributes that docstrings describe, also those of its bases. `None` in Python is `null` in JSON."""
    texts = [(inspect.getdoc(base) or "").partition("Attributes:\n")[2] for base in reversed(kind.__mro__)]
    found = [described for text in texts for described in _ATTRIBUTE.findall(text)]
    return {name: re.sub(r"\bNone\b", "null", " ".join(line.split())) for name, line in found}


def _classes(shape: Any) -> Iterator[Any]:
    """The classes of a type: itself, if it is one, and those of its fields."""
    if isinstance(shape, type) and (hasattr(shape, "__struct_fields__") or hasattr(shape, "__dataclass_fields__")):
        yield shape
        for hint in get_type_hints(shape).values():
            yield from _classes(hint)
    else:
        for hint in get_args(shape):
            yield from _classes(hint)
