"""Compile the schema of an answer, from a Python type or a JSON Schema, and read answers as typed objects.

`compile_schema` refuses a schema that could not be used later. Answers are validated in validation.py; typed values
are read and written by json.Codec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from hark.model import json
from hark.model.errors import HarkError, InvalidInput
from hark.model.validation import check_schema

Reader = Callable[[str], Any]
"""Makes the object that the function receives from the JSON text of an accepted answer."""

SIZE = 1 << 16  # bytes of a schema, which is read with every answer
_MAX_EXAMPLE_DEPTH = 8  # a schema may refer to itself
_MAX_EXAMPLE_PARTS = 200  # of the schema; what comes after is null
_MAX_EXAMPLES = 3
_MAX_SHOWN_EXAMPLES = 1000  # characters in an error
_PYDANTIC_DECIMAL = "^(?!^[-+.]*$)"
_DECIMAL = r"^[+-]?(\d+\.?\d*|\.\d+)$"


def compile_schema(schema: Any) -> tuple[str | None, Reader]:
    """The text to store, and the reader of accepted answers. Without a schema, any JSON is accepted.

    Raises InvalidInput if the schema is malformed, larger than SIZE, or of a type that has no JSON Schema.
    """
    if schema is None:
        return None, json.load_for_code
    if isinstance(schema, Mapping):
        return _stored(schema, "This schema"), json.load_for_code
    name = getattr(schema, "__qualname__", repr(schema)).rpartition("<locals>.")[2]
    try:
        text = _stored(_schema_of(schema), name)
        codec = json.Codec(schema).prepare()
    except HarkError as cause:
        raise InvalidInput(f"{name} cannot be the schema of an answer: {cause}") from cause
    except Exception as cause:  # pydantic and msgspec each have their own; hooks are the user's
        reason = str(cause).strip().rpartition("\n")[2]
        raise InvalidInput(
            f"{name} cannot be the schema of an answer: {reason}; give a JSON Schema as a dict, a dataclass, "
            "a msgspec Struct or a pydantic model"
        ) from cause
    return text, lambda answer: _typed(codec, answer)


# -- schemas ---------------------------------------------------------------------------------------


def _schema_of(kind: Any) -> dict[str, Any]:
    if hasattr(kind, "model_json_schema"):
        return _pydantic_schema(kind)
    schema = msgspec.json.schema(kind, schema_hook=_inner_schema)
    _add_date_formats(msgspec.inspect.type_info(kind), schema, schema.get("$defs", {}), set())
    _shorten_docstrings(schema)
    return schema


def _shorten_docstrings(schema: dict[str, Any]) -> None:
    """Keep the first paragraph of each class docstring, which the answer page shows; the rest is for programmers.

    A docstring that was generated for the class (`Verdict(approve: bool)`) is not a description at all.
    """
    for node in (schema, *schema.get("$defs", {}).values()):
        if isinstance(text := node.get("description"), str):
            summary = " ".join(text.strip().partition("\n\n")[0].split())
            node["description"] = summary
            if not summary or summary.startswith(f"{node.get('title')}("):
                del node["description"]


def _pydantic_schema(kind: Any) -> dict[str, Any]:
    """The schema of a model. Some versions of pydantic give a Decimal a pattern that looks ahead."""
    schema: dict[str, Any] = kind.model_json_schema()
    todo: list[Any] = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            if str(node.get("pattern", "")).startswith(_PYDANTIC_DECIMAL):
                node["pattern"] = _DECIMAL
            todo += node.values()
        elif isinstance(node, list):
            todo += node
    _shorten_docstrings(schema)
    return schema


def _inner_schema(kind: Any) -> dict[str, Any]:
    """A pydantic model inside another type, as a document with its own $id, so that its references resolve in it."""
    if hasattr(kind, "model_json_schema"):
        return {"$id": f"urn:hark:{kind.__module__}.{kind.__qualname__}", **_pydantic_schema(kind)}
    raise NotImplementedError


def _add_date_formats(info: Any, node: Any, defs: dict[str, Any], seen: set[str]) -> None:
    """Add the formats of dates: msgspec describes a datetime as "string", so texts that are not dates would pass."""
    if not isinstance(node, dict):
        return
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        if name in seen:
            return
        seen.add(name)
        node = defs[name]
    match info:
        case msgspec.inspect.DateTimeType():
            node.setdefault("format", "date-time")
        case msgspec.inspect.UnionType():
            nodes = [one for one in node.get("anyOf", ()) if one.get("type") != "null"]
            types = [one for one in info.types if not isinstance(one, msgspec.inspect.NoneType)]
            if len(nodes) == len(types) == 1:
                _add_date_formats(types[0], nodes[0], defs, seen)
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            _add_date_formats(info.item_type, node.get("items"), defs, seen)
        case msgspec.inspect.DictType():
            _add_date_formats(info.value_type, node.get("additionalProperties"), defs, seen)
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType() | msgspec.inspect.TypedDictType():
            for field in info.fields:
                _add_date_formats(field.type, node.get("properties", {}).get(field.encode_name), defs, seen)


def _stored(schema: Mapping[str, Any], name: str) -> str:
    text = json.dump_unchecked(schema, what="schema")
    if len(text.encode()) > SIZE:
        raise InvalidInput(f"{name} is over {SIZE} bytes of JSON Schema; make it smaller, or check the rest in code")
    check_schema(text)
    return text


# -- answers ---------------------------------------------------------------------------------------


def example_answer(schema: Any) -> str:
    """JSON with the shape that a schema asks for, to fill in: its first example, or one that is made from it."""
    return json.dump(example_answers(schema)[0])


def example_answers(schema: Any) -> list[Any]:
    """Answers with the shape that a schema asks for: its own `examples`, or one that is made from it.

    The one that is made may not validate. An object has its required keys, or all of them if none is required; a
    default is taken. A choice of schemas has one for each.
    """
    parts = iter(range(_MAX_EXAMPLE_PARTS))
    for key in ("examples", "anyOf", "oneOf"):
        own = schema.get(key) if isinstance(schema, Mapping) else None
        if isinstance(own, list) and own:
            own = own[:_MAX_EXAMPLES]
            return own if key == "examples" else [_example(one, schema, 1, parts) for one in own]
    return [_example(schema, schema, 0, parts)]


def like_an_answer(examples: list[Any]) -> str:
    """The sentence of an error that shows these examples; empty if they are large."""
    shown = " or ".join(map(json.dump, examples))
    return f" An answer looks like {shown}." if len(shown) <= _MAX_SHOWN_EXAMPLES else ""


def _example(node: Any, root: Any, depth: int, parts: Iterator[int]) -> Any:
    if not isinstance(node, Mapping) or depth > _MAX_EXAMPLE_DEPTH or next(parts, None) is None:
        return None
    if depth and isinstance(own := node.get("examples"), list) and own:
        return own[0]
    for key in ("const", "default"):
        if key in node:
            return node[key]
    for key in ("enum", "anyOf", "oneOf", "allOf"):
        if isinstance(choices := node.get(key), list) and choices:
            return choices[0] if key == "enum" else _example(choices[0], root, depth + 1, parts)
    if isinstance(ref := node.get("$ref"), str):
        target = root
        for part in ref.removeprefix("#").strip("/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        return _example(target, root, depth + 1, parts)
    kind = node.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object":
        fields, required = node.get("properties", {}), node.get("required", [])
        return {name: _example(fields.get(name), root, depth + 1, parts) for name in required or fields}
    if kind in ("integer", "number"):
        return max(0, node.get("minimum", 0))
    if kind == "array":
        count = min(int(node.get("minItems", 0)), _MAX_EXAMPLE_PARTS)
        return [_example(node.get("items"), root, depth + 1, parts) for _ in range(count)]
    if kind == "string":
        return "x" * min(int(node.get("minLength", 0)), _MAX_EXAMPLE_PARTS)
    return True if kind == "boolean" else None


def _typed(codec: json.Codec[Any], answer: str) -> Any:
    try:
        return codec.read(answer, what="answer")
    except InvalidInput:
        # To JSON Schema 1.0 is an integer, to msgspec it is not.
        return codec.read(json.dump(_integral(json.load(answer))), what="answer")


def _integral(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_integral(inner) for inner in value]
        case dict():
            return {key: _integral(inner) for key, inner in value.items()}
        case _:
            return value
