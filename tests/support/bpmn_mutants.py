"""Mutants of BPMN files: what is wrong with a file is decided by chance, and repeatable from a number.

Some mutants are not XML any more, most are XML with something missing, doubled, moved or exchanged.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from bench import bpmn_files

OTHERS = Path(os.environ.get("HARK_BPMN_CASES") or "../shared/conformance/bpmn")  # as tests/bpmn/conformance has it
BPMN = "{http://www.omg.org/spec/BPMN/20100524/MODEL}"
TAGS = [
    "process", "startEvent", "endEvent", "intermediateCatchEvent", "intermediateThrowEvent", "boundaryEvent", "task",
    "serviceTask", "sendTask", "scriptTask", "userTask", "receiveTask", "manualTask", "businessRuleTask", "subProcess",
    "adHocSubProcess", "transaction", "callActivity", "exclusiveGateway", "parallelGateway", "inclusiveGateway",
    "complexGateway", "eventBasedGateway", "sequenceFlow", "signalEventDefinition", "messageEventDefinition",
    "timerEventDefinition", "errorEventDefinition", "escalationEventDefinition", "conditionalEventDefinition",
    "compensateEventDefinition", "cancelEventDefinition", "terminateEventDefinition", "linkEventDefinition",
    "multiInstanceLoopCharacteristics", "standardLoopCharacteristics", "loopCardinality", "completionCondition",
    "conditionExpression", "timeDuration", "timeCycle", "timeDate", "incoming", "outgoing", "extensionElements",
    "signal", "message", "error", "escalation", "laneSet", "lane", "association", "textAnnotation", "dataObject",
    "collaboration", "participant", "condition", "script", "documentation", "ioSpecification",
]  # fmt: skip
VALUES = [
    "", " ", "true", "false", "maybe", "-1", "0", "1e999", "nan", "99999999999999999999", "=", "= 1 +", "=a.b[0](1)",
    "${", "${x", "#{x}", "${a ? b : }", "=" + "(" * 400, "=" + "1+" * 5000 + "1", "PT", "PT5M", "R/PT0S", "R-1/PT1S",
    "0 0 * * *", "R3/2026-01-01T00:00:00Z/P1M", "2026-02-30", "P99999999Y", "start", "end", "\x85", "\u2028", "é" * 500,
    "a b", "a,b,,c", "{}", '{"components": [{"type": 3}]}', "http://x", "]]>", "<!--", "\ud7ff", "x" * 70_000,
]  # fmt: skip
MARKUP = [
    b"<", b">", b"&", b"&lt;", b"&#0;", b"&#xD800;", b"&x;", b"<!DOCTYPE a>", b"<![CDATA[", b"]]>", b"<!--", b"-->",
    b"<?pi?>", b"\x00", b"\xff", b"\xc3", b"'", b'"', b"xmlns:bpmn=''", b"</process>", b"<process>", b"\xef\xbb\xbf",
]  # fmt: skip


def sources() -> Iterator[str]:
    """Files to begin with: our own and, where they are, those of other engines."""
    yield bpmn_files.services()
    yield bpmn_files.large(36)
    yield bpmn_files.many("user", collection=True)
    folders = [Path("tests"), Path("examples"), OTHERS]
    for path in sorted(path for folder in folders for path in folder.rglob("*.bpmn*")):
        yield path.read_text("utf-8")


def mutant(text: str, chance: random.Random) -> bytes:
    """The file with one to four changes."""
    if chance.random() < 0.2:
        return _in_bytes(text.encode(), chance)
    root = ElementTree.fromstring(text)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(_CHANGES)(root, chance)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _in_bytes(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(data) + 1)
        until = min(len(data), at + chance.choice((0, 0, 1, 3, 40, 400)))
        middle = chance.choice((b"", chance.choice(MARKUP), chance.choice(MARKUP), data[at:until] * 2))
        data = data[:at] + middle + data[until:]
    return (
        data
        if chance.random() < 0.9
        else data.decode("utf-8", "replace").encode(chance.choice(("utf-16", "cp037")), "replace")
    )


def _any(root: Element, chance: random.Random) -> Element:
    return chance.choice([one for one in root.iter() if BPMN in one.tag] or [root])


def _parent(root: Element, chance: random.Random) -> Element:
    return chance.choice([one for one in root.iter() if len(one)] or [root])


def _delete(root: Element, chance: random.Random) -> None:
    parent = _parent(root, chance)
    if len(parent):
        parent.remove(chance.choice(list(parent)))


def _double(root: Element, chance: random.Random) -> None:
    parent = _parent(root, chance)
    if len(parent):
        parent.insert(chance.randrange(len(parent) + 1), chance.choice(list(parent)))


def _move(root: Element, chance: random.Random) -> None:
    """To anywhere but into itself."""
    parent = _parent(root, chance)
    if len(parent):
        moved = chance.choice(list(parent))
        target = _any(root, chance)
        if all(one is not target for one in moved.iter()):
            parent.remove(moved)
            target.append(moved)


def _rename(root: Element, chance: random.Random) -> None:
    _any(root, chance).tag = BPMN + chance.choice(TAGS)


def _set(root: Element, chance: random.Random) -> None:
    one = _any(root, chance)
    if one.attrib:
        one.set(chance.choice(list(one.attrib)), chance.choice(VALUES))


def _exchange(root: Element, chance: random.Random) -> None:
    """Give an attribute the value of another element's, so that references point elsewhere."""
    one, other = _any(root, chance), _any(root, chance)
    if one.attrib and other.attrib:
        one.set(chance.choice(list(one.attrib)), chance.choice(list(other.attrib.values())))


def _unset(root: Element, chance: random.Random) -> None:
    one = _any(root, chance)
    if one.attrib:
        del one.attrib[chance.choice(list(one.attrib))]


def _say(root: Element, chance: random.Random) -> None:
    _any(root, chance).text = chance.choice([value for value in VALUES if "\x85" not in value])


def _add(root: Element, chance: random.Random) -> None:
    added = Element(BPMN + chance.choice(TAGS))
    ids = [one.get("id", "") for one in root.iter()]
    for name in ("id", "attachedToRef", "sourceRef", "targetRef", "signalRef", "messageRef", "default", "name"):
        if chance.random() < 0.4:
            added.set(name, chance.choice(ids))
    _any(root, chance).append(added)


def _bury(root: Element, chance: random.Random) -> None:
    """Under very many levels."""
    one = _any(root, chance)
    tag = BPMN + chance.choice(("subProcess", "extensionElements", "lane"))
    for _ in range(chance.choice((3, 60, 300))):
        inner = Element(tag)
        one.append(inner)
        one = inner


_CHANGES = [
    _delete,
    _delete,
    _double,
    _move,
    _rename,
    _rename,
    _set,
    _set,
    _exchange,
    _exchange,
    _unset,
    _say,
    _add,
    _bury,
]
