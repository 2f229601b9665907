"""Delete rows that are older than the retention."""

from __future__ import annotations

from hark.store.sql import Sql

# Failed instances are kept for longer than others. Not a failed task: it goes with its job, however that has ended.
_LIMIT = "CASE WHEN i.status = 'failed' AND i.kind <> 'task' THEN :failed_before::bigint ELSE :before::bigint END"
_LIMIT_ABOVE = "CASE WHEN status = 'failed' AND kind <> 'task' THEN :failed_before::bigint ELSE :before::bigint END"
_ANCESTOR = f"""
            WITH RECURSIVE above(id, parent_id, finished_at, status, kind) AS (
                SELECT p.id, p.parent_id, p.finished_at, p.status, p.kind FROM instances p WHERE p.id = i.parent_id
                UNION SELECT p.id, p.parent_id, p.finished_at, p.status, p.kind
                FROM instances p JOIN above a ON p.id = a.parent_id)
            SELECT 1 FROM above WHERE finished_at IS NULL OR (i.kind = 'task' AND finished_at >= {_LIMIT_ABOVE})"""
# The first column of the index `instances_finished`: 0, 1 for failed instances, 2 for tasks.
_SORT = "CASE WHEN i.kind = 'task' THEN 2 WHEN i.status = 'failed' THEN 1 ELSE 0 END"

# X7, read outside a turn: a page of instances of a sort that finished long ago, and for each whether it may be
# removed: it has no live ancestor, and is not a task of a job that is kept, whose retry needs the outputs of its
# tasks. A page also counts the instances that must stay, so that it is short however many those are.
finished_before = Sql(
    f"""
    SELECT i.id, i.finished_at, NOT EXISTS ({_ANCESTOR}) FROM instances i
    WHERE {_SORT} = :sort::integer AND i.finished_at IS NOT NULL AND i.finished_at < {_LIMIT}
        AND (i.finished_at, i.id) > (:at::bigint, :after::text)
    ORDER BY i.finished_at, i.id LIMIT :size::bigint
    """
)

# X7, in the turn: lock the instances of the page that may still be removed. `coalesce` keeps the planner on the primary
# key: a plain comparison implies NOT NULL and allows the index over everything old.
expired = Sql(
    f"""
    SELECT i.id FROM instances i
    WHERE i.id IN :ids[text] AND coalesce(i.finished_at, :before::bigint) < {_LIMIT}
        AND NOT EXISTS ({_ANCESTOR})
    FOR NO KEY UPDATE OF i SKIP LOCKED
    """
)

# X7, M11: a `forever` key stays taken after its instance is removed.
insert_tombstones = Sql(
    """
    INSERT INTO tombstones (key, instance_id, at)
    SELECT correlation_key, id, :now::bigint FROM instances
    WHERE id IN :ids[text] AND scope = 'forever' AND holds_key
    ON CONFLICT DO NOTHING
    """
)

# X7: the instance itself, last.
forget_instances = Sql("DELETE FROM instances WHERE id IN :ids[text]")

# X7: by the two indexes that exist; signals consumed without a dedup key are old enough for `forget_consumed`.
forget_signals = Sql(
    """
    DELETE FROM inbox WHERE seq IN (
        SELECT seq FROM inbox WHERE instance_id IN :ids[text] AND consumed_at IS NULL
        UNION ALL SELECT seq FROM inbox WHERE instance_id IN :ids[text] AND dedup_key IS NOT NULL)
    """
)

# X7: the closed waits of a failed instance.
forget_waits = Sql("DELETE FROM waits WHERE instance_id IN :ids[text]")

# X7: the awakeables of the removed instances.
forget_awakeables = Sql("DELETE FROM awakeables WHERE instance_id IN :ids[text]")

# X7: their journals.
forget_journal = Sql("DELETE FROM journal WHERE instance_id IN :ids[text]")

# X7: how much they have streamed.
forget_streams = Sql("DELETE FROM streams WHERE instance_id IN :ids[text]")

# X7: their tags.
forget_tags = Sql("DELETE FROM tags WHERE instance_id IN :ids[text]")

# X7: their history.
forget_events = Sql("DELETE FROM events WHERE instance_id IN :ids[text]")

# X7, with `event_retention`: the oldest events of all instances. Only the first rows of the index are read,
# however many are younger; a row that another process deletes is skipped, so two of them cannot deadlock.
forget_old_events = Sql(
    """
    DELETE FROM events WHERE (tx, seq) IN (
        SELECT tx, seq FROM events ORDER BY tx, seq LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
        AND at < :before::bigint
    RETURNING seq
    """,
    # The primary key is `seq` alone; the condition lets the plan say that it is used.
    sqlite="""
    DELETE FROM events WHERE seq IN (SELECT seq FROM events WHERE seq > 0 ORDER BY seq LIMIT :size)
        AND at < :before
    RETURNING seq
    """,
)

# X7: signals that a live instance consumed long ago. Without a dedup key the row is removed; with one only the
# payload is (`empty_consumed`), because deduplication outlives consumption (invariant 7).
forget_consumed = Sql(
    """
    DELETE FROM inbox WHERE seq IN (
        SELECT seq FROM inbox WHERE consumed_at < :before::bigint AND dedup_key IS NULL
        ORDER BY consumed_at LIMIT :size::bigint)
    RETURNING seq
    """
)

# X7, invariant 7: remove the payload, keep the dedup key.
empty_consumed = Sql(
    """
    UPDATE inbox SET payload = 'null' WHERE seq IN (
        SELECT seq FROM inbox WHERE consumed_at < :before::bigint AND dedup_key IS NOT NULL
            AND payload <> 'null' ORDER BY consumed_at LIMIT :size::bigint)
    RETURNING seq
    """
)

# X7: delete old broadcasts, except those that still have chunks to deliver.
forget_broadcasts = Sql(
    """
    DELETE FROM broadcasts WHERE id IN (
        SELECT b.id FROM broadcasts b WHERE b.at < :before::bigint
            AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.broadcast_id = b.id)
        ORDER BY b.at LIMIT :size::bigint)
    RETURNING id
    """
)

# X7: lock idle buckets. `forget_buckets` decides in a second statement, which sees the commit of every earlier
# holder.
idle_buckets = Sql(
    """
    SELECT kind, key, shard FROM buckets WHERE refilled_at < :before::bigint AND due_at IS NULL
    ORDER BY kind, key, shard LIMIT :size::bigint FOR UPDATE SKIP LOCKED
    """
)

# X7: delete the locked buckets that no blocked and no executing instance needs.
forget_buckets = Sql(
    """
    DELETE FROM buckets WHERE (kind, key, shard) IN (
            SELECT r.kind, r.key, r.shard FROM {rows: kind text, key text, shard integer})
        AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.blocked_on = buckets.kind || ':' || buckets.key)
        AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.concurrency_key = buckets.key AND i.status = 'executing')
    """
)
