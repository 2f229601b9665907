"""A store with a crowd in it, made by the database itself, and the statements of a turn to send into it.

Five kinds of bystander, each as many as asked for: parked, finished, runnable without code here, blocked on one
key, limited by one bucket. Among them always the same few hundred rows that a turn is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

from hark.model.values import Status
from hark.store import reads
from hark.store import statements as sql
from hark.store.sql import Sql

NOW = 1_800_000_000_000_000
FEW = 200  # rows a turn is about
HERE, ELSEWHERE = "Here", "Elsewhere"
_ID = "{label}-' || (1000000 + ({n} * 7919) % {size})"  # 7919 is prime: every number once, in no order
_INSTANCES = """
    INSERT INTO instances (id, definition, version, kind, queue, priority, status, step, state, since, created_at,
        updated_at, correlation_key, holds_key, finished_at, due_at, blocked_on, lease_owner, concurrency_key,
        rate_limit, parent_id, parent_wait, has_signals, epoch)
    SELECT '{id}, '{definition}', 1, 'machine', 'default', {n} % 7, '{status}', 'start', '{{}}', {now} - {n},
        {now} - {n}, {now}, {key}, {holds}, {finished_at}, {due_at}, {blocked_on}, {lease_owner}, {concurrency_key},
        {rate_limit}, {parent_id}, {parent_wait}, {has_signals}, 3
    FROM {numbers}
"""


def statements(size: int, dialect: str) -> list[str]:
    """All that makes the crowd, ready to be executed."""

    def rows(label: str, status: str, count: int = size, **values: Any) -> str:
        words = _words(dialect, count)
        id = _ID.format(label=label, **words)
        named = values.pop("named", False)
        nothing = (
            "finished_at",
            "due_at",
            "blocked_on",
            "lease_owner",
            "concurrency_key",
            "rate_limit",
            "parent_id",
            "parent_wait",
        )
        given = {
            "definition": HERE,
            "has_signals": words["false"],
            **dict.fromkeys(nothing, "NULL"),
            **{name: str(value).format(**words) for name, value in values.items()},
        }
        key, holds = (f"'key-of-{id}", words["true"]) if named else ("NULL", words["false"])
        return _INSTANCES.format(id=id, status=status, key=key, holds=holds, **given, **words)

    def other(text: str, label: str, count: int = size) -> str:
        words = _words(dialect, count)
        return text.format(id=_ID.format(label=label, **words), **words)

    wait = (
        "INSERT INTO waits (id, instance_id, place, kind, name, since) "
        "SELECT 'wait-' || '{id}, '{id}, '', 'signal', 'go', {now} FROM {numbers}"
    )
    signal = (
        "INSERT INTO signals (instance_id, kind, name, payload, dedup_key, at, consumed_at) "
        "SELECT '{id}, 'signal', 'go', '1', 'k', {now}, %s FROM {numbers}"
    )
    event = "INSERT INTO events (tx, instance_id, type, at) SELECT 1, '{id}, 'await', {now} FROM {numbers}"
    bucket = (
        "INSERT INTO buckets (kind, key, shard, capacity, available, refilled_at, due_at) "
        f"VALUES ('slot', 'one-key', 0, 1, 1, {NOW}, {NOW}), ('rate', 'api', 0, 10, 10, {NOW}, {NOW})"
    )
    family = {"parent_id": "'somebody'", "parent_wait": "'somebodys-join'"}
    return [
        rows("parked", "awaiting_signal", due_at="{now} + 3600000000 + {n}", named=True, **family),
        rows("finished", "done", finished_at="{now}", **family),
        rows("codeless", "runnable", definition=ELSEWHERE),
        rows("blocked", "runnable", blocked_on="'slot:one-key'", concurrency_key="'one-key'"),
        rows("limited", "runnable", blocked_on="'rate:api'", rate_limit="'api'"),
        other(wait, "parked"),
        other(signal % "{now}", "parked"),
        other(event, "parked"),
        rows("ready", "runnable", FEW),
        rows("running", "executing", FEW, lease_owner="'me'"),
        rows("due", "awaiting_signal", FEW, due_at="{now} - {n}"),
        rows("mailed", "awaiting_signal", FEW, has_signals=_words(dialect, 1)["true"], named=True),
        other(wait, "mailed", FEW),
        other(signal % "NULL", "mailed", FEW),
        bucket,
    ]


def _words(dialect: str, count: int) -> dict[str, str]:
    counting = f"WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) SELECT n FROM c"
    own = {
        "sqlite": {"numbers": f"({counting}) AS s", "true": "1", "false": "0"},
        "postgres": {"numbers": f"generate_series(1::bigint, {count}) AS s(n)", "true": "true", "false": "false"},
    }[dialect]
    return {"n": "s.n", "size": str(count), "now": str(NOW), **own}


def ids(label: str, size: int = FEW) -> list[str]:
    """A few of them, from all over the crowd."""
    return sorted(f"{label}-{1_000_000 + n * size // FEW}" for n in range(FEW))


def rows_of(statement: Sql, wanted: list[str], **values: Any) -> list[tuple[Any, ...]]:
    """Rows for a statement by the names of its columns; what is not named here is NULL."""
    common: dict[str, Any] = {
        "epoch": 3, "step": "next", "state": "{}", "attempt": 0, "weight": 1.0, "finished": False, "since": NOW,
        "anew": 0, "visit": 0, "seq": 0,
        "dedup_key": "k", **values,
    }  # fmt: skip
    return [tuple(id if name in ("id", "target") else common.get(name) for name in statement.columns) for id in wanted]


@dataclass
class Question:
    """A statement, its arguments in a crowd of some size, and the indexes it may use."""

    statement: Sql
    indexes: set[str]
    rows: Callable[[int], list[tuple[Any, ...]]] | None = None
    values: Callable[[int], dict[str, Any]] = field(default=lambda size: {})

    def asked(self, size: int) -> tuple[list[tuple[Any, ...]] | None, dict[str, Any]]:
        """Its rows and its values; a turn's own are always there."""
        rows = self.rows(size) if self.rows else None
        return rows, {"now": NOW, "position": NOW, "tx": 1, **self.values(size)}


