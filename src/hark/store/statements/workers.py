"""Read and write workers and their leases, and find the work of dead ones."""

from __future__ import annotations

from hark.store.sql import Row, Sql

# M5: renew the lease of a worker process, or announce a new one. Sent from a thread and a connection of its own.
renew = Sql(
    """
    INSERT INTO workers (id, until, definitions, info, started_at)
    VALUES (:id::text, :until::bigint, :definitions::text, :info::text, :now::bigint)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until, definitions = excluded.definitions, info = excluded.info
    """
)

# M5: remove workers that stop or are dead. A worker that was dead when it was read and has renewed its lease since
# then stays. The lease itself is compared, and not the time: the clock may have been set.
retire = Sql(
    """
    DELETE FROM workers WHERE id IN :ids[text] AND (id IN :leaving[text] OR EXISTS (
        SELECT 1 FROM {rows: owner text, lease bigint}
        WHERE r.owner = workers.id AND coalesce(workers.until = r.lease, workers.until < :now::bigint)))
    """
)


# X5: a write that changes no row, which a database that is read-only refuses like any other.
check_writable = Sql("UPDATE workers SET until = until WHERE id = ''")


class LeaseRow(Row, frozen=True):
    """The lease of a worker, and the other data that it has recorded."""

    id: str
    until: int
    info: str | None


# M5: the leases of all workers.
leases = Sql("SELECT id, until, info FROM workers ORDER BY id", row=LeaseRow)

# M5: instances left executing by these owners, unless the owner has renewed its lease since. A bound LIMIT would make
# PostgreSQL read all ids in their order.
abandoned = Sql(
    """
    SELECT i.id, i.parent_id FROM instances i WHERE i.lease_owner IN :owners[text]
        AND NOT EXISTS (
            SELECT 1 FROM {rows: owner text, lease bigint} JOIN workers w ON w.id = r.owner
            WHERE w.id = i.lease_owner AND coalesce(w.until <> r.lease, w.until >= :now::bigint))
    ORDER BY i.id LIMIT 1000
    """
)

# M5: owners of executing instances that have no row in `workers`, for example after a restored backup.
unknown_owners = Sql(
    """
    SELECT DISTINCT i.lease_owner FROM instances i WHERE i.lease_owner IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner)
    """
)

# Invariant 2: the epochs at which instances execute. No lock: the caller holds rows with higher ids (see
# kernel/fast/advance_turn.py), or only looks. `coalesce` keeps the planner on the primary key: while the table was
# empty it chose the index of lists, and kept that plan.
epochs = Sql("SELECT id, epoch FROM instances WHERE id IN :ids[text] AND coalesce(status, '') = 'executing'")

# J11: the leases of fetched tasks.
insert_leases = Sql(
    """
    INSERT INTO workers (id, until, definitions, info, started_at)
    SELECT r.owner, r.until, r.lane, r.info, :now::bigint
    FROM {rows: owner text, until bigint, lane text, info text}
    """
)


class TaskLease(Row, frozen=True):
    """The lease of a fetched task."""

    id: str
    owner: str
    info: str | None


# J11: the leases of these tasks. Under lock. With coalesce, PostgreSQL finds the rows by id: without it, it read the
# index of everything that executes.
task_leases = Sql(
    """
    SELECT i.id, w.id AS owner, w.info FROM instances i JOIN workers w ON w.id = coalesce(i.lease_owner, '')
    WHERE i.id IN :ids[text]
    """,
    row=TaskLease,
)

# J11: renew leases of fetched tasks. Their instances are under lock, so that no reclaim comes between.
renew_leases = Sql("UPDATE workers AS w SET until = r.until FROM {rows: owner text, until bigint} WHERE w.id = r.owner")

# J11: a fetched task has its outcome: its lease ends with it. The coalesce is that of `task_leases`.
end_leases = Sql(
    """
    DELETE FROM workers WHERE id IN (SELECT coalesce(lease_owner, '') FROM instances WHERE id IN :ids[text])
    """
)
