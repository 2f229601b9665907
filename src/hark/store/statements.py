"""Every statement of the turns, each with the promise it keeps; what is sent beside them is in reads.py.

One statement does its work for a whole list; none is sent once per row. Kernel verbs decide in
Python, in between. "Under lock" means that the instance rows concerned are held by `lock` (invariant 3).
"""

from __future__ import annotations

from hark.store.sql import Row, Sql

# -- addresses and locks ---------------------------------------------------------------------------

# An id wins over a key; a key means its live holder, else the latest kept one.
ADDRESSES = """SELECT t.target AS target, coalesce(
        (SELECT i.id FROM instances i WHERE i.id = t.target),
        (SELECT i.id FROM instances i WHERE i.correlation_key = t.target AND i.holds_key),
        (SELECT i.id FROM instances i WHERE i.correlation_key = t.target ORDER BY i.created_at DESC LIMIT 1)) AS id
    FROM (SELECT DISTINCT r.target FROM {rows: target text}) t"""
addresses = Sql(ADDRESSES)
# Invariant 3: all instance rows of a turn, in id order, before anything else is looked at.
lock = Sql(
    """
    SELECT id, status, epoch, has_signals FROM instances WHERE id IN :ids[text] ORDER BY id FOR NO KEY UPDATE
    """
)


class Details(Row, frozen=True):
    """What cancel, retry and reclaim need of an instance row."""

    id: str
    status: str
    step: str
    epoch: int
    attempt: int
    crashes: int
    lease_owner: str | None
    correlation_key: str | None
    concurrency_key: str | None
    parent_id: str | None
    parent_wait: str | None
    counted: bool
    queue: str
    definition: str
    version: int


# Read under lock, or before it as a hint which rows and names to lock.
details = Sql(
    """
    SELECT id, status, step, epoch, attempt, crashes, lease_owner, correlation_key, concurrency_key,
           parent_id, parent_wait, counted, queue, definition, version
    FROM instances WHERE id IN :ids[text] ORDER BY id
    """,
    row=Details,
)
# The living below these instances, themselves not included; also those left over by a parent that has ended.
descendants = Sql(
    """
    WITH RECURSIVE below(id, parent_id, finished_at) AS (
        SELECT id, parent_id, finished_at FROM instances WHERE parent_id IN :ids[text]
        UNION SELECT i.id, i.parent_id, i.finished_at FROM below b CROSS JOIN instances i WHERE i.parent_id = b.id)
    SELECT id, parent_id FROM below WHERE finished_at IS NULL
    """
)

# -- starting --------------------------------------------------------------------------------------

# M11: who has one of these names, as an id, as a live or `forever` key, or as a tombstone.
taken = Sql(
    """
    SELECT id AS name, id AS holder FROM instances WHERE id IN :names[text]
    UNION ALL SELECT correlation_key, id FROM instances WHERE correlation_key IN :names[text] AND holds_key
    UNION ALL SELECT key, instance_id FROM tombstones WHERE key IN :names[text]
    """
)
insert_instances = Sql(
    """
    INSERT INTO instances (id, definition, version, kind, correlation_key, scope, holds_key, queue, priority,
        status, step, state, error, since, due_at, concurrency_key, rate_limit, weight, parent_id, parent_wait,
        nth, counted, created_at, updated_at, finished_at)
    SELECT r.id, r.definition, r.version, r.kind, r.correlation_key, r.scope, r.correlation_key IS NOT NULL,
        r.queue, r.priority, r.status, r.step, r.state, r.error, :position::bigint + r.ord, r.due_at, r.concurrency_key,
        r.rate_limit, r.weight, r.parent_id, r.parent_wait, r.ord, r.error IS NOT NULL, :now::bigint, :now::bigint,
        CASE WHEN r.error IS NOT NULL THEN :now::bigint END
    FROM {rows: id text, definition text, version integer, kind text, correlation_key text, scope text, queue text,
        priority integer, status text, step text, state text, error text, due_at bigint,
        concurrency_key text, rate_limit text, weight double precision, parent_id text, parent_wait text}
    ORDER BY r.ord
    """
)

# -- inbox -----------------------------------------------------------------------------------------

