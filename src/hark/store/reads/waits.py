"""Read and count open waits."""

from __future__ import annotations

from hark.model.values import WaitKind
from hark.store.sql import Row, Sql


class OpenWait(Row, frozen=True):
    """A wait that is not answered yet."""

    id: str
    instance_id: str
    place: str
    kind: WaitKind
    name: str | None
    key: str | None
    deadline: int | None
    remaining: int | None
    since: int


# An instance that was woken and has not run since is not waiting any more, nor is one that executes and whose awakeable
# was settled. Not EXISTS, for which PostgreSQL may read whole tables into a hash table first.
_UNANSWERED = """((SELECT i.status FROM instances i WHERE i.id = o.instance_id) <> 'runnable'
            AND (o.kind <> 'awakeable' OR (SELECT a.status FROM awakeables a WHERE a.id = o.name) = 'PENDING'))"""
_OPEN = f"o.closed_at IS NULL AND o.fired_at IS NULL AND {_UNANSWERED}"

# The waits of these instances, in the order in which they were armed. `coalesce` keeps the planner from the
# index over all open waits.
open_waits_of = Sql(
    """
    SELECT id, instance_id, place, kind, name, key, deadline, remaining, since FROM waits
    WHERE instance_id IN :ids[text] AND coalesce(closed_at, fired_at) IS NULL ORDER BY id
    """,
    row=OpenWait,
)
_WAIT = "w.id, w.instance_id, w.place, w.kind, w.name, w.key, w.deadline, w.remaining, w.since"

# Open waits, longest first, after the position of the last row of the page before: one index scan per kind.
read_waits = Sql(
    f"""
    SELECT {_WAIT} FROM {{rows: kind text}}
    CROSS JOIN LATERAL (
        SELECT * FROM waits o
        WHERE o.kind = r.kind AND {_OPEN}
            AND (:name::text IS NULL OR o.name = :name::text) AND (o.since, o.id) > (:since::bigint, :after::text)
        ORDER BY o.since, o.id LIMIT :size::bigint) w
    ORDER BY w.since, w.id LIMIT :size::bigint
    """,
    # SQLite has no LATERAL; a correlated IN does the same scans.
    sqlite=f"""
    SELECT {_WAIT} FROM {{rows: kind text}}
    CROSS JOIN waits w ON w.rowid IN (
        SELECT o.rowid FROM waits o WHERE o.kind = r.kind AND {_OPEN}
            AND (:name IS NULL OR o.name = :name) AND (o.since, o.id) > (:since, :after)
        ORDER BY o.since, o.id LIMIT :size)
    ORDER BY w.since, w.id LIMIT :size
    """,
    row=OpenWait,
)

# ORDER BY, so that the planner does not prefer a scan for the few rows it expects.
_OLDEST = f"""(
            SELECT w.id, w.instance_id, w.kind, w.name, w.since FROM waits w
            WHERE w.kind = r.kind AND w.closed_at IS NULL AND w.fired_at IS NULL
            ORDER BY w.since, w.id LIMIT :most::bigint) o WHERE {_UNANSWERED}"""

# X6: of the oldest `most` waits. Waits that have their answer and are queued count towards the limit, so that the
# scan ends.
count_waits = Sql(
    f"""
    SELECT r.kind, w.count, w.since FROM {{rows: kind text}}
    CROSS JOIN LATERAL (SELECT count(*) AS count, min(o.since) AS since FROM {_OLDEST}) w
    """,
    # SQLite has no LATERAL.
    sqlite=f"""
    SELECT r.kind, (SELECT count(*) FROM {_OLDEST}), (SELECT min(o.since) FROM {_OLDEST}) FROM {{rows: kind text}}
    """,
)
