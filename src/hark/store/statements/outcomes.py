"""Write the outcomes of steps, and the ends of instances from outside."""

from __future__ import annotations

from hark.store.sql import Sql

# Invariant 2: joins on id and epoch only, because a status predicate makes the planner choose a partial index.
# Touches no indexed column, so that the update of a running row stays HOT. The events are written by the same
# statement: this is the hottest one, and its lists are sent once.
_ADVANCE = """UPDATE instances AS i SET step = r.step, state = r.state, attempt = 0, crashes = 0,
        has_run = true, epoch = i.epoch + 1, rate_limit = NULL, weight = 1, updated_at = :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text}
    WHERE i.id = r.id AND i.epoch = r.epoch"""
_ADVANCED = """INSERT INTO events (tx, instance_id, type, step, at)
    SELECT :tx::bigint, r.id, 'next', r.step, :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text} ORDER BY r.ord"""

# M2: a `Next` runs ahead: the row moves on under the same claim. Under lock.
advance = Sql(
    f"WITH moved AS ({_ADVANCE}) {_ADVANCED}",
    # SQLite has no UPDATE in a WITH, but executes two statements in one call.
    sqlite=f"{_ADVANCE}; {_ADVANCED}",
)
_ADVANCING = """INSERT INTO events (tx, instance_id, type, step, at)
    SELECT :tx::bigint, r.id, 'next', r.step, :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text}
    JOIN instances i ON i.id = r.id AND i.epoch = r.epoch ORDER BY r.ord"""

# M2: an advance turn is this one statement: the update takes the locks itself, in the order of its list (invariant 3),
# and compares the epoch again if it had to wait for a lock (invariant 2). Returns the number of moved rows and the ids
# of those with has_inbox_rows.
advance_all = Sql(
    f"""
    WITH moved AS ({_ADVANCE} RETURNING i.id, i.step, i.has_inbox_rows),
    written AS (
        INSERT INTO events (tx, instance_id, type, step, at)
        SELECT :tx::bigint, id, 'next', step, :now::bigint FROM moved)
    SELECT count(*), string_agg(id, ' ') FILTER (WHERE has_inbox_rows) FROM moved
    """,
    # One row per instance that moved. The events come first: after the update no row has that epoch.
    sqlite=f"""
    {_ADVANCING}; {_ADVANCE} RETURNING 1, CASE WHEN has_inbox_rows THEN id END
    """,
)

# M2: back to the backlog, for a `Retry`, a `Next` under a limit or with another key, and a `Next` that yields its
# slot to a more urgent row. Under lock.
requeue = Sql(
    """
    UPDATE instances AS i SET status = 'runnable', step = r.step, state = r.state, attempt = r.attempt, crashes = 0,
        has_run = true, epoch = i.epoch + 1, since = :position::bigint, due_at = r.due_at, lease_owner = NULL,
        concurrency_key = r.concurrency_key, rate_limit = r.rate_limit, weight = r.weight, visit = i.visit + r.anew,
        updated_at = :now::bigint
    FROM {rows: id text, epoch bigint, step text, state text, attempt integer, due_at bigint, concurrency_key text,
        rate_limit text, weight double precision, anew integer}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """,
    joinable=True,
)

# S2: park, or stay runnable if the answer is already in the inbox. Under lock.
park = Sql(
    """
    UPDATE instances AS i SET status = r.status, step = r.step, state = r.state, attempt = 0, crashes = 0,
        has_run = true, epoch = i.epoch + 1, since = :position::bigint, due_at = r.due_at, lease_owner = NULL,
        rate_limit = NULL, weight = 1, updated_at = :now::bigint
    FROM {rows: id text, epoch bigint, status text, step text, state text, due_at bigint}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """,
    joinable=True,
)

# M2, invariant 11: the outcome that ends an instance. Its limits stay in the row, for a retry; so does the reason of a
# cancel whose undo failed. Under lock.
finish = Sql(
    """
    UPDATE instances AS i SET status = r.status, step = r.step, state = r.state, result = r.result, error = r.error,
        traceback = r.traceback, attempt = 0, crashes = 0, epoch = i.epoch + 1, lease_owner = NULL, counted = true,
        cancel_reason = CASE WHEN r.status = 'failed' THEN i.cancel_reason END,
        holds_key = (i.holds_key AND i.scope = 'forever'), updated_at = :now::bigint, finished_at = :now::bigint
    FROM {rows: id text, epoch bigint, status text, step text, state text, result text, error text,
        traceback text}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """,
    joinable=True,
)

# An instance that was parked or queued continues in another lane and queue: a task whose gate any worker decides. In a
# statement of its own: few outcomes do this. Under lock.
change_lanes = Sql(
    """
    UPDATE instances AS i SET lane = r.lane, queue = r.queue FROM {rows: id text, lane text, queue text}
    WHERE i.id = r.id
    """,
    joinable=True,
)

# The last value of `ctx.progress`, for people and queries. A statement of its own: most outcomes have none. Under lock.
set_progress = Sql(
    """
    UPDATE instances AS i SET progress = r.progress FROM {rows: id text, progress text} WHERE i.id = r.id
    """,
    joinable=True,
)

