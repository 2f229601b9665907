"""Validate the start of a process: its input is an object, and a start by name needs a start event without a trigger.

An instance that a signal, a message or a timer starts has the step of its start event. Its state is the payload if that
is an object; any other payload is dropped, since it cannot be merged into the variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.kernel import definitions
from hark.model.bpmn_state import START
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidInput
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_BY_EVENT = f"{START}:"  # the first characters of the first step of an instance that an event starts
_HOW = {"broadcast": "the broadcast {!r}", "message": "the message {!r}", "timer": "a timer"}


async def refusals(turn: Turn, items: Iterable[NewInstance]) -> dict[str, InvalidInput]:
    """The errors of the starts of processes that are refused, by the ids of the instances. After this, the state
    of the others is an object."""
    found: dict[str, InvalidInput] = {}
    without_start: dict[str, InvalidInput] = {}  # by the name of the process
    for item in items:
        definition = definitions.find(turn.catalog, item)
        if definition is None:
            continue
        if (item.step or "").startswith(_BY_EVENT):
            if not item.state.startswith("{"):
                item.state = "{}"
            continue
        if item.step is not None:
            found[item.id] = InvalidInput(
                f"{item.definition!r} is a process: it starts at its start event. Leave out step=."
            )
        elif not definition[1].initial:
            if item.definition not in without_start:
                without_start[item.definition] = await _without_start(turn, item.definition)
            found[item.id] = without_start[item.definition]
        elif item.state == "null":
            item.state = "{}"
        elif item.state and not item.state.startswith("{"):
            found[item.id] = InvalidInput(
                f"{item.definition!r} is a process: its input must be an object, the variables it starts with."
            )
    return found


async def _without_start(turn: Turn, name: str) -> InvalidInput:
    rows = await turn.tx.fetch(sql.deployed_triggers, definition=name)
    starts = dict.fromkeys(_HOW[kind].format(text) for kind, text in rows if kind in _HOW)
    how = f"It is started by {' or '.join(starts)}." if starts else "Give it a start event without a trigger."
    return InvalidInput(f"The process {name!r} has no start event without a trigger. {how}")
