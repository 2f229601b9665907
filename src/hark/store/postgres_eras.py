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

from collections.abc import Sequence
from typing import Final

import asyncpg

from hark.model.log import get_logger
from hark.store.protocol import Full

_log = get_logger()
# xid8 counts all transactions of a cluster, without wraparound: at 10,000 per second, an era lasts 55 years. `seq` has
# room for 8,000 eras before JavaScript cannot read it, the number of a transaction for 500.
_BITS: Final = 44
_SEQ_BITS: Final = 40
# Each of these may be refused to a role, and a managed server may not have it. The first timeline is the right one at
# once; a promoted server writes that of the last checkpoint a moment later.
_IDENTIFIER: Final = ("SELECT system_identifier::text FROM pg_control_system()",)
_TIMELINE: Final = (
    "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)",
    "SELECT lpad(upper(to_hex(timeline_id)), 8, '0') FROM pg_control_checkpoint()",
)
_FIND: Final = """
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next, e.tx, e.seq, era.number, era.cluster
    FROM (SELECT) one
    LEFT JOIN (SELECT tx, seq FROM events ORDER BY tx DESC, seq DESC LIMIT 1) e ON true
    LEFT JOIN (SELECT number, cluster FROM eras ORDER BY number DESC LIMIT 1) era ON true
"""
_UNSUPPORTED: Final = (asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFunctionError)
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
    if await db.fetchval("SELECT pg_is_in_recovery()"):
        raise Full("this server is a standby, which cannot write")
    cluster = f"{await _first_answer(db, _IDENTIFIER)}/{await _first_answer(db, _TIMELINE)}"
    found = await db.fetchrow(_FIND)
    assert found is not None
    if _goes_on(found, cluster):
        return base_of(found["number"])
    async with db.transaction():
        await db.execute(_LOCK)
        found = await db.fetchrow(_FIND)  # another process may have begun it
        assert found is not None
        return base_of(found["number"] if _goes_on(found, cluster) else await _begin(db, found, cluster))


async def _first_answer(db: asyncpg.Connection, questions: Sequence[str]) -> str:
    """The answer to the first question that the server answers; empty if it answers none."""
    for question in questions:
        try:
            return str(await db.fetchval(question))
        except (asyncpg.InsufficientPrivilegeError, asyncpg.ObjectNotInPrerequisiteStateError, *_UNSUPPORTED):
            continue
    return ""


def _goes_on(found: asyncpg.Record, cluster: str) -> bool:
    """Return True if the newest era is one of this server. A transaction that has committed has a lower number than the
    next one, unless it was restored from elsewhere."""
    if found["number"] is None or not _is_same(found["cluster"], cluster):
        return False
    return found["tx"] is None or bool(found["tx"] < base_of(found["number"]) + found["next"])


def _is_same(known: str, cluster: str) -> bool:
    """Compare two clusters; what one of them does not know counts as the same."""
    (id, _, line), (id_here, _, line_here) = known.partition("/"), cluster.partition("/")
    return (not id or not id_here or id == id_here) and (not line or not line_here or line == line_here)


async def _begin(db: asyncpg.Connection, found: asyncpg.Record, cluster: str) -> int:
    """Begin the next era. Returns its number."""
    newest = max(found["number"] or 0, 0 if found["tx"] is None else (found["tx"] >> _BITS) + 1)
    number = int(newest) + 1
    await db.execute(_ADD, number, cluster)
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
