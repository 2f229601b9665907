"""Read the unfinished instances as claims, with their journals and waits, beside the turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from hark.model import json
from hark.model.activation import Claim, JournalRow, WaitRow
from hark.model.errors import no_instance
from hark.model.lanes import JOB
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store

_PAGE = 200  # instances


async def live_ids(store: Store, names: Collection[str] | None) -> list[str]:
    """The ids of all unfinished instances, or of those of some definitions."""
    return [id for (id,) in await store.read(reads.live_ids, whole=names is None, names=sorted(names or ()))]


async def pages(store: Store, ids: list[str]) -> AsyncIterator[tuple[list[Claim], int]]:
    """Read instances in pages, each with how many of the ids are left. One that commits while it is read is read once
    more; one that has ended meanwhile is left out."""
    left = ids[::-1]
    while left:
        page, left[-_PAGE:] = left[-_PAGE:], []
        claims = await _read(store, page)
        epochs = {id: epoch for id, epoch in await store.read(reads.epochs_of, ids=[claim.id for claim in claims])}
        left += [claim.id for claim in claims if epochs.get(claim.id, claim.epoch) != claim.epoch]
        yield [claim for claim in claims if epochs.get(claim.id) == claim.epoch], len(left)


async def _read(store: Store, ids: list[str]) -> list[Claim]:
    claims = {row[0]: Claim(*row) for row in await store.read(reads.live_rows, ids=ids)}
    await _add_journals_and_waits(store, claims)
    return list(claims.values())


async def _add_journals_and_waits(store: Store, claims: Mapping[str, Claim]) -> None:
    journaled = [claim for claim in claims.values() if claim.kind == "workflow" and claim.has_run]
    if journaled:
        for nth, *line in await store.read(sql.journal_of, [(claim.id, claim.visit) for claim in journaled]):
            journaled[nth - 1].journal.append(JournalRow(*line))
    waiting = [claim.id for claim in journaled] + [claim.id for claim in claims.values() if claim.kind == JOB]
    if waiting:
        for id, instance, place, kind, name, key, deadline, remaining, since, fired_at, each in await store.read(
            sql.waits_of, ids=waiting
        ):
            row = WaitRow(id, place, kind, name, key, deadline, remaining, fired_at, since, each)
            claims[instance].waits.append(row)


async def movable(store: Store, ids: Sequence[str]) -> list[tuple[Claim, str]]:
    """Read those of these instances that can be moved to another version, failed ones too, each with its status."""
    rows = {row[0]: row for row in await store.read(reads.movable_rows, ids=sorted(ids))}
    claims = {id: Claim(*row[:-1]) for id, row in rows.items()}
    await _add_journals_and_waits(store, claims)
    return [(claim, rows[id][-1]) for id, claim in claims.items()]


async def forkable(store: Store, id: str) -> tuple[Claim, str, dict[str, str] | None]:
    """Read an instance, finished or not, with its journal, its status and its tags.

    Raises:
        NotFound: Retention has removed it meanwhile.
    """
    rows = await store.read(reads.any_row, id=id)
    while rows:
        row = rows[0]
        claim = Claim(*row[:-2])
        await _add_journals_and_waits(store, {id: claim})
        rows = await store.read(reads.any_row, id=id)
        # Else the lines may have been deleted before they were read: the fork would begin anew, and repeat them.
        if rows and Claim(*rows[0][:-2]).visit == claim.visit:
            return claim, row[-2], None if row[-1] is None else json.load(row[-1])
    raise no_instance(id)
