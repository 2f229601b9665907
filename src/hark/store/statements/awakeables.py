"""Create, settle and withdraw awakeables."""

from __future__ import annotations

from hark.store.sql import Row, Sql

# A3: create the question; its wait is in the same commit. X8: a question that was withdrawn after a failure is asked
# again by the retry, as the same question.
insert_awakeables = Sql(
    """
    INSERT INTO awakeables (id, instance_id, task, place, entry_index, timeout_at, nonce, title, description,
        schema, assignees, groups, due_at, created_at)
    SELECT r.id, r.instance_id, r.task, r.place, r.entry_index, r.timeout_at, r.nonce, r.title, r.description,
        r.schema, r.assignees, r.groups, r.due_at, :now::bigint
    FROM {rows: id text, instance_id text, task text, place text, entry_index integer, timeout_at bigint,
        nonce text, title text, description text, schema text, assignees text, groups text, due_at bigint}
    WHERE true
    ON CONFLICT (instance_id, entry_index) DO UPDATE SET status = 'PENDING', timeout_at = excluded.timeout_at,
        resolved_at = NULL, answered_by = NULL
    WHERE awakeables.status = 'CANCELLED'
    """,
    joinable=True,
)

# A2: the instance that asked, and the task that gets the answer, to lock them. For ids that do not contain the instance
# id, and for effects.
awakeable_owners = Sql("SELECT id, instance_id, task_id FROM awakeables WHERE id IN :ids[text]")


class AwakeableRow(Row, frozen=True):
    """An awakeable with the columns that are shown: of `reads.read_awakeables`, and as the result of a settlement."""

    id: str
    instance_id: str
    task: str | None
    entry_index: int
    status: str
    payload: str | None
    error: str | None
    timeout_at: int | None
    created_at: int
    resolved_at: int | None
    title: str | None
    description: str | None
    schema: str | None
    assignees: str | None
    answered_by: str | None
    nonce: str
    groups: str | None
    claimed_by: str | None
    due_at: int | None


class AwakeableState(Row, frozen=True):
    """An awakeable, as the turn that settles it needs it."""

    id: str
    instance_id: str
    status: str
    answered_by: str | None
    resolved_at: int | None
    schema: str | None
    task: str | None
    entry_index: int
    timeout_at: int | None
    created_at: int
    title: str | None
    description: str | None
    assignees: str | None
    nonce: str
    task_id: str | None
    groups: str | None
    claimed_by: str | None
    due_at: int | None


_STATE = AwakeableState.columns()

# A4, A8: the columns that a settlement is validated against. Under lock of the owner.
awakeable_states = Sql(f"SELECT {_STATE} FROM awakeables WHERE id IN :ids[text]", row=AwakeableState)

# A1, invariant 8: settle awakeables, each once; the instance is under lock.
settle = Sql(
    """
    UPDATE awakeables AS a SET status = r.status, payload = r.payload, error = r.error,
        answered_by = r.answered_by, resolved_at = :now::bigint
    FROM {rows: id text, status text, payload text, error text, answered_by text}
    WHERE a.id = r.id AND a.status = 'PENDING'
    """,
    joinable=True,
)

# Invariant 8: a wait that is kept after its answer must not time out later. The waits of an instance are read once:
# a process may have thousands, and as many answers in one turn (FINDINGS 67).
fire_answered = Sql(
    """
    UPDATE waits SET fired_at = :now::bigint
    WHERE instance_id IN :ids[text] AND kind = 'awakeable' AND name IN :names[text]
    """,
    joinable=True,
)

# B6: record the person who works on an awakeable; null: no person does. Under lock of the owner.
claim_awakeables = Sql(
    """
    UPDATE awakeables AS a SET claimed_by = r.claimed_by,
        claimed_at = CASE WHEN r.claimed_by IS NULL THEN NULL ELSE :now::bigint END
    FROM {rows: id text, claimed_by text} WHERE a.id = r.id
    """
)


class AskedRow(Row, frozen=True, order=True):
    """An awakeable, and the instance and the task that asked."""

    id: str
    instance_id: str
    task_id: str | None


_CANCEL = """
    UPDATE awakeables SET status = 'CANCELLED', resolved_at = :now::bigint
    WHERE instance_id IN :ids[text] AND status = 'PENDING' AND task_id IS NULL
    """

# Invariant 11: an instance that has ended has no pending awakeables. Those of a task end with the task: it may outlive
# an activation of its job that fails. Returned for their events (A9).
cancel_awakeables = Sql(f"{_CANCEL} RETURNING id, instance_id, task_id", row=AskedRow)

# The same for instances without a wait for an awakeable, which have none: with the next statement, not one of its own.
cancel_no_awakeables = Sql(_CANCEL, joinable=True)

# X8: a retry asks again what the failure cancelled: its wait is still there, closed. Questions that were withdrawn
# have no wait and stay cancelled. Returned for their events (A9).
reopen_awakeables = Sql(
    """
    UPDATE awakeables SET status = 'PENDING', resolved_at = NULL, answered_by = NULL
    WHERE instance_id IN :ids[text] AND status = 'CANCELLED' AND EXISTS (
        SELECT 1 FROM waits w WHERE w.instance_id = awakeables.instance_id AND w.kind = 'awakeable'
            AND w.name = awakeables.id AND w.closed_at IS NOT NULL)
    RETURNING id, instance_id, task_id
    """,
    row=AskedRow,
)
