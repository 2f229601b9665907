"""Broadcasts and their subscribers."""

from __future__ import annotations

from hark.store.sql import Sql

subscribers = Sql(
    """
    SELECT DISTINCT w.name, w.instance_id FROM waits w
    WHERE w.kind = 'broadcast' AND w.closed_at IS NULL AND w.name IN :names[text] LIMIT :size::bigint
    """
)
broadcast_seen = Sql(
    """
    SELECT b.name, b.dedup_key, b.count FROM {rows: name text, dedup_key text}
    JOIN broadcasts b ON b.name = r.name AND b.dedup_key = r.dedup_key
    """
)
insert_broadcasts = Sql(
    """
    INSERT INTO broadcasts (id, name, payload, dedup_key, count, at)
    SELECT r.id, r.name, r.payload, r.dedup_key, r.count, :now::bigint
    FROM {rows: id text, name text, payload text, dedup_key text, count integer}
    """
)
# B1, very large: the marks say who is reached; whole or absent.
mark = Sql(
    """
    INSERT INTO deliveries (broadcast_id, instance_id)
    SELECT DISTINCT r.id, w.instance_id FROM {rows: id text, name text}
    JOIN waits w ON w.kind = 'broadcast' AND w.closed_at IS NULL AND w.name = r.name
    """
)
marked = Sql("SELECT broadcast_id, count(*) FROM deliveries WHERE broadcast_id IN :ids[text] GROUP BY broadcast_id")
# A chunk of one broadcast: the mark goes in the commit that writes the inboxes, so nobody gets it twice.
take_marks = Sql(
    """
    DELETE FROM deliveries WHERE (broadcast_id, instance_id) IN (
        SELECT broadcast_id, instance_id FROM deliveries ORDER BY broadcast_id, instance_id
        LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING broadcast_id, instance_id
    """
)
broadcasts_by_id = Sql("SELECT id, name, payload FROM broadcasts WHERE id IN :ids[text]")
any_marks = Sql("SELECT 1 FROM deliveries LIMIT 1")
