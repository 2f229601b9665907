"""Read the secrets that sign links, and the addresses of servers."""

from __future__ import annotations

from hark.store.sql import Sql

# X3: newest first. The first one signs, all of them verify.
secrets = Sql("SELECT secret FROM secrets ORDER BY number DESC")

# The addresses of servers on this store, newest first.
origins = Sql("SELECT url FROM origins ORDER BY seen_at DESC, url")
