"""Turns by hand: requests as the worker would send them, and an audit of everything a turn must leave true.

Below the clerk and the interpreters: the requests built here go directly into `run_turn`. Outcomes consume and
hand signals exactly as programs/machines/steps.py does, so a claim can be answered without user code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from hark.kernel.limits import Limits
from hark.kernel.requests import Capacity, Commit, DefinitionRow, Register, Request
from hark.kernel.rules import Rules
from hark.model import epochs
from hark.model.activation import Claim, Traits
from hark.model.decisions import Advance, Arm, Decision, Effect, Finish, Hold, NewAwakeable, NewInstance, Park, Redo
from hark.model.values import PARKED, TERMINAL, Rate
from hark.store.sql import Sql

DEFINITION = "m"
REGISTER = Register(rows=[DefinitionRow(DEFINITION, version, "machine", "default", "start") for version in (1, 2)])
MINUTE = 60_000_000
_START = 1_800_000_000_000_000
_wait_ids = (f"wait-{n:06}" for n in count())


class TickingClock:
    """Advances a millisecond per turn, so that queue positions differ; more when a test says so."""

    def __init__(self, tick: int = 1000) -> None:
        self.now, self._tick = _START, tick

    def __call__(self) -> int:
        self.now += self._tick
        return self.now

    def advance(self, micros: int) -> None:
        self.now += micros


@contextmanager
def same_nonces() -> Iterator[None]:
    """Claims do not differ in the random half of their epochs: what two executions leave can be compared."""
    with patch.object(epochs, "new_nonce", return_value=5 << 31 | 1):
        yield


def rules(
    *,
    rates: Mapping[str, Rate] | None = None,
    slots: Mapping[str, int] | None = None,
    max_crashes: int = 3,
    broadcast_limit: int = 1000,
    chunk: int = 1000,
    **streams: int,
) -> Rules:
    return Rules(Limits(dict(rates or {}), dict(slots or {})), max_crashes, broadcast_limit, chunk, **streams)


def capacity(owner: str, room: int = 1, version: int = 1, **options: Any) -> Capacity:
    return Capacity(owner, {"default": room}, {f"{DEFINITION}@{version}": Traits()}, **options)


def new(id: str, *, version: int = 1, **options: Any) -> NewInstance:
    return NewInstance(DEFINITION, "{}", id, named=True, version=version, **options)


async def ask(turns: Any, *requests: Request) -> list[Any]:
    """The results of these requests; one that a turn hands back runs again, as the clerk does it."""
    again: Sequence[Request] = requests
    while again:
        again = (await turns.run(*again)).again
    return [request.result for request in requests]


# -- outcomes ----------------------------------------------------------------------------------------


def handed(claim: Claim) -> tuple[int, ...]:
    """What this activation was handed: the unconsumed signals that match its waits."""
    asked = {(wait.kind, wait.name) for wait in claim.waits}
    return tuple(row.seq for row in claim.inbox if row.wait_id is None and (row.kind, row.name) in asked)


def _served(claim: Claim) -> tuple[int, ...]:
    return tuple(row.seq for row in claim.inbox if row.kind not in ("signal", "broadcast"))


def _commit(claim: Claim, label: str, move: Any, consume: Iterable[int], effects: Sequence[Effect]) -> Commit:
    step = claim.step if label in ("retry", "done", "stop", "held") else f"after-{label}"
    decision = Decision(label, step, claim.state, move, tuple(consume), handed(claim), list(effects))
    return Commit(claim=claim, decision=decision)


def advance(claim: Claim, *effects: Effect, **options: Any) -> Commit:
    return _commit(claim, "next", Advance(**options), {*handed(claim), *_served(claim)}, effects)


def undoable(claim: Claim, *effects: Effect) -> Commit:
    """From here on a cancel of the instance has something to undo."""
    commit = advance(claim, *effects)
    commit.decision.has_undo = True
    return commit


def retry(claim: Claim, *effects: Effect, delay: int = 0) -> Commit:
    return _commit(claim, "retry", Redo(delay), (), effects)


def park(
    claim: Claim,
    *arms: Arm,
    effects: Sequence[Effect] = (),
    disarm: tuple[str, ...] | None = None,
    awakeables: tuple[NewAwakeable, ...] = (),
) -> Commit:
    return _commit(claim, "await", Park(arms, disarm, awakeables), _served(claim), effects)


def spawn(claim: Claim, children: Sequence[NewInstance], *effects: Effect, join: int | None = None) -> Commit:
    arm = Arm("children", next(_wait_ids), children=tuple(children), join=len(children) if join is None else join)
    return _commit(claim, "spawn", Park((arm,)), {*handed(claim), *_served(claim)}, effects)


def done(claim: Claim, *effects: Effect) -> Commit:
    return _commit(claim, "done", Finish("done", result="null"), (), effects)


def stop(claim: Claim, *effects: Effect) -> Commit:
    return _commit(claim, "stop", Finish("failed", error="stopped"), (), effects)


def hold(claim: Claim, code: str = "code") -> Commit:
    """The code with this fingerprint does not fit."""
    return _commit(claim, "held", Hold("does not fit", None, "{}", code), (), ())


def on(name: str, kind: Any = "signal", **options: Any) -> Arm:
    return Arm(kind, next(_wait_ids), name=name, **options)


def timer(**options: Any) -> Arm:
    return Arm("timer", next(_wait_ids), **options)


def asked(id: str, entry_index: int = 0, timeout: int | None = None) -> tuple[NewAwakeable, Arm]:
    """An awakeable to create, and the wait that stands for it."""
    arm = on(id, "awakeable", timeout=timeout)
    return NewAwakeable(id, entry_index, timeout=timeout), arm


# -- the audit ---------------------------------------------------------------------------------------

TABLES: dict[str, tuple[str, ...]] = {
    "instances": (
        "id", "status", "step", "attempt", "crashes", "due_at", "blocked_on", "lease_owner", "epoch", "has_inbox_rows",
        "concurrency_key", "rate_limit", "correlation_key", "scope", "holds_key", "parent_id", "parent_wait", "counted",
        "on_cancel", "cancel_reason", "held_by", "version", "lane", "state", "has_run", "forked_from",
    ),
    "inbox": ("seq", "instance_id", "kind", "name", "wait_id", "dedup_key", "consumed_at"),
    "waits": (
        "id", "instance_id", "kind", "name", "key", "deadline", "remaining", "fired_at", "closed_at", "answers_each",
    ),
    "awakeables": ("id", "instance_id", "task_id", "status"),
    "buckets": ("kind", "key", "available", "due_at"),
}  # fmt: skip


_CONTENT = {table: Sql(f"SELECT {', '.join(columns)} FROM {table}") for table, columns in TABLES.items()}


class Row(dict[str, Any]):
    """A row with its columns as attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Content:
    """The whole content of a store at one moment."""

    def __init__(self, tables: Mapping[str, Iterable[Sequence[Any]]]) -> None:
        named = {t: [Row(zip(TABLES[t], row, strict=True)) for row in rows] for t, rows in tables.items()}
        self.instances: dict[str, Any] = {row.id: row for row in named["instances"]}
        self.signals = sorted(named["inbox"], key=lambda row: row.seq)
        self.waits = named["waits"]
        self.awakeables: dict[str, Any] = {row.id: row for row in named["awakeables"]}
        self.buckets = named["buckets"]

    @classmethod
    async def of(cls, store: Any) -> Content:
        return cls({table: await store.read(sql) for table, sql in _CONTENT.items()})

    def inbox(self, id: str) -> list[Any]:
        return [s for s in self.signals if s.instance_id == id and s.consumed_at is None]

    def waits_of(self, id: str) -> list[Any]:
        return [w for w in self.waits if w.instance_id == id and w.closed_at is None]

    def kinds(self, id: str) -> list[str]:
        """The unconsumed inbox, as short texts."""
        return [s.name if s.kind == "signal" else s.kind for s in self.inbox(id)]


