"""Count the work that waits for the slots of a worker."""

from __future__ import annotations

from hark.store.sql import Sql

# J7: the claimable rows of each of these lanes, up to a number: the index that claims read.
claimable_in_lanes = Sql(
    """
    SELECT r.queue, (SELECT count(*) FROM (
        SELECT 1 FROM instances i WHERE i.queue = r.queue AND i.lane = r.lane
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL LIMIT :most::bigint) w)
    FROM {rows: queue text, lane text}
    """
)

# J7: the rows that wait for each of these concurrency keys, up to a number.
blocked_on_keys = Sql(
    """
    SELECT r.key, (SELECT count(*) FROM (
        SELECT 1 FROM instances i WHERE i.blocked_on = r.bucket LIMIT :most::bigint) w)
    FROM {rows: key text, bucket text}
    """
)
