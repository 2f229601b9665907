"""A turn: everything that waits, in one transaction, with a constant number of statements.

The order is the proof. Names are reserved and addresses read; then all instance rows are locked in id
order (invariant 3); only then is anything else looked at or written. Everything that could wait for
another transaction happens before the claims, which skip what is locked.

`Turn` is the memory of one run. It is thrown away when the transaction fails, and the same requests
run again on a new one: nothing here may change a request but its answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, assert_never

import msgspec

from hark.kernel import broadcast, claim, commit, deliver, end, expire, journal, limits, retain, settle, start, tokens
from hark.kernel.limits import Limits
from hark.kernel.requests import (
    Cancel,
    Capacity,
    Commit,
    Deliver,
    Grant,
    HandBack,
    Message,
    Publish,
    Reclaim,
    Register,
    Request,
    Retain,
    RetryInstance,
    Revoke,
    SettleAwakeable,
    SignalWithStart,
    StartInstances,
    Sweep,
)  # fmt: skip
from hark.kernel.rows import Locked, wait_row
from hark.model.activation import ChildRow, Claim, InboxRow, WaitRow
from hark.model.decisions import (
    CancelChild,
    Effect,
    Entry,
    NewInstance,
    Park,
    Proceed,
    SendBroadcast,
    SendSignal,
    Settle,
)  # fmt: skip
from hark.model.events import EventType
from hark.store import statements as sql
from hark.store.protocol import Rows, Tx

_encode = msgspec.json.Encoder().encode
_NAMES = 256  # reserved numbers: few enough for the lock table, many enough that starters seldom meet


class Rules:
    """What the application configured."""

    __slots__ = ("broadcast_limit", "chunk", "limits", "max_crashes")

    def __init__(self, limits: Limits, max_crashes: int, broadcast_limit: int, chunk: int) -> None:
        self.limits = limits
        self.max_crashes = max_crashes
        self.broadcast_limit = broadcast_limit
        self.chunk = chunk


class Turn:
    def __init__(self, tx: Tx, rules: Rules, catalog: dict[str, dict[int, tuple[str, str, str]]]) -> None:
        self.tx = tx
        self.now = tx.now
        self.rules = rules
        self.catalog = catalog
        self.commits: list[Commit] = []
        self.delivers: list[Deliver | SignalWithStart | Publish] = []  # in the order of the calls (S10)
        self.starts: list[StartInstances] = []
        self.joint: list[SignalWithStart] = []
        self.publishes: list[Publish] = []
        self.messages: list[Message] = []
        self.answers: list[SettleAwakeable] = []
        self.cancels: list[Cancel] = []
        self.revives: list[RetryInstance] = []
        self.handbacks: list[HandBack] = []
        self.reclaims: list[Reclaim] = []
        self.retains: list[Retain] = []
        self.registers: list[Register] = []
        self.grants: list[Grant] = []
        self.revokes: list[Revoke] = []
        self.swept: list[Sweep] = []
        # What the phases tell each other.
        self.wants: set[str] = set()
        self.reserved: set[int] = set()
        self.targets: set[str] = set()
        self.addresses: dict[str, str] = {}
        self.guessed: dict[str, str] = {}
        self.started: dict[str, str] = {}
        self.rows: dict[str, Locked] = {}
        self.posts: list[tuple[str, str, str, str | None, str, str | None]] = []
        self.first_mail: dict[str, list[InboxRow]] = {}  # whole inboxes: all they hold was posted here
        self.woken: set[str] = set()
        self.mailed: set[str] = set()
        self.freed: set[str] = set()
        self.ended: list[str] = []
        self.failed_children: dict[str, int] = {}
        self.known: dict[SignalWithStart, str] = {}
        self.subscribers: dict[str, list[str]] = {}
        self.chunk: list[tuple[str, str]] = []
        self.large = False
        self.published: list[tuple[str, Publish]] = []
        self.repeats: list[tuple[Publish, Publish]] = []  # of one that this very turn publishes
        self.run_on = True
        self.made_buckets = False
        self.deliver_marks = False
        self.abandoned: list[str] = []
        self.nexts: list[Commit] = []
        self.journaled: list[tuple[Commit, Entry, Request]] = []  # effects whose outcome is a line of a journal
        self.kept: dict[str, tuple[list[WaitRow], list[ChildRow]]] = {}  # what those who go on still wait for
        self.disturbed: set[str] = set()  # executing, and got mail: they may be waiting for it while they run
        self.events: list[tuple[str, EventType, str | None, str | None]] = []
        self.misses: list[tuple[str, str, str, str, str | None]] = []
        # What the clerk wants to know afterwards.
        self.again: list[Request] = []
        self.claims: list[Claim] = []
        self.ran_on: list[Commit] = []
        self.inboxes: dict[str, list[InboxRow]] = {}
        self.finished: dict[str, tuple[str, str, str | None, str | None]] = {}  # id, status, result, error
        self.cancelled: set[str] = set()
        self.runnable = False  # made something claimable
        self.unclaimed = False  # and may have left some of it unclaimed
        self.made: set[tuple[str, str, int]] = set()  # the lanes of what it made claimable, as far as it knows them
        self.elsewhere = False  # and some of it only other workers have the code or the room for
        self.shut: set[str] = set()  # buckets that have refused somebody in this turn
        self.crowded = False  # a queue has a line and no seat for it, as far as we know
        self.more = False  # left something to do at once
        self.marks = False  # marks of a large broadcast are left
        self.earliest: int | None = None

    # -- words the verbs share --------------------------------------------------------------------

    def event(self, id: str, type: EventType, step: str | None = None, **data: Any) -> None:
        self.events.append((id, type, step, _encode(data).decode() if data else None))

    def miss(self, kind: str, target: str, name: str, reason: str, id: str | None = None) -> None:
        """Told to nobody: no row in an inbox, and one for whoever asks why (D7)."""
        self.misses.append((kind, target, name, reason, id))

    def due(self, at: int) -> None:
        if self.earliest is None or at < self.earliest:
            self.earliest = at

    def reserve(self, name: str) -> None:
        self.reserved.add(zlib.crc32(name.encode()) % _NAMES)

    def reserve_message(self, name: str, key: str) -> None:
        """Its receivers meet here: a look for one is exact then, and two batches cannot deadlock in the index."""
        self.reserve(f"message\0{name}\0{key}")

    async def resolve(self, targets: Iterable[str]) -> dict[str, str]:
        """Ids by target; a name nobody has is left out."""
        found = await self.tx.fetch(sql.addresses, [(target,) for target in sorted(targets)])
        return {target: id for target, id in found if id is not None}

    def find(self, target: str) -> Locked | None:
        """The row a target means: started in this very turn, or resolved before the lock."""
        id = self.started.get(target) or self.addresses.get(target)
        return self.rows.get(id) if id is not None else None

    def post(
        self,
        row: Locked,
        kind: str,
        name: str,
        payload: str,
        wait_id: str | None = None,
        dedup_key: str | None = None,
    ) -> bool:
        """Into the inbox. True when it wakes: the one road by which anything wakes (invariant 4)."""
        self.posts.append((row.id, kind, name, wait_id, payload, dedup_key))
        if not row.has_signals:
            self.first_mail[row.id] = []
        return self.arrived(row, kind, name, wait_id)

    def arrived(self, row: Locked, kind: str, name: str, wait_id: str | None) -> bool:
        wakes = False
        if row.parked:
            for wait in row.waits:
                wakes = wakes or wait.answered_by(kind, name, wait_id)
        if wakes:
            row.status = "runnable"
            self.woken.add(row.id)
        elif row.status == "executing":
            self.disturbed.add(row.id)
        if not row.has_signals:
            row.has_signals = True
            self.mailed.add(row.id)
        return wakes

    async def flush(self) -> None:
        """Write the posts so far, in their order."""
        if self.posts:
            # The numbers rise in the order of the list, in whatever order the database returns them.
            seqs = sorted(row[0] for row in await self._insert())
            for seq, (id, kind, name, wait_id, payload, _) in zip(seqs, self.posts, strict=True):
                if id in self.first_mail:
                    self.first_mail[id].append(InboxRow(seq, kind, name, wait_id, payload, self.now))
            self.posts = []
        self.mailed -= self.woken  # the claims, which come last, write these
        if self.mailed:
            await self.tx.fetch(sql.mark_has_signals, ids=sorted(self.mailed))
            self.mailed = set()

    async def _insert(self) -> Rows:
        if all(post[1] != "broadcast" for post in self.posts):
            return await self.tx.fetch(sql.insert_signals, self.posts)
        alike = groupby(self.posts, key=itemgetter(slice(1, None)))
        return await self.tx.fetch(
            sql.insert_same_signal, [(" ".join(p[0] for p in posts), *rest) for rest, posts in alike]
        )

    async def look(self, rows: Iterable[Locked]) -> None:
        """Read the waits of rows we hold: a statement after the lock, never the lock itself."""
        wanted = {row.id: row for row in rows}
        if wanted:
            for found in await self.tx.fetch(sql.waits_of, ids=sorted(wanted)):
                wanted[found[1]].waits.append(wait_row(found))
        for row in wanted.values():
            row.looked = True

    # -- the order --------------------------------------------------------------------------------

    def take(self, requests: Iterable[Request]) -> None:
        for request in requests:
            match request:
                case Commit():
                    self.commits.append(request)
                case Deliver():
                    self.delivers.append(request)
                case StartInstances():
                    self.starts.append(request)
                case SignalWithStart():
                    self.joint.append(request)
                    self.delivers.append(request)
                case Publish():
                    self._publish(request)
                case Message():
                    self.messages.append(request)
                case SettleAwakeable():
                    self.answers.append(request)
                case Cancel():
                    self.cancels.append(request)
                case RetryInstance():
                    self.revives.append(request)
                case HandBack():
                    self.handbacks.append(request)
                case Reclaim():
                    self.reclaims.append(request)
                case Register():
                    self.registers.append(request)
                case Retain():
                    self.retains.append(request)
                case Sweep():
                    self.swept.append(request)
                case Grant():
                    self.grants.append(request)
                case Revoke():
                    self.revokes.append(request)
                case _:
                    raise AssertionError(request)

    def _publish(self, request: Publish) -> None:
        self.publishes.append(request)
        self.delivers.append(request)

    def _unfold(self, request: Commit) -> None:
        """Effects ride the outcome (invariant 12): the same requests, with a sender."""
        request.fenced = False
        decision = request.decision
        self.take(_asked(effect, request) for effect in decision.effects)
        for line in decision.journal or ():
            if line.effect is not None:
                asked = _asked(line.effect, request)
                self.take((asked,))
                self.journaled.append((request, line, asked))
        if isinstance(decision.move, Park | Proceed):
            for arm in decision.move.arm:
                if arm.kind == "message":
                    self.reserve_message(arm.name or "", arm.key or "")
                if arm.children:
                    self.starts.append(StartInstances(items=list(arm.children), parent_wait=arm.id, sender=request))

    async def run(
        self,
        requests: Sequence[Request],
        capacity: Capacity | None = None,
        *,
        sweep: bool = False,
        marks: bool = False,
        run_on: bool = True,
        plain: bool = False,
    ) -> None:
        """Do it all. `run_on=False`: the worker is stopping, so `Next` goes back into the line."""
        self.take(requests)
        if plain and run_on and capacity is None and not sweep and not marks and self.commits:
            await self._run_on()
            return
        for request in self.commits:
            self._unfold(request)
        self.run_on = run_on
        self.deliver_marks = marks or bool(self.swept)
        tx = self.tx
        # In one statement, in order: two processes that record the same ones would deadlock in several.
        recorded = {row[:2]: row for register in self.registers for row in register.rows}
        if recorded:
            await tx.fetch(sql.record_definitions, list(recorded.values()))
        for name, version, kind, queue, initial, _, _ in recorded.values():
            self.catalog.setdefault(name, {})[version] = (kind, queue, initial)
        await tokens.apply(self)
        # Before the locks: who is meant.
        start.plan(self)
        broadcast.plan_names(self)
        deliver.plan(self)
        await end.plan(self)
        if self.reserved:
            await tx.reserve(sorted(self.reserved))
        if self.targets:
            self.addresses = await self.resolve(self.targets)
            self.wants.update(self.addresses.values())
        self.addresses = self.guessed | self.addresses
        await end.plan_rows(self)
        await deliver.plan_messages(self)
        await settle.plan(self)
        await broadcast.plan(self)
        commit.plan(self)
        # The lock, and after it the look.
        if self.wants:
            for id, status, epoch, has_signals in await tx.fetch(sql.lock, ids=sorted(self.wants)):
                self.rows[id] = Locked(id, status, epoch, bool(has_signals))
        commit.fence(self)
        reached = broadcast.reached(self)
        await self.look(row for row in self.rows.values() if row.parked or row.id in reached)
        # The deeds.
        await end.apply(self)
        commit.fence_again(self)
        await deliver.look_for_known(self)
        await start.apply(self)
        await broadcast.deliver_marked(self)  # before anything newer
        await deliver.apply(self)
        await broadcast.record(self)
        await settle.apply(self)
        await commit.apply(self)
        await journal.apply(self)
        # A park whose deadline is past is due at once, not a turn later.
        sweep = sweep or bool(self.swept) or (self.earliest is not None and self.earliest <= self.now)
        if sweep:
            await expire.apply(self)
        for swept in self.swept:
            swept.answer = self.more
        await limits.release(self)
        if sweep or self.freed:
            await limits.promote(self)
        await claim.apply(self, capacity)
        for old in self.retains:
            await retain.apply(self, old)
        if self.misses:
            await tx.fetch(sql.insert_misses, self.misses)
        if self.events:
            await tx.fetch(sql.insert_events, self.events, tx=tx.xid)

    async def _run_on(self) -> None:
        """The plain turn (`commit.are_plain`), the hottest of all."""
        mailed = await commit.advance(self)
        await journal.apply(self)
        await claim.load_inboxes(self, mailed)


def _asked(effect: Effect, sender: Commit) -> Request:
    """An effect as the request it is, with its sender."""
    match effect:
        case SendSignal(target, name, payload, dedup_key):
            return Deliver(target=target, name=name, payload=payload, dedup_key=dedup_key, sender=sender)
        case SendBroadcast(name, payload, dedup_key):
            return Publish(name=name, payload=payload, dedup_key=dedup_key, sender=sender)
        case NewInstance():
            return StartInstances(items=[effect], sender=sender)
        case Settle():
            return SettleAwakeable(
                settle=effect, sender=sender, by_look=True
            )  # an effect cannot go again without its outcome
        case CancelChild(id, reason):
            return Cancel(target=id, reason=reason, sender=sender)
        case _ as never:
            assert_never(never)