# S7: which of these were seen before, consumed or not. Under lock.
seen = Sql(
    """
    SELECT s.instance_id, s.dedup_key FROM {rows: id text, dedup_key text}
    JOIN signals s ON s.instance_id = r.id AND s.dedup_key = r.dedup_key
    """
)
# S9: who of all that were kept under a key has seen this; the latest, last.
seen_by_holders = Sql(
    """
    SELECT r.key, r.dedup_key, i.id FROM {rows: key text, dedup_key text}
    JOIN instances i ON i.correlation_key = r.key
    JOIN signals s ON s.instance_id = i.id AND s.dedup_key = r.dedup_key
    ORDER BY i.created_at
    """
)
insert_signals = Sql(
    """
    INSERT INTO signals (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT r.id, r.kind, r.name, r.wait_id, r.payload, r.dedup_key, :now::bigint
    FROM {rows: id text, kind text, name text, wait_id text, payload text, dedup_key text}
    ORDER BY r.ord
    RETURNING seq
    """
)
# The same to many: a broadcast sends its payload once, and its subscribers as one text, not fifty thousand.
_ALIKE = "{rows: ids text, kind text, name text, wait_id text, payload text, dedup_key text}"
insert_alike = Sql(
    f"""
    INSERT INTO signals (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT t.id, r.kind, r.name, r.wait_id, r.payload, r.dedup_key, :now::bigint FROM {_ALIKE}
    CROSS JOIN LATERAL unnest(string_to_array(r.ids, ' ')) WITH ORDINALITY AS t(id, place)
    ORDER BY r.ord, t.place
    RETURNING seq
    """,
    # SQLite takes lists apart as JSON; an id has nothing in it that JSON would quote. Each row is taken apart once, and
    # not again for each of its ids: that was three times slower for 20,000.
    sqlite=f"""
    WITH alike AS MATERIALIZED (SELECT * FROM {_ALIKE})
    INSERT INTO signals (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT t.value, a.kind, a.name, a.wait_id, a.payload, a.dedup_key, :now FROM alike a
    CROSS JOIN json_each('["' || replace(a.ids, ' ', '","') || '"]') AS t
    ORDER BY a.ord, t.key
    RETURNING seq
    """,
)
inbox = Sql(
    """
    SELECT seq, instance_id, kind, name, wait_id, payload, at FROM signals
    WHERE instance_id IN :ids[text] AND consumed_at IS NULL ORDER BY seq
    """
)
# What a park must check (invariant 4), without the payloads.
inbox_heads = Sql(
    """
    SELECT seq, instance_id, kind, name, wait_id FROM signals
    WHERE instance_id IN :ids[text] AND consumed_at IS NULL
    """
)
# S4: consumed is marked, not deleted, so that dedup outlives it.
consume = Sql("UPDATE signals SET consumed_at = :now::bigint WHERE seq IN :seqs[bigint]")
restore = Sql("UPDATE signals SET consumed_at = NULL WHERE seq IN :seqs[bigint]")
wake = Sql(
    """
    UPDATE instances SET status = 'runnable', since = :position::bigint, due_at = NULL, has_signals = true,
        updated_at = :now::bigint
    WHERE id IN :ids[text]
    """
)
# Where those just woken stand in line.
woken = Sql(
    """
    SELECT id, queue, priority, concurrency_key, rate_limit, weight, definition, version FROM instances
    WHERE id IN :ids[text]
    """
)
mark_has_signals = Sql("UPDATE instances SET has_signals = true WHERE id IN :ids[text]")

# -- waits -----------------------------------------------------------------------------------------

waits_of = Sql(
    """
    SELECT id, instance_id, place, kind, name, key, deadline, remaining, since, fired_at FROM waits
    WHERE instance_id IN :ids[text] AND closed_at IS NULL ORDER BY id
    """
)
insert_waits = Sql(
    """
    INSERT INTO waits (id, instance_id, place, kind, name, key, deadline, remaining, since)
    SELECT r.id, r.instance_id, r.place, r.kind, r.name, r.key, r.deadline, r.remaining, :now::bigint
    FROM {rows: id text, instance_id text, place text, kind text, name text, key text, deadline bigint,
        remaining integer}
    """
)
delete_waits = Sql("DELETE FROM waits WHERE id IN :ids[text]")
# Invariant 11: the finished have no waits; those of the failed are kept for a retry.
drop_waits = Sql("DELETE FROM waits WHERE instance_id IN :ids[text]")
close_waits = Sql("UPDATE waits SET closed_at = :now::bigint WHERE instance_id IN :ids[text]")
# The messages that failed instances waited for, and who waits for them by now.
closed_messages = Sql(
    """
    SELECT w.instance_id, w.name, w.key, o.instance_id FROM waits w
    LEFT JOIN waits o ON o.kind = 'message' AND o.closed_at IS NULL AND o.fired_at IS NULL
        AND o.name = w.name AND o.key = w.key
    WHERE w.instance_id IN :ids[text] AND w.kind = 'message' AND w.closed_at IS NOT NULL AND w.fired_at IS NULL
    """
)
reopen_waits = Sql("UPDATE waits SET closed_at = NULL WHERE instance_id IN :ids[text]")
fire_waits = Sql("UPDATE waits SET fired_at = :now::bigint WHERE id IN :ids[text]")
# M8: a child's end counts against its own wait; the parent is under lock.
count_children = Sql(
    """
    UPDATE waits AS w SET remaining = w.remaining - r.ended
    FROM {rows: id text, ended integer}
    WHERE w.id = r.id
    RETURNING w.id, w.instance_id, w.remaining, w.closed_at
    """,
    # SQLite's RETURNING does not know the alias.
    sqlite="""
    UPDATE waits AS w SET remaining = w.remaining - r.ended
    FROM {rows: id text, ended integer}
    WHERE w.id = r.id
    RETURNING id, instance_id, remaining, closed_at
    """,
)
message_waits = Sql(
    """
    SELECT w.instance_id, w.id, w.name, w.key FROM {rows: name text, key text}
    JOIN waits w ON w.kind = 'message' AND w.closed_at IS NULL AND w.fired_at IS NULL
        AND w.name = r.name AND w.key = r.key
    """
)
# In the order of the spawn.
children_of = Sql(
    """
    SELECT parent_wait, id, definition, status, state, result, error FROM instances
    WHERE parent_wait IN :waits[text] ORDER BY created_at, nth
    """
)