def audit(content: Content, given: Rules, seen: Collection[int] = ()) -> None:
    """Check what must be true after every commit. `seen`: signals that a step was handed before it awaited again."""
    for row in content.instances.values():
        waits, inbox = content.waits_of(row.id), content.inbox(row.id)
        assert (row.status == "executing") == (row.lease_owner is not None), f"lease: {row}"
        assert row.has_inbox_rows or not inbox, f"an inbox that will never be read: {row} {inbox}"
        if row.status in TERMINAL:
            _audit_terminal(content, row, waits)
        assert (row.status == "held") == (row.held_by is not None), f"held: {row}"
        if row.status == "held":
            _audit_due(row, waits)
        if row.status in PARKED:
            _audit_parked(row, waits, [s for s in inbox if s.seq not in seen])
    _audit_keys(content)
    _audit_limits(content, given)
    _audit_runs(content)


def _audit_terminal(content: Content, row: Row, waits: list[Any]) -> None:
    """Invariant 11: a terminal instance is empty."""
    assert not waits, f"a finished instance waits: {row} {waits}"
    assert row.due_at is None, f"a finished instance is due: {row}"
    assert row.blocked_on is None, f"a finished instance is blocked on a bucket: {row}"
    assert row.cancel_reason is None or row.status == "failed", f"its undo is over: {row}"
    asked = [a for a in content.awakeables.values() if row.id in (a.instance_id, a.task_id)]
    pending = [a for a in asked if a.status == "PENDING"]
    assert not pending, f"a finished instance has a pending awakeable: {row} {pending}"


