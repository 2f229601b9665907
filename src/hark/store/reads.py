"""Every statement that is sent beside the turns, for those who look: lists, histories, why, the doctor, figures.

They run on connections that cannot write, and go through an index whatever else is in the tables.
"""

from __future__ import annotations

from hark.store.sql import Sql
from hark.store.statements import ADDRESSES

# -- instances, waits, events, awakeables ------------------------------------------------------------

_INSTANCE = """id, definition, kind, version, step, status, state, result, error, attempt, queue,
           correlation_key, parent_id, created_at, finished_at, priority, blocked_on, due_at"""
read_instances = Sql(f"SELECT {_INSTANCE} FROM instances WHERE id IN :ids[text]")
# Every definition that has instances: one step through the index for each, not for each instance.
definitions_in_use = Sql(
    """
    WITH RECURSIVE used(definition) AS (
        SELECT min(definition) FROM instances
        UNION ALL SELECT (SELECT min(i.definition) FROM instances i WHERE i.definition > u.definition) FROM used u
        WHERE u.definition IS NOT NULL)
    SELECT definition FROM used WHERE definition IS NOT NULL
    """
)
# Newest first; (at, after) is the place of the last one seen. A lane is a definition and a status, and the index goes
# straight to its newest: a page is on the lanes with the newest heads, and what fits no lane is not walked over.
_LANE = """i.definition = r.definition AND i.status = r.status AND (:kind::text IS NULL OR i.kind = :kind::text)
            AND (i.created_at, i.id) < (:at::bigint, :after::text) ORDER BY i.created_at DESC, i.id DESC"""
_NEWEST = "ORDER BY c.created_at DESC, c.id DESC LIMIT :size::bigint"
list_instances = Sql(
    f"""
    WITH heads AS (
        SELECT r.definition, r.status FROM {{rows: definition text, status text}}
        CROSS JOIN LATERAL (SELECT i.created_at, i.id FROM instances i WHERE {_LANE} LIMIT 1) c {_NEWEST})
    SELECT c.id FROM heads r
    CROSS JOIN LATERAL (SELECT i.created_at, i.id FROM instances i WHERE {_LANE} LIMIT :size::bigint) c {_NEWEST}
    """,
    # SQLite has no LATERAL; see `claimable`.
    sqlite=f"""
    WITH heads AS (
        SELECT r.definition, r.status FROM {{rows: definition text, status text}}
        CROSS JOIN instances c ON c.rowid = (
            SELECT i.rowid FROM instances i INDEXED BY instances_listed WHERE {_LANE} LIMIT 1) {_NEWEST})
    SELECT c.id FROM heads r CROSS JOIN instances c ON c.rowid IN (
        SELECT i.rowid FROM instances i INDEXED BY instances_listed WHERE {_LANE} LIMIT :size) {_NEWEST}
    """,
)
# What is open, longest first, after the place of the last one seen: one index scan per kind.
# Who has been answered and has not gone on yet is not waiting any more.
_UNANSWERED = """(o.kind <> 'awakeable'
            OR EXISTS (SELECT 1 FROM awakeables a WHERE a.id = o.name AND a.status = 'PENDING'))"""
