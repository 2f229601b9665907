"""Make and revoke API tokens. They meet nothing else in a turn: one statement each, for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.model.errors import NotFound
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def apply(turn: Turn) -> None:
    if turn.grants:
        rows = [
            (r.id, r.hash, r.name, r.scopes, r.expires_at if r.lasts is None else turn.now + r.lasts)
            for r in turn.grants
        ]
        made = {row[0]: row for row in await turn.tx.fetch(sql.insert_tokens, rows)}
        for request in turn.grants:
            request.answer = made[request.id]
    if turn.revokes:
        ids = sorted({request.id for request in turn.revokes})
        gone = {row[0]: row for row in await turn.tx.fetch(sql.revoke_tokens, ids=ids)}
        for revoke in turn.revokes:
            missing = NotFound(f"There is no token {revoke.id!r}. `hark token list` shows those there are.")
            revoke.answer = gone.get(revoke.id, missing)
