"""Read the gauges of /metrics (X6)."""

from __future__ import annotations

from hark.store.sql import Sql

# X6: every count uses an index and stops at `most`: a scrape never scans a table.
count_busy = Sql(
    """
    SELECT (SELECT count(*) FROM (SELECT 1 FROM instances WHERE lease_owner IS NOT NULL LIMIT :most::bigint) e),
        (SELECT count(*) FROM (SELECT 1 FROM instances WHERE blocked_on IS NOT NULL LIMIT :most::bigint) b),
        (SELECT count(*) FROM (SELECT 1 FROM instances WHERE status = 'held' AND lane >= '' LIMIT :most::bigint) h)
    """
)

# From lane to lane of each queue by the claim index, not row by row.
_READY = "i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL"
_QUEUED = f"i.queue = l.queue AND i.lane = l.lane AND {_READY}"
_FIRST = f"""SELECT i.queue, i.lane FROM instances i WHERE {_READY} ORDER BY i.queue, i.lane LIMIT 1"""
_COUNT = f"""SELECT l.queue,
        sum((SELECT count(*) FROM (
            SELECT i.since FROM instances i WHERE {_QUEUED} ORDER BY i.priority, i.since LIMIT :most::bigint) n)),
        min((SELECT i.since FROM instances i WHERE {_QUEUED} ORDER BY i.priority, i.since LIMIT 1))
    FROM lanes l GROUP BY l.queue"""

# X6: the claimable instances of each queue, and the time since which the oldest waits.
count_ready = Sql(
    f"""
    WITH RECURSIVE lanes(queue, lane) AS (
        ({_FIRST})
        UNION ALL
        SELECT n.queue, n.lane FROM lanes l CROSS JOIN LATERAL (
            SELECT i.queue, i.lane FROM instances i WHERE {_READY} AND (i.queue, i.lane) > (l.queue, l.lane)
            ORDER BY i.queue, i.lane LIMIT 1) n)
    {_COUNT}
    """,
    # SQLite has no LATERAL, and its index uses only the first column of a row comparison: step to the next lane,
    # else to the next queue.
    sqlite=f"""
    WITH RECURSIVE lanes(queue, lane) AS (
        SELECT * FROM ({_FIRST})
        UNION ALL
        SELECT n.queue, n.lane FROM lanes l CROSS JOIN instances n ON n.rowid = coalesce(
            (SELECT i.rowid FROM instances i WHERE i.queue = l.queue AND i.lane > l.lane
                AND {_READY} ORDER BY i.lane LIMIT 1),
            (SELECT i.rowid FROM instances i WHERE i.queue > l.queue
                AND {_READY} ORDER BY i.queue, i.lane LIMIT 1)))
    {_COUNT}
    """,
)
