"""Read and write buckets: concurrency keys and rate limits."""

from __future__ import annotations

from hark.store.sql import Sql

# M7, M9: a bucket gets its row at its first use. In key order: two turns that create the same buckets do not
# deadlock.
insert_buckets = Sql(
    """
    INSERT INTO buckets (kind, key, shard, capacity, available, refilled_at)
    SELECT r.kind, r.key, r.shard, r.capacity, r.capacity, :now::bigint
    FROM {rows: kind text, key text, shard integer, capacity double precision}
    WHERE true ORDER BY r.kind, r.key, r.shard
    ON CONFLICT DO NOTHING
    """
)

# M7, M9: lock buckets in key order. A bucket that another worker holds is left out; its candidates are decided in a
# later turn.
try_buckets = Sql(
    """
    SELECT b.kind, b.key, b.shard, b.capacity, b.available, b.refilled_at, b.due_at
    FROM {rows: kind text, key text} JOIN buckets b ON b.kind = r.kind AND b.key = r.key
    ORDER BY b.kind, b.key, b.shard FOR NO KEY UPDATE OF b SKIP LOCKED
    """
)

# M7, M9: a turn that frees a slot, or ends a row that was blocked on a rate limit, waits for the lock of the bucket, so
# that it sees a row that was blocked meanwhile. In key order.
hold_buckets = Sql(
    """
    SELECT b.kind, b.key, b.shard, b.capacity, b.available, b.refilled_at, b.due_at
    FROM {rows: kind text, key text} JOIN buckets b ON b.kind = r.kind AND b.key = r.key
    ORDER BY b.kind, b.key, b.shard FOR NO KEY UPDATE OF b
    """
)

# M7: the time of the last refill never moves back: after a clock jump an hour would be refilled twice.
save_buckets = Sql(
    """
    UPDATE buckets AS b SET available = r.available, due_at = r.due_at, capacity = r.capacity,
        refilled_at = CASE WHEN b.refilled_at > :now::bigint THEN b.refilled_at ELSE :now::bigint END
    FROM {rows: kind text, key text, shard integer, capacity double precision, available double precision,
        due_at bigint}
    WHERE b.kind = r.kind AND b.key = r.key AND b.shard = r.shard
    """
)

# M9: slots are counted, not stored, so a crash cannot leak one. One search per key and not `IN`, for which
# PostgreSQL before 17 reads another index from end to end while the table has no statistics (FINDINGS 45).
slots_used = Sql(
    """
    SELECT r.key, (SELECT count(*) FROM instances i WHERE i.concurrency_key = r.key AND i.status = 'executing')
    FROM {rows: key text}
    """
)

# M9: the buckets among these that still have blocked rows.
blocked_keys = Sql(
    """
    SELECT r.bucket FROM {rows: bucket text}
    WHERE EXISTS (SELECT 1 FROM instances i WHERE i.blocked_on = r.bucket)
    """
)

# M7: the first blocked row of each bucket: no later row may overtake it.
blocked_heads = Sql(
    """
    SELECT r.bucket, h.priority, h.since, h.weight FROM {rows: bucket text}
    CROSS JOIN LATERAL (
        SELECT i.priority, i.since, i.weight FROM instances i WHERE i.blocked_on = r.bucket
        ORDER BY i.priority, i.since LIMIT 1) h
    """,
    sqlite="""
    SELECT r.bucket, i.priority, i.since, i.weight FROM {rows: bucket text}
    JOIN instances i ON i.rowid = (
        SELECT h.rowid FROM instances h WHERE h.blocked_on = r.bucket ORDER BY h.priority, h.since LIMIT 1)
    """,
)

# M9: a slot became free: the bucket is due, and the sweep promotes the next blocked row. M7: so is the bucket of a rate
# limit that this process does not configure, when a blocked row has ended.
open_buckets = Sql(
    """
    UPDATE buckets AS b SET due_at = :now::bigint FROM {rows: kind text, key text}
    WHERE b.kind = r.kind AND b.key = r.key
    """
)

# M7, M9: buckets that may have room again. A bucket that another worker holds is left for the next sweep.
due_buckets = Sql(
    """
    SELECT kind, key, shard, capacity, available, refilled_at, due_at FROM buckets
    WHERE due_at <= :now::bigint ORDER BY due_at, kind, key, shard LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED
    """
)

# M7, M9: the first blocked rows of each bucket return to the claim index. A locked row is skipped.
promote = Sql(
    """
    UPDATE instances SET blocked_on = NULL WHERE id IN (
        SELECT c.id FROM {rows: bucket text, room integer}
        CROSS JOIN LATERAL (
            SELECT i.id FROM instances i WHERE i.blocked_on = r.bucket
            ORDER BY i.priority, i.since LIMIT r.room FOR NO KEY UPDATE SKIP LOCKED) c)
    RETURNING concurrency_key, queue, lane
    """,
    sqlite="""
    UPDATE instances SET blocked_on = NULL WHERE rowid IN (
        SELECT c.rowid FROM {rows: bucket text, room integer}
        CROSS JOIN instances c ON c.rowid IN (
            SELECT b.id FROM (
                SELECT i.rowid AS id, row_number() OVER (ORDER BY i.priority, i.since) AS place FROM instances i
                WHERE i.blocked_on = r.bucket LIMIT 500) b
            WHERE b.place <= r.room))
    RETURNING concurrency_key, queue, lane
    """,
)