def _lanes(size: int) -> list[tuple[Any, ...]]:
    return [("default", HERE, 1, 50), ("default", "Nobody", 1, 50), ("idle", HERE, 1, 50)]


def _targets(size: int) -> list[tuple[Any, ...]]:
    parked = ids("parked", size)
    return [(target,) for id in parked[::4] for target in (id, f"key-of-{id}", f"nobody-{id}", f"no-key-of-{id}")]


_OLD = {"before": NOW - 10**9, "size": 1000}  # nobody is that old: looking must not cost more for that

# What a turn sends while others wait for it.
TURN: dict[str, Question] = {
    "claimable": Question(sql.claimable, {"instances_claim"}, _lanes, lambda size: {"most": 50}),
    "claim": Question(sql.claim, {"instances_pkey"}, None, lambda size: {"owner": "me", "ids": ids("ready")}),
    "lock": Question(sql.lock, {"instances_pkey"}, None, lambda size: {"ids": ids("parked", size)}),
    "advance": Question(sql.advance, {"instances_pkey"}, lambda size: rows_of(sql.advance, ids("running"))),
    "advance_all": Question(sql.advance_all, {"instances_pkey"}, lambda size: rows_of(sql.advance_all, ids("running"))),
    "requeue": Question(sql.requeue, {"instances_pkey"}, lambda size: rows_of(sql.requeue, ids("running"))),
    "finish": Question(
        sql.finish, {"instances_pkey"}, lambda size: rows_of(sql.finish, ids("running"), status="done", result="1")
    ),
    "park": Question(
        sql.park, {"instances_pkey"}, lambda size: rows_of(sql.park, ids("running"), status="awaiting_signal")
    ),
    "journal_of": Question(
        sql.journal_of, {"journal_pkey"}, lambda size: rows_of(sql.journal_of, ids("finished", size))
    ),
    "cut_journal": Question(
        sql.cut_journal, {"journal_pkey"}, lambda size: rows_of(sql.cut_journal, ids("finished", size))
    ),
    "due": Question(sql.due, {"instances_due"}, None, lambda size: {"size": 2000}),
    "promote": Question(
        sql.promote, {"instances_blocked", "instances_pkey"}, lambda size: [("slot:one-key", 1), ("rate:api", 50)]
    ),
    "blocked_keys": Question(
        sql.blocked_keys, {"instances_blocked"}, lambda size: [("slot:one-key",), ("rate:api",), ("slot:other",)]
    ),
    "slots_used": Question(sql.slots_used, {"instances_slots"}, None, lambda size: {"keys": ["one-key", "other"]}),
    "addresses": Question(
        sql.addresses, {"instances_pkey", "instances_key", "instances_kept_key"}, _targets
    ),
    "taken": Question(
        sql.taken, {"instances_pkey", "instances_key", "instances_kept_key", "tombstones_pkey"}, None,
        lambda size: {"names": [row[0] for row in _targets(size)]},
    ),
    "inbox": Question(sql.inbox, {"signals_inbox"}, None, lambda size: {"ids": ids("mailed")}),
    "inbox_heads": Question(sql.inbox_heads, {"signals_inbox"}, None, lambda size: {"ids": ids("mailed")}),
    "seen": Question(sql.seen, {"signals_dedup"}, lambda size: rows_of(sql.seen, ids("parked", size))),
    "wake": Question(sql.wake, {"instances_pkey"}, None, lambda size: {"ids": ids("mailed")}),
    "waits_of": Question(
        sql.waits_of, {"waits_instance"}, None, lambda size: {"ids": ids("parked", size) + ids("mailed")}
    ),
    "drop_waits": Question(sql.drop_waits, {"waits_instance"}, None, lambda size: {"ids": ids("mailed")}),
    "subscribers": Question(
        sql.subscribers, {"waits_broadcast"}, None, lambda size: {"names": ["open"], "size": 50_001}
    ),
    "descendants": Question(sql.descendants, {"instances_parent"}, None, lambda size: {"ids": ids("parked", size)}),
    "abandoned": Question(
        sql.abandoned, {"instances_leased", "workers_pkey"}, None, lambda size: {"owners": ["me", "somebody"]},
    ),
    # Retention comes by in turns too.
    "expired": Question(
        sql.expired, {"instances_pkey"}, None, lambda size: {"before": NOW + 1, "ids": ids("finished", size)}
    ),
    "forget_signals": Question(
        sql.forget_signals, {"signals_inbox", "signals_dedup", "signals_pkey"}, None,
        lambda size: {"ids": ids("finished", size)},
    ),
    "forget_waits": Question(sql.forget_waits, {"waits_instance"}, None, lambda size: {"ids": ids("finished", size)}),
    "forget_events": Question(
        sql.forget_events, {"events_instance"}, None, lambda size: {"ids": ids("finished", size)}
    ),
    "forget_awakeables": Question(
        sql.forget_awakeables, {"awakeables_instance_id_entry_index_key"}, None,
        lambda size: {"ids": ids("finished", size)},
    ),
    "forget_journal": Question(sql.forget_journal, {"journal_pkey"}, None, lambda size: {"ids": ids("finished", size)}),
    "forget_consumed": Question(sql.forget_consumed, {"signals_consumed", "signals_pkey"}, None, lambda size: _OLD),
    "empty_consumed": Question(sql.empty_consumed, {"signals_consumed", "signals_pkey"}, None, lambda size: _OLD),
}  # fmt: skip