# M5: a stopping worker returns its claims: this counts neither as an attempt nor as a crash. Under lock.
hand_back = Sql(
    """
    UPDATE instances AS i SET status = 'runnable', has_run = true, lease_owner = NULL, epoch = i.epoch + 1,
        updated_at = :now::bigint
    FROM {rows: id text, epoch bigint}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """
)

# M5: a lost lease adds one to `attempt` and to `crashes`. Under lock.
reclaim = Sql(
    """
    UPDATE instances SET status = 'runnable', has_run = true, lease_owner = NULL, epoch = epoch + 1,
        attempt = attempt + 1, crashes = crashes + 1, updated_at = :now::bigint
    WHERE id IN :ids[text]
    """
)

# X8, M5: end an instance that was cancelled or quarantined, not by its own outcome. Under lock.
end = Sql(
    """
    UPDATE instances AS i SET status = r.status, held_by = NULL, error = r.error, traceback = NULL, lease_owner = NULL,
        blocked_on = NULL, due_at = NULL, epoch = i.epoch + 1, counted = true,
        holds_key = (i.holds_key AND i.scope = 'forever'),
        cancel_reason = CASE WHEN r.status = 'failed' THEN i.cancel_reason END, updated_at = :now::bigint,
        finished_at = :now::bigint
    FROM {rows: id text, status text, error text} WHERE i.id = r.id
    """
)

# X8: a cancel of an instance that has something to undo: it continues at its undo, in a new epoch, so that the outcome
# of a step in flight is refused. The limits of the interrupted step do not apply to the undo. Under lock.
begin_undo = Sql(
    """
    UPDATE instances AS i SET status = 'runnable', held_by = NULL, error = NULL, traceback = NULL, step = r.step,
        cancel_reason = r.reason, attempt = 0, crashes = 0, epoch = i.epoch + 1, since = :position::bigint,
        due_at = NULL, blocked_on = NULL, lease_owner = NULL, rate_limit = NULL, weight = 1, updated_at = :now::bigint
    FROM {rows: id text, step text, reason text} WHERE i.id = r.id
    """
)

# V3: keep an instance whose code does not fit, with its inbox, its waits and its key, until other code is registered.
# Under lock.
hold = Sql(
    """
    UPDATE instances AS i SET status = 'held', held_by = r.held_by, error = r.error, traceback = r.traceback,
        due_at = r.due_at, epoch = i.epoch + 1, lease_owner = NULL, since = :position::bigint, updated_at = :now::bigint
    FROM {rows: id text, epoch bigint, held_by text, error text, traceback text, due_at bigint}
    WHERE i.id = r.id AND i.epoch = r.epoch
    """,
    joinable=True,
)

# V3: held instances are runnable again: other code tries them, or an operator asked for it. Under lock.
release = Sql(
    """
    UPDATE instances SET status = 'runnable', held_by = NULL, error = NULL, traceback = NULL, due_at = NULL,
        epoch = epoch + 1, since = :position::bigint, updated_at = :now::bigint
    WHERE id IN :ids[text]
    """
)

# V3: deadlines pass while an instance is held; this is the next one. Under lock.
set_due = Sql("UPDATE instances AS i SET due_at = r.due_at FROM {rows: id text, due_at bigint} WHERE i.id = r.id")

# X8: a function has something to undo from now on, or nothing any more. Under lock.
set_on_cancel = Sql(
    """
    UPDATE instances AS i SET on_cancel = r.on_cancel FROM {rows: id text, on_cancel text} WHERE i.id = r.id
    """,
    joinable=True,
)

# X8: a failed instance runs again from its failed step, and continues an undo that failed. Its next end counts again
# only for a process that called it, which waits for each end (B10). Under lock.
retry_instances = Sql(
    """
    UPDATE instances SET status = 'runnable', has_run = true, error = NULL, traceback = NULL, attempt = 0,
        crashes = 0, epoch = epoch + 1, since = :position::bigint, due_at = NULL, finished_at = NULL,
        holds_key = (correlation_key IS NOT NULL), updated_at = :now::bigint,
        counted = (counted AND coalesce(parent_wait <> parent_id || '~0', true))
    WHERE id IN :ids[text]
    """
)

# A parent runs a child again: from its first attempt, and its next end counts again. Under lock.
run_children_again = Sql(
    """
    UPDATE instances AS i SET status = 'runnable', has_run = true, held_by = NULL, step = coalesce(r.step, i.step),
        state = coalesce(r.state, i.state),
        lane = coalesce(r.lane, i.lane), queue = coalesce(r.queue, i.queue), version = coalesce(r.version, i.version),
        parent_wait = coalesce(r.parent_wait, i.parent_wait), counted = false, result = NULL, error = NULL,
        traceback = NULL, progress = NULL, attempt = 0, crashes = 0, epoch = i.epoch + 1, since = :position::bigint,
        due_at = NULL, blocked_on = NULL, lease_owner = NULL, finished_at = NULL, cancel_reason = NULL,
        updated_at = :now::bigint
    FROM {rows: id text, step text, state text, lane text, queue text, version integer, parent_wait text}
    WHERE i.id = r.id
    """
)
