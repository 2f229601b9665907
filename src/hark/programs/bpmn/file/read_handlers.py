"""Read work for handlers, and scripts: the handler, the number of attempts, and the variable for the result."""

from __future__ import annotations

import re
from typing import Any

from hark.model.errors import InvalidInput
from hark.model.lanes import handler_name, lane_name_problem
from hark.model.names import check_name
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import attribute, extensions_of, named, zeebe
from hark.programs.bpmn.file.file_sources import FEEL, JUEL, is_computed, is_expression, language_of, marked, source
from hark.programs.bpmn.file.xml_tree import XmlElement

_EXTERNAL = ("external", "external-worker")
_MAX_ATTEMPTS = 1000
_DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_CENTURY = 100 * 365 * 86_400
_CYCLE = re.compile(r"R([0-9]{1,9})\s*/\s*(P\S+)", re.IGNORECASE)


def read_service(process: BpmnDraft, node: NodeDraft, carrier: XmlElement) -> None:
    """Make a node a service. `carrier` is the element that has the attributes: of an event, its definition."""
    node.kind = "service"
    node.event = None
    expression = attribute(carrier, "expression")
    has_name = any(attribute(carrier, name) for name in ("topic", "class", "delegateExpression"))
    if expression is not None and not has_name and is_computed(expression):
        node.kind = "script"
        node.fields["script"] = source(process, node, expression, "Its expression")
        _read_result(process, node, carrier)
        return
    node.fields["handler"] = _handler(process, node, carrier)
    _note_type(process, node, carrier)
    _read_attempts(process, node)
    _read_headers(node)
    _read_result(process, node, carrier)


def _note_type(process: BpmnDraft, node: NodeDraft, carrier: XmlElement) -> None:
    """Note types of tasks that other engines do themselves (`mail`, `http`, `dmn`, `shell`): a handler does their
    work."""
    type = attribute(carrier, "type")
    if type is not None and type not in _EXTERNAL:
        handler = node.fields["handler"]
        process.file.ignore(
            node.id, node.line, f"The type {type!r} is ignored: register a handler {handler!r} that does this work."
        )


def has_handler(node: NodeDraft, carrier: XmlElement) -> bool:
    """Return True if the file says which handler does the work of a node."""
    if zeebe(node.extensions, "taskDefinition") is not None:
        return True
    return any(attribute(carrier, name) for name in ("topic", "class", "delegateExpression", "expression", "type"))


def _handler(process: BpmnDraft, node: NodeDraft, carrier: XmlElement) -> Any:
    """The name of the handler, a source: zeebe type, topic, class or delegate, name, id, in that order."""
    definition = zeebe(node.extensions, "taskDefinition")
    given = (definition.get("type") or "").strip() if definition is not None else ""
    if definition is not None and not given:
        process.report(node, "Its zeebe:taskDefinition has no type. Set it to the name of a handler.", definition.line)
    if definition is not None and given.startswith(("io.camunda:", "io.camunda.")):
        process.file.report_extension(
            node.id,
            definition.line,
            f"It has the connector {given!r}, which Hark does not run. Use a handler of your own.",
        )
        given = ""
    given = given or attribute(carrier, "topic") or attribute(carrier, "class") or _delegate(process, node, carrier)
    if given and is_expression(given):
        return source(process, node, given, "The name of its handler")
    if not given:
        name = " ".join((node.element.get("name") or "").split())
        given = name if not is_expression(name) and _name_problem(name) is None else node.id
    if (problem := _name_problem(given)) is not None:
        process.report(node, problem)
    return given


def _name_problem(name: str) -> str | None:
    """The reason why a handler cannot have this name; None if it can."""
    try:
        return lane_name_problem(check_name(name, "name of the handler"), "handler")
    except InvalidInput as error:
        return f"{error}."


def _delegate(process: BpmnDraft, node: NodeDraft, carrier: XmlElement) -> str:
    """The name in a delegate: of `${bean}` it is `bean`, of `${bean.method(x)}` it is `bean.method`."""
    text = attribute(carrier, "delegateExpression") or attribute(carrier, "expression")
    if text is None:
        return ""
    name = handler_name(text)
    if is_expression(name):
        process.report(node, f"Hark cannot take the name of a handler from {text!r}. Use ${{name}}, or a topic.")
    return name


def _read_attempts(process: BpmnDraft, node: NodeDraft) -> None:
    definition = zeebe(node.extensions, "taskDefinition")
    retries = (definition.get("retries") or "").strip() if definition is not None else ""
    if retries:
        if re.fullmatch(r"=?\s*[0-9]{1,9}", retries):
            node.fields["retries"] = _attempts(int(retries.removeprefix("=")))
        else:
            process.report(node, f"Its retries are {retries!r}. Write a number: how often it is tried in all.")
    loop = node.element.first("bpmn:multiInstanceLoopCharacteristics")
    for cycle in named([*node.extensions, *(extensions_of(loop) if loop else ())], "failedJobRetryTimeCycle"):
        _read_cycle(process, node, cycle)