_OPEN = f"o.closed_at IS NULL AND o.fired_at IS NULL AND {_UNANSWERED}"
read_waits = Sql(
    f"""
    SELECT w.instance_id, w.kind, w.name, w.place, w.deadline, w.since, w.id FROM {{rows: kind text}}
    CROSS JOIN LATERAL (
        SELECT o.instance_id, o.kind, o.name, o.place, o.deadline, o.since, o.id FROM waits o
        WHERE o.kind = r.kind AND {_OPEN}
            AND (:name::text IS NULL OR o.name = :name::text) AND (o.since, o.id) > (:since::bigint, :after::text)
        ORDER BY o.since, o.id LIMIT :size::bigint) w
    ORDER BY w.since, w.id LIMIT :size::bigint
    """,
    # SQLite has no LATERAL; a correlated IN does the same scans.
    sqlite=f"""
    SELECT w.instance_id, w.kind, w.name, w.place, w.deadline, w.since, w.id FROM {{rows: kind text}}
    CROSS JOIN waits w ON w.rowid IN (
        SELECT o.rowid FROM waits o WHERE o.kind = r.kind AND {_OPEN}
            AND (:name IS NULL OR o.name = :name) AND (o.since, o.id) > (:since, :after)
        ORDER BY o.since, o.id LIMIT :size)
    ORDER BY w.since, w.id LIMIT :size
    """,
)
# Who is meant, and how it ended if it has.
results = Sql(
    f"""
    SELECT a.target, i.id, i.status, i.result, i.error FROM ({ADDRESSES}) a
    LEFT JOIN instances i ON i.id = a.id
    """
)
outcomes = Sql(
    """
    SELECT id, status, result, error FROM instances WHERE id IN :ids[text] AND finished_at IS NOT NULL
    """
)
# For callers that wait for a condition: one statement for all of them.
statuses = Sql("SELECT id, status FROM instances WHERE id IN :ids[text]")
_EVENT = "e.seq, e.instance_id, e.type, e.step, e.data, e.at"
events_of = Sql(
    f"""
    SELECT {_EVENT}, e.tx FROM events e WHERE e.instance_id = :id::text AND e.seq < :seq::bigint
    ORDER BY e.seq DESC LIMIT :size::bigint
    """
)
latest_events = Sql(
    f"""
    SELECT {_EVENT}, e.tx FROM events e WHERE (e.tx, e.seq) < (:tx::bigint, :seq::bigint)
    ORDER BY e.tx DESC, e.seq DESC LIMIT :size::bigint
    """,
    # Its key is seq alone.
    sqlite=f"""
    SELECT {_EVENT}, e.tx FROM events e WHERE e.seq < :seq AND :tx = :tx ORDER BY e.seq DESC LIMIT :size
    """,
)
# Invariant 17: a cursor over several instances does not pass a turn that is still running. Who writes here holds a
# shared lock from before it has a number to after it has ended; all locks are seen at one instant. One that has no
# number yet may be about to get a low one: then the oldest of the whole server counts, as it does for all others.
# Asked before the events are read, in a statement of its own: who is not seen here has ended, and can be read then.
horizon = Sql(
    """
    WITH held AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted AND locktype IN ('advisory', 'transactionid')),
    latest AS (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS tx),
    writers AS (
        SELECT t.transactionid IS NULL AS unborn,
            (latest.tx - t.transactionid::text::bigint + 4294967296) % 4294967296 AS age
        FROM latest CROSS JOIN held w LEFT JOIN held t
            ON t.pid = w.pid AND t.locktype = 'transactionid' AND t.mode = 'ExclusiveLock'
        WHERE w.locktype = 'advisory' AND w.objsubid = 2 AND w.objid::bigint = 4294967295
            AND w.classid::bigint = (hashtext('hark:' || current_schema())::bigint + 4294967296) % 4294967296
            AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
    SELECT CASE WHEN (SELECT bool_or(unborn) FROM writers)
        THEN pg_snapshot_xmin(pg_current_snapshot())::text::bigint
        ELSE latest.tx - coalesce((SELECT max(age) FROM writers WHERE age < 2147483648), 0) END
    FROM latest
    """,
    # One writer: seq is the order of commits.
    sqlite="SELECT 9223372036854775807",
)
events_after = Sql(
    f"""
    SELECT {_EVENT}, e.tx FROM events e
    WHERE (e.tx, e.seq) > (:tx::bigint, :seq::bigint) AND e.tx < :horizon::bigint
    ORDER BY e.tx, e.seq LIMIT :size::bigint
    """,
    sqlite=f"""
    SELECT {_EVENT}, e.tx FROM events e WHERE e.seq > :seq AND :tx < :horizon ORDER BY e.seq LIMIT :size
    """,
)
# Each of these instances from its own place on. An event is written under its instance's lock (invariant 3), so the
# seqs of one instance commit in order, and none is skipped.
follow = Sql(
    f"""
    SELECT {_EVENT}, e.tx FROM {{rows: id text, seq bigint}}
    CROSS JOIN LATERAL (
        SELECT * FROM events o WHERE o.instance_id = r.id AND o.seq > r.seq ORDER BY o.seq LIMIT :size::bigint) e
    ORDER BY e.seq
    """,
    sqlite=f"""
    SELECT {_EVENT}, e.tx FROM {{rows: id text, seq bigint}}
    CROSS JOIN events e ON e.seq IN (
        SELECT o.seq FROM events o WHERE o.instance_id = r.id AND o.seq > r.seq ORDER BY o.seq LIMIT :size)
    ORDER BY e.seq
    """,
)
unfinished = Sql("SELECT id FROM instances WHERE id IN :ids[text] AND finished_at IS NULL")
# Whole histories, for an export.
events_of_all = Sql(f"SELECT {_EVENT}, e.tx FROM events e WHERE e.instance_id IN :ids[text] ORDER BY e.seq")
# By the three indexes there are: what was consumed without a key was consumed while one of them lived.
signals_of_all = Sql(
    """
    SELECT instance_id, kind, name, payload, dedup_key, at, consumed_at FROM signals
    WHERE kind IN ('signal', 'broadcast', 'message') AND seq IN (
        SELECT seq FROM signals WHERE instance_id IN :ids[text] AND consumed_at IS NULL
        UNION ALL SELECT seq FROM signals WHERE instance_id IN :ids[text] AND dedup_key IS NOT NULL
            AND consumed_at IS NOT NULL
        UNION ALL SELECT seq FROM signals WHERE consumed_at BETWEEN :since::bigint AND :before::bigint
            AND dedup_key IS NULL AND instance_id IN :ids[text])
    ORDER BY seq
    """
)
_AWAKEABLE = """id, instance_id, task, entry_index, status, payload, error, timeout_at, created_at, resolved_at,
        title, description, schema, assignees, answered_by, nonce"""