# -- outcomes --------------------------------------------------------------------------------------

# Invariant 2: joins on id and epoch only (a status predicate lures the planner into a partial index).
# Touches no indexed column: the update of a running row stays HOT.
# Its events ride along: the hottest statement of all, so its lists are sent once.
_ADVANCE = """UPDATE instances AS i SET step = r.step, state = r.state, attempt = 0, crashes = 0,
        epoch = i.epoch + 1, rate_limit = NULL, weight = 1, updated_at = :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text}
    WHERE i.id = r.id AND i.epoch = r.epoch"""
_ADVANCED = """INSERT INTO events (tx, instance_id, type, step, at)
    SELECT :tx::bigint, r.id, 'next', r.step, :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text} ORDER BY r.ord"""
advance = Sql(
    f"WITH moved AS ({_ADVANCE}) {_ADVANCED}",
    # SQLite has no UPDATE in a WITH, but takes two statements at once.
    sqlite=f"{_ADVANCE}; {_ADVANCED}",
)
_ADVANCING = """INSERT INTO events (tx, instance_id, type, step, at)
    SELECT :tx::bigint, r.id, 'next', r.step, :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text}
    JOIN instances i ON i.id = r.id AND i.epoch = r.epoch ORDER BY r.ord"""
# A turn of nothing but these is this one statement: the update takes the locks itself, in the order of its list
# (invariant 3), and compares the epoch anew when it had to wait for one (invariant 2).
# Answers how many moved, and which of them have mail.
advance_all = Sql(
    f"""
    WITH moved AS ({_ADVANCE} RETURNING i.id, i.step, i.has_signals),
    told AS (
        INSERT INTO events (tx, instance_id, type, step, at)
        SELECT :tx::bigint, id, 'next', step, :now::bigint FROM moved)
    SELECT count(*), string_agg(id, ' ') FILTER (WHERE has_signals) FROM moved
    """,
    # One row for each that moved. The events first: afterwards nobody has that epoch any more.
    sqlite=f"""
    {_ADVANCING}; {_ADVANCE} RETURNING 1, CASE WHEN has_signals THEN id END
    """,
)
# Back into the position: a Retry, a Next under a limit or another key, a Next that makes room.
requeue = Sql(
    """
    UPDATE instances AS i SET status = 'runnable', step = r.step, state = r.state, attempt = r.attempt, crashes = 0,
        epoch = i.epoch + 1, since = :position::bigint, due_at = r.due_at, lease_owner = NULL,
        concurrency_key = r.concurrency_key, rate_limit = r.rate_limit, weight = r.weight, visit = i.visit + r.anew,
        updated_at = :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text, attempt integer, due_at bigint, concurrency_key text,
        rate_limit text, weight double precision, anew integer}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """
)
# Parked, or runnable at once when its answer is there already.
park = Sql(
    """
    UPDATE instances AS i SET status = r.status, step = r.step, state = r.state, attempt = 0, crashes = 0,
        epoch = i.epoch + 1, since = :position::bigint, due_at = r.due_at, lease_owner = NULL, rate_limit = NULL,
        weight = 1, updated_at = :now::bigint
    FROM {rows: id text, epoch bigint, status text, step text, state text, due_at bigint}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """
)
# The end. Limits stay as they are, for a retry.
finish = Sql(
    """
    UPDATE instances AS i SET status = r.status, step = r.step, state = r.state, result = r.result, error = r.error,
        attempt = 0, crashes = 0, epoch = i.epoch + 1, lease_owner = NULL, counted = true,
        holds_key = (i.holds_key AND i.scope = 'forever'), updated_at = :now::bigint, finished_at = :now::bigint
    FROM {rows: id text, epoch bigint, status text, step text, state text, result text, error text}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """
)
# A graceful stop gives work back: no attempt, no crash counted.
hand_back = Sql(
    """
    UPDATE instances AS i SET status = 'runnable', lease_owner = NULL, epoch = i.epoch + 1,
        updated_at = :now::bigint
    FROM {rows: id text, epoch bigint}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """
)
# M5: a lost lease adds one to attempt and to crashes. Under lock.
reclaim = Sql(
    """
    UPDATE instances SET status = 'runnable', lease_owner = NULL, epoch = epoch + 1, attempt = attempt + 1,
        crashes = crashes + 1, updated_at = :now::bigint
    WHERE id IN :ids[text]
    """
)
# Cancelled, or quarantined: the end by somebody else's hand. Under lock.
end = Sql(
    """
    UPDATE instances AS i SET status = r.status, error = r.error, lease_owner = NULL, blocked_on = NULL,
        due_at = NULL, epoch = i.epoch + 1, counted = true, holds_key = (i.holds_key AND i.scope = 'forever'),
        updated_at = :now::bigint, finished_at = :now::bigint
    FROM {rows: id text, status text, error text} WHERE i.id = r.id
    """
)
# X8: a failed instance runs again from its failed step. Under lock.
revive = Sql(
    """
    UPDATE instances SET status = 'runnable', error = NULL, attempt = 0, crashes = 0, epoch = epoch + 1,
        since = :position::bigint, due_at = NULL, finished_at = NULL, holds_key = (correlation_key IS NOT NULL),
        updated_at = :now::bigint
    WHERE id IN :ids[text]
    """
)

