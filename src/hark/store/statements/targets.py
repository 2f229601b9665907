"""Find the instances that a turn is about, and lock them."""

from __future__ import annotations

from hark.store.sql import Row, Sql

# An id wins over a key; a key means its live holder, else the latest kept one.
ADDRESSES = """SELECT t.target AS target, coalesce(
        (SELECT i.id FROM instances i WHERE i.id = t.target),
        (SELECT i.id FROM instances i WHERE i.correlation_key = t.target AND i.holds_key),
        (SELECT i.id FROM instances i WHERE i.correlation_key = t.target ORDER BY i.created_at DESC LIMIT 1)) AS id
    FROM (SELECT DISTINCT r.target FROM {rows: target text}) t"""
addresses = Sql(ADDRESSES)
# Invariant 3: all instance rows of a turn, in id order, before anything else is looked at.
lock = Sql(
    """
    SELECT id, status, epoch, has_signals FROM instances WHERE id IN :ids[text] ORDER BY id FOR NO KEY UPDATE
    """
)


class Details(Row, frozen=True):
    """What cancel, retry and reclaim need of an instance row."""

    id: str
    status: str
    step: str
    epoch: int
    attempt: int
    crashes: int
    lease_owner: str | None
    correlation_key: str | None
    concurrency_key: str | None
    parent_id: str | None
    parent_wait: str | None
    counted: bool
    queue: str
    definition: str
    version: int


# Read under lock, or before it as a hint which rows and names to lock.
details = Sql(
    """
    SELECT id, status, step, epoch, attempt, crashes, lease_owner, correlation_key, concurrency_key,
           parent_id, parent_wait, counted, queue, definition, version
    FROM instances WHERE id IN :ids[text] ORDER BY id
    """,
    row=Details,
)
# The living below these instances, themselves not included; also those left over by a parent that has ended.
descendants = Sql(
    """
    WITH RECURSIVE below(id, parent_id, finished_at) AS (
        SELECT id, parent_id, finished_at FROM instances WHERE parent_id IN :ids[text]
        UNION SELECT i.id, i.parent_id, i.finished_at FROM below b CROSS JOIN instances i WHERE i.parent_id = b.id)
    SELECT id, parent_id FROM below WHERE finished_at IS NULL
    """
)
