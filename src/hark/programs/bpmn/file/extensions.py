"""Find the extensions of Camunda, Zeebe, Flowable and Activiti.

Camunda 7, Flowable and Activiti share their names. What an extension means is read where it is used; which ones are
ignored or refused is decided in extension_checks.py.
"""

from __future__ import annotations

from hark.programs.bpmn.file.extension_names import VENDORS
from hark.programs.bpmn.file.xml_tree import XmlElement


def attribute(element: XmlElement, name: str) -> str | None:
    """The value of an attribute of Camunda, Flowable or Activiti; None if it is missing or empty."""
    for vendor in VENDORS:
        if value := element.attributes.get(f"{vendor}:{name}"):
            return value.strip() or None
    return None


def extensions_of(element: XmlElement) -> list[XmlElement]:
    """The extension elements of an element."""
    return [inner for child in element.children if child.tag == "bpmn:extensionElements" for inner in child.children]


def named(extensions: list[XmlElement], name: str) -> list[XmlElement]:
    """The extension elements of Camunda, Flowable or Activiti with this name."""
    return [found for found in extensions if found.name == name and found.tag.partition(":")[0] in VENDORS]


def zeebe(extensions: list[XmlElement], name: str) -> XmlElement | None:
    """The first extension element of Zeebe with this name."""
    tag = f"zeebe:{name}"
    return next((found for found in extensions if found.tag == tag), None)


def inner(element: XmlElement, name: str) -> list[XmlElement]:
    """The children with this name, whatever their prefix: of `camunda:list` the `camunda:value`s."""
    return [child for child in element.children if child.name == name]
