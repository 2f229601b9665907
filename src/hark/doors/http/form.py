"""The form of one question: convert the input of a person to an answer. Pure: no HTML, no request, no store.

A form does not validate: it converts what was typed as well as it can, and the settling turn validates the answer
against the schema. `attach_problems` puts the problems it finds beside the fields that they name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hark.doors.http.form_fields import Field, FieldBuilder, Option
from hark.model import json
from hark.model.errors import MalformedJson
from hark.model.validation import path

Posted = Mapping[str, Sequence[str]]

_INTEGER: Final = re.compile(r"[+-]?\d{1,400}")
_TIME_TO_MINUTE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_TIME_TO_SECOND: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?")
_ABSENT: Final = object()


class Form:
    """The form of one question. Without a schema it asks for text, which is optional."""

    def __init__(self, schema: Any) -> None:
        builder = FieldBuilder(schema)
        self.is_approval = builder.is_approval()
        self.root = builder.build()

    def fields(self) -> list[Field]:
        """The fields to show: the properties of an object, or the one field there is."""
        if self.is_approval:
            return []
        return self.root.fields if self.root.kind == "group" else [self.root]

    def all_fields(self) -> Iterator[Field]:
        return self.root.all_fields()

    def fill(self, posted: Posted) -> None:
        for field in self.all_fields():
            field.typed = list(posted.get(field.name, ()))

    def answer(self) -> Any:
        """Convert the input to the answer. A field of malformed JSON gets a problem; see `has_problems`."""
        if self.is_approval:
            return {"action": "approve"}
        value = _value(self.root)
        if value is not _ABSENT:
            return value
        return "" if self.root.kind == "text" else None

    @property
    def has_problems(self) -> bool:
        return any(field.problems for field in self.all_fields())

    def attach_problems(self, problems: Sequence[str]) -> list[str]:
        """Put each problem beside the field that it names; return those that name no field."""
        rest = []
        by_path = {path(field.path): field for field in self.all_fields() if field.path or field.kind != "group"}
        for problem in problems:
            named = [at for at in by_path if problem.startswith((f"{at}: ", f"{at}[", f"{at}."))]
            if named:
                at = max(named, key=len)
                by_path[at].problems.append(_sentence(problem.removeprefix(f"{at}: ")))
            else:
                rest.append(_sentence(problem.removeprefix("answer: ")))
        return rest


def _value(field: Field) -> Any:
    value = _typed_value(field) if field.kind != "group" else _group_value(field)
    return None if value is _ABSENT and field.nullable else value


def _group_value(group: Field) -> Any:
    values = {inner.path[-1]: _value(inner) for inner in group.fields}
    present = {key: value for key, value in values.items() if value is not _ABSENT}
    return present if present or group.required else _ABSENT


def _typed_value(field: Field) -> Any:
    text = field.text.replace("\r\n", "\n")
    match field.kind:
        case "fixed":
            return field.value
        case "checks":
            chosen = [field.options[int(index)].value for index in field.typed if _is_index(index, field.options)]
            return chosen if chosen or field.required else _ABSENT
        case "list":
            lines = [line.strip() for line in text.split("\n") if line.strip()]
            items = [_number(line) if field.item == "number" else line for line in lines]
            return items if items or field.required else _ABSENT
    if not text.strip():
        return _ABSENT
    match field.kind:
        case "choice":
            return field.options[int(text)].value if _is_index(text, field.options) else text
        case "number":
            return _number(text.strip())
        case "json":
            try:
                return json.parse(text, what=field.label)
            except MalformedJson as error:
                field.problems.append(_sentence(str(error)))
                return _ABSENT
    if field.input == "datetime-local":
        return _utc(text)
    return text


def _is_index(text: str, options: Sequence[Option]) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) < len(options)


def _number(text: str) -> Any:
    """The number that was typed, or the text itself: the schema then says that it is not a number."""
    if _INTEGER.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _utc(text: str) -> str:
    """The value of a browser's date and time field, as a time in UTC; other text unchanged."""
    if _TIME_TO_MINUTE.fullmatch(text):
        return f"{text}:00Z"
    return f"{text}Z" if _TIME_TO_SECOND.fullmatch(text) else text


def _sentence(problem: str) -> str:
    if problem == "is required":
        return "Please fill this in."
    return problem[:1].upper() + problem[1:] + ("" if problem.endswith(".") else ".")
