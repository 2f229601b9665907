"""Write events, and find those that prove that a turn has committed."""

from __future__ import annotations

from hark.store.sql import Sql

# History: every event is in the transaction that caused it.
insert_events = Sql(
    """
    INSERT INTO events (tx, instance_id, type, step, data, at)
    SELECT :tx::bigint, r.id, r.type, r.step, r.data, :now::bigint
    FROM {rows: id text, type text, step text, data text} ORDER BY r.ord
    """,
    joinable=True,
)

# X5, after a lost connection: a turn that wrote events has committed if they are there. Its transaction number alone
# is not enough, since a server that crashed may give the number to another transaction. A broadcast may write no
# event at all.
proof_of_commit = Sql(
    """
    SELECT 1 FROM events WHERE tx = :tx::bigint AND at = :now::bigint
    UNION ALL SELECT 1 FROM broadcasts WHERE at = :now::bigint LIMIT 1
    """
)

# J8: count what tasks and their runs stream. In the order of the ids: two turns that count the same do not deadlock.
count_streams = Sql(
    """
    INSERT INTO streams (instance_id, bytes) SELECT r.id, r.size FROM {rows: id text, size bigint}
    WHERE true ORDER BY r.id
    ON CONFLICT (instance_id) DO UPDATE SET bytes = streams.bytes + excluded.bytes
    RETURNING instance_id, bytes
    """
)
