"""The facts that `hark doctor` judges."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class WorkerRow(Row, frozen=True):
    """A worker. Times in µs; `info` is JSON, None from a worker of an older version."""

    id: str
    until: int
    definitions: str
    info: str | None
    started_at: int


# The version of the newest migration.
schema_version = Sql("SELECT max(version) FROM migrations")

# All workers, also dead ones; those of Hark before the leases of tasks that workers outside have fetched, which may be
# many.
all_workers = Sql(
    """
    SELECT id, until, definitions, info, started_at FROM workers
    ORDER BY id LIKE 'outside:%', started_at, id LIMIT 1000
    """,
    row=WorkerRow,
)

# Rows that a live worker would have handled by now.
count_overdue = Sql("SELECT count(*), min(due_at) FROM instances WHERE due_at < :before::bigint")


class ScheduledRow(Row, frozen=True):
    """The schedules of one definition that are not paused. Times in µs."""

    definition: str
    schedules: int
    late: int
    refused: int
    next_due: int


# T1: schedules by definition: their number, how many no worker has fired since `before`, and how many had a last tick
# that was refused.
count_scheduled = Sql(
    """
    SELECT definition, count(*) AS schedules, sum(CASE WHEN due_at < :before::bigint THEN 1 ELSE 0 END) AS late,
        count(error) AS refused, min(due_at) AS next_due
    FROM triggers WHERE due_at IS NOT NULL GROUP BY definition ORDER BY definition
    """,
    row=ScheduledRow,
)

# X7: failed instances that are kept, up to `most`, and when the first of them failed.
count_failed = Sql(
    """
    SELECT count(*), min(f.finished_at) FROM (
        SELECT i.finished_at FROM instances i
        WHERE CASE WHEN i.kind = 'task' THEN 2 WHEN i.status = 'failed' THEN 1 ELSE 0 END = 1
            AND i.finished_at IS NOT NULL
        ORDER BY i.finished_at, i.id LIMIT :most::bigint) f
    """
)

# M5: executing instances whose worker has no valid lease.
abandoned_count = Sql(
    """
    SELECT count(*) FROM instances i WHERE i.lease_owner IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner AND w.until >= :now::bigint)
    """
)
