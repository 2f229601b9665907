"""Write for runs: the signals and awakeables of a job that its tasks receive, and the notes of executing tasks."""

from __future__ import annotations

from hark.model.values import SettledStatus
from hark.store.sql import Row, Sql
from hark.store.statements.awakeables import AskedRow

# J6, invariant 3: the oldest open waits for each signal of a run, at most `size`. Locks their tasks as far as they are
# free; never waits: `status` is NULL for a task that another transaction holds. Under lock of the run, so no wait is
# armed meanwhile. One may have ended between the snapshot and the lock: `fire_open_waits` finds out.
run_waits = Sql(
    """
    WITH oldest AS MATERIALIZED (
        SELECT r.ord, r.run, r.name, w.id, w.instance_id, w.since FROM {rows: run text, name text, size integer}
        CROSS JOIN LATERAL (
            SELECT o.id, o.instance_id, o.since FROM waits o
            WHERE o.kind = 'signal' AND o.key = r.run AND o.name = r.name AND o.closed_at IS NULL
                AND o.fired_at IS NULL
            ORDER BY o.since, o.id LIMIT r.size) w),
    free AS MATERIALIZED (
        SELECT i.id, i.status, i.epoch, i.has_inbox_rows, i.kind FROM instances i
        WHERE i.id IN (SELECT o.instance_id FROM oldest o) FOR NO KEY UPDATE SKIP LOCKED)
    SELECT o.run, o.name, o.id, o.instance_id, f.status, f.epoch, f.has_inbox_rows, f.kind
    FROM oldest o LEFT JOIN free f ON f.id = o.instance_id
    ORDER BY o.ord, o.since, o.id
    """,
    # SQLite has no LATERAL, and its LIMIT cannot be a column: the caller ignores the rows too many.
    sqlite="""
    SELECT r.run, r.name, w.id, w.instance_id, i.status, i.epoch, i.has_inbox_rows, i.kind
    FROM {rows: run text, name text, size integer}
    CROSS JOIN waits w ON w.rowid IN (
        SELECT o.rowid FROM waits o INDEXED BY waits_run
        WHERE o.kind = 'signal' AND o.key = r.run AND o.name = r.name AND o.closed_at IS NULL AND o.fired_at IS NULL
        ORDER BY o.since, o.id LIMIT :most)
    CROSS JOIN instances i ON i.id = w.instance_id
    ORDER BY r.ord, w.since, w.id
    """,
)

# J6: waits of a run that receive a signal. Returns those that are still open: all of them, unless one has ended before
# its task was locked. Under lock. One expression for both columns: the planner must not take the index of open waits.
fire_open_waits = Sql(
    """
    UPDATE waits SET fired_at = :now::bigint
    WHERE id IN :ids[text] AND coalesce(fired_at, closed_at) IS NULL RETURNING id
    """
)

# Invariant 3: lock the rows of these that are free. Never waits: the turn holds other rows by now.
lock_free = Sql(
    """
    SELECT id, status, epoch, has_inbox_rows, kind FROM instances
    WHERE id IN :ids[text] ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
    """
)

# J6: the oldest signals of a run that no wait has received, at most `size` of each name. Under lock of the run.
run_signals = Sql(
    """
    SELECT r.run, r.name, s.seq FROM {rows: run text, name text, size integer}
    CROSS JOIN LATERAL (
        SELECT o.seq FROM inbox o
        WHERE o.instance_id = r.run AND o.consumed_at IS NULL AND o.kind = 'signal' AND o.name = r.name
            AND o.wait_id IS NULL
        ORDER BY o.seq LIMIT r.size) s
    ORDER BY s.seq
    """,
    # SQLite has no LATERAL.
    sqlite="""
    SELECT r.run, r.name, s.seq FROM {rows: run text, name text, size integer}
    CROSS JOIN inbox s ON s.seq IN (
        SELECT o.seq FROM inbox o
        WHERE o.instance_id = r.run AND o.consumed_at IS NULL AND o.kind = 'signal' AND o.name = r.name
            AND o.wait_id IS NULL
        ORDER BY o.seq LIMIT :most)
    ORDER BY s.seq
    """,
)

# J6: a signal goes from the run to the wait that receives it, or back. It keeps its number, and so its place in the
# queue of the run. Under lock of both.
move_signals = Sql(
    """
    UPDATE inbox AS s SET instance_id = r.receiver, wait_id = r.wait_id
    FROM {rows: seq bigint, receiver text, wait_id text} WHERE s.seq = r.seq
    """
)

# J6: a signal that is given back goes on to the next wait. It gets a new number: a listener in another process looks
# for numbers above those that it has seen.
pass_on_signals = Sql(
    """
    UPDATE inbox AS s SET seq = DEFAULT, instance_id = r.receiver, wait_id = r.wait_id
    FROM {rows: seq bigint, receiver text, wait_id text} WHERE s.seq = r.seq
    """,
    # SQLite has no DEFAULT in an UPDATE; there is one writer.
    sqlite="""
    UPDATE inbox AS s SET seq = (SELECT max(o.seq) FROM inbox o) + r.ord, instance_id = r.receiver,
        wait_id = r.wait_id
    FROM {rows: seq bigint, receiver text, wait_id text} WHERE s.seq = r.seq
    """,
)

