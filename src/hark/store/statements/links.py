"""Write the secrets that sign links, and the addresses of servers."""

from __future__ import annotations

from hark.store.sql import Sql

# X3: the newest secret signs. No row if another transaction has inserted that number first.
insert_secret = Sql(
    """
    INSERT INTO secrets (number, secret, created_at)
    SELECT coalesce(max(number), 0) + 1, :secret::text, :now::bigint FROM secrets
    WHERE true
    ON CONFLICT (number) DO NOTHING
    RETURNING number
    """
)

# X3: links that were signed with another secret stop working.
delete_other_secrets = Sql("DELETE FROM secrets WHERE secret <> :secret::text")

# The address of a server on this store.
record_origins = Sql(
    """
    INSERT INTO origins (url, seen_at) SELECT r.url, :now::bigint FROM {rows: url text} WHERE true
    ON CONFLICT (url) DO UPDATE SET seen_at = excluded.seen_at
    """
)

# A server on any free port has another address each time.
forget_old_origins = Sql(
    "DELETE FROM origins WHERE url NOT IN (SELECT url FROM origins ORDER BY seen_at DESC, url LIMIT 20)"
)
