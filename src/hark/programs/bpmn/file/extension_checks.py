"""Refuse the extensions of a file that would change what happens, and note the ones that are ignored.

What an extension that is understood means is read where it is used; the names are in extension_names.py.
"""

from __future__ import annotations

from hark.programs.bpmn.bpmn_elements import START_EVENTS
from hark.programs.bpmn.file.draft import BpmnDraft, FileDraft
from hark.programs.bpmn.file.element_readers import ELEMENT_READERS
from hark.programs.bpmn.file.extension_names import (
    DATA_VALUES,
    HARMLESS_ATTRIBUTES,
    HARMLESS_ELEMENTS,
    NOTES,
    REFUSED_ATTRIBUTES,
    REFUSED_ELEMENTS,
    REFUSED_PARTS,
    UNDERSTOOD_ATTRIBUTES,
    UNDERSTOOD_ELEMENTS,
    UNDERSTOOD_ZEEBE_ATTRIBUTES,
    VENDORS,
    Refusal,
)
from hark.programs.bpmn.file.extensions import attribute
from hark.programs.bpmn.file.xml_tree import PROSE, XmlElement

_QUIET = ("bioc:", "color:", "modeler:", "xsi:", "xml:", "di:", "dc:", "bpmndi:", "bpmn:")  # colours and modeler data
_ENGINES = (*VENDORS, "zeebe")
_SHOWN = 100  # characters of a value in a message
_FORMS = ("formData", "formDefinition", "formProperty")
_DUE_DATES = frozenset(tag for tag, reader in ELEMENT_READERS.items() if reader.has_due_date)
_CALENDARS = {"bpmn:timeDate": "dueDate", "bpmn:timeDuration": "duration", "bpmn:timeCycle": "cycle"}


def check_extensions(process: BpmnDraft) -> None:
    """Report the extensions of a process that are refused, and note the ones that are ignored."""
    ids = {id(node.element): node.id for node in process.nodes}
    ids |= {id(flow.element): flow.id for flow in process.flows}
    _Checker(process.file, ids).walk(process.element, process.id)


def check_definitions(file: FileDraft) -> None:
    """Report the refused extensions around the processes of a file: of messages, signals, errors, pools."""
    checker = _Checker(file, {})
    checker.check_attributes(file.root, file.root.get("id"))
    for element in file.root.children:
        if element.tag == "bpmn:extension":
            _check_needed(file, element)
        elif element.tag == "bpmn:extensionElements":
            for extension in element.children:
                checker.check_element(extension, file.root.get("id"))
        elif element.tag.startswith("bpmn:") and element.tag != "bpmn:process":
            checker.walk(element, element.get("id"))


def _check_needed(file: FileDraft, element: XmlElement) -> None:
    """Report an extension with `mustUnderstand`: by the standard, a file with it has another meaning without it."""
    name = element.get("definition") or ""
    if element.flag("mustUnderstand"):
        file.report_extension(
            file.root.get("id"), element.line, f"The file needs the extension {name!r}, which Hark does not have."
        )
    else:
        file.ignore(file.root.get("id"), element.line, f"The extension {name!r} is ignored: the file says it may be.")


