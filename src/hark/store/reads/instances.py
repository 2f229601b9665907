"""Read instances: rows, counts, results."""

from __future__ import annotations

from hark.store.sql import Row, Sql
from hark.store.statements import ADDRESSES


class InstanceRow(Row, frozen=True):
    """An instance, as it is shown. Times in µs, JSON as text."""

    id: str
    definition: str
    kind: str
    version: int
    step: str
    status: str
    state: str
    result: str | None
    error: str | None
    traceback: str | None
    progress: str | None
    attempt: int
    queue: str
    correlation_key: str | None
    parent_id: str | None
    created_at: int
    finished_at: int | None
    cancel_reason: str | None
    tags: str | None
    forked_from: str | None


_SHOWN = InstanceRow.columns()

# The columns that `get` and `list` show.
read_instances = Sql(f"SELECT {_SHOWN} FROM instances WHERE id IN :ids[text]", row=InstanceRow)

# When these instances, which can run, may run: some are delayed by a retry policy, a pause or a loop.
delays_of = Sql("SELECT id, due_at, updated_at FROM instances WHERE id IN :ids[text]")

# One step through the index per definition, not per instance.
USED = """WITH RECURSIVE used(definition) AS (
        SELECT min(definition) FROM instances
        UNION ALL SELECT (SELECT min(i.definition) FROM instances i WHERE i.definition > u.definition) FROM used u
        WHERE u.definition IS NOT NULL)"""

# Every definition that has instances.
definitions_in_use = Sql(f"{USED} SELECT definition FROM used WHERE definition IS NOT NULL")

# By the index of lists: there is none of unfinished instances, and finished ones are not read.
UNFINISHED = """FROM used u CROSS JOIN (SELECT 'runnable' AS status UNION ALL SELECT 'executing'
        UNION ALL SELECT 'awaiting_signal' UNION ALL SELECT 'awaiting_children' UNION ALL SELECT 'held') k
    CROSS JOIN instances i WHERE i.definition = u.definition AND i.status = k.status"""

# Unfinished instances by lane and status.
count_unfinished = Sql(f"{USED} SELECT i.lane, i.status, count(*) {UNFINISHED} GROUP BY 1, 2")

# Unfinished instances by definition and version; those of one definition, if a name is given.
count_live = Sql(
    f"""
    {USED} SELECT i.definition, i.version, count(*) {UNFINISHED}
        AND (:name::text = '' OR u.definition = :name::text)
    GROUP BY 1, 2
    """
)

# The queues with unfinished instances.
queues = Sql(f"{USED} SELECT DISTINCT i.queue {UNFINISHED}")

# The instance of each target, and its end if it has ended.
results = Sql(
    f"""
    SELECT a.target, i.id, i.status, i.result, i.error FROM ({ADDRESSES}) a
    LEFT JOIN instances i ON i.id = a.id
    """
)

# The first ids of a range: those that an abbreviated id may mean. The id of a task begins with that of its job, and is
# never abbreviated.
ids_between = Sql(
    """
    SELECT id FROM instances WHERE id >= :low::text AND id < :high::text AND kind <> 'task'
    ORDER BY id LIMIT :size::bigint
    """
)

# The ends of those instances that have ended. `coalesce` keeps the planner from the index over all ended instances.
outcomes = Sql(
    """
    SELECT id, status, result, error FROM instances WHERE id IN :ids[text] AND coalesce(finished_at, 0) > 0
    """
)

# For callers that wait for a condition: one statement for all of them.
statuses = Sql("SELECT id, status FROM instances WHERE id IN :ids[text]")

# V3: held instances, for tests.
held_instances = Sql("SELECT id, epoch, error FROM instances WHERE status = 'held' ORDER BY lane, held_by")

# The instances among these that will have more events.
unfinished = Sql("SELECT id FROM instances WHERE id IN :ids[text] AND finished_at IS NULL")

# X6: the traces of instances, for the spans of calls about them.
traces_of = Sql("SELECT id, trace FROM instances WHERE id IN :ids[text]")
