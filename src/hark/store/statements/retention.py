"""Delete what is older than the retention."""

from __future__ import annotations

from hark.store.sql import Sql

_ANCESTOR = """
            WITH RECURSIVE above(id, parent_id, finished_at) AS (
                SELECT p.id, p.parent_id, p.finished_at FROM instances p WHERE p.id = i.parent_id
                UNION SELECT p.id, p.parent_id, p.finished_at FROM instances p JOIN above a ON p.id = a.parent_id)
            SELECT 1 FROM above WHERE finished_at IS NULL"""
# X7, the look beside the turns: who finished long ago, a page at a time, and who of them has no live ancestor.
# A page counts those that must stay too, so that it is short however many they are.
old = Sql(
    f"""
    SELECT i.id, i.finished_at, NOT EXISTS ({_ANCESTOR}) FROM instances i
    WHERE i.finished_at < :before::bigint AND (i.finished_at, i.id) > (:at::bigint, :after::text)
    ORDER BY i.finished_at, i.id LIMIT :size::bigint
    """
)
# The deed: those of them for whom it is still so.
# (`coalesce`: found by their ids; whoever proves that it is not null may go through the index of all that is old.)
expired = Sql(
    f"""
    SELECT i.id FROM instances i WHERE i.id IN :ids[text] AND coalesce(i.finished_at, :before::bigint) < :before::bigint
        AND NOT EXISTS ({_ANCESTOR})
    FOR NO KEY UPDATE OF i SKIP LOCKED
    """
)
bury = Sql(
    """
    INSERT INTO tombstones (key, instance_id, at)
    SELECT correlation_key, id, :now::bigint FROM instances
    WHERE id IN :ids[text] AND scope = 'forever' AND holds_key
    ON CONFLICT DO NOTHING
    """
)
forget_instances = Sql("DELETE FROM instances WHERE id IN :ids[text]")
# By the two indexes there are; what was consumed without a key is old enough for `forget_consumed`.
forget_signals = Sql(
    """
    DELETE FROM signals WHERE seq IN (
        SELECT seq FROM signals WHERE instance_id IN :ids[text] AND consumed_at IS NULL
        UNION ALL SELECT seq FROM signals WHERE instance_id IN :ids[text] AND dedup_key IS NOT NULL)
    """
)
forget_waits = Sql("DELETE FROM waits WHERE instance_id IN :ids[text]")
forget_awakeables = Sql("DELETE FROM awakeables WHERE instance_id IN :ids[text]")
forget_journal = Sql("DELETE FROM journal WHERE instance_id IN :ids[text]")
forget_events = Sql("DELETE FROM events WHERE instance_id IN :ids[text]")
# Consumed long ago, its instance alive: without a dedup key the row goes, with one only the payload.
forget_consumed = Sql(
    """
    DELETE FROM signals WHERE seq IN (
        SELECT seq FROM signals WHERE consumed_at < :before::bigint AND dedup_key IS NULL
        ORDER BY consumed_at LIMIT :size::bigint)
    RETURNING seq
    """
)
empty_consumed = Sql(
    """
    UPDATE signals SET payload = 'null' WHERE seq IN (
        SELECT seq FROM signals WHERE consumed_at < :before::bigint AND dedup_key IS NOT NULL
            AND payload <> 'null' ORDER BY consumed_at LIMIT :size::bigint)
    RETURNING seq
    """
)
forget_broadcasts = Sql(
    """
    DELETE FROM broadcasts WHERE at < :before::bigint
        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.broadcast_id = broadcasts.id)
    """
)
# Idle buckets: locked in one statement, judged in the next, when all who held them before have committed.
idle_buckets = Sql(
    """
    SELECT kind, key, shard FROM buckets WHERE refilled_at < :before::bigint AND due_at IS NULL
    ORDER BY kind, key, shard LIMIT :size::bigint FOR UPDATE SKIP LOCKED
    """
)
forget_buckets = Sql(
    """
    DELETE FROM buckets WHERE (kind, key, shard) IN (
            SELECT r.kind, r.key, r.shard FROM {rows: kind text, key text, shard integer})
        AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.blocked_on = buckets.kind || ':' || buckets.key)
        AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.concurrency_key = buckets.key AND i.status = 'executing')
    """
)
