"""Compare the waits an instance has armed with those its open operations need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import assert_never

from msgspec import Struct

from hark.model import json
from hark.model.activation import Claim, WaitRow
from hark.model.decisions import Arm, CancelChild, DecisionEvent, Effect, NewAwakeable, Settle
from hark.programs.functions.operations import AwakeableAnswer, Operation, entry_of

_ANSWERED = "-1"  # the place of a wait whose answer a retry has cut off: it belongs to no entry


def waits_by_entry(claim: Claim, answered: Set[int]) -> dict[int, list[WaitRow]]:
    """The waits an instance was claimed with, by entry. A wait whose answer a retry has cut off gets another place,
    which belongs to no entry."""
    waits: dict[int, list[WaitRow]] = {}
    for wait in claim.waits:
        entry = entry_of(wait.place)
        if entry in answered:
            wait.place = _ANSWERED  # an operation that asks again arms a new wait
        else:
            waits.setdefault(entry, []).append(wait)
    return waits


class WaitChanges(Struct, frozen=True):
    """The waits that a commit arms and disarms, and the effects of operations that were withdrawn."""

    arm: tuple[Arm, ...]
    disarm: tuple[WaitRow, ...]
    awakeables: tuple[NewAwakeable, ...]
    effects: list[Effect]

    @property
    def disarmed_ids(self) -> tuple[str, ...]:
        return tuple(wait.id for wait in self.disarm)


def needs_changes(claim: Claim, operations: Mapping[int, Operation]) -> bool:
    """Return True if the armed waits differ from those the open operations need."""
    if not claim.waits:
        return any(operation.needs_wait for operation in operations.values())
    wanted = {operation.place for operation in operations.values() if operation.needs_wait}
    return wanted != {wait.place for wait in claim.waits}


def wait_changes(claim: Claim, operations: Mapping[int, Operation], withdrawn: Set[int]) -> WaitChanges:
    """Compare the armed waits with the open operations; `withdrawn` are the entries that were given up."""
    armed = {wait.place for wait in claim.waits}
    wanted = {operation.place: operation for operation in operations.values() if operation.needs_wait}
    arms: list[Arm] = []
    awakeables: list[NewAwakeable] = []
    for place, operation in wanted.items():
        if place not in armed:
            arms += operation.waits_to_arm()
            if isinstance(operation, AwakeableAnswer) and operation.new is not None:
                operation.new.awaited = operation.told = operation.awaited
                awakeables.append(operation.new)
    disarm = [wait for wait in claim.waits if wait.place not in wanted]
    effects: list[Effect] = []
    for wait in disarm:
        if wait.fired_at is None and entry_of(wait.place) in withdrawn:
            effects += _withdrawn(claim, wait)
    return WaitChanges(tuple(arms), tuple(disarm), tuple(awakeables), effects)


def unawaited_places(operations: Iterable[Operation]) -> tuple[str, ...]:
    """The places of the awakeables that the code has created and not awaited yet; the event of a park tells of the
    others that it waits for them."""
    asked = [one for one in operations if isinstance(one, AwakeableAnswer)]
    for one in asked:
        one.told = one.awaited
    return tuple([one.place for one in asked if not one.awaited])


def newly_awaited(operations: Iterable[Operation]) -> tuple[DecisionEvent, ...]:
    """The events of the awakeables that the code has begun to await since the last commit."""
    new = [one for one in operations if isinstance(one, AwakeableAnswer) and one.awaited and not one.told]
    for one in new:
        one.told = True
    return tuple([DecisionEvent("awaited", None, json.dump({"awakeable": one.id})) for one in new])


def _withdrawn(claim: Claim, wait: WaitRow) -> list[Effect]:
    """The effects of giving up an open wait."""
    match wait.kind:
        case "awakeable":
            return [Settle(wait.name or "", "CANCELLED")]
        case "children":
            ids = [child.id for child in claim.children if child.wait_id == wait.id]
            return [CancelChild(id, "its parent no longer waits for it") for id in ids]
        case "signal" | "broadcast" | "message" | "timer":
            return []
        case _ as never:
            assert_never(never)