# S7, invariant 7: a dedup key counts against the run, whichever task receives the signal: it is kept in a row of its
# own, consumed from the start.
insert_seen = Sql(
    """
    INSERT INTO inbox (instance_id, kind, name, payload, dedup_key, at, consumed_at)
    SELECT r.run, 'signal', r.name, 'null', r.dedup_key, :now::bigint, :now::bigint
    FROM {rows: run text, name text, dedup_key text} ORDER BY r.ord
    """
)

# J6: the signals that tasks have and did not consume, whose waits are gone; with the run that they came from.
unreceived = Sql(
    """
    WITH RECURSIVE unused AS (
        SELECT s.seq, s.instance_id, s.name FROM inbox s
        WHERE s.instance_id IN :ids[text] AND s.consumed_at IS NULL AND s.kind = 'signal' AND s.wait_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM waits w WHERE w.id = s.wait_id)),
    above(task, id, kind, parent_id) AS (
        SELECT i.id, i.id, i.kind, i.parent_id FROM instances i WHERE i.id IN (SELECT u.instance_id FROM unused u)
        UNION ALL SELECT a.task, p.id, p.kind, p.parent_id FROM above a JOIN instances p ON p.id = a.parent_id
        WHERE a.kind = 'task')
    SELECT u.seq, a.id, u.name FROM unused u
    JOIN above a ON a.task = u.instance_id AND a.kind IN ('job', 'bpmn') ORDER BY u.seq
    """
)

# J8: a checkpoint. It shows that the task makes progress, so earlier crashes do not count any more. Under lock.
set_states = Sql(
    """
    UPDATE instances AS i SET state = r.state, crashes = 0, updated_at = :now::bigint
    FROM {rows: id text, state text} WHERE i.id = r.id
    """
)

# B10: the states of processes, to set their variables and to find their incidents. Under lock.
bpmn_states = Sql("SELECT id, step, state FROM instances WHERE id IN :ids[text]")

# B10: variables that were set from outside, of processes that do not execute. Under lock.
set_bpmn_states = Sql(
    """
    UPDATE instances AS i SET state = r.state, updated_at = :now::bigint
    FROM {rows: id text, state text} WHERE i.id = r.id
    """
)

# A3: the questions among these that the tasks have asked before.
task_awakeables = Sql(
    """
    SELECT a.task_id, a.place, a.id, a.entry_index, a.nonce, a.timeout_at, a.status
    FROM {rows: task_id text, place text} JOIN awakeables a ON a.task_id = r.task_id AND a.place = r.place
    """
)

# A2: numbers for new awakeables of a run: `size` of them, up to the one below what this returns. Under lock of the run.
take_entries = Sql(
    """
    UPDATE instances AS i SET entries = i.entries + r.size FROM {rows: run text, size integer} WHERE i.id = r.run
    RETURNING i.id, i.entries
    """,
    # SQLite's RETURNING does not accept the alias.
    sqlite="""
    UPDATE instances AS i SET entries = i.entries + r.size FROM {rows: run text, size integer} WHERE i.id = r.run
    RETURNING id, entries
    """,
)

# A3: a question of a task, under the address of its run. Under lock of both.
insert_task_awakeables = Sql(
    """
    INSERT INTO awakeables (id, instance_id, task_id, task, place, entry_index, timeout_at, nonce, title, description,
        schema, assignees, created_at)
    SELECT r.id, r.run, r.task_id, r.task, r.place, r.entry_index, r.timeout_at, r.nonce, r.title, r.description,
        r.schema, r.assignees, :now::bigint
    FROM {rows: id text, run text, task_id text, task text, place text, entry_index integer, timeout_at bigint,
        nonce text, title text, description text, schema text, assignees text} ORDER BY r.ord
    """
)


class AnswerRow(Row, frozen=True):
    """The answer of an awakeable, as it was given."""

    awakeable: str
    status: SettledStatus
    payload: str | None
    error: str | None
    by: str | None


# A3: the answers of awakeables that a task asks for again, after it has consumed them.
settled_answers = Sql(
    "SELECT id, status, payload, error, answered_by FROM awakeables WHERE id IN :ids[text]", row=AnswerRow
)

# A3: a task that runs again asks its questions anew: those that its end has cancelled give up their places.
forget_cancelled = Sql("UPDATE awakeables SET place = id WHERE task_id IN :ids[text] AND status = 'CANCELLED'")

# A4, invariant 11: a task that has ended has no pending awakeables. Returned for their events (A9).
cancel_task_awakeables = Sql(
    """
    UPDATE awakeables SET status = 'CANCELLED', resolved_at = :now::bigint
    WHERE task_id IN :ids[text] AND status = 'PENDING'
    RETURNING id, instance_id, task_id
    """,
    row=AskedRow,
)

_CANCEL_ASKED = """
    UPDATE awakeables AS a SET status = 'CANCELLED', resolved_at = :now::bigint
    FROM {rows: task_id text, prefix text}
    WHERE a.task_id = r.task_id AND a.status = 'PENDING' AND substr(a.place, 1, length(r.prefix)) = r.prefix
    """

# A4: a task begins another attempt or iteration, without the questions of this one. Returned for their events (A9).
cancel_asked = Sql(
    f"{_CANCEL_ASKED} RETURNING a.id, a.instance_id, a.task_id",
    # SQLite's RETURNING does not accept the alias.
    sqlite=f"{_CANCEL_ASKED} RETURNING id, instance_id, task_id",
    row=AskedRow,
)
