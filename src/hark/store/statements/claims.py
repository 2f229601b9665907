"""Claim instances for a worker, and find those whose delay or deadline is over."""

from __future__ import annotations

from hark.store.sql import Sql

# One index scan per lane (queue, definition, version); SKIP LOCKED so that workers do not meet.
claimable = Sql(
    """
    SELECT c.id, c.queue, c.priority, c.since, c.concurrency_key, c.rate_limit, c.weight
    FROM {rows: queue text, definition text, version integer, size integer}
    CROSS JOIN LATERAL (
        SELECT i.id, i.queue, i.priority, i.since, i.concurrency_key, i.rate_limit, i.weight FROM instances i
        WHERE i.queue = r.queue AND i.definition = r.definition AND i.version = r.version
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT r.size FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.priority, c.since
    """,
    # SQLite has no LATERAL, and a LIMIT there takes no column; a correlated IN does the same index scan,
    # and the few rows too many are left by the caller.
    sqlite="""
    SELECT c.id, c.queue, c.priority, c.since, c.concurrency_key, c.rate_limit, c.weight
    FROM {rows: queue text, definition text, version integer, size integer}
    CROSS JOIN instances c ON c.rowid IN (
        SELECT i.rowid FROM instances i INDEXED BY instances_claim
        WHERE i.queue = r.queue AND i.definition = r.definition AND i.version = r.version
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT :most)
    ORDER BY c.priority, c.since
    """,
)
# Also straight from a park that this turn has woken.
claim = Sql(
    """
    UPDATE instances SET status = 'executing', lease_owner = :owner::text, epoch = epoch + 1, due_at = NULL,
        has_signals = (has_signals OR status <> 'runnable'), updated_at = :now::bigint
    WHERE id IN :ids[text]
    RETURNING id, definition, version, kind, queue, priority, step, state, attempt, epoch, correlation_key,
        concurrency_key, parent_id, parent_wait, counted, has_signals, visit, crashes, rate_limit, weight
    """
)
# Refused by a bucket: out of the claim index, promoted when there is room. The bucket is locked.
block = Sql(
    """
    UPDATE instances AS i SET blocked_on = r.bucket FROM {rows: id text, bucket text} WHERE i.id = r.id
    """
)
# Delays that are over and deadlines that have come; a row somebody holds is left for the next sweep.
due = Sql(
    """
    SELECT id, status, epoch, has_signals, queue, definition, version FROM instances WHERE due_at <= :now::bigint
    ORDER BY due_at LIMIT :size::bigint FOR NO KEY UPDATE SKIP LOCKED
    """
)
make_ready = Sql("UPDATE instances SET since = due_at, due_at = NULL WHERE id IN :ids[text]")
next_due = Sql(
    """
    SELECT min(t.due_at) FROM (
        SELECT (SELECT min(due_at) FROM instances WHERE due_at IS NOT NULL) AS due_at
        UNION ALL SELECT min(due_at) FROM buckets WHERE due_at IS NOT NULL) t
    """
)
