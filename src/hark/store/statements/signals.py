"""Signals: write, read and consume the inboxes, and remember what reached no wait."""

from __future__ import annotations

from hark.store.sql import Sql

# S7: which of these were seen before, consumed or not. Under lock.
seen = Sql(
    """
    SELECT s.instance_id, s.dedup_key FROM {rows: id text, dedup_key text}
    JOIN signals s ON s.instance_id = r.id AND s.dedup_key = r.dedup_key
    """
)
# S9: who of all that were kept under a key has seen this; the latest, last.
seen_by_holders = Sql(
    """
    SELECT r.key, r.dedup_key, i.id FROM {rows: key text, dedup_key text}
    JOIN instances i ON i.correlation_key = r.key
    JOIN signals s ON s.instance_id = i.id AND s.dedup_key = r.dedup_key
    ORDER BY i.created_at
    """
)
insert_signals = Sql(
    """
    INSERT INTO signals (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT r.id, r.kind, r.name, r.wait_id, r.payload, r.dedup_key, :now::bigint
    FROM {rows: id text, kind text, name text, wait_id text, payload text, dedup_key text}
    ORDER BY r.ord
    RETURNING seq
    """
)
# The same to many: a broadcast sends its payload once, and its subscribers as one text, not fifty thousand.
_ALIKE = "{rows: ids text, kind text, name text, wait_id text, payload text, dedup_key text}"
insert_alike = Sql(
    f"""
    INSERT INTO signals (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT t.id, r.kind, r.name, r.wait_id, r.payload, r.dedup_key, :now::bigint FROM {_ALIKE}
    CROSS JOIN LATERAL unnest(string_to_array(r.ids, ' ')) WITH ORDINALITY AS t(id, place)
    ORDER BY r.ord, t.place
    RETURNING seq
    """,
    # SQLite takes lists apart as JSON; an id has nothing in it that JSON would quote. Each row is taken apart once, and
    # not again for each of its ids: that was three times slower for 20,000.
    sqlite=f"""
    WITH alike AS MATERIALIZED (SELECT * FROM {_ALIKE})
    INSERT INTO signals (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT t.value, a.kind, a.name, a.wait_id, a.payload, a.dedup_key, :now FROM alike a
    CROSS JOIN json_each('["' || replace(a.ids, ' ', '","') || '"]') AS t
    ORDER BY a.ord, t.key
    RETURNING seq
    """,
)
inbox = Sql(
    """
    SELECT seq, instance_id, kind, name, wait_id, payload, at FROM signals
    WHERE instance_id IN :ids[text] AND consumed_at IS NULL ORDER BY seq
    """
)
# What a park must check (invariant 4), without the payloads.
inbox_heads = Sql(
    """
    SELECT seq, instance_id, kind, name, wait_id FROM signals
    WHERE instance_id IN :ids[text] AND consumed_at IS NULL
    """
)
# S4: consumed is marked, not deleted, so that dedup outlives it.
consume = Sql("UPDATE signals SET consumed_at = :now::bigint WHERE seq IN :seqs[bigint]")
restore = Sql("UPDATE signals SET consumed_at = NULL WHERE seq IN :seqs[bigint]")
wake = Sql(
    """
    UPDATE instances SET status = 'runnable', since = :position::bigint, due_at = NULL, has_signals = true,
        updated_at = :now::bigint
    WHERE id IN :ids[text]
    """
)
# Where those just woken stand in line.
woken = Sql(
    """
    SELECT id, queue, priority, concurrency_key, rate_limit, weight, definition, version FROM instances
    WHERE id IN :ids[text]
    """
)
mark_has_signals = Sql("UPDATE instances SET has_signals = true WHERE id IN :ids[text]")
# D7: what reached nobody. No lock and no conflict: rows of a turn that are only ever read and trimmed.
insert_misses = Sql(
    """
    INSERT INTO misses (at, kind, target, name, reason, instance_id)
    SELECT :now::bigint, r.kind, r.target, r.name, r.reason, r.instance_id
    FROM {rows: kind text, target text, name text, reason text, instance_id text} ORDER BY r.ord
    """
)
# Old ones, and all but the newest few thousand.
forget_misses = Sql(
    """
    DELETE FROM misses WHERE seq IN (
        SELECT seq FROM misses WHERE at < :before::bigint OR seq <= (SELECT max(seq) FROM misses) - :most::bigint
        ORDER BY seq LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING seq
    """
)
