"""Start forks: instances that begin with a part of the journal of another one, or with its state (V5).

The lines were read beside the turns and were committed then, so the other instance is neither locked nor changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import Fork
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan(turn: Turn) -> None:
    for request in turn.batch.of(Fork):
        turn.batch.add(request.start)


async def apply(turn: Turn) -> None:
    started: list[tuple[str, str, bool, str | None]] = []
    lines: list[tuple[object, ...]] = []
    for request in turn.batch.of(Fork):
        [request.result] = request.start.result
        if not isinstance(request.result, str):
            continue
        id = request.result
        started.append((id, request.source, bool(request.journal), request.on_cancel))
        lines += [
            (id, 0, line.seq, line.entry, line.kind, line.name, line.value, line.error, 1) for line in request.journal
        ]
        details = {"at": request.at, "by": request.by}
        given = {key: value for key, value in details.items() if value is not None}
        turn.history.event(id, "forked", None, source=request.source, **given)
    if started:
        await turn.tx.fetch(sql.set_forked, started)
    if lines:
        await turn.tx.fetch(sql.insert_journal, lines)