# -- claiming --------------------------------------------------------------------------------------

# One index scan per lane (queue, definition, version); SKIP LOCKED so that workers do not meet.
claimable = Sql(
    """
    SELECT c.id, c.queue, c.priority, c.since, c.concurrency_key, c.rate_limit, c.weight
    FROM {rows: queue text, definition text, version integer, size integer}
    CROSS JOIN LATERAL (
        SELECT i.id, i.queue, i.priority, i.since, i.concurrency_key, i.rate_limit, i.weight FROM instances i
        WHERE i.queue = r.queue AND i.definition = r.definition AND i.version = r.version
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT r.size FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.priority, c.since
    """,
    # SQLite has no LATERAL, and a LIMIT there takes no column; a correlated IN does the same index scan,
    # and the few rows too many are left by the caller.
    sqlite="""
    SELECT c.id, c.queue, c.priority, c.since, c.concurrency_key, c.rate_limit, c.weight
    FROM {rows: queue text, definition text, version integer, size integer}
    CROSS JOIN instances c ON c.rowid IN (
        SELECT i.rowid FROM instances i INDEXED BY instances_claim
        WHERE i.queue = r.queue AND i.definition = r.definition AND i.version = r.version
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT :most)
    ORDER BY c.priority, c.since
    """,
)
# Also straight from a park that this turn has woken.
claim = Sql(
    """
    UPDATE instances SET status = 'executing', lease_owner = :owner::text, epoch = epoch + 1, due_at = NULL,
        has_signals = (has_signals OR status <> 'runnable'), updated_at = :now::bigint
    WHERE id IN :ids[text]
    RETURNING id, definition, version, kind, queue, priority, step, state, attempt, epoch, correlation_key,
        concurrency_key, parent_id, parent_wait, counted, has_signals, visit, crashes, rate_limit, weight
    """
)
# Refused by a bucket: out of the claim index, promoted when there is room. The bucket is locked.
block = Sql(
    """
    UPDATE instances AS i SET blocked_on = r.bucket FROM {rows: id text, bucket text} WHERE i.id = r.id
    """
)

# -- limits ----------------------------------------------------------------------------------------

