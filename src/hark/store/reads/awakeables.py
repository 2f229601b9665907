"""Read and list awakeables."""

from __future__ import annotations

from hark.store.reads.lists import Listed
from hark.store.sql import Sql
from hark.store.statements import AwakeableRow

_AWAKEABLE = AwakeableRow.columns()

# A5: the columns that `hark awakeable show` shows.
read_awakeables = Sql(f"SELECT {_AWAKEABLE} FROM awakeables WHERE id IN :ids[text]", row=AwakeableRow)

# The oldest first, by the unique index of (instance_id, entry_index).
open_awakeables = Sql(
    f"""
    SELECT {_AWAKEABLE} FROM awakeables WHERE instance_id IN :ids[text] AND status = 'PENDING'
    ORDER BY created_at, instance_id, entry_index
    """,
    row=AwakeableRow,
)

# A3: the pending ones of a task, which parks on them.
pending_of_task = Sql(
    "SELECT id FROM awakeables WHERE task_id = :task::text AND status = 'PENDING' ORDER BY entry_index"
)

_BYTES = """coalesce(octet_length(a.payload), 0) + coalesce(octet_length(a.error), 0)
        + coalesce(octet_length(a.title), 0) + coalesce(octet_length(a.description), 0)
        + coalesce(octet_length(a.schema), 0) + coalesce(octet_length(a.assignees), 0)
        + coalesce(octet_length(a.groups), 0)"""
_AFTER = """(:status::text IS NULL OR a.status = :status::text)
        AND (a.created_at, a.instance_id, a.entry_index) < (:at::bigint, :instance::text, :entry::bigint)"""
_NEWEST = "ORDER BY a.created_at DESC, a.instance_id DESC, a.entry_index DESC LIMIT :size::bigint"

# A5: newest first; of one commit by instance, and of one instance by number. Each row is an id and the bytes that
# showing it would take, see lists.py.
list_awakeables = Sql(f"SELECT a.id, {_BYTES} FROM awakeables a WHERE {_AFTER} {_NEWEST}", row=Listed)

# A5: the list of one instance. MATERIALIZED, because its index has another order, and the index above has the order
# but would be read to its end.
list_awakeables_of = Sql(
    f"""
    WITH own AS MATERIALIZED (
        SELECT a.id, a.status, a.created_at, a.instance_id, a.entry_index, {_BYTES} AS bytes FROM awakeables a
        WHERE a.instance_id = :job::text)
    SELECT a.id, a.bytes FROM own a WHERE {_AFTER} {_NEWEST}
    """,
    row=Listed,
)