# What is read beside the turns, again and again.
READS: dict[str, Question] = {
    "old": Question(
        sql.old, {"instances_finished", "instances_pkey"}, None,
        lambda size: {"before": NOW + 1, "at": NOW, "after": f"finished-{1_000_000 + size // 2}", "size": 100},
    ),
    "definitions_in_use": Question(reads.definitions_in_use, {"instances_listed"}),
    "list_instances": Question(
        reads.list_instances, {"instances_listed", "instances_pkey"},
        lambda size: [(name, status) for name in (HERE, ELSEWHERE) for status in get_args(Status)],
        lambda size: {"kind": None, "at": NOW - size // 2, "after": "parked-1000000", "size": 100},  # in the middle
    ),
    "list_instances that are not there": Question(
        reads.list_instances, {"instances_listed", "instances_pkey"},
        lambda size: [(ELSEWHERE, "failed"), (HERE, "failed"), ("Nobody", "done")],
        lambda size: {"kind": None, "at": NOW, "after": "", "size": 100},
    ),
    "signals_of_all": Question(
        reads.signals_of_all, {"signals_inbox", "signals_dedup", "signals_consumed", "signals_pkey"}, None,
        lambda size: {"ids": ids("mailed"), "since": NOW - 10**9, "before": NOW - 1},
    ),
    "read_instances": Question(
        reads.read_instances, {"instances_pkey"}, None, lambda size: {"ids": ids("parked", size)}
    ),
    "outcomes": Question(reads.outcomes, {"instances_pkey"}, None, lambda size: {"ids": ids("parked", size)}),
    "epochs": Question(sql.epochs, {"instances_pkey"}, None, lambda size: {"ids": ids("running")}),
    "events_of": Question(
        reads.events_of, {"events_instance"}, None, lambda size: {"id": "parked-1000007", "size": 50, "seq": 2**63 - 1}
    ),
    "latest_events": Question(
        reads.latest_events, {"events_pkey"}, None, lambda size: {"size": 50, "tx": 2**63 - 1, "seq": 2**63 - 1}
    ),
    "events_after": Question(
        reads.events_after, {"events_pkey"}, None, lambda size: {"tx": 1, "seq": size // 2, "size": 100, "horizon": 2}
    ),
    "follow": Question(
        reads.follow, {"events_instance"}, lambda size: [("parked-1000007", 0), ("parked-1000008", 5)],
        lambda size: {"size": 100},
    ),
    "alive": Question(reads.alive, {"instances_pkey"}, None, lambda size: {"ids": ids("parked", size)}),
    "read_waits": Question(
        reads.read_waits, {"waits_open"}, lambda size: [("signal",), ("timer",), ("broadcast",)],
        lambda size: {"name": None, "since": -1, "after": "", "size": 100},
    ),
    # What a scrape asks: as much as it may count, in a small crowd as in a large one.
    "count_waits": Question(
        reads.count_waits, {"waits_open"}, lambda size: [("signal",), ("timer",), ("awakeable",)],
        lambda size: {"most": 100},
    ),
    "count_ready": Question(reads.count_ready, {"instances_claim"}, None, lambda size: {"most": 100}),
    "count_busy": Question(
        reads.count_busy, {"instances_leased", "instances_blocked"}, None, lambda size: {"most": 100}
    ),
    "live_tokens": Question(
        sql.live_tokens, {"tokens_hash"}, None, lambda size: {"hashes": ["a", "b"], "now": NOW}
    ),
    "next_due": Question(sql.next_due, {"instances_due", "buckets_due"}),
    "owners": Question(sql.owners, {"instances_leased", "workers_pkey"}),
    "list_awakeables": Question(
        reads.list_awakeables, {"awakeables_newest"}, None,
        lambda size: {"job": None, "status": None, "at": NOW, "after": "prom", "size": 100},
    ),
}  # fmt: skip