insert_buckets = Sql(
    """
    INSERT INTO buckets (kind, key, shard, capacity, available, refilled_at)
    SELECT r.kind, r.key, r.shard, r.capacity, r.capacity, :now::bigint
    FROM {rows: kind text, key text, shard integer, capacity double precision}
    WHERE true ORDER BY r.kind, r.key, r.shard
    ON CONFLICT DO NOTHING
    """
)
# Buckets in key order; one that another worker holds is left out: refused means next turn.
try_buckets = Sql(
    """
    SELECT b.kind, b.key, b.shard, b.capacity, b.available, b.refilled_at, b.due_at
    FROM {rows: kind text, key text} JOIN buckets b ON b.kind = r.kind AND b.key = r.key
    ORDER BY b.kind, b.key, b.shard FOR NO KEY UPDATE OF b SKIP LOCKED
    """
)
# Freeing a slot waits for the bucket, so that a row blocked meanwhile is seen by the promotion.
hold_buckets = Sql(
    """
    SELECT kind, key, shard FROM buckets
    WHERE kind = 'slot' AND key IN :keys[text] ORDER BY kind, key, shard FOR NO KEY UPDATE
    """
)
# The last refill never moves back, or an hour would be refilled twice after a clock that jumped.
save_buckets = Sql(
    """
    UPDATE buckets AS b SET available = r.available, due_at = r.due_at, capacity = r.capacity,
        refilled_at = CASE WHEN b.refilled_at > :now::bigint THEN b.refilled_at ELSE :now::bigint END
    FROM {rows: kind text, key text, shard integer, capacity double precision, available double precision,
        due_at bigint}
    WHERE b.kind = r.kind AND b.key = r.key AND b.shard = r.shard
    """
)
slots_used = Sql(
    """
    SELECT concurrency_key, count(*) FROM instances
    WHERE concurrency_key IN :keys[text] AND status = 'executing' GROUP BY concurrency_key
    """
)
blocked_keys = Sql(
    """
    SELECT r.bucket FROM {rows: bucket text}
    WHERE EXISTS (SELECT 1 FROM instances i WHERE i.blocked_on = r.bucket)
    """
)
# The first in line for each bucket: who came later does not overtake it.
blocked_heads = Sql(
    """
    SELECT r.bucket, h.priority, h.since, h.weight FROM {rows: bucket text}
    CROSS JOIN LATERAL (
        SELECT i.priority, i.since, i.weight FROM instances i WHERE i.blocked_on = r.bucket
        ORDER BY i.priority, i.since LIMIT 1) h
    """,
    sqlite="""
    SELECT r.bucket, i.priority, i.since, i.weight FROM {rows: bucket text}
    JOIN instances i ON i.rowid = (
        SELECT h.rowid FROM instances h WHERE h.blocked_on = r.bucket ORDER BY h.priority, h.since LIMIT 1)
    """,
)
open_buckets = Sql(
    """
    UPDATE buckets SET due_at = :now::bigint WHERE kind = 'slot' AND key IN :keys[text]
    """
)
due_buckets = Sql(
    """
    SELECT kind, key, shard, capacity, available, refilled_at, due_at FROM buckets
    WHERE due_at <= :now::bigint ORDER BY due_at, kind, key, shard LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED
    """
)
promote = Sql(
    """
    UPDATE instances SET blocked_on = NULL WHERE id IN (
        SELECT c.id FROM {rows: bucket text, room integer}
        CROSS JOIN LATERAL (
            SELECT i.id FROM instances i WHERE i.blocked_on = r.bucket
            ORDER BY i.priority, i.since LIMIT r.room FOR NO KEY UPDATE SKIP LOCKED) c)
    RETURNING concurrency_key, queue, definition, version
    """,
    sqlite="""
    UPDATE instances SET blocked_on = NULL WHERE rowid IN (
        SELECT c.rowid FROM {rows: bucket text, room integer}
        CROSS JOIN instances c ON c.rowid IN (
            SELECT b.id FROM (
                SELECT i.rowid AS id, row_number() OVER (ORDER BY i.priority, i.since) AS place FROM instances i
                WHERE i.blocked_on = r.bucket LIMIT 500) b
            WHERE b.place <= r.room))
    RETURNING concurrency_key, queue, definition, version
    """,
)

# -- the sweep -------------------------------------------------------------------------------------

# Delays that are over and deadlines that have come; a row somebody holds is left for the next sweep.
due = Sql(
    """
    SELECT id, status, epoch, has_signals, queue, definition, version FROM instances WHERE due_at <= :now::bigint
    ORDER BY due_at LIMIT :size::bigint FOR NO KEY UPDATE SKIP LOCKED
    """
)
make_ready = Sql("UPDATE instances SET since = due_at, due_at = NULL WHERE id IN :ids[text]")
next_due = Sql(
    """
    SELECT min(t.due_at) FROM (
        SELECT (SELECT min(due_at) FROM instances WHERE due_at IS NOT NULL) AS due_at
        UNION ALL SELECT min(due_at) FROM buckets WHERE due_at IS NOT NULL) t
    """
)

# -- workers and leases ----------------------------------------------------------------------------

renew = Sql(
    """
    INSERT INTO workers (id, until, definitions, started_at)
    VALUES (:id::text, :until::bigint, :definitions::text, :now::bigint)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until, definitions = excluded.definitions
    """
)
# Who leaves, and who is dead: not the one that renewed between the look and this turn.
retire = Sql("DELETE FROM workers WHERE id IN :ids[text] AND (until < :now::bigint OR id IN :leaving[text])")
dead_workers = Sql("SELECT id FROM workers WHERE until < :now::bigint AND id <> :me::text ORDER BY id")
# Whom a dead worker left executing, and the owners that have no row at all.
abandoned = Sql(
    """
    SELECT i.id, i.parent_id FROM instances i WHERE i.lease_owner IN :owners[text]
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner AND w.until >= :now::bigint)
    ORDER BY i.id LIMIT 1000
    """
)
owners = Sql(
    """
    SELECT DISTINCT i.lease_owner FROM instances i WHERE i.lease_owner IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner)
    """
)
epochs = Sql("SELECT id, epoch FROM instances WHERE id IN :ids[text] AND status = 'executing'")

