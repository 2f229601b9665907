"""Forms of user tasks as the JSON Schema of their answer: Camunda's fields, Flowable's properties, form-js of Zeebe.

The answer may have more than the form asks: a program that completes a task sends the variables it likes. A default may
be an expression: it is evaluated when the question is asked.
"""

from __future__ import annotations

from typing import Any

from hark.model import json
from hark.model.errors import MalformedJson
from hark.programs.bpmn.file.file_sources import is_expression
from hark.programs.bpmn.file.xml_tree import XmlElement
from hark.programs.bpmn.form_defaults import Schema, default_of, number_in

_DEEPEST = 10  # groups within groups
_TYPES = {
    "long": "integer", "integer": "integer", "int": "integer", "number": "integer", "double": "number",
    "float": "number", "decimal": "number", "boolean": "boolean",
}  # fmt: skip


def camunda_form(form: XmlElement) -> Schema | None:
    """The schema of `camunda:formData`; None without fields."""
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in form.children:
        id = field.get("id")
        if field.name != "formField" or not id:
            continue
        rules = {
            rule.get("name") or "": rule.get("config") or ""
            for validation in field.children
            if validation.name == "validation"
            for rule in validation.children
        }
        if "readonly" in rules:
            continue
        schema = _typed(field.get("type"), field)
        _describe(schema, field.get("label"), field.get("defaultValue"))
        _limit(schema, rules)
        properties[id] = schema
        if "required" in rules and rules["required"] != "false":
            required.append(id)
    return _object(properties, required)


def flowable_form(fields: list[XmlElement]) -> Schema | None:
    """The schema of `flowable:formProperty` elements; None if none of them is to be filled in."""
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for field in fields:
        id = field.get("variable") or field.get("id")
        if not id or field.get("writable") == "false":
            continue
        schema = _typed(field.get("type"), field)
        _describe(schema, field.get("name"), field.get("default"))
        properties[id] = schema
        if field.get("required") == "true":
            required.append(id)
    return _object(properties, required)


def _object(properties: dict[str, Schema], required: list[str]) -> Schema | None:
    if not properties:
        return None
    schema: Schema = {"type": "object", "properties": properties}
    return schema | {"required": required} if required else schema


def _typed(type: str | None, field: XmlElement) -> Schema:
    kind = (type or "string").lower()
    if kind == "enum":
        options = [option for option in field.children if option.name == "value" and option.get("id") is not None]
        return _choice([(option.get("id"), option.get("name")) for option in options])
    if kind == "date":
        return {"type": "string", "format": "date"}
    return {"type": _TYPES.get(kind, "string")}


def _choice(options: list[tuple[Any, Any]]) -> Schema:
    """The schema of a choice: one of several values, each with its label."""
    if not options:
        return {"type": "string"}
    return {"oneOf": [{"const": value, **({"title": str(label)} if label else {})} for value, label in options]}


def _describe(schema: Schema, label: Any, default: Any, description: Any = None) -> None:
    if isinstance(label, str) and label.strip() and not is_expression(label):
        schema["title"] = label.strip()
    if isinstance(description, str) and description.strip() and not is_expression(description):
        schema["description"] = description.strip()
    if isinstance(default, str) and not is_expression(default):
        default = default_of(schema, default)
    if default is not None:
        schema["default"] = default


def _limit(schema: Schema, rules: dict[str, Any]) -> None:
    """Limits of a value, as far as they are numbers; a number that a schema cannot have is left out."""
    words = {"min": "minimum", "max": "maximum"}
    if schema.get("type") == "string":
        words = {"minlength": "minLength", "maxlength": "maxLength", "minLength": "minLength", "maxLength": "maxLength"}
    for rule, word in words.items():
        value = number_in(rules[rule], whole=word.endswith("Length")) if rule in rules else None
        if value is not None and (value >= 0 or not word.endswith("Length")):
            schema[word] = value


def zeebe_form(text: str) -> Schema | None:
    """The schema of a form of form-js, given as JSON; None if it is not such a form, or asks for nothing."""
    try:
        form = json.parse(text, what="form")
    except MalformedJson:
        return None
    components = form.get("components") if isinstance(form, dict) else None
    if not isinstance(components, list):
        return None
    schema: Schema = {"type": "object", "properties": {}}
    _add_components(schema, components)
    return schema if schema["properties"] else None


def _add_components(schema: Schema, components: list[Any], depth: int = 0) -> None:
    for component in components:
        if not isinstance(component, dict) or depth == _DEEPEST:
            continue
        inner = component.get("components")
        path = [part for part in str(component.get("path") or "").split(".") if part]
        if component.get("type") == "dynamiclist" and 0 < len(path) <= _DEEPEST and isinstance(inner, list):
            items: Schema = {"type": "object", "properties": {}}
            _add_components(items, inner, depth + 1)
            _at(schema, path[:-1])["properties"][path[-1]] = {"type": "array", "items": items}
        elif isinstance(inner, list):
            _add_components(_at(schema, path[:_DEEPEST]), inner, depth + 1)
        else:
            _add_field(schema, component)


def _at(schema: Schema, path: list[str]) -> Schema:
    """The object at a path. It is made if it is missing."""
    for part in path:
        found = schema["properties"].setdefault(part, {"type": "object", "properties": {}})
        if "properties" not in found:
            return {"type": "object", "properties": {}}  # a field has the name of a group: the field wins
        schema = found
    return schema


def _add_field(schema: Schema, component: dict[str, Any]) -> None:
    path = [part for part in str(component.get("key") or "").split(".") if part]
    if not 0 < len(path) <= _DEEPEST or component.get("disabled") is True or component.get("readonly") is True:
        return
    field = _component(component)
    if field is None:
        return
    rules = component.get("validate")
    rules = rules if isinstance(rules, dict) else {}
    _describe(field, component.get("label"), component.get("defaultValue"), component.get("description"))
    _limit(field, rules)
    if isinstance(pattern := rules.get("pattern"), str) and field.get("type") == "string":
        field["pattern"] = pattern
    holder = _at(schema, path[:-1])
    holder["properties"][path[-1]] = field
    if rules.get("required") is True and not component.get("conditional"):
        holder.setdefault("required", []).append(path[-1])


def _component(component: dict[str, Any]) -> Schema | None:
    """The schema of the answer to a component; None if it only shows something."""
    match component.get("type"):
        case "textfield" | "textarea":
            return {"type": "string", **({"format": "textarea"} if component["type"] == "textarea" else {})}
        case "number":
            return {"type": "integer" if component.get("decimalDigits") == 0 else "number"}
        case "checkbox":
            return {"type": "boolean"}
        case "radio" | "select":
            return _options(component) or {}
        case "checklist" | "taglist":
            return {"type": "array", "items": _options(component) or {"type": "string"}}
        case "datetime":
            kind = {"time": "time", "datetime": "date-time"}.get(str(component.get("subtype")), "date")
            return {"type": "string"} if kind == "time" else {"type": "string", "format": kind}
        case "filepicker":
            return {"type": "array"}
    return None


def _options(component: dict[str, Any]) -> Schema | None:
    """The options that are in the form; None if they come from a variable."""
    values = component.get("values")
    if not isinstance(values, list):
        return None
    options = [(value["value"], value.get("label")) for value in values if isinstance(value, dict) and "value" in value]
    return _choice(options) if options else None
