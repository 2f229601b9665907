"""Defaults of the fields of forms: they are texts in many files, and may be expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hark.model import json
from hark.model.errors import MalformedJson
from hark.programs.expressions.sources import is_expression

Schema = dict[str, Any]


def computed_defaults(schema: Schema) -> Iterator[str]:
    """The defaults in the schema of a form that are expressions."""
    if _is_computed(schema):
        yield schema["default"]
    for inner in _fields(schema).values():
        yield from computed_defaults(inner)


def with_defaults(schema: Schema, evaluate: Callable[[str], Any]) -> Schema:
    """The schema of a form with the values of its defaults instead of expressions. One without a value, or with one
    that is not of the type of its field, is left out."""
    made = dict(schema)
    if _is_computed(schema):
        del made["default"]
        value = default_of(schema, evaluate(schema["default"]))
        if value is not None:
            made["default"] = value
    if "properties" in schema:
        made["properties"] = {key: with_defaults(inner, evaluate) for key, inner in schema["properties"].items()}
    if "items" in schema:
        made["items"] = with_defaults(schema["items"], evaluate)
    return made


def default_of(schema: Schema, value: Any) -> Any:
    """A default as a value of the type of its field: `true` and `3` may be written as texts. None if it does not
    fit."""
    match schema.get("type"):
        case "boolean":
            return {"true": True, "false": False}.get(str(value).strip().lower())
        case "integer" | "number" as kind:
            return number_in(value, whole=kind == "integer")
        case "string":
            return value if value is None or isinstance(value, str) else json.dump(value)
        case "array":
            return value if isinstance(value, list) else None
    return value


def number_in(value: Any, *, whole: bool = False) -> int | float | None:
    """The number that a value of a form is, or is written as."""
    try:
        found = json.parse(str(value).strip(), what="number")
    except MalformedJson:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return found if not whole or isinstance(found, int) else None


def _is_computed(schema: Schema) -> bool:
    default = schema.get("default")
    return isinstance(default, str) and is_expression(default)


def _fields(schema: Schema) -> Schema:
    return {**schema.get("properties", {}), **({"[]": schema["items"]} if "items" in schema else {})}
