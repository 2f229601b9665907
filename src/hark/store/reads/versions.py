"""Read the versions of definitions: their codes, and their unfinished instances."""

from __future__ import annotations

from hark.store.sql import Row, Sql

_LIVE = "('runnable', 'executing', 'awaiting_signal', 'awaiting_children', 'held')"


class VersionRow(Row, frozen=True):
    """A version of a definition. Times in µs."""

    name: str
    version: int
    kind: str
    fingerprint: str | None
    earlier_code: str | None
    code_since: int | None
    undeployed_at: int | None
    retired_at: int | None


_SHOWN = VersionRow.columns()

# V8, V9: all versions of all definitions.
all_versions = Sql(f"SELECT {_SHOWN} FROM definitions ORDER BY name, version", row=VersionRow)


class ChangedVersion(Row, frozen=True):
    """A version whose code has changed, with the number of unfinished instances that are older than the change."""

    name: str
    version: int
    fingerprint: str
    earlier_code: str
    instances: int


# V8: at most a thousand instances are counted for each version.
changed_versions = Sql(
    f"""
    SELECT d.name, d.version, d.fingerprint, d.earlier_code, (
        SELECT count(*) FROM (
            SELECT 1 FROM instances i WHERE i.definition = d.name AND i.status IN {_LIVE}
                AND i.created_at <= d.code_since AND i.version = d.version LIMIT 1000) n) AS instances
    FROM definitions d WHERE d.earlier_code IS NOT NULL ORDER BY d.name, d.version
    """,
    row=ChangedVersion,
)


class HeldLane(Row, frozen=True):
    """The held instances of a lane, and one of them."""

    lane: str
    instances: int
    sample: str


# V3: what is held.
held_by_lane = Sql(
    """
    SELECT lane, count(*) AS instances, min(id) AS sample FROM instances WHERE status = 'held'
    GROUP BY lane ORDER BY lane
    """,
    row=HeldLane,
)

# The errors of these instances.
errors_of = Sql("SELECT id, error FROM instances WHERE id IN :ids[text]")