# -- broadcast -------------------------------------------------------------------------------------

subscribers = Sql(
    """
    SELECT DISTINCT w.name, w.instance_id FROM waits w
    WHERE w.kind = 'broadcast' AND w.closed_at IS NULL AND w.name IN :names[text] LIMIT :size::bigint
    """
)
broadcast_seen = Sql(
    """
    SELECT b.name, b.dedup_key, b.count FROM {rows: name text, dedup_key text}
    JOIN broadcasts b ON b.name = r.name AND b.dedup_key = r.dedup_key
    """
)
insert_broadcasts = Sql(
    """
    INSERT INTO broadcasts (id, name, payload, dedup_key, count, at)
    SELECT r.id, r.name, r.payload, r.dedup_key, r.count, :now::bigint
    FROM {rows: id text, name text, payload text, dedup_key text, count integer}
    """
)
# B1, very large: the marks say who is reached; whole or absent.
mark = Sql(
    """
    INSERT INTO deliveries (broadcast_id, instance_id)
    SELECT DISTINCT r.id, w.instance_id FROM {rows: id text, name text}
    JOIN waits w ON w.kind = 'broadcast' AND w.closed_at IS NULL AND w.name = r.name
    """
)
marked = Sql("SELECT broadcast_id, count(*) FROM deliveries WHERE broadcast_id IN :ids[text] GROUP BY broadcast_id")
# A chunk of one broadcast: the mark goes in the commit that writes the inboxes, so nobody gets it twice.
take_marks = Sql(
    """
    DELETE FROM deliveries WHERE (broadcast_id, instance_id) IN (
        SELECT broadcast_id, instance_id FROM deliveries ORDER BY broadcast_id, instance_id
        LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING broadcast_id, instance_id
    """
)
broadcasts_by_id = Sql("SELECT id, name, payload FROM broadcasts WHERE id IN :ids[text]")
any_marks = Sql("SELECT 1 FROM deliveries LIMIT 1")

# -- awakeables ------------------------------------------------------------------------------------

# X8: what was withdrawn after a failure is asked again by the retry of it, as the same question.
insert_awakeables = Sql(
    """
    INSERT INTO awakeables (id, instance_id, task, place, entry_index, timeout_at, nonce, title, description,
        schema, assignees, created_at)
    SELECT r.id, r.instance_id, r.task, r.place, r.entry_index, r.timeout_at, r.nonce, r.title, r.description,
        r.schema, r.assignees, :now::bigint
    FROM {rows: id text, instance_id text, task text, place text, entry_index integer, timeout_at bigint,
        nonce text, title text, description text, schema text, assignees text}
    WHERE true
    ON CONFLICT (instance_id, entry_index) DO UPDATE SET status = 'PENDING', timeout_at = excluded.timeout_at,
        resolved_at = NULL, answered_by = NULL
    WHERE awakeables.status = 'CANCELLED'
    """
)
awakeable_owners = Sql("SELECT id, instance_id FROM awakeables WHERE id IN :ids[text]")
awakeable_states = Sql(
    """
    SELECT id, instance_id, status, answered_by, resolved_at, schema, task, entry_index, timeout_at, created_at,
        title, description, assignees, nonce
    FROM awakeables WHERE id IN :ids[text]
    """
)
# Invariant 8: settled once; its instance is under lock. A wait that is kept after its answer must not time out later:
# `asker` is whose it is, and null when it will not be kept.
_SETTLE = """UPDATE awakeables AS a SET status = r.status, payload = r.payload, error = r.error,
        answered_by = r.answered_by, resolved_at = :now::bigint
    FROM {rows: id text, asker text, status text, payload text, error text, answered_by text}
    WHERE a.id = r.id AND a.status = 'PENDING'"""
_ANSWERED = """UPDATE waits AS w SET fired_at = :now::bigint
    FROM {rows: id text, asker text, status text, payload text, error text, answered_by text}
    WHERE w.instance_id = r.asker AND w.kind = 'awakeable' AND w.name = r.id"""
