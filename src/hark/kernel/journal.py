"""The journal: what a function has done, line by line, in the order in which it came to know.

Lines commit with everything else of their turn. What an effect came to (a signal's delivery, a start's
id, or why not) is known only in the turn, so its line is completed here, in the same commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hark.kernel.requests import Commit, Request, SettleAwakeable, StartInstances
from hark.model import json
from hark.model.activation import Claim, JournalRow
from hark.model.decisions import Entry, Proceed
from hark.model.error_codec import encode_error
from hark.model.errors import HarkError
from hark.model.values import Delivery
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def load(turn: Turn, claims: Sequence[Claim]) -> None:
    if claims:
        journals = [claim.journal for claim in claims]
        found = await turn.tx.fetch(sql.journal_of, [(claim.id, claim.visit) for claim in claims])
        for nth, seq, entry, kind, name, value, error in found:
            journals[nth - 1].append(JournalRow(seq, entry, kind, name, value, error))


async def apply(turn: Turn) -> None:
    """Before the claims: who parked and is woken in one turn reads what it has just written."""
    _complete(turn.journaled)
    lines: list[tuple[Any, ...]] = []
    cuts: list[tuple[str, int, int]] = []
    for request in turn.commits:
        decision, claim = request.decision, request.claim
        if decision.journal is None or request.fenced:
            continue
        visit = claim.visit
        if isinstance(decision.move, Proceed) and decision.move.continue_as_new:
            visit += 1
            cuts.append((claim.id, visit, 0))
        elif decision.cut is not None:
            cuts.append((claim.id, visit, decision.cut))
        for line in decision.journal:
            lines.append((claim.id, visit, line.seq, line.entry, line.kind, line.name, line.value, line.error))
    if cuts:
        await turn.tx.fetch(sql.cut_journal, cuts)
    if lines:
        await turn.tx.fetch(sql.insert_journal, lines)


def _complete(effects: Sequence[tuple[Commit, Entry, Request]]) -> None:
    """What the effects came to, as the lines of their senders."""
    for sender, line, request in effects:
        if sender.fenced:
            continue
        answer = request.answer[0] if isinstance(request, StartInstances) else request.answer
        line.value = line.error = None
        if isinstance(answer, HarkError):
            line.error = encode_error(answer)
        elif isinstance(request, SettleAwakeable):
            line.value = "null"
        else:
            line.value = json.dump([answer.status, answer.instance_id] if isinstance(answer, Delivery) else answer)