def _attempts(number: int) -> int:
    return min(max(number, 1), _MAX_ATTEMPTS)


def _read_cycle(process: BpmnDraft, node: NodeDraft, cycle: XmlElement) -> None:
    """`R5/PT10S` is five attempts, ten seconds apart; `PT1M,PT5M` is one attempt more than there are delays."""
    text = cycle.text.strip()
    if found := _CYCLE.fullmatch(text):
        attempts, delay = int(found[1]), found[2]
    else:
        delays = [part.strip() for part in text.split(",")]
        attempts, delay = len(delays) + 1, delays[0]
    seconds = _seconds(delay)
    if seconds is None:
        process.file.ignore(
            node.id,
            cycle.line,
            f"{cycle.tag} {text!r} is ignored: it is not a cycle such as R5/PT10S. There are 3 attempts.",
        )
        return
    node.fields["retries"] = _attempts(attempts)
    node.fields["retry_delay"] = seconds


def _seconds(duration: str) -> float | None:
    """The seconds of an ISO 8601 duration without years and months; None if it is another text."""
    found = _DURATION.fullmatch(duration)
    if found is None or not any(found.groups()):
        return None
    weeks, days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return min((((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds, float(_CENTURY))


def _read_headers(node: NodeDraft) -> None:
    """Read the headers for the handler: zeebe headers, fields with a text, and the decision of a rule task."""
    headers: dict[str, str] = {}
    if (found := zeebe(node.extensions, "taskHeaders")) is not None:
        headers |= {key: header.get("value") or "" for header in found.children if (key := header.get("key"))}
    for field in named(node.extensions, "field"):
        text = field.get("stringValue") or field.get("expression")
        text = text or next((child.text.strip() for child in field.children if child.text.strip()), "")
        if name := field.get("name"):
            headers[name] = text
    if (decision := zeebe(node.extensions, "calledDecision")) is not None:
        headers["decisionId"] = decision.get("decisionId") or ""
    if (reference := attribute(node.element, "decisionRef")) is not None:
        headers["decisionRef"] = reference
    if headers:
        node.fields["headers"] = headers


def _read_result(process: BpmnDraft, node: NodeDraft, carrier: XmlElement) -> None:
    decision = zeebe(node.extensions, "calledDecision")
    result = (
        attribute(carrier, "resultVariable")
        or attribute(carrier, "resultVariableName")
        or (decision.get("resultVariable") if decision is not None else None)
    )
    if not result:
        return
    node.fields["result"] = result
    if attribute(carrier, "useLocalScopeForResultVariable") != "true":
        return
    loop = node.fields.get("loop")
    if loop is not None and loop.kind != "standard":
        node.fields["result_is_local"] = True
    else:
        process.file.report_extension(
            node.id,
            node.line,
            "Its result would be a variable that ends with the task (useLocalScopeForResultVariable), which Hark has "
            "in multi-instance tasks only. Remove the attribute.",
        )


def read_script(process: BpmnDraft, node: NodeDraft) -> None:
    """Read a script task: an expression in the file, or the work of a handler."""
    given = zeebe(node.extensions, "script")
    if given is not None:
        text = (given.get("expression") or "").strip()
        if not text:
            process.report(node, "Its zeebe:script has no expression. Write one, such as =a + 1.", given.line)
            return
        node.fields["script"] = source(process, node, marked(text, FEEL), "Its script", given.line)
        node.fields["result"] = given.get("resultVariable") or None
        return
    if has_handler(node, node.element):
        read_service(process, node, node.element)
        return
    _read_result(process, node, node.element)
    script = node.element.first("bpmn:script")
    text = "" if script is None else script.text.strip()
    language = language_of(node.element.get("scriptFormat"))
    resource = attribute(node.element, "resource")
    if language not in (None, FEEL, JUEL) or resource is not None:
        what = f"a script in {resource!r}, outside the file" if resource else f"a script in {language!r}"
        process.file.report_extension(
            node.id, node.line, f"It has {what}, which Hark does not run. Write it in FEEL, or make it a service task."
        )
        node.kind = "task"
        node.fields.pop("result", None)
    elif not text:
        process.report(node, "It has no script. Write one, such as =a + 1.")
    elif language is None and not is_expression(text):
        process.report(
            node, "Its script has no language. Set scriptFormat to feel, or write = before it.", script_line(script)
        )
    else:
        node.fields["script"] = source(process, node, marked(text, language), "Its script", script_line(script))


def script_line(script: XmlElement | None) -> int | None:
    return None if script is None else script.line
