"""Read and write broadcasts and their deliveries."""

from __future__ import annotations

from hark.store.sql import Row, Sql

# B1: the instances that wait for these names now, at most `size` of them, and the triggers of these names.
subscribers = Sql(
    """
    SELECT s.name, s.instance_id, NULL FROM (
        SELECT DISTINCT w.name, w.instance_id FROM waits w
        WHERE w.kind = 'broadcast' AND w.closed_at IS NULL AND (w.key IS NULL OR w.fired_at IS NULL)
            AND w.name IN :names[text] LIMIT :size::bigint) s
    UNION ALL SELECT s.name, NULL, s.id FROM triggers s WHERE s.kind = 'broadcast' AND s.name IN :names[text]
    """
)

# B1, S7: broadcasts with this dedup key that were sent before.
broadcast_seen = Sql(
    """
    SELECT b.name, b.dedup_key, b.count FROM {rows: name text, dedup_key text}
    JOIN broadcasts b ON b.name = r.name AND b.dedup_key = r.dedup_key
    """
)

# B1: record a broadcast, also one without subscribers.
insert_broadcasts = Sql(
    """
    INSERT INTO broadcasts (id, name, payload, dedup_key, count, at)
    SELECT r.id, r.name, r.payload, r.dedup_key, r.count, :now::bigint
    FROM {rows: id text, name text, payload text, dedup_key text, count integer}
    """
)

# B1, invariant 9: a broadcast that is too large for one turn stores a delivery for each subscriber in one transaction
# and is delivered in chunks. A fresh wait, whose key is its own id, has a delivery of its own. `skipped` is a sender
# that does not receive it, or empty.
add_pending_deliveries = Sql(
    """
    INSERT INTO deliveries (broadcast_id, instance_id, wait_id)
    SELECT DISTINCT r.id, w.instance_id, coalesce(w.key, '') FROM {rows: id text, name text, skipped text}
    JOIN waits w ON w.kind = 'broadcast' AND w.closed_at IS NULL AND (w.key IS NULL OR w.fired_at IS NULL)
        AND w.name = r.name
    WHERE w.instance_id <> r.skipped
    """
)

# B1: the number of instances of each broadcast.
count_pending_deliveries = Sql(
    """
    SELECT broadcast_id, count(DISTINCT instance_id) FROM deliveries WHERE broadcast_id IN :ids[text]
    GROUP BY broadcast_id
    """
)


class PendingDelivery(Row, frozen=True):
    """A delivery of a large broadcast that is still to be made; `wait_id` is that of a fresh wait, or empty."""

    broadcast_id: str
    instance_id: str
    wait_id: str


# B1: the next chunk. A pending delivery is deleted in the commit that writes the inbox row, so no subscriber receives
# it twice.
take_pending_deliveries = Sql(
    """
    DELETE FROM deliveries WHERE (broadcast_id, instance_id, wait_id) IN (
        SELECT broadcast_id, instance_id, wait_id FROM deliveries ORDER BY broadcast_id, instance_id, wait_id
        LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING broadcast_id, instance_id, wait_id
    """,
    row=PendingDelivery,
)

# B1: the rows to write into the inboxes of a chunk.
broadcasts_by_id = Sql("SELECT id, name, payload FROM broadcasts WHERE id IN :ids[text]")

# B1: one row if a large broadcast still has chunks to deliver.
any_pending_delivery = Sql("SELECT 1 FROM deliveries LIMIT 1")


class News(Row, frozen=True):
    """The work that another process may have left for this one."""

    deliveries: int
    """1 if a large broadcast has chunks left, else 0."""
    origin_at: int | None
    """The time at which the address of a server was recorded last."""


# B1, X3: what a process looks for after a hint, beside claims.
news = Sql(
    """
    SELECT (SELECT count(*) FROM (SELECT 1 FROM deliveries LIMIT 1) d) AS deliveries,
        (SELECT max(seen_at) FROM origins) AS origin_at
    """,
    row=News,
)
