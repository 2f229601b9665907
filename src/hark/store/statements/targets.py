"""Find the instances that a turn is about, and lock them."""

from __future__ import annotations

from hark.store.sql import Row, Sql

# The target of a call as an instance id: an id wins over a key; a key means the live instance that holds it, else the
# latest one that is kept.
ADDRESSES = """SELECT t.target AS target, coalesce(
        (SELECT i.id FROM instances i WHERE i.id = t.target),
        (SELECT i.id FROM instances i WHERE i.correlation_key = t.target AND i.holds_key),
        (SELECT i.id FROM instances i WHERE i.correlation_key = t.target ORDER BY i.created_at DESC LIMIT 1)) AS id
    FROM (SELECT DISTINCT r.target FROM {rows: target text}) t"""

# M11: find the instances of the targets of a turn. Read before the lock; `lock` decides whether they still exist.
addresses = Sql(ADDRESSES)

# Invariant 3: lock all instance rows of a turn, in id order, before anything else is read.
lock = Sql(
    """
    SELECT id, status, epoch, has_inbox_rows, kind FROM instances WHERE id IN :ids[text] ORDER BY id FOR NO KEY UPDATE
    """
)


class Details(Row, frozen=True):
    """An instance row, with the columns that cancel, retry and reclaim need."""

    id: str
    status: str
    step: str
    epoch: int
    attempt: int
    crashes: int
    lease_owner: str | None
    correlation_key: str | None
    concurrency_key: str | None
    blocked_on: str | None
    parent_id: str | None
    parent_wait: str | None
    counted: bool
    queue: str
    definition: str
    version: int
    on_cancel: str | None
    cancel_reason: str | None
    lane: str
    scheduled_at: int | None


_DETAILS = Details.columns()

# X8, M5: rows for cancel, retry and reclaim. Read under lock, or before it to find the names and rows to lock.
details = Sql(f"SELECT {_DETAILS} FROM instances WHERE id IN :ids[text] ORDER BY id", row=Details)

# X8: a cancel ends all live instances below these, itself not included. Children of a parent that has already ended
# are included. `undoing`: the instance is being cancelled already, or was started by the undo of one that is.
descendants = Sql(
    """
    WITH RECURSIVE below(id, parent_id, finished_at, undoing) AS (
        SELECT id, parent_id, finished_at, cancel_reason IS NOT NULL FROM instances WHERE parent_id IN :ids[text]
        UNION SELECT i.id, i.parent_id, i.finished_at, b.undoing OR i.cancel_reason IS NOT NULL
        FROM below b CROSS JOIN instances i WHERE i.parent_id = b.id)
    SELECT id, parent_id, undoing FROM below WHERE finished_at IS NULL
    """
)
