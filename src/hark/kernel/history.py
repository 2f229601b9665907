"""The history a turn writes: events of instances, and signals and messages that were not stored (near misses, D7)."""

from __future__ import annotations

from typing import Any

import msgspec

from hark.model.activation import Claim
from hark.model.decisions import Decision
from hark.model.events import EventType
from hark.store import statements as sql
from hark.store.protocol import Tx

_encode = msgspec.json.Encoder().encode


class History:
    """The events and near misses of one turn, written by its last statements."""

    __slots__ = ("events", "near_misses")

    def __init__(self) -> None:
        self.events: list[tuple[str, EventType, str | None, str | None]] = []
        self.near_misses: list[tuple[str, str, str, str, str | None]] = []

    def event(self, id: str, type: EventType, step: str | None = None, **data: Any) -> None:
        self.events.append((id, type, step, _encode(data).decode() if data else None))

    def outcome(self, claim: Claim, decision: Decision) -> None:
        """The event of a committed outcome."""
        self.events.append((claim.id, decision.label, decision.step, None))

    def near_miss(self, kind: str, target: str, name: str, reason: str, id: str | None = None) -> None:
        """Record a signal or message that was not stored: no inbox has it, and `hark instance why` reads it here."""
        self.near_misses.append((kind, target, name, reason, id))

    async def write(self, tx: Tx) -> None:
        if self.near_misses:
            await tx.fetch(sql.insert_misses, self.near_misses)
        if self.events:
            await tx.fetch(sql.insert_events, self.events, tx=tx.xid)
