"""Awakeables."""

from __future__ import annotations

from hark.store.sql import Sql
from hark.store.statements import AwakeableRow

_AWAKEABLE = """id, instance_id, task, entry_index, status, payload, error, timeout_at, created_at, resolved_at,
        title, description, schema, assignees, answered_by, nonce"""

# A5: what `show` shows.
read_awakeables = Sql(f"SELECT {_AWAKEABLE} FROM awakeables WHERE id IN :ids[text]", row=AwakeableRow)

# The oldest first, by the unique index of (instance_id, entry_index).
open_awakeables = Sql(
    f"""
    SELECT {_AWAKEABLE} FROM awakeables WHERE instance_id IN :ids[text] AND status = 'PENDING'
    ORDER BY created_at, entry_index
    """,
    row=AwakeableRow,
)

# A5: newest first, after the position of the last row of the page before.
list_awakeables = Sql(
    f"""
    SELECT {_AWAKEABLE} FROM awakeables
    WHERE (:job::text IS NULL OR instance_id = :job::text) AND (:status::text IS NULL OR status = :status::text)
        AND (created_at, id) < (:at::bigint, :after::text)
    ORDER BY created_at DESC, id DESC LIMIT :size::bigint
    """,
    row=AwakeableRow,
)
