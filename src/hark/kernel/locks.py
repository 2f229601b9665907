"""Reserve names and lock rows before a turn reads anything (invariant 3).

The verbs add names, targets and ids in their `plan`; the turn then reserves the names, resolves the targets and
locks all rows in id order. Nothing after the lock waits for an instance row.

`store/schema/functions.sql` repeats the resolution of targets and the lock for the call turn;
tests/kernel/test_call_turns.py compares both.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from hark.kernel.rows import LockedRow
from hark.model.lanes import INTERPRETED
from hark.store import statements as sql
from hark.store.protocol import Tx

_NUMBERS = 256  # for names: few enough for the database's lock table, many enough that starters seldom share one


class Locks:
    """The lock plan of one turn and, after `acquire`, the rows it holds."""

    __slots__ = ("_addresses", "_assumed", "_numbers", "_targets", "_tx", "has_runs", "ids", "rows", "started")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._numbers: set[int] = set()
        self._targets: set[str] = set()
        self._assumed: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self.ids: set[str] = set()  # the rows to lock
        self.rows: dict[str, LockedRow] = {}  # the rows that are locked, or were inserted by this turn
        self.has_runs = False  # `acquire` has locked a job or a process
        self.started: dict[str, str] = {}  # ids of instances started in this turn, by id and correlation key

    # -- before the lock --------------------------------------------------------------------------

    def reserve(self, name: str) -> None:
        """Serialise with every other turn that reserves the same name."""
        self._numbers.add(zlib.crc32(name.encode()) % _NUMBERS)

    def reserve_message(self, name: str, key: str) -> None:
        """Serialise turns that arm waits for one message: a read for its receiver is then exact, so that no second
        instance becomes one."""
        self.reserve(f"message\0{name}\0{key}")

    def add_target(self, target: str) -> None:
        """Lock the instance with this id or correlation key."""
        self._targets.add(target)

    def add_assumed_id(self, target: str) -> None:
        """Lock the instance with this id without checking whether the target is a key; see `is_key`."""
        self.ids.add(target)
        self._assumed[target] = target

    async def resolve(self, targets: Iterable[str]) -> dict[str, str]:
        """Read the ids of these targets; a target that no instance has is left out."""
        found = await self._tx.fetch(sql.addresses, [(target,) for target in sorted(targets)])
        return {target: id for target, id in found if id is not None}

    async def reserve_names(self) -> None:
        if self._numbers:
            await self._tx.reserve(sorted(self._numbers))

    async def resolve_targets(self) -> None:
        if self._targets:
            self._addresses = await self.resolve(self._targets)
            self.ids.update(self._addresses.values())
        self._addresses = self._assumed | self._addresses

    def address(self, target: str) -> str | None:
        """The id of a target, as read before the lock."""
        return self._addresses.get(target)

    # -- the lock ---------------------------------------------------------------------------------

    async def acquire(self) -> None:
        if self.ids:
            for id, status, epoch, has_inbox_rows, kind in await self._tx.fetch(sql.lock, ids=sorted(self.ids)):
                self.rows[id] = LockedRow(id, status, epoch, bool(has_inbox_rows), kind)
                if kind in INTERPRETED:
                    self.has_runs = True

    async def acquire_free(self, ids: Iterable[str]) -> list[LockedRow]:
        """Lock further rows as far as no other transaction holds them; this never waits. Returns those it locked."""
        wanted = sorted({id for id in ids if id not in self.rows})
        locked = []
        for id, status, epoch, has_inbox_rows, kind in (
            await self._tx.fetch(sql.lock_free, ids=wanted) if wanted else ()
        ):
            locked.append(self.add_locked(id, status, epoch, has_inbox_rows, kind))
        return locked

    def add_locked(self, id: str, status: str, epoch: int, has_inbox_rows: bool, kind: str) -> LockedRow:
        self.rows[id] = row = LockedRow(id, status, epoch, bool(has_inbox_rows), kind)
        return row

    # -- after the lock ---------------------------------------------------------------------------

    def find(self, target: str) -> LockedRow | None:
        """The locked row of a target: started in this turn, or resolved before the lock."""
        id = self.started.get(target) or self._addresses.get(target)
        return self.rows.get(id) if id is not None else None

    def is_key(self, target: str) -> bool:
        """Return True when a target was assumed to be an id and no instance has that id."""
        return target in self._assumed and self.find(target) is None
