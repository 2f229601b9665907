"""Claim instances for a worker, and find those whose delay or deadline is over."""

from __future__ import annotations

from hark.model.activation import CLAIM_COLUMNS
from hark.store.sql import Sql

_CANDIDATE = "c.id, c.queue, c.priority, c.since, c.concurrency_key, c.rate_limit, c.weight"
_IN_LANE = """FROM {rows: queue text, lane text, size integer}
    CROSS JOIN LATERAL (
        SELECT i.id, i.queue, i.priority, i.since, i.concurrency_key, i.rate_limit, i.weight, i.lane FROM instances i
        WHERE i.queue = r.queue AND i.lane = r.lane
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT r.size FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.priority, c.since"""
# SQLite has no LATERAL, and its LIMIT cannot be a column. A correlated IN does the same index scan; the caller ignores
# the few rows too many.
_IN_LANE_SQLITE = """FROM {rows: queue text, lane text, size integer}
    CROSS JOIN instances c ON c.rowid IN (
        SELECT i.rowid FROM instances i INDEXED BY instances_claim
        WHERE i.queue = r.queue AND i.lane = r.lane
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
        ORDER BY i.priority, i.since LIMIT :most)
    ORDER BY c.priority, c.since"""

# M10: one index scan per lane of a queue; SKIP LOCKED, so that workers do not wait for each other.
claimable = Sql(f"SELECT {_CANDIDATE} {_IN_LANE}", sqlite=f"SELECT {_CANDIDATE} {_IN_LANE_SQLITE}")

# J11: claimable rows for workers outside, with their lanes.
claimable_tasks = Sql(
    f"SELECT {_CANDIDATE}, c.lane {_IN_LANE}", sqlite=f"SELECT {_CANDIDATE}, c.lane {_IN_LANE_SQLITE}"
)

# J11: the queues that have claimable rows, each one step in the index: a worker outside takes tasks from all of them.
claimable_queues = Sql(
    """
    WITH RECURSIVE found (queue) AS (
        SELECT min(queue) FROM instances WHERE status = 'runnable' AND blocked_on IS NULL AND due_at IS NULL
        UNION ALL
        SELECT (SELECT min(i.queue) FROM instances i WHERE i.queue > f.queue
            AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL)
        FROM found f WHERE f.queue IS NOT NULL)
    SELECT queue FROM found WHERE queue IS NOT NULL
    """
)

# V3: the groups of held instances: lanes, each with the fingerprints of the codes that do not fit. A step through the
# index finds the next group, whatever the number of instances.
held_groups = Sql(
    """
    WITH RECURSIVE found (lane, held_by) AS (
        SELECT i.lane, i.held_by FROM instances i
        WHERE i.id = (SELECT n.id FROM instances n WHERE n.status = 'held' ORDER BY n.lane, n.held_by LIMIT 1)
        UNION ALL
        SELECT i.lane, i.held_by FROM found f CROSS JOIN instances i
        WHERE i.id = coalesce(
            (SELECT n.id FROM instances n WHERE n.status = 'held' AND n.lane = f.lane AND n.held_by > f.held_by
                ORDER BY n.lane, n.held_by LIMIT 1),
            (SELECT n.id FROM instances n WHERE n.status = 'held' AND n.lane > f.lane
                ORDER BY n.lane, n.held_by LIMIT 1)))
    SELECT lane, held_by FROM found
    """
)

# V3: held instances of these groups, the most urgent first, with the codes that do not fit. SKIP LOCKED, as in every
# claim.
claimable_held = Sql(
    f"""
    SELECT r.held_by, {_CANDIDATE} FROM {{rows: lane text, held_by text}}
    CROSS JOIN LATERAL (
        SELECT i.id, i.queue, i.priority, i.since, i.concurrency_key, i.rate_limit, i.weight FROM instances i
        WHERE i.status = 'held' AND i.lane = r.lane AND i.held_by = r.held_by AND i.queue IN :queues[text]
        ORDER BY i.priority, i.since LIMIT :most::bigint FOR NO KEY UPDATE SKIP LOCKED) c
    ORDER BY c.priority, c.since
    """,
    sqlite=f"""
    SELECT r.held_by, {_CANDIDATE} FROM {{rows: lane text, held_by text}}
    CROSS JOIN instances c ON c.rowid IN (
        SELECT i.rowid FROM instances i INDEXED BY instances_held
        WHERE i.status = 'held' AND i.lane = r.lane AND i.held_by = r.held_by AND i.queue IN :queues[text]
        ORDER BY i.priority, i.since LIMIT :most)
    ORDER BY c.priority, c.since
    """,
)

