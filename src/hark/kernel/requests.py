"""What can be asked of a turn.

A request carries its own answer: the clerk gives it back after the COMMIT, never before. An answer
that is an exception is raised where the request was made. `sender` is the commit an effect rode on;
what such an effect cannot do becomes an event on its sender.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from hark.model.activation import Claim
from hark.model.decisions import Decision, NewInstance, Settle


class Request(Struct, eq=False):
    answer: Any = None


class Commit(Request, eq=False):
    """An outcome. Answered with True when it runs straight on, else None; `fenced` says that it did not count."""

    claim: Claim = None  # type: ignore[assignment]
    decision: Decision = None  # type: ignore[assignment]
    fenced: bool = False


class Deliver(Request, eq=False):
    target: str = ""
    by_key: bool = False  # it was tried as an id, and is none
    name: str = ""
    payload: str = "null"
    dedup_key: str | None = None
    sender: Commit | None = None


class StartInstances(Request, eq=False):
    """Answered with a list: an id, or why not, per item."""

    items: list[NewInstance] = field(default_factory=list)
    parent_wait: str | None = None
    sender: Commit | None = None


class SignalWithStart(Request, eq=False):
    item: NewInstance = None  # type: ignore[assignment]
    name: str = ""
    payload: str = "null"
    dedup_key: str | None = None


class Publish(Request, eq=False):
    name: str = ""
    payload: str = "null"
    dedup_key: str | None = None
    sender: Commit | None = None


class Message(Request, eq=False):
    name: str = ""
    key: str = ""
    payload: str = "null"


class SettleAwakeable(Request, eq=False):
    settle: Settle = None  # type: ignore[assignment]
    sender: Commit | None = None
    by_look: bool = False  # do not trust its id to say whose it is


class Cancel(Request, eq=False):
    target: str = ""
    reason: str | None = None
    sender: Commit | None = None


class RetryInstance(Request, eq=False):
    target: str = ""


class HandBack(Request, eq=False):
    """Claims a stopping worker will not finish."""

    claims: list[Claim] = field(default_factory=list)
    retire: str | None = None


class Reclaim(Request, eq=False):
    """Take back what dead workers hold."""

    owners: list[str] = field(default_factory=list)


class Sweep(Request, eq=False):
    """Fire what is due now, with or without a worker. Answered with True when there is more."""


class Register(Request, eq=False):
    """Record definitions: (name, version, kind, queue, initial, source, digest)."""

    rows: list[tuple[str, int, str, str, str, str | None, str | None]] = field(default_factory=list)


class Grant(Request, eq=False):
    """Keep a token, of which only the hash comes here. Answered with its row."""

    id: str = ""
    hash: str = ""
    name: str | None = None
    scopes: str = "[]"
    expires_at: int | None = None
    lasts: int | None = None


class Revoke(Request, eq=False):
    """Take a token out of use. Answered with its row; again is as good as once."""

    id: str = ""


class Retain(Request, eq=False):
    """Forget these, if they finished before this time. Answered with the ids that went.

    Old signals and idle buckets go along, so many at most; `more` says that there were as many."""

    before: int = 0
    ids: list[str] = field(default_factory=list)
    size: int = 1000
    more: bool = False


class Capacity(Struct):
    """What a worker can run: its lanes, and how many more of each queue."""

    owner: str
    free: dict[str, int]
    definitions: list[tuple[str, int]]
    backlog: bool = True  # somebody may be in line already; if not, only this turn's own work has to be looked at
