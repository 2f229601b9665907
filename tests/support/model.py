"""A model of the kernel in two hundred lines of plain Python: what every instance must look like after a turn.

One writer, no SQL, no locks: an instance is an object, its inbox a list. The phases are those of a turn (ends,
starts, deliveries with the broadcasts among them, outcomes, the sweep), each over all instances before the next. Which
instances are claimed or blocked by a limit is not modelled: only which could be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hark.kernel.requests import (
    Cancel,
    Commit,
    Deliver,
    HandBack,
    InstanceMove,
    Migrate,
    Publish,
    Reclaim,
    Request,
    RetryInstance,
    StartInstances,
)
from hark.model.activation import Claim
from hark.model.decisions import Advance, Arm, Finish, Hold, NewInstance, Park, Redo, SendBroadcast, SendSignal
from hark.model.values import PARKED, TERMINAL

Letter = tuple[str, str, str, str | None]  # kind, name, payload, the wait it answers


@dataclass
class Wait:
    id: str
    kind: str
    name: str | None
    deadline: int | None
    remaining: int | None
    fired: bool = False

    def takes(self, letter: Letter) -> bool:
        kind, name, _, wait = letter
        return wait == self.id if wait is not None else (kind, name) == (self.kind, self.name)


@dataclass
class Instance:
    id: str
    key: str | None
    created: int
    parent_wait: str | None = None
    parent: str | None = None
    status: str = "runnable"
    attempt: int = 0
    crashes: int = 0
    version: int = 1
    due: int | None = None
    owner: str | None = None
    epoch: int = 0
    counted: bool = False
    undoable: bool = False
    undoing: bool = False
    held_by: frozenset[str] = frozenset()  # while it is held, and while it is claimed after that
    inbox: list[Letter] = field(default_factory=list)
    waits: dict[str, Wait] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @property
    def live(self) -> bool:
        return self.status not in TERMINAL

    @property
    def parked(self) -> bool:
        return self.status in PARKED

    def subscriptions(self) -> set[str | None]:
        return {wait.name for wait in self.waits.values() if wait.kind == "broadcast"}

    def post(self, *letter: Any) -> bool:
        """Add a row to the inbox; True if it wakes the instance."""
        self.inbox.append(letter)  # type: ignore[arg-type]
        if not self.parked or not any(wait.takes(letter) for wait in self.waits.values()):  # type: ignore[arg-type]
            return False
        self.status, self.due = "runnable", None
        return True

    def sleep(self) -> None:
        joins = any(wait.kind == "children" for wait in self.waits.values())
        self.status = "awaiting_children" if joins else "awaiting_signal"
        self.due = self.next_deadline()

    def next_deadline(self) -> int | None:
        return min((w.deadline for w in self.waits.values() if w.deadline is not None and not w.fired), default=None)

    def release(self) -> None:
        """Held no more: it runs again."""
        self.status, self.due = "runnable", None


class Model:
    def __init__(self, max_crashes: int) -> None:
        self.all: dict[str, Instance] = {}
        self.max_crashes = max_crashes
        self.expected: dict[Request, Any] = {}
        self._ended: list[tuple[str | None, str]] = []

    # -- one turn ---------------------------------------------------------------------------------

    def turn(self, requests: list[Request], now: int, sweep: bool) -> dict[Request, Any]:
        """Apply all requests and return their answers: a status, an id, or the name of an error."""
        self.expected = {}
        self._ended = []
        addresses = {r.target: self.find(r.target) for r in requests if isinstance(r, Deliver | Cancel | RetryInstance)}
        commits = [request for request in requests if isinstance(request, Commit)]
        for commit in commits:
            for effect in commit.decision.effects:
                if isinstance(effect, SendSignal):
                    addresses[effect.target] = self.find(effect.target)
        listening = {i.id for i in self.all.values() if i.live}
        live = self._fence(commits)
        for migrate in [request for request in requests if isinstance(request, Migrate)]:
            self.expected[migrate] = [self._move(one) for one in migrate.moves]
        self._ends(requests, addresses)
        live = [commit for commit in live if self.all[commit.claim.id].status == "executing"]
        for commit in commits:
            self.expected[commit] = commit in live
        stillborn = self._starts(requests, live, addresses, now)
        self._delivers(requests, live, addresses, listening)
        past = self._outcomes(live, stillborn, now)
        if sweep or past:
            self._sweep(now)
        return self.expected

    def find(self, target: str) -> str | None:
        if target in self.all:
            return target
        kept = [i for i in self.all.values() if i.key == target]
        holders = [i for i in kept if i.live] or sorted(kept, key=lambda i: i.created)[-1:]
        return holders[0].id if holders else None

    def claimed(self, claim: Claim, owner: str) -> None:
        inst = self.all[claim.id]
        assert inst.status == "runnable", f"claimed though {inst.status}: {claim.id}"
        assert inst.due is None, f"claimed before its time: {claim.id}"
        inst.status, inst.owner, inst.epoch = "executing", owner, claim.epoch

    # -- its phases -------------------------------------------------------------------------------

    def _fence(self, commits: list[Commit]) -> list[Commit]:
        live: dict[str, Commit] = {}
        for commit in commits:
            inst = self.all[commit.claim.id]
            if inst.status == "executing" and inst.epoch == commit.claim.epoch:
                live.setdefault(inst.id, commit)
        return list(live.values())

    def _ends(self, requests: list[Request], addresses: dict[str, str | None]) -> None:
        self._cancel([r for r in requests if isinstance(r, Cancel)], addresses)
        dead = {owner for r in requests if isinstance(r, Reclaim) for owner in r.owners}
        for inst in [i for i in self.all.values() if i.status == "executing" and i.owner in dead]:
            if inst.crashes + 1 >= self.max_crashes:
                self._end(inst, "failed")
            else:
                inst.status, inst.owner = "runnable", None
                inst.attempt, inst.crashes = inst.attempt + 1, inst.crashes + 1
        for claim in [claim for r in requests if isinstance(r, HandBack) for claim in r.claims]:
            inst = self.all[claim.id]
            if inst.status == "executing" and inst.epoch == claim.epoch:
                inst.status, inst.owner = "runnable", None
        for revive in [r for r in requests if isinstance(r, RetryInstance)]:
            self.expected[revive] = self._revive(addresses[revive.target])

    def _cancel(self, cancels: list[Cancel], addresses: dict[str, str | None]) -> None:
        """Forced cancels are left to the next turn if there are others too: they have no answer yet."""
        live: list[tuple[Cancel, Instance]] = []
        for cancel in cancels:
            id = addresses[cancel.target]
            if id is None:
                self.expected[cancel] = "NotFound"
            elif not self.all[id].live:
                self.expected[cancel] = "Conflict"
            else:
                live.append((cancel, self.all[id]))
        force = all(cancel.force for cancel, _ in live)
        wanted: dict[str, Instance] = {}
        for cancel, inst in live:
            if cancel.force and not force:
                continue
            again = inst.id in wanted and (force or not inst.undoable)
            self.expected[cancel] = "Conflict" if again else inst.id
            if force or not inst.undoing:
                wanted[inst.id] = inst
        tree = list(wanted.values())
        while tree:
            inst = tree.pop()
            below = [child for child in self.all.values() if child.parent == inst.id]
            tree += [child for child in below if child.id not in wanted and (force or not child.undoing)]
            if not inst.live:
                continue
            inst.waits.clear()
            if force or not inst.undoable:
                self._end(inst, "cancelled")
            else:
                inst.status, inst.owner, inst.due, inst.undoing = "runnable", None, None, True
                inst.attempt = inst.crashes = 0
                inst.inbox = [letter for letter in inst.inbox if letter[0] in ("signal", "broadcast")]

    def _move(self, one: InstanceMove) -> str:
        """Move an instance to another version; nothing but a move of this turn has changed it since it was read."""
        inst = self.all[one.id]
        if inst.status in ("executing", "done", "cancelled") or inst.version != one.earlier:
            return "Conflict"
        inst.version, inst.crashes, inst.undoable = one.version, 0, False  # no version of the definition has an undo
        if inst.status == "held":
            inst.release()
        return one.id

    def _revive(self, id: str | None) -> str:
        if id is None:
            return "NotFound"
        inst = self.all[id]
        if inst.status == "held":
            inst.release()
            return id
        if inst.status != "failed":
            return "Conflict"
        if inst.key is not None and any(i.live and i.key == inst.key for i in self.all.values()):
            return "Duplicate"
        inst.status, inst.attempt, inst.crashes = "runnable", 0, 0
        return id

    def _end(self, inst: Instance, status: str) -> None:
        inst.status, inst.owner, inst.due = status, None, None
        inst.undoing = inst.undoing and status == "failed"
        if status != "failed":
            inst.waits.clear()
        if inst.parent_wait is not None and not inst.counted:
            self._ended.append((inst.parent, inst.parent_wait))
        inst.counted = True

    def _starts(
        self, requests: list[Request], live: list[Commit], addresses: dict[str, str | None], now: int
    ) -> dict[str, int]:
        stillborn: dict[str, int] = {}
        for start in [r for r in requests if isinstance(r, StartInstances)]:
            self.expected[start] = [self._start(item, now, addresses) for item in start.items]
        for commit in live:
            for item in commit.decision.effects:
                if isinstance(item, NewInstance):
                    self._start(item, now, addresses)
            arms = commit.decision.move.arm if isinstance(commit.decision.move, Park) else ()
            for arm in arms:
                for item in arm.children:
                    if self._start(item, now, addresses, commit.claim.id, arm.id) == "Duplicate":
                        stillborn[arm.id] = stillborn.get(arm.id, 0) + 1
        return stillborn

    def _start(
        self, item: NewInstance, now: int, addresses: dict[str, str | None], parent: str | None = None,
        wait: str | None = None,
    ) -> str:  # fmt: skip
        if self._taken(item.correlation_key):
            return "Duplicate"
        inst = Instance(item.id, item.correlation_key, now, wait, parent)
        inst.due = now + item.delay if item.delay else None
        self.all[item.id] = inst
        addresses[item.id] = item.id
        if item.correlation_key is not None:
            addresses[item.correlation_key] = item.id
        return item.id

    def _taken(self, key: str | None) -> bool:
        return key is not None and any(i.live and i.key == key for i in self.all.values())

    def _delivers(
        self, requests: list[Request], live: list[Commit], addresses: dict[str, str | None], listening: set[str]
    ) -> None:
        """S10: in the order of the calls, signals and broadcasts alike. `listening`: the instances that may receive
        broadcasts, those that were live before this turn."""
        for request in requests:
            if isinstance(request, Deliver):
                self.expected[request] = self._deliver(request, addresses[request.target])
            elif isinstance(request, Publish):
                self.expected[request] = self._publish(request.name, request.payload, listening)
        for commit in live:
            for effect in commit.decision.effects:
                if isinstance(effect, SendSignal):
                    self._deliver(effect, addresses[effect.target])
                elif isinstance(effect, SendBroadcast):
                    self._publish(effect.name, effect.payload, listening)

    def _deliver(self, sent: Deliver | SendSignal, id: str | None) -> str:
        inst = self.all[id] if id is not None else None
        if inst is not None and sent.dedup_key is not None and sent.dedup_key in inst.seen:
            return "duplicate"
        if inst is None or not inst.live:
            return "NoTarget"
        if sent.dedup_key is not None:
            inst.seen.add(sent.dedup_key)
        return "woke" if inst.post("signal", sent.name, sent.payload, None) else "stored"

    def _publish(self, name: str, payload: str, listening: set[str]) -> int:
        subscribed = [inst for inst in self.all.values() if inst.id in listening and name in inst.subscriptions()]
        reached = [inst for inst in subscribed if inst.live]
        for inst in reached:
            inst.post("broadcast", name, payload, None)
        return len(reached)

    def _outcomes(self, live: list[Commit], stillborn: dict[str, int], now: int) -> bool:
        """True if a deadline was already past when it was armed: then the turn sweeps."""
        past = False
        for commit in live:
            inst, decision = self.all[commit.claim.id], commit.decision
            used = {
                (row.kind, row.name, row.payload, row.wait_id)
                for row in commit.claim.inbox
                if row.seq in decision.consume
            }
            inst.inbox = [letter for letter in inst.inbox if letter not in used]
            inst.epoch += 1
            inst.undoable = inst.undoable or bool(decision.has_undo)
            if isinstance(decision.move, Finish):
                self._end(inst, "cancelled" if inst.undoing else decision.move.status)
        self._count()
        for commit in live:
            inst, move = self.all[commit.claim.id], commit.decision.move
            match move:
                case Advance():
                    inst.waits.clear()
                    inst.attempt = inst.crashes = 0
                    if move.rate_limit is not None or move.rekey:
                        inst.status, inst.owner = "runnable", None
                case Redo(delay):
                    inst.attempt, inst.crashes = inst.attempt + 1, 0
                    inst.status, inst.owner = "runnable", None
                    inst.due = now + delay if delay else None
                case Park():
                    past = self._park(inst, commit, stillborn, now) or past
                case Finish():
                    inst.attempt = inst.crashes = 0
                case Hold():
                    inst.status, inst.owner, inst.due = "held", None, inst.next_deadline()
                    tried = (commit.claim.held_by or "").split(",") if commit.claim.held_by else []
                    inst.held_by = frozenset([*tried, move.fingerprint])
                    past = past or (inst.due is not None and inst.due <= now)
        return past

    def _park(self, inst: Instance, commit: Commit, stillborn: dict[str, int], now: int) -> bool:
        move = commit.decision.move
        assert isinstance(move, Park)
        handed = _letters(commit.claim, commit.decision.handed)
        drop = inst.waits.keys() if move.disarm is None else move.disarm
        inst.waits = {id: wait for id, wait in inst.waits.items() if id not in drop}
        for arm in move.arm:
            wait = inst.waits[arm.id] = _armed(arm, stillborn.get(arm.id, 0), now)
            if wait.remaining is not None and wait.remaining <= 0:
                inst.inbox.append(("children", "", "null", arm.id))
        inst.attempt = inst.crashes = 0
        inst.owner = None
        news = [letter for letter in inst.inbox if letter not in handed]
        if any(wait.takes(letter) for wait in inst.waits.values() for letter in news):
            inst.status = "runnable"
            return False
        inst.sleep()
        return inst.due is not None and inst.due <= now

    def _count(self) -> None:
        before = {w.id: w.remaining for i in self.all.values() for w in i.waits.values() if w.remaining is not None}
        for parent, id in self._ended:
            wait = self.all[parent].waits.get(id) if parent is not None else None
            if wait is not None:
                assert wait.remaining is not None
                wait.remaining -= 1
        for parent, id in dict.fromkeys(self._ended):
            wait = self.all[parent].waits.get(id) if parent is not None else None
            if wait is not None and wait.remaining is not None and wait.remaining <= 0 < before[id]:
                self.all[parent].post("children", "", "null", id)  # type: ignore[index]

    def _sweep(self, now: int) -> None:
        for inst in self.all.values():
            if inst.due is None or inst.due > now:
                continue
            if not inst.parked and inst.status != "held":
                inst.due = None
                continue
            over = [w for w in inst.waits.values() if w.deadline is not None and w.deadline <= now and not w.fired]
            for wait in over:
                wait.fired = True
            inst.post("timer", "", "null", min(wait.id for wait in over))
            if inst.status == "held":
                inst.due = inst.next_deadline()


def _letters(claim: Claim, seqs: tuple[int, ...]) -> set[Letter]:
    return {(row.kind, row.name, row.payload, row.wait_id) for row in claim.inbox if row.seq in seqs}


def _armed(arm: Arm, stillborn: int, now: int) -> Wait:
    ends = [] if arm.deadline is None else [arm.deadline]
    ends += [] if arm.timeout is None else [now + arm.timeout]
    remaining = arm.join - stillborn if arm.kind == "children" else None
    return Wait(arm.id, arm.kind, arm.name, min(ends, default=None), remaining)
