"""Read schedules."""

from __future__ import annotations

from hark.store.sql import Sql
from hark.store.statements import TriggerRow

# Without the input of the instances, which may be large.
_SHOWN = TriggerRow.columns().replace(" state,", " NULL,")

# T1: the columns that `schedules` shows, by name.
list_schedules = Sql(
    f"""
    SELECT {_SHOWN} FROM triggers WHERE kind = 'schedule' AND name > :after::text
    ORDER BY name, id LIMIT :size::bigint
    """,
    row=TriggerRow,
)

# T1: one schedule.
read_schedules = Sql(f"SELECT {_SHOWN} FROM triggers WHERE id IN :ids[text]", row=TriggerRow)
