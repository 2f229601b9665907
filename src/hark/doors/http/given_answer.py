"""Show an answer that was given: the labels of the form, with the values that were sent.

Pure: no HTML, no request, no store. An answer may come from a program and have any shape: a value without a field is
shown as JSON.
"""

from __future__ import annotations

import json as standard_json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from hark.doors.http.form_fields import Field, FieldBuilder, label_of, option_label, same_value

_MAX_VALUES: Final = 100
_MAX_TEXT: Final = 2000  # characters of one value


@dataclass(slots=True)
class GivenValue:
    """A value with its label, or a group of values."""

    label: str
    text: str = ""
    is_code: bool = False
    inner: list[GivenValue] = field(default_factory=list)


def given_answer(schema: Any, payload: Any) -> list[GivenValue]:
    """The values of an answer; empty if it is nothing."""
    if payload is None:
        return []
    root = None if schema is None else FieldBuilder(schema).build()
    shown = _show(root, payload, iter(range(_MAX_VALUES)))
    assert shown is not None
    if shown.inner:
        return shown.inner
    shown.label = ""  # the heading says that this is the answer
    return [shown]


def without_passwords(schema: Any, payload: Any) -> Any:
    """The answer with null in place of each password, which the page does not show either."""
    return payload if schema is None else _without_passwords(FieldBuilder(schema).build(), payload)


def _without_passwords(field: Field, value: Any) -> Any:
    if field.input == "password":
        return None
    if not field.fields or not isinstance(value, dict):
        return value
    known = {inner.path[-1]: inner for inner in field.fields}
    return {name: _without_passwords(known[name], inner) if name in known else inner for name, inner in value.items()}


def _show(field: Field | None, value: Any, left: Iterator[int], label: str = "") -> GivenValue | None:
    """A value with its label; None when enough are shown."""
    if next(left, None) is None:
        return None
    label = label if field is None else field.label
    if field is not None and field.input == "password":
        return GivenValue(label, "(not shown)")
    if isinstance(value, dict) and value and (field is None or field.kind == "group"):
        known = {} if field is None else {inner.path[-1]: inner for inner in field.fields}
        values = [_show(known.get(name), inner, left, label_of(name)) for name, inner in value.items()]
        return GivenValue(label, inner=[one for one in values if one is not None])
    options = [] if field is None else field.options
    if isinstance(value, list) and all(not isinstance(one, dict | list) for one in value):
        return GivenValue(label, _cut("\n".join(_words(one, options) for one in value) or "(none)"))
    if isinstance(value, dict | list):
        return GivenValue(label, _cut(standard_json.dumps(value, ensure_ascii=False, indent=2)), is_code=True)
    return GivenValue(label, _cut(_words(value, options)))


def _words(value: Any, options: list[Any]) -> str:
    for option in options:
        if same_value(option.value, value):
            return str(option.label)
    if isinstance(value, str):
        return value or "(empty)"
    return option_label(value)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} …"
