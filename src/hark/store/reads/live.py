"""Read the unfinished instances, for the check of new code (V2)."""

from __future__ import annotations

from hark.model.activation import CLAIM_COLUMNS
from hark.store.reads.instances import UNFINISHED, USED
from hark.store.sql import Sql

# All of them, or those of some definitions.
live_ids = Sql(
    f"""
    {USED} SELECT i.id {UNFINISHED} AND (:whole::boolean OR u.definition IN :names[text])
    ORDER BY i.definition, i.version
    """
)

_CLAIM = ", ".join(CLAIM_COLUMNS)

# Those of these that are still unfinished, as a claim has them.
live_rows = Sql(f"SELECT {_CLAIM} FROM instances WHERE id IN :ids[text] AND finished_at IS NULL ORDER BY id")

# The epochs of instances: one that differs by now has committed meanwhile.
epochs_of = Sql("SELECT id, epoch FROM instances WHERE id IN :ids[text]")

# V4: those of these that can be moved to another version, with their status.
movable_rows = Sql(
    f"""
    SELECT {_CLAIM}, status FROM instances
    WHERE id IN :ids[text] AND status NOT IN ('done', 'cancelled') AND kind <> 'task' ORDER BY id
    """
)

# V4: those of these that a bulk instance has moved: it counts them once, also if it is carried out again after a crash.
moved_by = Sql(
    """
    SELECT DISTINCT instance_id FROM events
    WHERE instance_id IN :ids[text] AND type = 'migrated' AND data LIKE '%"bulk":"' || :bulk::text || '"%'
    """
)

# V5: an instance as a claim has it, its status and its tags.
any_row = Sql(f"SELECT {_CLAIM}, status, tags FROM instances WHERE id = :id::text")
