"""Schemas of answers: from a Python type or JSON Schema to the stored text, and from an answer to its problems.

`compile_schema` refuses immediately what could not be used later. `problems` runs in the turn that settles an
awakeable, so it never raises: a schema that cannot be used is a problem too. No `$ref` is ever fetched, and the
cost of a pattern is limited, because the whole turn waits for it.

Typed values are read and written by json.Codec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from hark.model import json
from hark.model.errors import HarkError, InvalidInput

if TYPE_CHECKING:
    import jsonschema_rs

Reader = Callable[[str], Any]
"""Makes the object that the function receives from the JSON text of an accepted answer."""

SIZE = 1 << 16  # bytes of a schema, which is read with every answer
_MAX_PROBLEMS = 20  # problems reported for one answer
_MAX_PROBLEM_CHARS = 200  # characters of a problem, which may quote the answer
_MAX_EXAMPLE_DEPTH = 8  # a schema may refer to itself
_MAX_BACKTRACKS = 10_000  # steps of a pattern that needs backtracking; after that it counts as not matching


def compile_schema(schema: Any) -> tuple[str | None, Reader]:
    """The text to store, and the reader of accepted answers. Without a schema, any JSON is accepted.

    Raises InvalidInput if the schema is malformed, larger than SIZE, or of a type that has no JSON Schema.
    """
    if schema is None:
        return None, json.load
    if isinstance(schema, Mapping):
        return _stored(schema, "This schema"), json.load
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


def problems(schema: str, payload: str) -> list[str]:
    """Why an answer does not match, each with its path: `items[2].amount: "x" is not of type "integer"`."""
    try:
        validator = _validator(schema)
    except InvalidInput as cause:
        return [f"the stored schema cannot be used: {cause}"]
    found = (_problem(error) for error in _leaves(validator.iter_errors(json.load(payload))))
    return list(islice(dict.fromkeys(found), _MAX_PROBLEMS))


def path(parts: Sequence[str | int]) -> str:
    """A position in an answer: `items[2].amount`; the answer itself is `answer`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "answer"


# -- schemas ---------------------------------------------------------------------------------------


def _schema_of(kind: Any) -> dict[str, Any]:
    if hasattr(kind, "model_json_schema"):
        own: dict[str, Any] = kind.model_json_schema()
        return own
    schema = msgspec.json.schema(kind, schema_hook=_inner_schema)
    _add_date_formats(msgspec.inspect.type_info(kind), schema, schema.get("$defs", {}), set())
    return schema


def _inner_schema(kind: Any) -> dict[str, Any]:
    """A pydantic model inside another type, as a document with its own $id, so that its references resolve in it."""
    if hasattr(kind, "model_json_schema"):
        return {"$id": f"urn:hark:{kind.__module__}.{kind.__qualname__}", **kind.model_json_schema()}
    raise NotImplementedError


def _add_date_formats(info: Any, node: Any, defs: dict[str, Any], seen: set[str]) -> None:
    """msgspec describes a datetime as just "string": any text would be accepted, and then could not be read."""
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
    text = json.dump(schema, what="schema")
    if len(text.encode()) > SIZE:
        raise InvalidInput(f"{name} is over {SIZE} bytes of JSON Schema; make it smaller, or check the rest in code")
    _validator(text)
    return text


@lru_cache(256)
def _validator(text: str) -> jsonschema_rs.Validator:
    import jsonschema_rs  # slow to import, and most programs use no schema

    try:
        return jsonschema_rs.validator_for(
            json.load(text),
            offline=True,
            validate_formats=True,  # text that is not a date could not be read as a date
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS, size_limit=1 << 20),
        )
    except jsonschema_rs.ValidationError as cause:
        where = f"at {path(cause.instance_path)}: " if cause.instance_path else ""
        fetched = isinstance(cause.kind, jsonschema_rs.ValidationErrorKind.Referencing)
        advice = "point every $ref into the same schema, nothing is fetched" if fetched else "correct it"
        raise InvalidInput(f"The JSON Schema is malformed: {where}{_short(cause.message)}; {advice}") from cause


# -- answers ---------------------------------------------------------------------------------------


def example_answer(schema: Any) -> str:
    """JSON with the shape that a schema asks for, to fill in: an object has its required keys. It may not validate."""
    return json.dump(_example(schema, schema, 0))


def _example(node: Any, root: Any, depth: int) -> Any:
    if not isinstance(node, Mapping) or depth > _MAX_EXAMPLE_DEPTH:
        return None
    if "const" in node:
        return node["const"]
    for key in ("enum", "anyOf", "oneOf", "allOf"):
        if isinstance(choices := node.get(key), list) and choices:
            return choices[0] if key == "enum" else _example(choices[0], root, depth + 1)
    if isinstance(ref := node.get("$ref"), str):
        target = root
        for part in ref.removeprefix("#").strip("/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        return _example(target, root, depth + 1)
    kind = node.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object":
        fields, required = node.get("properties", {}), node.get("required", [])
        return {name: _example(fields.get(name), root, depth + 1) for name in required}
    return {"array": [], "boolean": True, "integer": 0, "number": 0, "string": ""}.get(str(kind))


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


def _leaves(errors: Iterator[jsonschema_rs.ValidationError]) -> Iterator[jsonschema_rs.ValidationError]:
    """For "does not match any of these", the problems with the only alternative besides null: that one was meant."""
    for error in errors:
        context = getattr(error.kind, "context", None) or []
        meant = [tried for tried in context if not (len(tried) == 1 and _wants_null(tried[0]))]
        if len(meant) == 1 and len(context) > 1:
            yield from _leaves(iter(meant[0]))
        else:
            yield error


def _wants_null(error: jsonschema_rs.ValidationError) -> bool:
    return error.kind.name == "type" and getattr(error.kind, "types", None) == ["null"]


def _problem(error: jsonschema_rs.ValidationError) -> str:
    where = list(error.instance_path)
    if error.kind.name == "required":
        return f"{path([*where, getattr(error.kind, 'property', '')])}: is required"
    return f"{path(where)}: {_short(error.message)}"


def _short(text: str) -> str:
    if len(text) <= _MAX_PROBLEM_CHARS:
        return text
    return f"{text[: _MAX_PROBLEM_CHARS // 2]} … {text[-_MAX_PROBLEM_CHARS // 2 :]}"
