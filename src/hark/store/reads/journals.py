"""Read journals, as people see them."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class ShownLine(Row, frozen=True):
    """A line of a journal. Times in µs, JSON as text."""

    seq: int
    entry: int
    kind: str
    name: str | None
    value: str | None
    error: str | None
    attempts: int
    at: int


# The lines of the entries after one, in the order of the entries. A function has those of its visit only; a task those
# of the last period in which it ran something.
lines_after = Sql(
    """
    SELECT j.seq, j.entry, j.kind, j.name, j.value, j.error, j.attempts, j.at
    FROM journal j
    WHERE j.instance_id = :id::text AND j.visit = (SELECT max(n.visit) FROM journal n WHERE n.instance_id = :id::text)
        AND j.entry > :after::bigint
    ORDER BY j.entry, j.seq LIMIT :size::bigint
    """,
    row=ShownLine,
)
