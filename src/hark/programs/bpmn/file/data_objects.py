"""Data objects of Flowable and Activiti: variables that a process or a sub-process begins with.

A data object of the standard has no value, and is only drawn. In a file for Flowable or Activiti it is a variable too,
which is null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from hark.model import json
from hark.model.errors import InvalidInput
from hark.model.iso8601 import parse_moment
from hark.programs.bpmn.file.draft import BpmnDraft
from hark.programs.bpmn.file.extensions import extensions_of, named
from hark.programs.bpmn.file.xml_tree import XmlElement


def read_data_objects(process: BpmnDraft, element: XmlElement) -> dict[str, Any]:
    """The variables that the data objects directly in a process or sub-process make, with their values."""
    variables: dict[str, Any] = {}
    for child in element.all("bpmn:dataObject"):
        values = named(extensions_of(child), "value")
        reference = (child.get("itemSubjectRef") or "").strip()
        name = (child.get("name") or "").strip()
        if not values and not (name and process.file.is_for_flowable):
            continue
        kind = reference.rpartition(":")[2] if ":" in reference else "string"
        id = child.get("id") or f"dataObject@{child.line}"
        if not name:
            process.file.report(id, child.line, "It has a value but no name. Give it the name of a variable.")
        elif kind not in _READ:
            message = f"The data object is ignored: {reference!r} is not a type of variables. Use xsd:string."
            process.file.ignore(id, child.line, message)
        else:
            text = values[0].text if values else ""
            try:
                variables[name] = _READ[kind](text) if text.strip() or (kind == "string" and text) else None
            except (ValueError, InvalidInput):  # InvalidInput: of dates and JSON
                line = values[0].line
                process.file.report(id, line, f"Its value {text.strip()[:40]!r} is not of the type {reference}.")
    return variables


def _integer(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _moment(text: str) -> str:
    """Check a date and return its text: points in time are ISO 8601 texts in Hark."""
    parse_moment(text.strip())
    return text.strip()


_READ: dict[str, Callable[[str], Any]] = {
    "string": str,
    "int": _integer,
    "integer": _integer,
    "long": _integer,
    "double": _number,
    "float": _number,
    "boolean": lambda text: text.strip().lower() == "true",
    "datetime": _moment,
    "dateTime": _moment,
    "date": _moment,
    "json": json.parse,
}
