"""Store the secrets that sign answer links, and the addresses of the servers that the links lead to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import RecordOrigin, RotateSecret
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def apply(turn: Turn) -> None:
    for rotation in turn.batch.of(RotateSecret):
        if not await turn.tx.fetch(sql.insert_secret, secret=rotation.secret):
            turn.result.again.append(rotation)  # another process took the number first
        elif rotation.drop_old:
            await turn.tx.fetch(sql.delete_other_secrets, secret=rotation.secret)
    if origins := turn.batch.of(RecordOrigin):
        await turn.tx.fetch(sql.record_origins, [(url,) for url in sorted({origin.url for origin in origins})])
        await turn.tx.fetch(sql.forget_old_origins)
        turn.result.pending.has_origin = True
