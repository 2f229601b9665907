"""Read the events of runs: of a job and of its tasks, whose ids are in a range behind that of the job.

Other instances may have ids in that range: a task is recognised by its parent, which is the job or a map of it.

A cursor is (tx, seq), as for the events of all instances: it does not pass a turn that is still running (invariant 17).
"""

from __future__ import annotations

from hark.store.reads.events import HORIZON, EventRow
from hark.store.reads.waits import OpenWait
from hark.store.sql import Sql

# `coalesce` keeps PostgreSQL 18 from skipping through `instances_listed`, which has the kind and the id.
_OF_ID = """coalesce(t.kind, '') = 'task' AND (t.parent_id = :id::text OR EXISTS (
            SELECT 1 FROM instances m WHERE m.id = t.parent_id AND m.kind = 'task' AND m.parent_id = :id::text))"""
_OF_ROW = """coalesce(t.kind, '') = 'task' AND (t.parent_id = r.id OR EXISTS (
            SELECT 1 FROM instances m WHERE m.id = t.parent_id AND m.kind = 'task' AND m.parent_id = r.id))"""
_EVENT = "e.seq, e.instance_id, e.type, e.step, e.data, e.at, e.tx"
# All events of the run by the index of instances, and only then the page: the primary key has the order of the page,
# but would be read through the events of all other instances.
_OWN = f"""WITH own AS MATERIALIZED (
        SELECT o.tx, o.seq, coalesce(octet_length(o.data), 0) AS size FROM events o WHERE o.instance_id = :id::text
        UNION ALL SELECT o.tx, o.seq, coalesce(octet_length(o.data), 0) FROM instances t CROSS JOIN events o
        WHERE o.instance_id = t.id AND t.id >= :low::text AND t.id < :high::text AND {_OF_ID})"""
_SUM = "SELECT o.tx, o.seq, sum(o.size) OVER"
_BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM"
_FITTING = """CROSS JOIN events e
    WHERE e.tx = n.tx AND e.seq = n.seq AND coalesce(n.before, 0) < :bytes::bigint"""

# The position up to which the events of all instances can be read without missing one that commits later.
head = Sql(
    f"SELECT h.tx - 1, 9223372036854775807 FROM ({HORIZON}) AS h(tx)",
    # One writer: seq is the order of commits.
    sqlite="SELECT 0, coalesce(max(seq), 0) FROM events",
)

# The history of a run, newest first.
latest_run_events = Sql(
    f"""
    {_OWN}
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.tx DESC, o.seq DESC {_BEFORE} (
        SELECT * FROM own o WHERE (o.tx, o.seq) < (:tx::bigint, :seq::bigint)
        ORDER BY o.tx DESC, o.seq DESC LIMIT :size::bigint) o) n {_FITTING}
    ORDER BY e.tx DESC, e.seq DESC
    """,
    row=EventRow,
)

# The events of a run after a cursor, up to `head`, in the order of commits.
run_events = Sql(
    f"""
    {_OWN}
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.tx, o.seq {_BEFORE} (
        SELECT * FROM own o
        WHERE (o.tx, o.seq) > (:tx::bigint, :seq::bigint) AND (o.tx, o.seq) <= (:to_tx::bigint, :to_seq::bigint)
        ORDER BY o.tx, o.seq LIMIT :size::bigint) o) n {_FITTING}
    ORDER BY e.tx, e.seq
    """,
    row=EventRow,
)

# The end of a scan of the newest events, `size` of them at most, and their number: one row, or none.
scan_end = Sql(
    """
    SELECT t.tx, t.seq, count(*) OVER () FROM (
        SELECT o.tx, o.seq FROM events o
        WHERE (o.tx, o.seq) > (:tx::bigint, :seq::bigint) AND (o.tx, o.seq) <= (:to_tx::bigint, :to_seq::bigint)
        ORDER BY o.tx, o.seq LIMIT :size::bigint) t
    ORDER BY t.tx DESC, t.seq DESC LIMIT 1
    """,
    # The primary key is seq alone.
    sqlite="""
    SELECT 0, t.seq, count(*) OVER () FROM (
        SELECT o.seq FROM events o WHERE o.seq > :seq AND o.seq <= :to_seq AND :tx <= :to_tx
        ORDER BY o.seq LIMIT :size) t
    ORDER BY t.seq DESC LIMIT 1
    """,
)
_IN_RANGE = """EXISTS (SELECT 1 FROM {rows: id text, low text, high text}
            WHERE o.instance_id = r.id OR (o.instance_id >= r.low AND o.instance_id < r.high AND EXISTS (
            SELECT 1 FROM instances t WHERE t.id = o.instance_id AND"""
_FOLLOWED = f"{_IN_RANGE} {_OF_ROW})))"

# The events of some runs within such a scan.
scan_runs = Sql(
    f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.tx, o.seq {_BEFORE} (
        SELECT o.tx, o.seq, coalesce(octet_length(o.data), 0) AS size FROM events o
        WHERE (o.tx, o.seq) > (:tx::bigint, :seq::bigint) AND (o.tx, o.seq) <= (:to_tx::bigint, :to_seq::bigint)
            AND {_FOLLOWED}
        ORDER BY o.tx, o.seq) o) n {_FITTING}
    ORDER BY e.tx, e.seq
    """,
    # The primary key is seq alone.
    sqlite=f"""
    SELECT {_EVENT} FROM ({_SUM} (ORDER BY o.seq {_BEFORE} (
        SELECT o.tx, o.seq, coalesce(octet_length(o.data), 0) AS size FROM events o
        WHERE o.seq > :seq AND o.seq <= :to_seq AND :tx <= :to_tx AND {_FOLLOWED}
        ORDER BY o.seq) o) n {_FITTING}
    ORDER BY e.seq
    """,
    row=EventRow,
)


class WaitOfTask(OpenWait, frozen=True):
    """A wait of a task of a run that is not answered yet, with the name of the task."""

    task: str


# D7: the waits of the tasks of a job, the longest first.
open_waits_of_tasks = Sql(
    f"""
    SELECT w.id, w.instance_id, w.place, w.kind, w.name, w.key, w.deadline, w.remaining, w.since, t.step
    FROM waits w JOIN instances t ON t.id = w.instance_id
    WHERE w.instance_id >= :low::text AND w.instance_id < :high::text AND coalesce(w.closed_at, w.fired_at) IS NULL
        AND w.kind <> 'children' AND t.status <> 'runnable' AND {_OF_ID}
    ORDER BY w.since, w.id LIMIT :size::bigint
    """,
    row=WaitOfTask,
)

# The kind of an instance: a job is read with its tasks.
kind_of = Sql("SELECT kind FROM instances WHERE id = :id::text")