settle = Sql(
    f"WITH settled AS ({_SETTLE}) {_ANSWERED}",
    # SQLite has no UPDATE in a WITH, but takes two statements at once.
    sqlite=f"{_SETTLE}; {_ANSWERED}",
)
cancel_awakeables = Sql(
    """
    UPDATE awakeables SET status = 'CANCELLED', resolved_at = :now::bigint
    WHERE instance_id IN :ids[text] AND status = 'PENDING'
    """
)
# X8: a retry asks again what the failure cancelled; its wait is still closed. Withdrawn ones have no wait.
reopen_awakeables = Sql(
    """
    UPDATE awakeables SET status = 'PENDING', resolved_at = NULL, answered_by = NULL
    WHERE instance_id IN :ids[text] AND status = 'CANCELLED' AND EXISTS (
        SELECT 1 FROM waits w WHERE w.instance_id = awakeables.instance_id AND w.kind = 'awakeable'
            AND w.name = awakeables.id AND w.closed_at IS NOT NULL)
    """
)

# -- journal ---------------------------------------------------------------------------------------

# Each journal in its order, as its index has it: to sort them all costs a third as much again.
journal_of = Sql(
    """
    SELECT r.ord, j.seq, j.entry, j.kind, j.name, j.value, j.error FROM {rows: id text, visit integer}
    CROSS JOIN LATERAL (
        SELECT seq, entry, kind, name, value, error FROM journal
        WHERE instance_id = r.id AND visit = r.visit ORDER BY visit, seq) j
    """,
    # SQLite has no LATERAL.
    sqlite="""
    SELECT r.ord, j.seq, j.entry, j.kind, j.name, j.value, j.error FROM {rows: id text, visit integer}
    CROSS JOIN journal j ON j.instance_id = r.id AND j.visit = r.visit ORDER BY r.ord, j.seq
    """,
)
insert_journal = Sql(
    """
    INSERT INTO journal (instance_id, visit, seq, entry, kind, name, value, error)
    SELECT r.id, r.visit, r.seq, r.entry, r.kind, r.name, r.value, r.error
    FROM {rows: id text, visit integer, seq integer, entry integer, kind text, name text, value text, error text}
    """
)
# Lines a retry does again, and earlier visits.
cut_journal = Sql(
    """
    DELETE FROM journal AS j USING {rows: id text, visit integer, seq integer}
    WHERE j.instance_id = r.id AND (j.visit < r.visit OR (j.visit = r.visit AND j.seq >= r.seq))
    """,
    # SQLite's DELETE joins nothing.
    sqlite="""
    DELETE FROM journal WHERE (instance_id, visit, seq) IN (
        SELECT j.instance_id, j.visit, j.seq FROM {rows: id text, visit integer, seq integer}
        JOIN journal j ON j.instance_id = r.id AND (j.visit < r.visit OR (j.visit = r.visit AND j.seq >= r.seq)))
    """,
)

# -- misses ----------------------------------------------------------------------------------------

# D7: what reached nobody. No lock and no conflict: rows of a turn that are only ever read and trimmed.
insert_misses = Sql(
    """
    INSERT INTO misses (at, kind, target, name, reason, instance_id)
    SELECT :now::bigint, r.kind, r.target, r.name, r.reason, r.instance_id
    FROM {rows: kind text, target text, name text, reason text, instance_id text} ORDER BY r.ord
    """
)
# Old ones, and all but the newest few thousand.
forget_misses = Sql(
    """
    DELETE FROM misses WHERE seq IN (
        SELECT seq FROM misses WHERE at < :before::bigint OR seq <= (SELECT max(seq) FROM misses) - :most::bigint
        ORDER BY seq LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING seq
    """
)

# -- events, definitions ---------------------------------------------------------------------------

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
record_definitions = Sql(
    """
    INSERT INTO definitions (name, version, kind, queue, initial, source, digest, created_at)
    SELECT r.name, r.version, r.kind, r.queue, r.initial, r.source, r.digest, :now::bigint
    FROM {rows: name text, version integer, kind text, queue text, initial text, source text, digest text}
    WHERE true ORDER BY r.name, r.version
    ON CONFLICT (name, version) DO UPDATE SET kind = excluded.kind, queue = excluded.queue,
        initial = excluded.initial, source = excluded.source, digest = excluded.digest
    """
)
definitions = Sql("SELECT name, version, kind, queue, initial FROM definitions ORDER BY name, version")

# -- tokens ----------------------------------------------------------------------------------------

_TOKEN = "id, name, scopes, created_at, expires_at, revoked_at"
insert_tokens = Sql(
    f"""
    INSERT INTO tokens (id, hash, name, scopes, expires_at, created_at)
    SELECT r.id, r.hash, r.name, r.scopes, r.expires_at, :now::bigint
    FROM {{rows: id text, hash text, name text, scopes text, expires_at bigint}}
    RETURNING {_TOKEN}
    """
)
revoke_tokens = Sql(
    f"""
    UPDATE tokens SET revoked_at = coalesce(revoked_at, :now::bigint) WHERE id IN :ids[text] RETURNING {_TOKEN}
    """
)
read_tokens = Sql(f"SELECT {_TOKEN} FROM tokens ORDER BY created_at, id")
# X3: by their hashes; one that was revoked or is over is none.
live_tokens = Sql(
    f"""
    SELECT hash, {_TOKEN} FROM tokens
    WHERE hash IN :hashes[text] AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now::bigint)
    """
)
any_live_token = Sql(
    """
    SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now::bigint) LIMIT 1
    """
)

