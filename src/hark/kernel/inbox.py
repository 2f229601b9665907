"""Write to inboxes and read them.

`Inbox.post` and `Inbox.move` are the paths by which anything wakes an instance (invariant 4): signals, broadcasts,
messages, settled awakeables, fired deadlines and finished children use them, under the lock of their receiver.

`store/schema/functions.sql` repeats the inbox row and the wake-up for the call turn;
tests/kernel/test_call_turns.py compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from hark.kernel.rows import LockedRow
from hark.model.activation import Arrived, Claim, InboxRow, WaitRow
from hark.model.decisions import Decision
from hark.model.lanes import INTERPRETED
from hark.model.values import RowKind
from hark.store import statements as sql
from hark.store.protocol import Tx

NO_SIGNALS = -1  # instead of a number: all rows but signals, which the tasks of a run receive
_Post = tuple[str, RowKind, str, str | None, str, str | None]  # instance, kind, name, wait, payload, dedup key


class Inbox:
    """The inbox rows that one turn writes, and the instances they wake."""

    __slots__ = ("_posts", "_tx", "_unmarked", "arrived", "complete", "executing", "woken")

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._posts: list[_Post] = []
        self._unmarked: set[str] = set()  # rows whose `has_inbox_rows` must still be set
        self.complete: dict[str, list[InboxRow]] = {}  # inboxes that hold nothing but what this turn posted
        self.woken: set[str] = set()
        self.executing: set[str] = set()  # executing receivers: a function may wait for this while it runs
        self.arrived: dict[str, Arrived] = {}  # the rows for those of them that are tasks

    def post(
        self,
        row: LockedRow,
        kind: RowKind,
        name: str,
        payload: str,
        wait_id: str | None = None,
        dedup_key: str | None = None,
    ) -> bool:
        """Add a row to an inbox. Returns True when it wakes the instance."""
        self._posts.append((row.id, kind, name, wait_id, payload, dedup_key))
        if not row.has_inbox_rows:
            self.complete[row.id] = []
            row.has_inbox_rows = True
            self._unmarked.add(row.id)
        if row.parked and any(wait.answered_by(kind, name, wait_id) for wait in row.waits):
            row.status = "runnable"
            self.woken.add(row.id)
            return True
        if row.status == "executing":
            self.executing.add(row.id)
            if row.kind == "task" and row.id not in self.arrived:
                self.arrived[row.id] = Arrived(row.epoch, [])
        return False

    def mark(self, row: LockedRow) -> None:
        """Note that a stored row was added to this inbox."""
        if not row.has_inbox_rows:
            row.has_inbox_rows = True
            self._unmarked.add(row.id)
        self.complete.pop(row.id, None)

    def move(self, row: LockedRow, kind: RowKind, name: str, wait_id: str | None) -> None:
        """Note that a stored row was added to this inbox, and wake the instance if the row answers one of its waits."""
        self.mark(row)
        if row.parked and any(wait.answered_by(kind, name, wait_id) for wait in row.waits):
            row.status = "runnable"
            self.woken.add(row.id)
        elif row.status == "executing":
            self.executing.add(row.id)
            self.arrived[row.id] = Arrived(row.epoch, [], is_complete=False)

    async def flush(self) -> None:
        if self._posts:
            # The seqs rise in the order of the list, in whatever order the database returns them.
            seqs = sorted([seq for (seq,) in await self._insert()])
            for seq, (id, kind, name, wait_id, payload, _) in zip(seqs, self._posts, strict=True):
                if id in self.complete:
                    self.complete[id].append(InboxRow(seq, kind, name, wait_id, payload, self._tx.now))
            if self.arrived:
                for seq, (id, kind, name, wait_id, payload, _) in zip(seqs, self._posts, strict=True):
                    if id in self.arrived:
                        self.arrived[id].rows.append(InboxRow(seq, kind, name, wait_id, payload, self._tx.now))
            self._posts = []
        self._unmarked -= self.woken  # the claims, which come last, write these
        if self._unmarked:
            await self._tx.fetch(sql.mark_has_inbox_rows, ids=sorted(self._unmarked))
            self._unmarked = set()

    async def _insert(self) -> list[Any]:
        if all([kind != "broadcast" for _, kind, _, _, _, _ in self._posts]):
            return await self._tx.fetch(sql.insert_signals, self._posts)
        alike = groupby(self._posts, key=itemgetter(slice(1, None)))
        # Without `*_`, which makes a list for each of fifty thousand posts.
        rows = [(" ".join([id for id, _, _, _, _, _ in posts]), *content) for content, posts in alike]
        if len(rows) == len(self._posts):  # each to a wait of its own, as processes have
            return await self._tx.fetch(sql.insert_signals, self._posts)
        return await self._tx.fetch(sql.insert_same_signal, rows)


async def load_waits(tx: Tx, rows: Iterable[LockedRow]) -> None:
    """Read the waits of locked rows: in a statement after the lock, never in the lock itself (invariant 3)."""
    wanted = {row.id: row for row in rows}
    if wanted:
        for id, wait in await read_waits(tx, wanted):
            wanted[id].waits.append(wait)
    for row in wanted.values():
        row.waits_are_current = True


async def read_waits(tx: Tx, ids: Iterable[str]) -> list[tuple[str, WaitRow]]:
    """Read the open waits of these instances, with their instance ids."""
    return [
        (instance, WaitRow(id, place, kind, name, key, deadline, remaining, fired_at, since, each))
        for id, instance, place, kind, name, key, deadline, remaining, since, fired_at, each in await tx.fetch(
            sql.waits_of, ids=sorted(ids)
        )
    ]


async def load_inboxes(
    tx: Tx, after: Mapping[str, int], complete: Mapping[str, list[InboxRow]] | None = None
) -> dict[str, list[InboxRow]]:
    """Read the unconsumed inbox rows of these instances, above the number that `after` has for each, or NO_SIGNALS;
    those in `complete` are not read again."""
    complete = complete or {}
    inboxes = {id: complete.get(id, []) for id in after}
    unread = sorted([item for item in after.items() if item[0] not in complete])
    if unread:
        for seq, id, kind, name, wait_id, payload, at in await tx.fetch(sql.inbox, unread):
            inboxes[id].append(InboxRow(seq, kind, name, wait_id, payload, at))
    return inboxes


def read_before(claim: Claim, decision: Decision) -> int:
    """The number up to which the activation that decided this knows its inbox: the next claim gets only later rows.

    A retry of a function restores rows with lower numbers."""
    if claim.kind in INTERPRETED:
        return NO_SIGNALS
    return claim.read_to if claim.traits.remembers_inbox and not decision.restore else 0