_CLAIMED = ", ".join(CLAIM_COLUMNS)
_CLAIMED_OF_I = "i." + ", i.".join(CLAIM_COLUMNS)
# The mask is that of model/epochs.py. It keeps the sum with the next nonce within a bigint.
_EPOCH = "epoch + :nonce::bigint) & 4611686018427387903"
_CLAIM = f"""UPDATE instances SET status = 'executing', lease_owner = :owner::text, epoch = ({_EPOCH}, due_at = NULL,
        has_inbox_rows = (has_inbox_rows OR status <> 'runnable'), updated_at = :now::bigint
    WHERE id IN :ids[text]"""

# X2, invariant 2: claim rows for this worker: a new epoch fences off every other claim, also one of a past that the
# database has lost. Also takes rows that are still parked and that this turn has woken.
claim = Sql(f"{_CLAIM} RETURNING {_CLAIMED}")

# Claim the instances that this turn has woken, if there is a slot for each of them and nothing else to claim: as
# far as they need no bucket, and this worker can run them.
claim_woken = Sql(
    f"""
    {_CLAIM} AND concurrency_key IS NULL AND rate_limit IS NULL AND queue IN :queues[text] AND lane IN :lanes[text]
    RETURNING {_CLAIMED}
    """
)

# J11, X2: claim tasks for workers outside, each with an owner of its own.
claim_tasks = Sql(
    f"""
    UPDATE instances AS i SET status = 'executing', lease_owner = r.owner, epoch = (i.{_EPOCH},
        updated_at = :now::bigint
    FROM {{rows: id text, owner text}} WHERE i.id = r.id
    RETURNING {_CLAIMED_OF_I}
    """,
    # SQLite's RETURNING does not accept the alias.
    sqlite=f"""
    UPDATE instances AS i SET status = 'executing', lease_owner = r.owner, epoch = (i.{_EPOCH}, updated_at = :now
    FROM {{rows: id text, owner text}} WHERE i.id = r.id
    RETURNING {_CLAIMED}
    """,
)

# J11: a fetched task as its worker holds it, to make its outcome, with its lease, which is compared with the token.
# Committed: the turn that commits it is fenced.
fetched_task = Sql(
    f"""
    SELECT {_CLAIMED_OF_I}, i.lease_owner,
        (SELECT w.started_at FROM workers w WHERE w.id = i.lease_owner)
    FROM instances i
    WHERE i.id = :id::text AND coalesce(i.status, '') = 'executing'
        AND coalesce(i.lease_owner, '') LIKE 'outside:%'
    """
)

# J11: the status of a task that its worker does not hold any more.
status_of_task = Sql("SELECT id, status FROM instances WHERE id = :id::text AND coalesce(kind, '') = 'task'")

# M7, M9: a row that a bucket refused leaves the claim index until the bucket promotes it. The bucket is locked.
block = Sql(
    """
    UPDATE instances AS i SET blocked_on = r.bucket FROM {rows: id text, bucket text} WHERE i.id = r.id
    """
)

# S6, M2: delays that are over and deadlines that have come. A locked row is left for the next sweep.
due = Sql(
    """
    SELECT id, status, epoch, has_inbox_rows, queue, lane FROM instances WHERE due_at <= :now::bigint
    ORDER BY due_at LIMIT :size::bigint FOR NO KEY UPDATE SKIP LOCKED
    """
)

# M2: a delay is over: the row is claimable, and its queue position is the time it was due.
make_ready = Sql("UPDATE instances SET since = due_at, due_at = NULL WHERE id IN :ids[text]")

# The time at which the next sweep has something to do.
next_due = Sql(
    """
    SELECT min(t.due_at) FROM (
        SELECT (SELECT min(due_at) FROM instances WHERE due_at IS NOT NULL) AS due_at
        UNION ALL SELECT min(due_at) FROM buckets WHERE due_at IS NOT NULL
        UNION ALL SELECT min(due_at) FROM triggers WHERE due_at IS NOT NULL) t
    """
)
