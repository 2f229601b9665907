"""Read the facts that explain why an instance waits, and which signals it missed (D7)."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class WhyInstance(Row, frozen=True):
    """The instance to explain. Times in µs; `holds_key` is 0 or 1 from SQLite."""

    id: str
    definition: str
    version: int
    status: str
    step: str
    key: str | None
    holds_key: bool
    queue: str
    since: int
    due_at: int | None
    blocked_on: str | None
    lease_owner: str | None
    created_at: int
    updated_at: int
    finished_at: int | None
    error: str | None
    traceback: str | None
    attempt: int
    cancel_reason: str | None
    lane: str
    progress: str | None
    task_state: str | None  # of a task
    parent_id: str | None


class Miss(Row, frozen=True):
    """A signal that was not stored: its name, its target, and the reason."""

    seq: int
    at: int
    kind: str
    target: str
    name: str
    reason: str
    instance_id: str | None
    detail: str | None


# D7: the instance to explain.
why_instance = Sql(
    """
    SELECT id, definition, version, status, step, correlation_key, holds_key, queue, since, due_at, blocked_on,
           lease_owner, created_at, updated_at, finished_at, error, traceback, attempt, cancel_reason,
           lane, progress, CASE WHEN kind = 'task' THEN state END, parent_id
    FROM instances WHERE id = :id::text
    """,
    row=WhyInstance,
)

# X9: the reasons of its retries, newest first, among its latest events only: the event of a backoff is one of the last,
# unless very much happened to the instance since.
latest_retries = Sql(
    """
    SELECT e.step, e.data FROM (
        SELECT seq, type, step, data FROM events WHERE instance_id = :id::text ORDER BY seq DESC LIMIT 1000) e
    WHERE e.type = 'retry' ORDER BY e.seq DESC LIMIT 100
    """
)

# The instances that have the slots of the concurrency key it waits for.
slot_holders = Sql(
    """
    SELECT id, step, lease_owner FROM instances WHERE concurrency_key = :key::text AND status = 'executing'
    ORDER BY id LIMIT 5
    """
)

# The time at which the sweep will check the bucket it waits for.
bucket_due = Sql("SELECT min(due_at) FROM buckets WHERE kind = :kind::text AND key = :key::text")

# The children it still waits for.
unfinished_children = Sql(
    """
    SELECT parent_wait, id, status, step, lane, queue FROM instances
    WHERE parent_wait IN :waits[text] AND finished_at IS NULL ORDER BY created_at, id LIMIT 20
    """
)

# The inbox rows that did not wake it.
unconsumed_signals = Sql(
    """
    SELECT kind, name, at FROM inbox WHERE instance_id = :id::text AND consumed_at IS NULL
    ORDER BY seq DESC LIMIT 200
    """
)

# Among the latest signals of all instances, those with such a name that went to another instance. Only a window is
# read: an index over names would cost every signal.
signals_to_others = Sql(
    """
    SELECT s.name, s.at, i.id, i.correlation_key, coalesce(s.consumed_at, i.finished_at) FROM (
        SELECT seq, instance_id, kind, name, at, consumed_at FROM inbox ORDER BY seq DESC LIMIT 2000) s
    JOIN instances i ON i.id = s.instance_id
    WHERE s.kind = 'signal' AND s.name IN :names[text] AND s.instance_id <> :id::text AND s.at >= :since::bigint
    ORDER BY s.seq DESC LIMIT 5
    """
)

# Broadcasts of such a name that were sent since it was started.
broadcasts_named = Sql(
    """
    SELECT name, at, count FROM broadcasts WHERE at >= :since::bigint AND name IN :names[text]
    ORDER BY at DESC LIMIT 20
    """
)
_MISS = "seq, at, kind, target, name, reason, instance_id, detail"

# Signals that were addressed to it and not stored.
misses_of = Sql(
    f"""
    SELECT {_MISS} FROM misses WHERE target IN :targets[text]
    UNION SELECT {_MISS} FROM misses WHERE instance_id = :id::text
    ORDER BY seq DESC LIMIT 200
    """,
    row=Miss,
)

# Signals of such a name that reached no instance.
misses_named = Sql(
    f"""
    SELECT {_MISS} FROM misses WHERE name IN :names[text] AND at >= :since::bigint ORDER BY seq DESC LIMIT 200
    """,
    row=Miss,
)
