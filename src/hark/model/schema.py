"""Schemas of answers: from a Python type or JSON Schema to the stored text, and from an answer to its problems.

`compile_schema` refuses immediately what could not be used later. `problems` never raises: a schema that cannot be used
is a problem too. No `$ref` is ever fetched.

Anyone with a link can send any answer, so the work is bounded by the size of the answer. Patterns run in linear time.
The steps are counted before they are done (schema_work.py), and an answer that needs too many is refused. The validator
collects all errors before it returns the first, and takes far longer for an error than for a step; so errors are listed
for a small answer only, and for the first parts of a large one.

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
from hark.model.schema_work import SchemaWork

if TYPE_CHECKING:
    import jsonschema_rs

Reader = Callable[[str], Any]
"""Makes the object that the function receives from the JSON text of an accepted answer."""

SIZE = 1 << 16  # bytes of a schema, which is read with every answer
_MAX_PROBLEMS = 20  # problems reported for one answer
_MAX_PROBLEM_CHARS = 200  # characters of a problem, which may quote the answer
_MAX_EXAMPLE_DEPTH = 8  # a schema may refer to itself
# A step takes 10 to 100 ns, an error in a list of errors 5 to 150 µs.
_MAX_STEPS = 100_000  # to validate an answer; and for each of its bytes:
_STEPS_PER_BYTE = 4
_MAX_QUICK_STEPS = 1000  # of an answer that a turn validates itself
_MAX_QUICK_SIZE = 4096  # characters of such an answer
_MAX_QUICK_LISTED_STEPS = 40
_MAX_LISTED_STEPS = 2000  # of an answer, or the first parts of it, whose problems are listed
_MAX_SAMPLE = 1500  # values in these first parts
# The bytes of a compiled pattern, and the steps that it takes for a character when it is as slow as its size allows. A
# larger one is refused.
_PATTERN_STEPS = {1 << 13: 1, 1 << 16: 8, 1 << 20: 128}

_PYDANTIC_DECIMAL = "^(?!^[-+.]*$)"
_DECIMAL = r"^[+-]?(\d+\.?\d*|\.\d+)$"
_TOO_MUCH_WORK = (
    "answer: takes too much work to validate for its size; make it shorter or flatter, or ask with a simpler schema"
)
_TOO_COMPLEX = "answer: does not match the schema; it is too complex to list the problems"
_TOO_LARGE = "answer: does not match the schema; it is large, so only its first parts were looked at in detail"


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
    limit = _MAX_STEPS + _STEPS_PER_BYTE * len(payload)
    found = _problems(schema, payload, limit, _MAX_LISTED_STEPS)
    return [_TOO_MUCH_WORK] if found is None else found


def quick_problems(schema: str, payload: str) -> list[str] | None:
    """The problems of a small answer, found in less time than a turn takes; None for any other answer."""
    if len(payload) > _MAX_QUICK_SIZE:
        return None
    return _problems(schema, payload, _MAX_QUICK_STEPS, _MAX_QUICK_LISTED_STEPS)


def _problems(schema: str, payload: str, limit: int, limit_listed: int) -> list[str] | None:
    """The problems of an answer; None if it takes more than `limit` steps, or `limit_listed` to list its problems."""
    try:
        validator, work = _validator(schema)
    except InvalidInput as cause:
        return [f"the stored schema cannot be used: {cause}"]
    answer = json.load(payload)
    if work.steps(answer, limit, remembered=True) > limit:
        return None
    if validator.is_valid(answer):
        return []
    sample = _Sample(answer)
    if work.steps(sample.value, limit_listed, remembered=False) > limit_listed:
        return None if limit_listed < _MAX_LISTED_STEPS else [_TOO_COMPLEX]
    errors = (error for error in _leaves(validator.iter_errors(sample.value)) if sample.has_all_of(error.instance_path))
    found = list(islice(dict.fromkeys(map(_problem, errors)), _MAX_PROBLEMS))
    if not found or (sample.is_cut and len(found) < _MAX_PROBLEMS):
        found.append(_TOO_LARGE)
    return found


def path(parts: Sequence[str | int]) -> str:
    """A position in an answer: `items[2].amount`; the answer itself is `answer`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "answer"


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
def _validator(text: str) -> tuple[jsonschema_rs.Validator, SchemaWork]:
    import jsonschema_rs  # slow to import, and most programs use no schema

    schema = json.load(text)
    try:
        validator = jsonschema_rs.validator_for(
            schema,
            offline=True,
            validate_formats=True,  # text that is not a date could not be read as a date
            pattern_options=jsonschema_rs.RegexOptions(size_limit=max(_PATTERN_STEPS)),
        )
    except jsonschema_rs.ValidationError as cause:
        where = f"at {path(cause.instance_path)}: " if cause.instance_path else ""
        raise InvalidInput(f"The JSON Schema is malformed: {where}{_short(cause.message)}; {_advice(cause)}") from cause
    return validator, SchemaWork(schema, _pattern_steps)


def _advice(cause: jsonschema_rs.ValidationError) -> str:
    import jsonschema_rs

    if isinstance(cause.kind, jsonschema_rs.ValidationErrorKind.Referencing):
        return "point every $ref into the same schema, nothing is fetched"
    if isinstance(cause.kind, jsonschema_rs.ValidationErrorKind.Format) and cause.kind.format == "regex":
        return (
            "patterns run in linear time, so one cannot look ahead or behind, refer back to a group, or repeat large "
            "parts many times: write it without, or check the rest in code"
        )
    return "correct it"


@lru_cache(1024)
def _pattern_steps(pattern: str) -> int:
    """The steps of a pattern for each character."""
    import jsonschema_rs

    for size, steps in _PATTERN_STEPS.items():
        try:
            options = jsonschema_rs.RegexOptions(size_limit=size)
            jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except jsonschema_rs.ValidationError:
            continue
        return steps
    raise InvalidInput(f"The pattern {_short(pattern)!r} cannot be used; write a simpler one")


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


class _Sample:
    """The first parts of an answer: all of a small one.

    Attributes:
        value: The sample, a JSON value.
        is_cut: Whether anything was left out.
    """

    def __init__(self, answer: Any) -> None:
        self._left = _MAX_SAMPLE
        self._incomplete: set[tuple[str | int, ...]] = set()
        self.value = self._take(answer, ())
        self.is_cut = bool(self._incomplete)

    def has_all_of(self, at: Sequence[str | int]) -> bool:
        """Whether the value at this path is complete: an error of an incomplete one may not be in the answer."""
        return tuple(at) not in self._incomplete

    def _take(self, value: Any, at: tuple[str | int, ...]) -> Any:
        self._left -= 1
        taken: Any
        if isinstance(value, list):
            taken = []
            for n, item in enumerate(value):
                if self._left <= 0:
                    break
                taken.append(self._take(item, (*at, n)))
        elif isinstance(value, dict):
            taken = {}
            for name, item in value.items():
                if self._left <= 0:
                    break
                taken[name] = self._take(item, (*at, name))
        else:
            return value
        if len(taken) < len(value):
            self._incomplete.update(at[:n] for n in range(len(at) + 1))
        return taken


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
