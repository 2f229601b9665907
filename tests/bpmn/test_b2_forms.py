"""B2: the forms of user tasks become the JSON Schema of their answer."""

import json
from typing import Any

from hark.model.schema import compile_schema
from tests.bpmn.small_files import bpmn_file, chain, definitions, ext, extended, node_of, problems_of, read


def schema_of(extensions: str) -> dict[str, Any] | None:
    user = node_of(extended("userTask", extensions)).user
    assert user is not None
    if user.schema is not None:
        compile_schema(user.schema)
    return user.schema


def zeebe_schema(components: list[Any]) -> dict[str, Any] | None:
    form = json.dumps({"type": "default", "components": components}).replace("<", "&lt;")
    text = definitions(
        '<process id="p">'
        + ext(f"<zeebe:userTaskForm id='f'>{form}</zeebe:userTaskForm>")
        + chain(extended("userTask", "<zeebe:formDefinition formKey='camunda-forms:bpmn:f'/>"))
        + "</process>"
    )
    user = read(text).processes[0].nodes[1].user
    assert user is not None
    if user.schema is not None:
        compile_schema(user.schema)
    return user.schema


def test_b2_camunda_fields_have_types_labels_defaults_and_limits() -> None:
    assert schema_of(
        "<camunda:formData>"
        "<camunda:formField id='name' label='Your name' type='string' defaultValue='Anna'><camunda:validation>"
        "<camunda:constraint name='required'/><camunda:constraint name='minlength' config='2'/>"
        "<camunda:constraint name='maxlength' config='20'/></camunda:validation></camunda:formField>"
        "<camunda:formField id='count' type='long' defaultValue='3'><camunda:validation>"
        "<camunda:constraint name='min' config='1'/><camunda:constraint name='max' config='9'/></camunda:validation>"
        "</camunda:formField>"
        "<camunda:formField id='ok' type='boolean' defaultValue='true'/>"
        "<camunda:formField id='day' type='date'/>"
        "<camunda:formField id='size' type='enum' defaultValue='l'><camunda:value id='s' name='Small'/>"
        "<camunda:value id='l' name='Large'/></camunda:formField>"
        "<camunda:formField id='now' type='string' defaultValue='${x}' label='${y}'/>"
        "<camunda:formField id='shown' type='string'><camunda:validation><camunda:constraint name='readonly'/>"
        "</camunda:validation></camunda:formField>"
        "</camunda:formData>"
    ) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your name", "default": "Anna", "minLength": 2, "maxLength": 20},
            "count": {"type": "integer", "default": 3, "minimum": 1, "maximum": 9},
            "ok": {"type": "boolean", "default": True},
            "day": {"type": "string", "format": "date"},
            "size": {
                "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}], "default": "l",
            },
            "now": {"type": "string", "default": "${x}"},
        },
        "required": ["name"],
    }  # fmt: skip


def test_b2_flowable_properties() -> None:
    assert schema_of(
        "<flowable:formProperty id='a' name='Amount' type='double' required='true'/>"
        "<flowable:formProperty id='b' variable='reason' default='none'/>"
        "<flowable:formProperty id='c' writable='false'/>"
        "<activiti:formProperty id='d' type='enum'><activiti:value id='x' name='X'/></activiti:formProperty>"
    ) == {
        "type": "object",
        "properties": {
            "a": {"type": "number", "title": "Amount"},
            "reason": {"type": "string", "default": "none"},
            "d": {"oneOf": [{"const": "x", "title": "X"}]},
        },
        "required": ["a"],
    }


def test_b2_forms_of_zeebe_are_found_by_their_key() -> None:
    assert zeebe_schema(
        [
            {"type": "text", "text": "# Hello"},
            {"type": "textfield", "key": "order.name", "label": "Name", "validate": {"required": True, "maxLength": 9}},
            {"type": "textarea", "key": "note", "description": "What else?"},
            {"type": "number", "key": "n", "decimalDigits": 0, "validate": {"min": 1}, "defaultValue": 2},
            {"type": "checkbox", "key": "ok"},
            {"type": "radio", "key": "r", "values": [{"label": "Yes", "value": "y"}, {"label": "No", "value": "n"}]},
            {"type": "taglist", "key": "tags", "values": [{"label": "A", "value": 1}]},
            {"type": "select", "key": "open", "valuesKey": "choices"},
            {"type": "datetime", "key": "when", "subtype": "datetime"},
            {"type": "textfield", "key": "shown", "disabled": True},
            {"type": "group", "path": "order", "components": [{"type": "checkbox", "key": "fast"}]},
            {"type": "dynamiclist", "path": "lines", "components": [{"type": "textfield", "key": "sku"}]},
            {"type": "button", "action": "submit"},
        ]
    ) == {
        "type": "object",
        "properties": {
            "order": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "title": "Name", "maxLength": 9},
                    "fast": {"type": "boolean"},
                },
                "required": ["name"],
            },
            "note": {"type": "string", "format": "textarea", "description": "What else?"},
            "n": {"type": "integer", "default": 2, "minimum": 1},
            "ok": {"type": "boolean"},
            "r": {"oneOf": [{"const": "y", "title": "Yes"}, {"const": "n", "title": "No"}]},
            "tags": {"type": "array", "items": {"oneOf": [{"const": 1, "title": "A"}]}},
            "open": {},
            "when": {"type": "string", "format": "date-time"},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
        },
    }


def test_b2_forms_that_ask_for_nothing_have_no_schema() -> None:
    assert schema_of("<camunda:formData/>") is None
    assert zeebe_schema([{"type": "text", "text": "Read this"}, 3, None]) is None  # type: ignore[list-item]
    assert schema_of("<zeebe:formDefinition formKey='elsewhere'/>") is None


def test_b2_a_form_with_a_pattern_that_is_not_one_is_a_problem() -> None:
    form = json.dumps({"components": [{"type": "textfield", "key": "a", "validate": {"pattern": "("}}]})
    text = bpmn_file(chain(extended("userTask", f"<zeebe:formDefinition>{form}</zeebe:formDefinition>")))
    [problem] = problems_of(text)
    assert problem.element == "n"
    assert "form" in problem.message
