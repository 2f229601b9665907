"""Validate an answer against its schema, with a bounded amount of work.

Anyone with a link can send any answer, so the work is bounded by the size of the answer. Patterns run in linear time.
The checks are counted before they are done (schema_work.py), and an answer that needs too many is refused. The
validator collects all errors before it returns the first, and takes far longer for an error than for a check; so errors
are listed for a small answer only, and for the first parts of a large one.

`problems` never raises: a schema that cannot be used is a problem too. No `$ref` is ever fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from hark.model import json
from hark.model.errors import InvalidInput
from hark.model.schema_work import SchemaWork

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_PROBLEMS = 20  # problems reported for one answer
_MAX_PROBLEM_CHARS = 200  # characters of a problem, which may quote the answer
# A check takes 10 to 100 ns, an error in a list of errors 5 to 150 µs.
_MAX_CHECKS = 100_000  # of an answer; and for each of its characters:
_CHECKS_PER_CHARACTER = 4
_MAX_QUICK_CHECKS = 1000  # of an answer that a turn validates itself
_MAX_QUICK_SIZE = 4096  # characters of such an answer
_MAX_QUICK_SCHEMA = 1 << 14  # characters of its schema, which is compiled for the first answer
_MAX_QUICK_LISTED_CHECKS = 40
_MAX_LISTED_CHECKS = 2000  # of an answer, or the first parts of it, whose problems are listed
_MAX_SAMPLE = 1500  # values in these first parts
# The bytes of a compiled pattern, and the checks that it takes for a character when it is as slow as its size allows. A
# larger one is refused.
_PATTERN_CHECKS = {1 << 13: 1, 1 << 16: 8, 1 << 20: 128}
_TOO_MUCH_WORK = (
    "answer: takes too much work to validate for its size; make it shorter or flatter, or ask with a simpler schema"
)
_TOO_COMPLEX = "answer: does not match the schema; it is too complex to list the problems"
_TOO_LARGE = "answer: does not match the schema; it is large, so only its first parts were looked at in detail"


def check_schema(schema: str) -> None:
    """Raise InvalidInput if no answer could be validated against this schema."""
    _validator(schema)


def problems(schema: str, payload: str) -> list[str]:
    """The mismatches of an answer, each with its path: `items[2].amount: "x" is not of type "integer"`."""
    limit = _MAX_CHECKS + _CHECKS_PER_CHARACTER * len(payload)
    found = _problems(schema, payload, limit, _MAX_LISTED_CHECKS)
    return [_TOO_MUCH_WORK] if found is None else found


def quick_problems(schema: str, payload: str) -> list[str] | None:
    """The problems of a small answer, found in less time than a turn takes; None for any other answer."""
    if len(payload) > _MAX_QUICK_SIZE or len(schema) > _MAX_QUICK_SCHEMA:
        return None
    return _problems(schema, payload, _MAX_QUICK_CHECKS, _MAX_QUICK_LISTED_CHECKS)


def _problems(schema: str, payload: str, limit: int, limit_listed: int) -> list[str] | None:
    """The problems of an answer; None if it takes more than `limit` checks, or `limit_listed` to list its problems."""
    try:
        validator, work = _validator(schema)
    except InvalidInput as cause:
        return [f"the stored schema cannot be used: {cause}"]
    answer = json.load(payload)
    if work.checks(answer, limit, remembered=True) > limit:
        return None
    if validator.is_valid(answer):
        return []
    sample = _Sample(answer)
    if work.checks(sample.value, limit_listed, remembered=False) > limit_listed:
        return None if limit_listed < _MAX_LISTED_CHECKS else [_TOO_COMPLEX]
    errors = (error for error in _leaves(validator.iter_errors(sample.value)) if sample.has_all_of(error.instance_path))
    found = list(islice(dict.fromkeys(map(_problem, errors)), _MAX_PROBLEMS))
    if not found or (sample.is_cut and len(found) < _MAX_PROBLEMS):
        found.append(_TOO_LARGE)
    return found


def path(parts: Sequence[str | int]) -> str:
    """A position in an answer: `items[2].amount`; the answer itself is `answer`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".") or "answer"


# -- validators ----------------------------------------------------------------------------------


@lru_cache(256)
def _validator(text: str) -> tuple[jsonschema_rs.Validator, SchemaWork]:
    import jsonschema_rs  # slow to import, and most programs use no schema

    schema = json.load(text)
    try:
        validator = jsonschema_rs.validator_for(
            schema,
            offline=True,
            validate_formats=True,  # text that is not a date could not be read as a date
            pattern_options=jsonschema_rs.RegexOptions(size_limit=max(_PATTERN_CHECKS)),
        )
    except jsonschema_rs.ValidationError as cause:
        where = f"at {path(cause.instance_path)}: " if cause.instance_path else ""
        raise InvalidInput(f"The JSON Schema is malformed: {where}{_short(cause.message)}; {_advice(cause)}") from cause
    return validator, SchemaWork(schema, _pattern_checks)


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
def _pattern_checks(pattern: str) -> int:
    import jsonschema_rs

    for size, checks in _PATTERN_CHECKS.items():
        try:
            options = jsonschema_rs.RegexOptions(size_limit=size)
            jsonschema_rs.validator_for({"pattern": pattern}, offline=True, pattern_options=options)
        except jsonschema_rs.ValidationError:
            continue
        return checks
    raise InvalidInput(f"The pattern {_short(pattern)!r} cannot be used; write a simpler one")


# -- problems ------------------------------------------------------------------------------------


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
        """Return True if the value at this path is complete: an error of an incomplete one may not be in the answer."""
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
    """Replace "does not match any of these" by the problems of the only alternative besides null, which was meant."""
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
