"""Arm, fire, close and count waits."""

from __future__ import annotations

from hark.store.sql import Row, Sql

# The open waits of an instance. In a turn: under lock.
waits_of = Sql(
    """
    SELECT id, instance_id, place, kind, name, key, deadline, remaining, since, fired_at, answers_each FROM waits
    WHERE instance_id IN :ids[text] AND closed_at IS NULL ORDER BY id
    """
)

# S2: arm waits. The inbox is read afterwards (invariant 4).
insert_waits = Sql(
    """
    INSERT INTO waits (id, instance_id, place, kind, name, key, deadline, remaining, since)
    SELECT r.id, r.instance_id, r.place, r.kind, r.name, r.key, r.deadline, r.remaining, :now::bigint
    FROM {rows: id text, instance_id text, place text, kind text, name text, key text, deadline bigint,
        remaining integer}
    """,
    joinable=True,
)

# Arm waits that every end of a child, or every message, answers. A statement of its own, so that other waits need no
# column for this; not an UPDATE, which would write each row twice.
insert_waits_for_each = Sql(
    """
    INSERT INTO waits (id, instance_id, place, kind, name, key, deadline, remaining, since, answers_each)
    SELECT r.id, r.instance_id, r.place, r.kind, r.name, r.key, r.deadline, r.remaining, :now::bigint, true
    FROM {rows: id text, instance_id text, place text, kind text, name text, key text, deadline bigint,
        remaining integer}
    """,
    joinable=True,
)

# Disarm waits.
delete_waits = Sql("DELETE FROM waits WHERE id IN :ids[text]", joinable=True)

# Invariant 11: an instance that is done or cancelled has no waits.
drop_waits = Sql("DELETE FROM waits WHERE instance_id IN :ids[text]", joinable=True)

# A child that its parent runs again waits for children of its own as before, and for nothing else.
drop_all_but_children = Sql("DELETE FROM waits WHERE instance_id IN :ids[text] AND kind <> 'children'", joinable=True)

# Invariant 11, X8: a failed instance has no open waits; they are kept, closed, for a retry.
close_waits = Sql("UPDATE waits SET closed_at = :now::bigint WHERE instance_id IN :ids[text]", joinable=True)

# X8, B4: the messages that failed instances waited for, with the instance that waits for each of them now.
closed_messages = Sql(
    """
    SELECT w.instance_id, w.name, w.key, o.instance_id FROM waits w
    LEFT JOIN waits o ON o.kind = 'message' AND o.closed_at IS NULL AND o.fired_at IS NULL
        AND o.name = w.name AND o.key = w.key
    WHERE w.instance_id IN :ids[text] AND w.kind = 'message' AND w.closed_at IS NOT NULL AND w.fired_at IS NULL
    """
)

# X8: a retry waits again for what the failed step waited for.
reopen_waits = Sql("UPDATE waits SET closed_at = NULL WHERE instance_id IN :ids[text]")

# S6, invariant 10: a wait that is answered or timed out must not fire again.
fire_waits = Sql("UPDATE waits SET fired_at = :now::bigint WHERE id IN :ids[text]", joinable=True)

# M8: the end of a child counts against its own wait, once, unless each end is an answer. The parent is under lock.
count_children = Sql(
    """
    UPDATE waits AS w SET remaining = CASE WHEN w.answers_each THEN w.remaining ELSE w.remaining - r.ended END
    FROM {rows: id text, ended integer}
    WHERE w.id = r.id
    RETURNING w.id, w.instance_id, w.remaining, w.answers_each
    """,
    # SQLite's RETURNING does not accept the alias.
    sqlite="""
    UPDATE waits AS w SET remaining = CASE WHEN w.answers_each THEN w.remaining ELSE w.remaining - r.ended END
    FROM {rows: id text, ended integer}
    WHERE w.id = r.id
    RETURNING id, instance_id, remaining, answers_each
    """,
)

# B4: the waits of parents among these that receive the news of live children; those of a failed parent too.
waits_for_each_end = Sql("SELECT id FROM waits WHERE id IN :ids[text] AND kind = 'children' AND answers_each")


class MessageReceiver(Row, frozen=True):
    """An open wait for a message, or a trigger, of which only `name` and `start` are set."""

    id: str
    instance_id: str
    place: str
    name: str
    key: str
    answers_each: bool
    since: int
    start: str


# CROSS JOIN, because SQLite would else read all waits for messages and compare each with the list. No ORDER BY, for
# which the planners prefer the index over all open waits.
_WAITS_FOR_MESSAGES = """SELECT w.id, w.instance_id, w.place, w.name, w.key, w.answers_each, w.since, '' AS start
    FROM {rows: name text, key text}
    CROSS JOIN waits w WHERE w.kind = 'message' AND w.closed_at IS NULL AND w.fired_at IS NULL
        AND w.name = r.name AND w.key = r.key"""

# B4: the waits for a message. They belong to one instance: turns that arm them reserve the name and key, and
# kernel/message.py refuses a second instance.
message_waits = Sql(_WAITS_FOR_MESSAGES, row=MessageReceiver)

# B4: the waits for a message under lock, and the triggers of these messages.
message_receivers = Sql(
    f"""
    {_WAITS_FOR_MESSAGES}
    UNION ALL SELECT '', '', '', s.name, '', false, 0, s.id FROM triggers s
    WHERE s.kind = 'message' AND s.name IN :names[text]
    """,
    row=MessageReceiver,
)

# M8: the children behind these waits, in the order of the spawn.
children_of = Sql(
    """
    SELECT parent_wait, id, definition, status, state, result, error FROM instances
    WHERE parent_wait IN :waits[text] ORDER BY created_at, nth
    """
)
