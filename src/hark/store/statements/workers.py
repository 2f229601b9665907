"""Workers, their leases, and the work of dead ones."""

from __future__ import annotations

from hark.store.sql import Sql

# M5: renew the lease of a worker process, or announce a new one. Sent from a thread and a connection of its own.
renew = Sql(
    """
    INSERT INTO workers (id, until, definitions, info, started_at)
    VALUES (:id::text, :until::bigint, :definitions::text, :info::text, :now::bigint)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until, definitions = excluded.definitions, info = excluded.info
    """
)

# M5: remove workers that stop or are dead. A worker that was dead when it was read and has renewed its lease since
# then stays.
retire = Sql("DELETE FROM workers WHERE id IN :ids[text] AND (until < :now::bigint OR id IN :leaving[text])")

# M5: workers whose lease has expired.
dead_workers = Sql("SELECT id FROM workers WHERE until < :now::bigint AND id <> :me::text ORDER BY id")

# M5: instances left executing by these owners, unless the owner has renewed its lease since. A bound LIMIT would make
# PostgreSQL read all ids in their order.
abandoned = Sql(
    """
    SELECT i.id, i.parent_id FROM instances i WHERE i.lease_owner IN :owners[text]
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner AND w.until >= :now::bigint)
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

# Invariant 2: at which epoch instances execute. No lock: the caller holds rows with higher ids (see
# kernel/plain_turn.py), or only looks. `coalesce` keeps the planner on the primary key: while the table was empty it
# chose the index of lists, and kept that plan.
epochs = Sql("SELECT id, epoch FROM instances WHERE id IN :ids[text] AND coalesce(status, '') = 'executing'")