def _audit_parked(row: Row, waits: list[Any], unseen: list[Any]) -> None:
    """Invariants 4 and 10: no instance stays parked on an answer, and no deadline is forgotten."""
    assert waits, f"parked on nothing: {row}"
    for signal in unseen:
        for wait in waits:
            by_name = (wait.kind, wait.name, wait.key) == (signal.kind, signal.name, None)
            fits = wait.id == signal.wait_id if signal.wait_id else by_name
            assert not fits, f"a lost wake-up: {row} {wait} {signal}"
    _audit_due(row, waits)
    wanted = "awaiting_children" if any(w.kind == "children" for w in waits) else "awaiting_signal"
    # A process keeps one wait for all its children, also while it has none (`Park.has_children`).
    has_none = row.status == "awaiting_signal" and all(w.answers_each for w in waits if w.kind == "children")
    assert row.status == wanted or has_none, f"status: {row} {waits}"
    for wait in waits:
        assert wait.remaining is None or wait.remaining > 0 or wait.answers_each, (
            f"all children ended and the parent is still parked: {row} {wait}"
        )


def _audit_due(row: Row, waits: list[Any]) -> None:
    """Invariant 10: no deadline is forgotten."""
    deadlines = [w.deadline for w in waits if w.deadline is not None and w.fired_at is None]
    assert row.due_at == min(deadlines, default=None), f"due: {row} {waits}"


def _audit_runs(content: Content) -> None:
    """J6: a signal of a run and an open wait for it have met."""
    for wait in content.waits:
        if wait.kind == "signal" and wait.key is not None and wait.fired_at is None and wait.closed_at is None:
            unused = [s for s in content.inbox(wait.key) if s.kind == "signal" and s.name == wait.name]
            assert not unused, f"a signal that its run does not receive: {wait} {unused}"


def _audit_keys(content: Content) -> None:
    """M11: a key has one live holder, and finished instances hold only `forever` keys."""
    held = Counter(row.correlation_key for row in content.instances.values() if row.holds_key)
    assert all(n == 1 for n in held.values()), f"held twice: {held}"
    for row in content.instances.values():
        if row.correlation_key is not None and row.scope == "live":
            assert bool(row.holds_key) == (row.status not in TERMINAL), f"key: {row}"


def _audit_limits(content: Content, given: Rules) -> None:
    """M9: never above K, and no blocked instance is left behind in a bucket that is not due."""
    rows = content.instances.values()
    used = Counter(row.concurrency_key for row in rows if row.status == "executing" and row.concurrency_key is not None)
    kept = {f"{bucket.kind}:{bucket.key}" for bucket in content.buckets}
    for key, n in used.items():
        assert n <= given.limits.size(key), f"{n} at once under {key}"
        assert f"slot:{key}" in kept, (
            f"the bucket of {key} is gone: an instance that ends under this key would promote no blocked row"
        )
    due = {f"{bucket.kind}:{bucket.key}" for bucket in content.buckets if bucket.due_at is not None}
    for line in {row.blocked_on for row in rows if row.blocked_on is not None} - due:
        kind, key = line.split(":", 1)
        assert kind == "slot", f"no sweep will promote the rows blocked on {line}"
        next_up = [r for r in rows if r.concurrency_key == key and r.status == "runnable" and r.blocked_on != line]
        assert next_up or used[key] >= given.limits.size(key), f"stranded: {line}"
