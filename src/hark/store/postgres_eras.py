"""Number the clusters that a store has lived in, so that cursors go on after a restore (invariant 17).

Events are ordered by the number of their transaction, and these numbers belong to the cluster: after a restore into
another one, or a recovery to an earlier moment, they are lower than before. All new events would sort before the
cursors that clients have, and never be read. So a store has eras, each of which begins 2^44 above the one before. A new
one begins when the store is found in another cluster (by its system identifier), or on another timeline of it: after a
recovery to an earlier moment, and after the promotion of a standby, which may lack the last commits.

Numbers of events (`seq`), which are the cursors of a single instance, jump in the same way. Cursors of earlier eras
stay valid: they are lower than all of the later ones.

All connections that write on a server must find the same era, because a reader that has passed an era does not come
back to it. So it depends on the server and the tables alone, never on what a process remembers of another server.
"""

from __future__ import annotations

from typing import Final

import asyncpg

from hark.model.log import get_logger
from hark.store.protocol import Full

_log = get_logger()
# xid8 counts all transactions of a cluster, without wraparound: at 10,000 per second, an era lasts 55 years. `seq` has
# room for 8,000 eras before JavaScript cannot read it, the number of a transaction for 500.
_BITS: Final = 44
_SEQ_BITS: Final = 40
# Not the timeline of the last checkpoint (pg_control_checkpoint): a promoted server writes it a moment later.
_FIND: Final = """
    SELECT pg_is_in_recovery() AS stands_by,
        CASE WHEN NOT pg_is_in_recovery()
            THEN {id} || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS cluster,
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next, e.tx, e.seq, era.number, era.cluster AS known
    FROM (SELECT) one
    LEFT JOIN (SELECT tx, seq FROM events ORDER BY tx DESC, seq DESC LIMIT 1) e ON true
    LEFT JOIN (SELECT number, cluster FROM eras ORDER BY number DESC LIMIT 1) era ON true
"""
_WITH_ID: Final = _FIND.format(id="(SELECT system_identifier FROM pg_control_system())")
_WITHOUT_ID: Final = _FIND.format(id="''")  # for a role that may not read it
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('hark:eras:' || current_schema()))"
_ADD: Final = """
    INSERT INTO eras (number, cluster, began_at)
    VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
"""
_JUMP: Final = "SELECT setval(pg_get_serial_sequence('events', 'seq'), $1)"


def base_of(number: int) -> int:
    """The number that is added to those of the transactions of an era. `reads.HORIZON` computes it too."""
    return (number - 1) << _BITS


def number_in_cluster(tx: int) -> int:
    """The number that its cluster gave to a transaction."""
    return tx & ((1 << _BITS) - 1)


async def base_on(db: asyncpg.Connection) -> int:
    """Return what is added to the numbers of transactions on this connection. Begins an era if there is a reason.

    Raises:
        Full: The server is a standby.
        asyncpg.PostgresError: As every statement.
    """
    find = _WITH_ID
    try:
        found = await db.fetchrow(find)
    except asyncpg.InsufficientPrivilegeError:
        find = _WITHOUT_ID
        found = await db.fetchrow(find)
    assert found is not None
    if found["stands_by"]:
        raise Full("this server is a standby, which cannot write")
    if _goes_on(found):
        return base_of(found["number"])
    async with db.transaction():
        await db.execute(_LOCK)
        found = await db.fetchrow(find)  # another process may have begun it
        assert found is not None
        return base_of(found["number"] if _goes_on(found) else await _begin(db, found))


def _goes_on(found: asyncpg.Record) -> bool:
    """Return True if the newest era is one of this server. A transaction that has committed has a lower number than the
    next one, unless it was restored from elsewhere."""
    number, known, cluster = found["number"], found["known"], found["cluster"]
    if number is None or not _is_same(known, cluster):
        return False
    return found["tx"] is None or bool(found["tx"] < base_of(number) + found["next"])


def _is_same(known: str, cluster: str) -> bool:
    """Compare two clusters. Roles that may not read the identifier know only the timeline."""
    (known_id, _, known_line), (id, _, line) = known.partition("/"), cluster.partition("/")
    return known_line == line and (known_id == id or not known_id or not id)


async def _begin(db: asyncpg.Connection, found: asyncpg.Record) -> int:
    """Begin the next era. Returns its number."""
    newest = max(found["number"] or 0, 0 if found["tx"] is None else (found["tx"] >> _BITS) + 1)
    number = int(newest) + 1
    await db.execute(_ADD, number, found["cluster"])
    if newest:
        _log.warning(
            "The store is in another cluster than before, or was restored to an earlier moment: the cursors of events "
            "go on in era %d.",
            number,
        )
        await _jump(db, max((number - 1) << _SEQ_BITS, (found["seq"] or 0) + 1))
    return number


async def _jump(db: asyncpg.Connection, seq: int) -> None:
    try:
        async with db.transaction():
            await db.execute(_JUMP, seq)
    except asyncpg.InsufficientPrivilegeError:
        _log.warning(
            "This role may not set the sequence of events, so streams of single instances that were opened before the "
            "restore may miss events. Run with a role that may: "
            "SELECT setval(pg_get_serial_sequence('events', 'seq'), %d)",
            seq,
        )
