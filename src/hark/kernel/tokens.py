"""Store and revoke API tokens, in one statement each for all requests of a turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import Grant, Revoke
from hark.model.errors import NotFound
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def apply(turn: Turn) -> None:
    grants, revokes = turn.batch.of(Grant), turn.batch.of(Revoke)
    if grants:
        rows = [
            (r.id, r.hash, r.name, r.scopes, r.expires_at if r.lasts is None else turn.now + r.lasts) for r in grants
        ]
        stored = {row.id: row for row in await turn.tx.fetch(sql.insert_tokens, rows)}
        for grant in grants:
            grant.result = stored[grant.id]
    if revokes:
        ids = sorted({request.id for request in revokes})
        revoked = {row.id: row for row in await turn.tx.fetch(sql.revoke_tokens, ids=ids)}
        for revoke in revokes:
            missing = NotFound(f"There is no token {revoke.id!r}. See `hark token list` for all tokens.")
            revoke.result = revoked.get(revoke.id, missing)
