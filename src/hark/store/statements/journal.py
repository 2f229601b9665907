"""Read and write the journals of durable functions."""

from __future__ import annotations

from hark.store.sql import Sql

# Replay: each journal in its own order, which is the order of the index. Sorting all of them together costs a third
# more.
journal_of = Sql(
    """
    SELECT r.ord, j.seq, j.entry, j.kind, j.name, j.value, j.error FROM {rows: id text, visit integer}
    CROSS JOIN LATERAL (
        SELECT seq, entry, kind, name, value, error FROM journal
        WHERE instance_id = r.id AND visit = r.visit ORDER BY visit, seq) j
    """,
    # SQLite has no LATERAL.
    sqlite="""
    SELECT r.ord, j.seq, j.entry, j.kind, j.name, j.value, j.error FROM {rows: id text, visit integer}
    CROSS JOIN journal j ON j.instance_id = r.id AND j.visit = r.visit ORDER BY r.ord, j.seq
    """,
)

# The lines of a commit are in the transaction of its outcome (invariant 1).
insert_journal = Sql(
    """
    INSERT INTO journal (instance_id, visit, seq, entry, kind, name, value, error, attempts, at)
    SELECT r.id, r.visit, r.seq, r.entry, r.kind, r.name, r.value, r.error, r.attempts, :now::bigint
    FROM {rows: id text, visit integer, seq integer, entry integer, kind text, name text, value text, error text,
        attempts integer}
    """,
    joinable=True,
)

# X8: delete the lines that a retry runs again, and the journals of earlier visits.
cut_journal = Sql(
    """
    DELETE FROM journal AS j USING {rows: id text, visit integer, seq integer}
    WHERE j.instance_id = r.id AND (j.visit < r.visit OR (j.visit = r.visit AND j.seq >= r.seq))
    """,
    # SQLite's DELETE has no join.
    sqlite="""
    DELETE FROM journal WHERE (instance_id, visit, seq) IN (
        SELECT j.instance_id, j.visit, j.seq FROM {rows: id text, visit integer, seq integer}
        JOIN journal j ON j.instance_id = r.id AND (j.visit < r.visit OR (j.visit = r.visit AND j.seq >= r.seq)))
    """,
    joinable=True,
)