# -- retention -------------------------------------------------------------------------------------

_ANCESTOR = """
            WITH RECURSIVE above(id, parent_id, finished_at) AS (
                SELECT p.id, p.parent_id, p.finished_at FROM instances p WHERE p.id = i.parent_id
                UNION SELECT p.id, p.parent_id, p.finished_at FROM instances p JOIN above a ON p.id = a.parent_id)
            SELECT 1 FROM above WHERE finished_at IS NULL"""
# X7, the look beside the turns: who finished long ago, a page at a time, and who of them has no live ancestor.
# A page counts those that must stay too, so that it is short however many they are.
old = Sql(
    f"""
    SELECT i.id, i.finished_at, NOT EXISTS ({_ANCESTOR}) FROM instances i
    WHERE i.finished_at < :before::bigint AND (i.finished_at, i.id) > (:at::bigint, :after::text)
    ORDER BY i.finished_at, i.id LIMIT :size::bigint
    """
)
# The deed: those of them for whom it is still so.
# (`coalesce`: found by their ids; whoever proves that it is not null may go through the index of all that is old.)
expired = Sql(
    f"""
    SELECT i.id FROM instances i WHERE i.id IN :ids[text] AND coalesce(i.finished_at, :before::bigint) < :before::bigint
        AND NOT EXISTS ({_ANCESTOR})
    FOR NO KEY UPDATE OF i SKIP LOCKED
    """
)
bury = Sql(
    """
    INSERT INTO tombstones (key, instance_id, at)
    SELECT correlation_key, id, :now::bigint FROM instances
    WHERE id IN :ids[text] AND scope = 'forever' AND holds_key
    ON CONFLICT DO NOTHING
    """
)
forget_instances = Sql("DELETE FROM instances WHERE id IN :ids[text]")
# By the two indexes there are; what was consumed without a key is old enough for `forget_consumed`.
forget_signals = Sql(
    """
    DELETE FROM signals WHERE seq IN (
        SELECT seq FROM signals WHERE instance_id IN :ids[text] AND consumed_at IS NULL
        UNION ALL SELECT seq FROM signals WHERE instance_id IN :ids[text] AND dedup_key IS NOT NULL)
    """
)
forget_waits = Sql("DELETE FROM waits WHERE instance_id IN :ids[text]")
forget_awakeables = Sql("DELETE FROM awakeables WHERE instance_id IN :ids[text]")
forget_journal = Sql("DELETE FROM journal WHERE instance_id IN :ids[text]")
forget_events = Sql("DELETE FROM events WHERE instance_id IN :ids[text]")
# Consumed long ago, its instance alive: without a dedup key the row goes, with one only the payload.
forget_consumed = Sql(
    """
    DELETE FROM signals WHERE seq IN (
        SELECT seq FROM signals WHERE consumed_at < :before::bigint AND dedup_key IS NULL
        ORDER BY consumed_at LIMIT :size::bigint)
    RETURNING seq
    """
)
empty_consumed = Sql(
    """
    UPDATE signals SET payload = 'null' WHERE seq IN (
        SELECT seq FROM signals WHERE consumed_at < :before::bigint AND dedup_key IS NOT NULL
            AND payload <> 'null' ORDER BY consumed_at LIMIT :size::bigint)
    RETURNING seq
    """
)
forget_broadcasts = Sql(
    """
    DELETE FROM broadcasts WHERE at < :before::bigint
        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.broadcast_id = broadcasts.id)
    """
)
# Idle buckets: locked in one statement, judged in the next, when all who held them before have committed.
idle_buckets = Sql(
    """
    SELECT kind, key, shard FROM buckets WHERE refilled_at < :before::bigint AND due_at IS NULL
    ORDER BY kind, key, shard LIMIT :size::bigint FOR UPDATE SKIP LOCKED
    """
)
forget_buckets = Sql(
    """
    DELETE FROM buckets WHERE (kind, key, shard) IN (
            SELECT r.kind, r.key, r.shard FROM {rows: kind text, key text, shard integer})
        AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.blocked_on = buckets.kind || ':' || buckets.key)
        AND NOT EXISTS (SELECT 1 FROM instances i WHERE i.concurrency_key = buckets.key AND i.status = 'executing')
    """
)
