"""Workers, their leases, and the work of dead ones."""

from __future__ import annotations

from hark.store.sql import Sql

renew = Sql(
    """
    INSERT INTO workers (id, until, definitions, started_at)
    VALUES (:id::text, :until::bigint, :definitions::text, :now::bigint)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until, definitions = excluded.definitions
    """
)
# Who leaves, and who is dead: not the one that renewed between the look and this turn.
retire = Sql("DELETE FROM workers WHERE id IN :ids[text] AND (until < :now::bigint OR id IN :leaving[text])")
dead_workers = Sql("SELECT id FROM workers WHERE until < :now::bigint AND id <> :me::text ORDER BY id")
# Whom a dead worker left executing, and the owners that have no row at all.
abandoned = Sql(
    """
    SELECT i.id, i.parent_id FROM instances i WHERE i.lease_owner IN :owners[text]
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner AND w.until >= :now::bigint)
    ORDER BY i.id LIMIT 1000
    """
)
owners = Sql(
    """
    SELECT DISTINCT i.lease_owner FROM instances i WHERE i.lease_owner IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = i.lease_owner)
    """
)
epochs = Sql("SELECT id, epoch FROM instances WHERE id IN :ids[text] AND status = 'executing'")
