"""Marks: where an instance of a process is and was, as its diagram shows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct


class Marks(Struct, frozen=True):
    """The marks on the diagram of a process. Elements and flows are named by their ids in BpmnSpec.

    Attributes:
        tokens: How many tokens rest at an element.
        waits: The elements with an open wait: a message, a timer, a person's answer.
        incidents: The error of each element that has an incident.
        visited: How often an element was entered.
        taken: How often a sequence flow was taken.
    """

    tokens: Mapping[str, int] = {}
    waits: Collection[str] = ()
    incidents: Mapping[str, str] = {}
    visited: Mapping[str, int] = {}
    taken: Mapping[str, int] = {}
