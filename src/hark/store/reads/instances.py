"""Instances: one, many, lists, results."""

from __future__ import annotations

from hark.store.sql import Row, Sql
from hark.store.statements import ADDRESSES


class InstanceRow(Row, frozen=True):
    """An instance, as it is shown. Times in µs, JSON as text."""

    id: str
    definition: str
    kind: str
    version: int
    step: str
    status: str
    state: str
    result: str | None
    error: str | None
    traceback: str | None
    progress: str | None
    attempt: int
    queue: str
    correlation_key: str | None
    parent_id: str | None
    created_at: int
    finished_at: int | None
    cancel_reason: str | None


# What `get` and `list` show.
read_instances = Sql(
    """
    SELECT id, definition, kind, version, step, status, state, result, error, traceback, progress, attempt, queue,
        correlation_key, parent_id, created_at, finished_at, cancel_reason
    FROM instances WHERE id IN :ids[text]
    """,
    row=InstanceRow,
)

# Every definition that has instances: one step through the index per definition, not per instance.
definitions_in_use = Sql(
    """
    WITH RECURSIVE used(definition) AS (
        SELECT min(definition) FROM instances
        UNION ALL SELECT (SELECT min(i.definition) FROM instances i WHERE i.definition > u.definition) FROM used u
        WHERE u.definition IS NOT NULL)
    SELECT definition FROM used WHERE definition IS NOT NULL
    """
)

# Newest first; (at, after) is the position of the last row of the page before. A lane here is a definition and a
# status. The index leads to the newest row of each lane, and a page takes the lanes with the newest rows, so rows in
# other lanes are not read.
_LANE = """i.definition = r.definition AND i.status = r.status AND (:kind::text IS NULL OR i.kind = :kind::text)
            AND (i.created_at, i.id) < (:at::bigint, :after::text) ORDER BY i.created_at DESC, i.id DESC"""
_NEWEST = "ORDER BY c.created_at DESC, c.id DESC LIMIT :size::bigint"

# A page of `list`.
list_instances = Sql(
    f"""
    WITH heads AS (
        SELECT r.definition, r.status FROM {{rows: definition text, status text}}
        CROSS JOIN LATERAL (SELECT i.created_at, i.id FROM instances i WHERE {_LANE} LIMIT 1) c {_NEWEST})
    SELECT c.id FROM heads r
    CROSS JOIN LATERAL (SELECT i.created_at, i.id FROM instances i WHERE {_LANE} LIMIT :size::bigint) c {_NEWEST}
    """,
    # SQLite has no LATERAL, see statements/claims.py.
    sqlite=f"""
    WITH heads AS (
        SELECT r.definition, r.status FROM {{rows: definition text, status text}}
        CROSS JOIN instances c ON c.rowid = (
            SELECT i.rowid FROM instances i INDEXED BY instances_listed WHERE {_LANE} LIMIT 1) {_NEWEST})
    SELECT c.id FROM heads r CROSS JOIN instances c ON c.rowid IN (
        SELECT i.rowid FROM instances i INDEXED BY instances_listed WHERE {_LANE} LIMIT :size) {_NEWEST}
    """,
)

# The instance that each target means, and how it ended if it has.
results = Sql(
    f"""
    SELECT a.target, i.id, i.status, i.result, i.error FROM ({ADDRESSES}) a
    LEFT JOIN instances i ON i.id = a.id
    """
)

# Which of these instances have ended, and how.
outcomes = Sql(
    """
    SELECT id, status, result, error FROM instances WHERE id IN :ids[text] AND finished_at IS NOT NULL
    """
)

# For callers that wait for a condition: one statement for all of them.
statuses = Sql("SELECT id, status FROM instances WHERE id IN :ids[text]")

# Which of these instances will have more events.
unfinished = Sql("SELECT id FROM instances WHERE id IN :ids[text] AND finished_at IS NULL")

# The queues with unfinished instances.
queues = Sql("SELECT DISTINCT queue FROM instances WHERE finished_at IS NULL")

# X6: the traces of instances, for the spans of calls about them.
traces_of = Sql("SELECT id, trace FROM instances WHERE id IN :ids[text]")
