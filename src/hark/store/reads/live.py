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
