"""Events, which also prove that a turn has committed."""

from __future__ import annotations

from hark.store.sql import Sql

insert_events = Sql(
    """
    INSERT INTO events (tx, instance_id, type, step, data, at)
    SELECT :tx::bigint, r.id, r.type, r.step, r.data, :now::bigint
    FROM {rows: id text, type text, step text, data text} ORDER BY r.ord
    """
)
# A turn that wrote events has committed when they are there: its number alone may be another's after a crash.
# (A broadcast may write no event at all.)
proof = Sql(
    """
    SELECT 1 FROM events WHERE tx = :tx::bigint AND at = :now::bigint
    UNION ALL SELECT 1 FROM broadcasts WHERE at = :now::bigint LIMIT 1
    """
)
