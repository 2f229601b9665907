"""Read events: histories, cursors, exports."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class EventRow(Row, frozen=True):
    """An event; (tx, seq) is its cursor."""

    seq: int
    instance_id: str
    type: str
    step: str | None
    data: str | None
    at: int
    tx: int


_EVENT = "e.seq, e.instance_id, e.type, e.step, e.data, e.at, e.tx"
# A page ends with the event that reaches `bytes` of data, so it has at least one. Sizes are known without reading the
# data: they are added up first.
_SIZE = "coalesce(octet_length(o.data), 0) AS size"
_SUM = "SELECT o.tx, o.seq, sum(o.size) OVER"
_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM"
_FITTING = """CROSS JOIN events e
    WHERE e.tx = n.tx AND e.seq = n.seq AND coalesce(n.before, 0) < :bytes::bigint"""

# The history of one instance, newest first.
events_of = Sql(
    f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.seq DESC {_BEFORE} (
        SELECT o.tx, o.seq, {_SIZE} FROM events o WHERE o.instance_id = :id::text AND o.seq < :seq::bigint
        ORDER BY o.seq DESC LIMIT :size::bigint) o) n {_FITTING}
    ORDER BY e.seq DESC
    """,
    row=EventRow,
)

# The newest events of all instances.
latest_events = Sql(
    f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.tx DESC, o.seq DESC {_BEFORE} (
        SELECT o.tx, o.seq, {_SIZE} FROM events o WHERE (o.tx, o.seq) < (:tx::bigint, :seq::bigint)
        ORDER BY o.tx DESC, o.seq DESC LIMIT :size::bigint) o) n {_FITTING}
    ORDER BY e.tx DESC, e.seq DESC
    """,
    # The primary key is seq alone, because there is one writer.
    sqlite=f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.seq DESC {_BEFORE} (
        SELECT o.tx, o.seq, {_SIZE} FROM events o WHERE o.seq < :seq AND :tx = :tx
        ORDER BY o.seq DESC LIMIT :size) o) n {_FITTING}
    ORDER BY e.seq DESC
    """,
    row=EventRow,
)

HORIZON = """
    WITH held AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted AND locktype IN ('advisory', 'transactionid')),
    latest AS (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS tx),
    writers AS (
        SELECT t.transactionid IS NULL AS unborn,
            (latest.tx - t.transactionid::text::bigint + 4294967296) % 4294967296 AS age
        FROM latest CROSS JOIN held w LEFT JOIN held t
            ON t.pid = w.pid AND t.locktype = 'transactionid' AND t.mode = 'ExclusiveLock'
        WHERE w.locktype = 'advisory' AND w.objsubid = 2 AND w.objid::bigint = 4294967295
            AND w.classid::bigint = (hashtext('hark:' || current_schema())::bigint + 4294967296) % 4294967296
            AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
    SELECT CASE WHEN (SELECT bool_or(unborn) FROM writers)
        THEN pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        ELSE latest.tx - coalesce((SELECT max(age) FROM writers WHERE age < 2147483648), 0) END
        + coalesce((SELECT (number - 1::bigint) << 44 FROM eras ORDER BY number DESC LIMIT 1), 0)
    FROM latest
    """

# Invariant 17: a cursor over several instances does not pass a turn that is still running. A turn holds a shared lock
# from before it gets its transaction number until it has ended, and pg_locks shows all locks at one instant. A turn
# without a number may be about to get a low one: then the oldest transaction of the whole server is the limit. Read
# before the events and in a statement of its own: a turn that is not seen here has ended, so its events can be read.
# The newest era (store/postgres_eras.py) is that of all turns that may be running.
horizon = Sql(
    HORIZON,
    # One writer: seq is the order of commits, and there is nothing to wait for.
    sqlite="SELECT 9223372036854775807",
)

# Invariant 17: the events of all instances after a cursor and below `horizon`, in the order of commits.
events_after = Sql(
    f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.tx, o.seq {_BEFORE} (
        SELECT o.tx, o.seq, {_SIZE} FROM events o
        WHERE (o.tx, o.seq) > (:tx::bigint, :seq::bigint) AND o.tx < :horizon::bigint
        ORDER BY o.tx, o.seq LIMIT :size::bigint) o) n {_FITTING}
    ORDER BY e.tx, e.seq
    """,
    sqlite=f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.seq {_BEFORE} (
        SELECT o.tx, o.seq, {_SIZE} FROM events o WHERE o.seq > :seq AND :tx < :horizon
        ORDER BY o.seq LIMIT :size) o) n {_FITTING}
    ORDER BY e.seq
    """,
    row=EventRow,
)

# The events of some instances, each after a position of its own. An event is written under the lock of its instance
# (invariant 3), so the seqs of one instance commit in order and none is skipped.
follow = Sql(
    f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.seq {_BEFORE} (
        SELECT o.tx, o.seq, {_SIZE} FROM {{rows: id text, seq bigint}}
        CROSS JOIN LATERAL (
            SELECT * FROM events w WHERE w.instance_id = r.id AND w.seq > r.seq ORDER BY w.seq LIMIT :size::bigint) o
        ) o) n {_FITTING}
    ORDER BY e.seq
    """,
    # SQLite has no LATERAL.
    sqlite=f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.seq {_BEFORE} (
        SELECT o.tx, o.seq, {_SIZE} FROM {{rows: id text, seq bigint}}
        CROSS JOIN events o ON o.seq IN (
            SELECT w.seq FROM events w WHERE w.instance_id = r.id AND w.seq > r.seq ORDER BY w.seq LIMIT :size)
        ) o) n {_FITTING}
    ORDER BY e.seq
    """,
    row=EventRow,
)

# X7: whole histories, for an export.
events_of_all = Sql(f"SELECT {_EVENT} FROM events e WHERE e.instance_id IN :ids[text] ORDER BY e.seq", row=EventRow)

# X7: by the three indexes that exist. A signal without a dedup key was consumed while one of these instances lived,
# so a range of times finds it.
signals_of_all = Sql(
    """
    SELECT instance_id, kind, name, payload, dedup_key, at, consumed_at FROM inbox
    WHERE kind IN ('signal', 'broadcast', 'message') AND seq IN (
        SELECT seq FROM inbox WHERE instance_id IN :ids[text] AND consumed_at IS NULL
        UNION ALL SELECT seq FROM inbox WHERE instance_id IN :ids[text] AND dedup_key IS NOT NULL
            AND consumed_at IS NOT NULL
        UNION ALL SELECT seq FROM inbox WHERE consumed_at BETWEEN :since::bigint AND :before::bigint
            AND dedup_key IS NULL AND instance_id IN :ids[text])
    ORDER BY seq
    """
)
