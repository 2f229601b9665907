"""The journal of functions: read it for claims, and write the new lines of outcomes.

Lines commit with everything else of their turn. The result of an effect (a delivery, a started id, an error) is known
only in the turn that carries it out, so its line is completed here, in the same commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hark.kernel.requests import Commit, Request
from hark.model import json
from hark.model.activation import Claim, JournalRow
from hark.model.decisions import JournalLine
from hark.model.error_codec import encode_error
from hark.model.errors import HarkError
from hark.store import statements as sql
from hark.store.protocol import Store, Tx

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def load(tx: Tx, claims: Sequence[Claim], in_memory: Mapping[str, int]) -> None:
    """Read the journals of claimed functions; not of those that the memory of the worker holds, by id and epoch
    before the claim."""
    unread = []
    for claim in claims:
        if claim.traits.keeps_journal and claim.has_run:
            claim.is_journal_unread = in_memory.get(claim.id) == claim.epoch_before
            if not claim.is_journal_unread:
                unread.append(claim)
    if unread:
        found = await tx.fetch(sql.journal_of, [(claim.id, claim.visit) for claim in unread])
        for nth, seq, entry, kind, name, value, error in found:
            unread[nth - 1].journal.append(JournalRow(seq, entry, kind, name, value, error))


async def read_journal(store: Store, claim: Claim) -> list[JournalRow]:
    """Read the journal of one claim outside the turns: nothing else writes to it while the claim is held."""
    found = await store.read(sql.journal_of, [(claim.id, claim.visit)])
    return [JournalRow(*line) for _, *line in found]


async def apply(turn: Turn) -> None:
    """Write journals before the claims: an instance that parks and wakes in one turn reads the lines it wrote."""
    _complete(turn.batch.journaled)
    await write(turn.tx, turn.batch.of(Commit))


async def write(tx: Tx, commits: Sequence[Commit]) -> None:
    """Write the lines of these outcomes. Cuts come first: the new lines reuse the numbers of cut lines."""
    lines: list[tuple[Any, ...]] = []
    cuts: list[tuple[str, int, int]] = []
    for request in commits:
        decision, claim = request.decision, request.claim
        if decision.journal is None or request.fenced:
            continue
        visit = claim.visit
        if decision.move.continue_as_new:
            visit += 1
            cuts.append((claim.id, visit, 0))
        elif decision.cut_from is not None:
            cuts.append((claim.id, visit, decision.cut_from))
        for line in decision.journal:
            lines.append(
                (claim.id, visit, line.seq, line.entry, line.kind, line.name, line.value, line.error, line.attempts)
            )
    if cuts:
        await tx.fetch(sql.cut_journal, cuts)
    if lines:
        await tx.fetch(sql.insert_journal, lines)


def _complete(effects: Sequence[tuple[Commit, JournalLine, Request]]) -> None:
    """Write the results of effects into the lines of their senders."""
    for sender, line, request in effects:
        if sender.fenced:
            continue
        value = request.journal_value()
        line.value = line.error = None
        if isinstance(value, HarkError):
            line.error = encode_error(value)
        else:
            line.value = json.dump_unchecked(value)
