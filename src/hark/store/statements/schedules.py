"""Read and write schedules and other triggers."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class TriggerRow(Row, frozen=True):
    """A row of the table `triggers`."""

    id: str
    kind: str
    name: str
    definition: str
    version: int | None
    element: str
    state: str | None
    correlation_key: str | None
    cron: str | None
    every: int | None
    timezone: str
    overlap: str
    catch_up: int
    remaining: int | None
    next_at: int | None
    due_at: int | None
    paused: bool
    missed: int
    skipped: int
    last_at: int | None
    last_id: str | None
    waiting: str | None
    running: str | None
    blocker: str | None
    error: str | None
    deployed_by: str | None
    created_at: int


_COLUMNS = TriggerRow.columns()
_REPLACED = ", ".join(
    name + " = excluded." + name for name in TriggerRow.__struct_fields__ if name not in ("id", "kind", "created_at")
)

# T2: the triggers that are due, without a lock, to find the names to reserve and the instances to lock.
due_triggers = Sql(
    f"SELECT {_COLUMNS} FROM triggers WHERE due_at <= :now::bigint ORDER BY due_at LIMIT :size::bigint", row=TriggerRow
)

# B3, B4: the triggers of these broadcasts and messages.
triggers_by_event = Sql(
    f"""
    SELECT {_COLUMNS} FROM triggers WHERE (kind, name) IN (SELECT r.kind, r.name FROM {{rows: kind text, name text}})
    ORDER BY id
    """,
    row=TriggerRow,
)

# T1: the triggers with these ids.
triggers_by_id = Sql(f"SELECT {_COLUMNS} FROM triggers WHERE id IN :ids[text] ORDER BY id", row=TriggerRow)

# B2: the triggers of a definition that cannot be started by name, for the error that says so.
deployed_triggers = Sql("SELECT kind, name FROM triggers WHERE deployed_by = :definition::text ORDER BY id")

# T2: the triggers among these that are still due. The process that holds one fires it; the others leave it.
lock_due_triggers = Sql(
    f"""
    SELECT {_COLUMNS} FROM triggers WHERE id IN :ids[text] AND due_at <= :now::bigint
    ORDER BY id FOR UPDATE SKIP LOCKED
    """,
    row=TriggerRow,
)

# T1: the triggers to change: those with these ids, and those that these definitions brought. In order, so that
# two turns cannot wait for each other.
lock_triggers = Sql(
    f"""
    SELECT {_COLUMNS} FROM triggers WHERE id IN (
        SELECT id FROM triggers WHERE id IN :ids[text]
        UNION SELECT id FROM triggers WHERE deployed_by IN :definitions[text])
    ORDER BY id FOR UPDATE
    """,
    row=TriggerRow,
)

# T1, T2: write triggers, new ones too. Under lock, or with the name reserved.
save_triggers = Sql(
    f"""
    INSERT INTO triggers ({_COLUMNS})
    SELECT {_COLUMNS}
    FROM {{rows: id text, kind text, name text, definition text, version integer, element text, state text,
        correlation_key text, cron text, every bigint, timezone text, overlap text, catch_up integer,
        remaining bigint, next_at bigint, due_at bigint, paused boolean, missed bigint, skipped bigint,
        last_at bigint, last_id text, waiting text, running text, blocker text, error text, deployed_by text,
        created_at bigint}}
    WHERE true ORDER BY r.id
    ON CONFLICT (id) DO UPDATE SET {_REPLACED}
    """
)

# T1: delete triggers. Under lock.
delete_triggers = Sql("DELETE FROM triggers WHERE id IN :ids[text]")

# T2: an instance has ended, and a tick waited for that: it can start. A row that another turn holds is left to that
# turn, which makes it due itself if a tick still waits.
release_triggers = Sql(
    """
    UPDATE triggers SET due_at = :now::bigint WHERE id IN (
        SELECT id FROM triggers WHERE blocker IN :ids[text] AND NOT paused ORDER BY id FOR UPDATE SKIP LOCKED)
    RETURNING id
    """
)

# T1: the tick that started these instances. Sent only when there are some.
set_scheduled = Sql(
    """
    UPDATE instances AS i SET scheduled_at = r.scheduled_at FROM {rows: id text, scheduled_at bigint} WHERE i.id = r.id
    """
)