read_awakeables = Sql(f"SELECT {_AWAKEABLE} FROM awakeables WHERE id IN :ids[text]")
# The oldest first. Along the unique index of (instance_id, entry_index).
open_awakeables = Sql(
    f"""
    SELECT {_AWAKEABLE} FROM awakeables WHERE instance_id IN :ids[text] AND status = 'PENDING'
    ORDER BY created_at, entry_index
    """
)
list_awakeables = Sql(
    f"""
    SELECT {_AWAKEABLE} FROM awakeables
    WHERE (:job::text IS NULL OR instance_id = :job::text) AND (:status::text IS NULL OR status = :status::text)
        AND (created_at, id) < (:at::bigint, :after::text)
    ORDER BY created_at DESC, id DESC LIMIT :size::bigint
    """
)
# Newest first: the first signs.
secrets = Sql("SELECT secret FROM secrets ORDER BY number DESC")
queues = Sql("SELECT DISTINCT queue FROM instances WHERE finished_at IS NULL")

# -- why (D7) --------------------------------------------------------------------------------------

why_instance = Sql(
    """
    SELECT id, definition, version, status, step, correlation_key, holds_key, queue, since, due_at, blocked_on,
           lease_owner, created_at, updated_at, finished_at, error
    FROM instances WHERE id = :id::text
    """
)
live_workers = Sql("SELECT id, definitions FROM workers WHERE until >= :now::bigint ORDER BY id LIMIT 1000")
# Who has the slots it waits for, and when the sweep looks at its bucket next.
slot_holders = Sql(
    """
    SELECT id, step, lease_owner FROM instances WHERE concurrency_key = :key::text AND status = 'executing'
    ORDER BY id LIMIT 5
    """
)
bucket_due = Sql("SELECT min(due_at) FROM buckets WHERE kind = :kind::text AND key = :key::text")
unfinished_children = Sql(
    """
    SELECT parent_wait, id, status, step FROM instances
    WHERE parent_wait IN :waits[text] AND finished_at IS NULL ORDER BY created_at, id LIMIT 20
    """
)
unconsumed_signals = Sql(
    """
    SELECT kind, name, at FROM signals WHERE instance_id = :id::text AND consumed_at IS NULL
    ORDER BY seq DESC LIMIT 200
    """
)
# Of the latest signals of all those with such a name that went to others. A look back, not a search: an index
# over names would be paid by every signal.
signals_to_others = Sql(
    """
    SELECT s.name, s.at, i.id, i.correlation_key, coalesce(s.consumed_at, i.finished_at) FROM (
        SELECT seq, instance_id, kind, name, at, consumed_at FROM signals ORDER BY seq DESC LIMIT 2000) s
    JOIN instances i ON i.id = s.instance_id
    WHERE s.kind = 'signal' AND s.name IN :names[text] AND s.instance_id <> :id::text AND s.at >= :since::bigint
    ORDER BY s.seq DESC LIMIT 5
    """
)
broadcasts_named = Sql(
    """
    SELECT name, at, count FROM broadcasts WHERE at >= :since::bigint AND name IN :names[text]
    ORDER BY at DESC LIMIT 20
    """
)
_MISS = "seq, at, kind, target, name, reason, instance_id"
misses_of = Sql(
    f"""
    SELECT {_MISS} FROM misses WHERE target IN :targets[text]
    UNION SELECT {_MISS} FROM misses WHERE instance_id = :id::text
    ORDER BY seq DESC LIMIT 200
    """
)
misses_named = Sql(
    f"""
    SELECT {_MISS} FROM misses WHERE name IN :names[text] AND at >= :since::bigint ORDER BY seq DESC LIMIT 200
    """
)

