"""Small BPMN files, written by the tests that need them."""

import itertools

NAMESPACES = (
    'xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    'xmlns:camunda="http://camunda.org/schema/1.0/bpmn"'
)


def bpmn(*processes: str, definitions: str = "") -> str:
    """A BPMN file with these processes, and with signals, messages and the like in front of them."""
    body = "\n".join((definitions, *processes))
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<definitions {NAMESPACES} targetNamespace="t">'
    return f"{head}\n{body}\n</definitions>\n"


def process(id: str, *path: str, more: str = "", executable: bool = True) -> str:
    """A process of these elements in a row, each with an id, connected by flows `f1`, `f2`…"""
    ids = [element.split('id="', 1)[1].split('"', 1)[0] for element in path]
    pairs = itertools.pairwise(ids)
    flows = [f'<sequenceFlow id="f{n}" sourceRef="{a}" targetRef="{b}"/>' for n, (a, b) in enumerate(pairs, 1)]
    body = "\n".join((*path, *flows, more))
    return f'<process id="{id}" isExecutable="{str(executable).lower()}">\n{body}\n</process>'


START = '<startEvent id="start"/>'
END = '<endEvent id="end"/>'
APPROVE = '<userTask id="approve" name="Approve it"/>'
ORDER = bpmn(process("order", START, APPROVE, END))
"""A process that waits for a person."""


def started_by(kind: str, event: str, definitions: str, id: str = "triggered") -> str:
    """A process that an event starts and that waits for a person. `kind` is `signal`, `message` or `timer`."""
    start = f'<startEvent id="trigger"><{kind}EventDefinition {event}</startEvent>'
    return bpmn(process(id, start, APPROVE, END), definitions=definitions)


BY_SIGNAL = started_by("signal", 'signalRef="s"/>', '<signal id="s" name="alarm"/>')
BY_MESSAGE = started_by("message", 'messageRef="m"/>', '<message id="m" name="order-placed"/>')
LISTENER = '<extensionElements><camunda:executionListener class="x.Y" event="start"/></extensionElements>'
LISTENED = bpmn(process("order", START, APPROVE.replace("/>", f">{LISTENER}</userTask>"), END))
"""A process with an extension that Hark does not run."""