class _Checker:
    """Checks the extensions of elements. `ids` has the ids of those that are a host: of nodes and flows."""

    def __init__(self, file: FileDraft, ids: dict[int, str]) -> None:
        self._file = file
        self._ids = ids

    def walk(self, element: XmlElement, host: str | None) -> None:
        """Check an element and all that is in it."""
        todo = [(element, host)]
        while todo:
            element, host = todo.pop()
            host = self._ids.get(id(element), host)
            self.check_attributes(element, host)
            inner: list[tuple[XmlElement, str | None]] = []
            for child in element.children:
                if child.tag == "bpmn:extensionElements":
                    for extension in child.children:
                        if element.tag in START_EVENTS and extension.name in _FORMS:
                            message = f"Its form ({extension.tag}) is ignored: an instance is started with variables."
                            self._file.ignore(host, extension.line, message)
                        elif element.tag != "bpmn:dataObject" or extension.tag not in DATA_VALUES:
                            self.check_element(extension, host)
                elif child.tag in PROSE:
                    self.check_attributes(child, host)
                elif child.tag.startswith("bpmn:"):
                    inner.append((child, host if self._ids else child.get("id") or host))
                else:
                    self.check_element(child, host)
            todo += reversed(inner)

    def check_attributes(self, element: XmlElement, host: str | None) -> None:
        """Check the attributes of an element that are not of BPMN."""
        for name, value in element.attributes.items():
            if (":" not in name and "{" not in name) or name.startswith(_QUIET):
                continue
            if name in UNDERSTOOD_ZEEBE_ATTRIBUTES and element.name == "multiInstanceLoopCharacteristics":
                continue
            prefix, _, local = name.partition(":")
            refusal = REFUSED_ATTRIBUTES.get(local) if prefix in VENDORS else None
            if refusal is not None and _is_refused(refusal, value) and not _has_no_effect(element, local, value):
                self._refuse(refusal, _shown(name, value), element.line, host)
            elif prefix not in VENDORS or local not in UNDERSTOOD_ATTRIBUTES:
                is_harmless = refusal is not None or (prefix in _ENGINES and local in HARMLESS_ATTRIBUTES)
                self._ignore(name, element.line, host, changes_nothing=is_harmless)

    def check_element(self, extension: XmlElement, host: str | None) -> None:
        tag = extension.tag
        is_known = tag.partition(":")[0] in _ENGINES
        if is_known and (refusal := REFUSED_ELEMENTS.get(extension.name)) is not None:
            self._refuse(refusal, tag, extension.line, host)
        elif tag in UNDERSTOOD_ELEMENTS:
            self._check_parts(extension, host)
        elif (connector := _inbound_connector(extension)) is not None:
            self._file.report_extension(
                host,
                extension.line,
                f"It has the connector {connector!r}, which Hark does not run. Use a message or a signal.",
            )
        elif not tag.startswith(_QUIET):
            self._ignore(tag, extension.line, host, changes_nothing=tag in HARMLESS_ELEMENTS)

    def _check_parts(self, extension: XmlElement, host: str | None) -> None:
        """Report the refused parts of an extension element that is understood."""
        for part in extension.walk():
            for name, value in part.attributes.items():
                refusal = REFUSED_PARTS.get((part.name, name.rpartition(":")[2]))
                if refusal is not None and _is_refused(refusal, value) and part.get("writable") != "false":
                    self._refuse(refusal, _shown(name, value), part.line, host)

    def _refuse(self, refusal: Refusal, name: str, line: int, host: str | None) -> None:
        message = f"{refusal.reason.replace('{name}', name)} {refusal.instead}"
        self._file.report_extension(host, line, message)

    def _ignore(self, name: str, line: int, host: str | None, *, changes_nothing: bool) -> None:
        shown = name.replace("{", "").replace("}", ":")
        reason = "it changes nothing in Hark" if changes_nothing else "Hark does not know it"
        note = NOTES.get(name.rpartition(":")[2], reason) if changes_nothing else reason
        self._file.ignore(host, line, f"{shown} is ignored: {note}.", name=shown)


def _shown(name: str, value: str) -> str:
    return f'{name}="{value if len(value) <= _SHOWN else value[:_SHOWN] + "…"}"'


def _is_refused(refusal: Refusal, value: str) -> bool:
    value = value.strip()
    return bool(value) if refusal.values is None else value.lower() in refusal.values


def _has_no_effect(element: XmlElement, name: str, value: str) -> bool:
    """Return True if an attribute names a calendar that every engine has, or is for the form of a start event."""
    if name == "formHandlerClass":
        return element.tag in START_EVENTS
    if name != "businessCalendarName":
        return False
    if element.tag in _DUE_DATES:
        return value.strip() in _CALENDARS.values() or attribute(element, "dueDate") is None
    return any(value.strip() == _CALENDARS.get(child.tag) for child in element.children)


def _inbound_connector(extension: XmlElement) -> str | None:
    """The type of the connector that starts or resumes a process of Camunda 8 from outside."""
    if extension.tag != "zeebe:properties":
        return None
    return next((inner.get("value") for inner in extension.children if inner.get("name") == "inbound.type"), None)