# -- the doctor ------------------------------------------------------------------------------------

schema_version = Sql("SELECT max(version) FROM migrations")
all_workers = Sql("SELECT id, until, definitions, started_at FROM workers ORDER BY started_at, id LIMIT 1000")
count_unfinished = Sql(
    "SELECT definition, version, status, count(*) FROM instances WHERE finished_at IS NULL GROUP BY 1, 2, 3"
)
count_overdue = Sql("SELECT count(*), min(due_at) FROM instances WHERE due_at < :before::bigint")
abandoned_count = Sql(
    """
    SELECT count(*) FROM instances i WHERE i.lease_owner IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner AND w.until >= :now::bigint)
    """
)
oldest_wait = Sql(
    f"""
    SELECT o.instance_id, o.kind, o.name, o.since FROM waits o WHERE {_OPEN} ORDER BY o.since, o.id LIMIT 1
    """
)

# -- figures ---------------------------------------------------------------------------------------

# X6: every count goes through an index and stops at `most`: a scrape never scans a table.
count_busy = Sql(
    """
    SELECT (SELECT count(*) FROM (SELECT 1 FROM instances WHERE lease_owner IS NOT NULL LIMIT :most::bigint) e),
        (SELECT count(*) FROM (SELECT 1 FROM instances WHERE blocked_on IS NOT NULL LIMIT :most::bigint) b)
    """
)
# Ordered, so that no planner prefers a scan for the few it hopes to find.
_OLDEST = f"""(
            SELECT w.id, w.kind, w.name, w.since FROM waits w
            WHERE w.kind = r.kind AND w.closed_at IS NULL AND w.fired_at IS NULL
            ORDER BY w.since, w.id LIMIT :most::bigint) o WHERE {_UNANSWERED}"""
# Of the oldest `most`: also those who have their answer and stand in line are not walked over without end.
count_waits = Sql(
    f"""
    SELECT r.kind, (SELECT count(*) FROM {_OLDEST}), (SELECT min(o.since) FROM {_OLDEST}) FROM {{rows: kind text}}
    """
)
# From lane to lane along the claim index, not along its rows.
_READY = "i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL"
_QUEUED = f"i.queue = l.queue AND i.definition = l.definition AND i.version = l.version AND {_READY}"
_FIRST = f"""SELECT i.queue, i.definition, i.version FROM instances i WHERE {_READY}
            ORDER BY i.queue, i.definition, i.version LIMIT 1"""
_COUNT = f"""SELECT l.queue,
        sum((SELECT count(*) FROM (
            SELECT i.since FROM instances i WHERE {_QUEUED} ORDER BY i.priority, i.since LIMIT :most::bigint) n)),
        min((SELECT i.since FROM instances i WHERE {_QUEUED} ORDER BY i.priority, i.since LIMIT 1))
    FROM lanes l GROUP BY l.queue"""
count_ready = Sql(
    f"""
    WITH RECURSIVE lanes(queue, definition, version) AS (
        ({_FIRST})
        UNION ALL
        SELECT n.queue, n.definition, n.version FROM lanes l CROSS JOIN LATERAL (
            SELECT i.queue, i.definition, i.version FROM instances i WHERE {_READY}
                AND (i.queue, i.definition, i.version) > (l.queue, l.definition, l.version)
            ORDER BY i.queue, i.definition, i.version LIMIT 1) n)
    {_COUNT}
    """,
    # SQLite has no LATERAL, and uses only the first column of such a comparison: a step to the next version, else to
    # the next definition, else to the next queue.
    sqlite=f"""
    WITH RECURSIVE lanes(queue, definition, version) AS (
        SELECT * FROM ({_FIRST})
        UNION ALL
        SELECT n.queue, n.definition, n.version FROM lanes l CROSS JOIN instances n ON n.rowid = coalesce(
            (SELECT i.rowid FROM instances i WHERE i.queue = l.queue AND i.definition = l.definition
                AND i.version > l.version AND {_READY} ORDER BY i.version LIMIT 1),
            (SELECT i.rowid FROM instances i WHERE i.queue = l.queue AND i.definition > l.definition
                AND {_READY} ORDER BY i.definition, i.version LIMIT 1),
            (SELECT i.rowid FROM instances i WHERE i.queue > l.queue
                AND {_READY} ORDER BY i.queue, i.definition, i.version LIMIT 1)))
    {_COUNT}
    """,
)
