"""Move the instances of one page: read them, compute what becomes of each, and write them in one turn (V4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec import Struct

from hark.engine.bulk.bulk_request import Change
from hark.engine.bulk.migrator import CodeMissing, Migrator, problems_of
from hark.kernel.requests import InstanceMove, Migrate
from hark.model.activation import Claim
from hark.model.errors import Conflict, HarkError, InvalidMigration
from hark.store import reads
from hark.store.protocol import Store
from hark.views import live
from hark.views.listing import Place

Ask = Callable[[Migrate], Awaitable[list[str | HarkError]]]


class PageResult(Struct):
    """The outcome of a page.

    Attributes:
        done: How many were moved.
        skipped: How many had that version already.
        ended: How many have ended, or are not there.
        failed: How many cannot be moved.
        busy: The ids of those that execute, or went on meanwhile.
        problems: The reasons of the first that cannot be moved, by id.
        lacks: The code that this process does not have; nothing was done.
        place: The place of the next page; None if this was the last one.
    """

    done: int = 0
    skipped: int = 0
    ended: int = 0
    failed: int = 0
    busy: list[str] = []
    problems: dict[str, str] = {}
    lacks: str | None = None
    place: Place | None = None

    def add(self, other: PageResult) -> None:
        """Add the outcome of another page."""
        self.done += other.done
        self.skipped += other.skipped
        self.ended += other.ended
        self.failed += other.failed
        self.busy += other.busy
        self.problems |= other.problems
        self.lacks = self.lacks or other.lacks


class Computed(Struct):
    """The instances of a page by what can become of them."""

    moves: list[InstanceMove] = []
    already: list[str] = []  # they have that version
    problems: dict[str, HarkError] = {}
    busy: list[str] = []


async def compute(store: Store, migrator: Migrator, change: Change, ids: Sequence[str]) -> Computed:
    """Read these instances, and compute what becomes of each, in a thread beside the turns.

    Raises:
        CodeMissing: This process does not have the new version.
    """
    movable = await live.movable(store, ids)
    claims = [claim for claim, _ in movable]
    for source in await store.read(reads.sources_of, migrator.lacks_source(claims)):
        migrator.add_source(source.name, source.version, source.source or "")
    executing = {claim.id for claim, status in movable if status == "executing"}
    return await asyncio.to_thread(_compute, migrator, change, claims, executing)


def _compute(migrator: Migrator, change: Change, claims: Sequence[Claim], executing: Collection[str]) -> Computed:
    found = Computed()
    for claim in claims:
        if claim.version == change.to_version:
            found.already.append(claim.id)
        elif claim.id in executing:
            found.busy.append(claim.id)
        else:
            try:
                migrated = migrator.migrate(claim)
            except InvalidMigration as error:
                found.problems[claim.id] = error
                continue
            found.moves.append(
                InstanceMove(
                    claim.id, claim.epoch, claim.definition, claim.kind, claim.queue, claim.version,
                    change.to_version, migrated,
                )
            )  # fmt: skip
    return found


async def migrate_page(
    store: Store, ask: Ask, migrator: Migrator, change: Change, ids: Sequence[str], bulk: str, by: str | None
) -> PageResult:
    """Move these instances. Those that this bulk instance has moved already, before a crash, count as done."""
    try:
        found = await compute(store, migrator, change, ids)
    except CodeMissing as missing:
        return PageResult(lacks=str(missing))
    result = PageResult(busy=found.busy, failed=len(found.problems))
    result.problems = {
        id: "; ".join(str(problem) for problem in problems_of(error)) for id, error in found.problems.items()
    }
    if found.moves:
        answers = await ask(Migrate(moves=found.moves, bulk=bulk, by=by))
        for one, answer in zip(found.moves, answers, strict=True):
            match answer:
                case str():
                    result.done += 1
                case Conflict(status="done" | "cancelled" | "deleted"):
                    pass
                case Conflict():
                    result.busy.append(one.id)
                case error:
                    result.failed += 1
                    result.problems[one.id] = str(error)
    known = {one.id for one in found.moves} | found.problems.keys() | {*found.already, *found.busy}
    gone = [id for id in ids if id not in known]
    if found.already or gone:
        moved = {id for (id,) in await store.read(reads.moved_by, ids=found.already + gone, bulk=bulk)}
        result.done += len(moved)
        result.skipped += len([id for id in found.already if id not in moved])
    result.ended = len(ids) - result.done - result.skipped - result.failed - len(result.busy)
    return result
