"""Claim instances for a worker, and find those whose delay or deadline is over."""

from __future__ import annotations

from hark.store.sql import Sql

# M10: one index scan per lane of a queue; SKIP LOCKED, so that workers do not wait for each other.
claimable = Sql(
    """
    SELECT c.id, c.queue, c.priority, c.since, c.concurrency_key, c.rate_limit, c.weight
    FROM {rows: queue text, lane text, size integer}
    CROSS JOIN LATERAL (
        SELECT i.id, i.queue, i.priority, i.since, i.concurrency_key, i.rate_limit, i.weight FROM instances i
        WHERE i.queue = r.queue AND i.lane = r.lane
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT r.size FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.priority, c.since
    """,
    # SQLite has no LATERAL, and its LIMIT cannot be a column. A correlated IN does the same index scan; the caller
    # ignores the few rows too many.
    sqlite="""
    SELECT c.id, c.queue, c.priority, c.since, c.concurrency_key, c.rate_limit, c.weight
    FROM {rows: queue text, lane text, size integer}
    CROSS JOIN instances c ON c.rowid IN (
        SELECT i.rowid FROM instances i INDEXED BY instances_claim
        WHERE i.queue = r.queue AND i.lane = r.lane
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT :most)
    ORDER BY c.priority, c.since
    """,
)

# X2, invariant 2: claim rows for this worker: a new epoch fences off every earlier claim. Also takes rows that are
# still parked and that this turn has woken.
claim = Sql(
    """
    UPDATE instances SET status = 'executing', lease_owner = :owner::text, epoch = epoch + 1, due_at = NULL,
        has_signals = (has_signals OR status <> 'runnable'), updated_at = :now::bigint
    WHERE id IN :ids[text]
    RETURNING id, definition, version, kind, queue, priority, step, state, attempt, epoch, correlation_key,
        concurrency_key, parent_id, parent_wait, counted, has_signals, visit, crashes, rate_limit, weight, on_cancel,
        cancel_reason, trace, lane, scheduled_at
    """
)

# M7, M9: a row that a bucket refused leaves the claim index until the bucket promotes it. The bucket is locked.
block = Sql(
    """
    UPDATE instances AS i SET blocked_on = r.bucket FROM {rows: id text, bucket text} WHERE i.id = r.id
    """
)

# S6, M2: delays that are over and deadlines that have come. A locked row is left for the next sweep.
due = Sql(
    """
    SELECT id, status, epoch, has_signals, queue, lane FROM instances WHERE due_at <= :now::bigint
    ORDER BY due_at LIMIT :size::bigint FOR NO KEY UPDATE SKIP LOCKED
    """
)

# M2: a delay is over: the row is claimable, and its queue position is the time it was due.
make_ready = Sql("UPDATE instances SET since = due_at, due_at = NULL WHERE id IN :ids[text]")

# When the next sweep has something to do.
next_due = Sql(
    """
    SELECT min(t.due_at) FROM (
        SELECT (SELECT min(due_at) FROM instances WHERE due_at IS NOT NULL) AS due_at
        UNION ALL SELECT min(due_at) FROM buckets WHERE due_at IS NOT NULL
        UNION ALL SELECT min(due_at) FROM starts WHERE due_at IS NOT NULL) t
    """
)
