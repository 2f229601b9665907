"""Settle awakeables: resolved, rejected, timed out. Once (invariant 8), and the inbox row in the same commit.

An answer is looked at here, in the turn, and not before: only here is it known which question it settles. What
does not fit its schema, or comes from somebody it was not put to, is refused and nothing moves (A8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hark.kernel.requests import SettleAwakeable
from hark.kernel.rows import Locked
from hark.model import json, schema
from hark.model.decisions import Settle
from hark.model.errors import AlreadySettled, HarkError, InvalidAnswer, NotAssigned, NotFound
from hark.model.names import from_micros, instance_of
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def plan(turn: Turn) -> None:
    """Whose row to lock: the id says it (A2), and saves the look; where it does not, the store is asked."""
    unknown = set()
    for request in turn.answers:
        id = request.settle.awakeable
        owner = None if request.by_look else instance_of(id)
        if owner is None:
            unknown.add(id)
        else:
            turn.wants.add(owner)
    if unknown:
        for _, owner in await turn.tx.fetch(sql.awakeable_owners, ids=sorted(unknown)):
            turn.wants.add(owner)


async def apply(turn: Turn) -> None:
    requests = [request for request in turn.answers if request.sender is None or not request.sender.fenced]
    if not requests:
        return
    ids = sorted({request.settle.awakeable for request in requests})
    states = {row[0]: row for row in await turn.tx.fetch(sql.awakeable_states, ids=ids)}
    settled: dict[str, tuple[Any, ...]] = {}
    for request in requests:
        state = states.get(request.settle.awakeable)
        if state is not None and state[1] not in turn.rows and not request.by_look:
            request.by_look = True  # its id names another than its owner: it goes again, and is looked up
            turn.again.append(request)
        else:
            _settle(turn, request, states, settled)
    if settled:
        await turn.tx.fetch(sql.settle, list(settled.values()))
    await turn.flush()


def _settle(turn: Turn, request: SettleAwakeable, states: dict[str, Any], settled: dict[str, tuple[Any, ...]]) -> None:
    wish = request.settle
    state = states.get(wish.awakeable)
    row = turn.rows.get(state[1]) if state is not None else None
    if state is not None and row is not None and wish.awakeable not in settled and _is_late(turn, state):
        _close(turn, row, settled, wish.awakeable, "TIMEOUT")
    if state is None or row is None:
        _refuse(turn, request, NotFound(f"There is no awakeable {wish.awakeable!r}. Check the id."))
    elif wish.awakeable in settled or state[2] != "PENDING":
        before = settled.get(wish.awakeable)
        status, by, at = (before[2], before[5], turn.now) if before else (state[2], state[3], state[4])
        when = from_micros(at)
        _refuse(
            turn,
            request,
            AlreadySettled(
                f"Awakeable {wish.awakeable} is {status} since {when:%Y-%m-%d %H:%M:%S} UTC"
                f"{f', by {by}' if by else ''}. It settles once; nothing was changed.",
                status=status, by=by, at=when,
            ),
        )  # fmt: skip
    elif (unfit := _unfit(state, wish)) is not None:
        _refuse(turn, request, unfit)
    else:
        _close(turn, row, settled, wish.awakeable, wish.status, wish.payload, wish.error, wish.by, wish.via)
        request.answer = _settled(state, wish, turn.now)


def _is_late(turn: Turn, state: Any) -> bool:
    """Nobody has settled it, and its time is up: no timer fires while its asker is busy."""
    status, timeout = state[2], state[8]
    return status == "PENDING" and timeout is not None and bool(timeout <= turn.now)


def _close(
    turn: Turn, row: Locked, settled: dict[str, tuple[Any, ...]], id: str, status: str, payload: str | None = None,
    error: str | None = None, by: str | None = None, via: str | None = None,
) -> None:  # fmt: skip
    if status != "CANCELLED":  # who withdraws a question is not told the answer
        tell(turn, row, id, status, payload, error, by, via)
    # Who is woken goes on without this wait, and has no deadline until then: it is left as it is, as a signal's is.
    asker = None if row.id in turn.woken else row.id
    settled[id] = (id, asker, status, payload, error, by)
    for wait in row.waits:
        if (wait.kind, wait.name) == ("awakeable", id):
            wait.fired_at = turn.now


def _unfit(state: Any, wish: Settle) -> HarkError | None:
    """Why this may not settle it, if so."""
    asked, assignees = state[5], json.load(state[12]) if state[12] is not None else []
    # Who gives no name is code with the store in its hands; a link and a step are permissions of their own.
    if assignees and wish.by is not None and wish.by not in assignees and wish.via not in ("link", "step"):
        problem = f"by: {wish.by} is not among those who were asked ({', '.join(assignees)})"
        return NotAssigned(
            f"Awakeable {wish.awakeable} is not for {wish.by} to answer, but for {', '.join(assignees)}. "
            "Nothing was changed.",
            problems=[problem],
        )
    if asked is None or wish.payload is None or wish.status != "RESOLVED":
        return None
    problems = schema.problems(asked, wish.payload)
    if not problems:
        return None
    return InvalidAnswer(
        f"The answer to awakeable {wish.awakeable} does not fit its schema: {'; '.join(problems)}. "
        "Nothing was changed; correct that and answer again.",
        problems=problems,
    )


def _settled(state: Any, wish: Settle, now: int) -> tuple[Any, ...]:
    """The row as `read_awakeables` would show it now, so that who settles needs no read of its own."""
    id, owner, _, _, _, schema, task, entry, timeout, created, title, description, assignees, nonce = state
    return (
        id, owner, task, entry, wish.status, wish.payload, wish.error, timeout, created, now, title, description,
        schema, assignees, wish.by, nonce,
    )  # fmt: skip


def tell(
    turn: Turn, row: Locked, id: str, status: str, payload: str | None = None, error: str | None = None,
    by: str | None = None, via: str | None = None,
) -> None:  # fmt: skip
    """The answer, as a row in the asker's inbox; who gave it, and through which door, as an event."""
    who = {key: value for key, value in (("by", by), ("via", via)) if value is not None}
    body: dict[str, Any] = {"status": status}
    if payload is not None:
        body["payload"] = msgspec.Raw(payload.encode())
    if error is not None:
        body["error"] = error
    if by is not None:
        body["by"] = by
    turn.post(row, "awakeable", id, msgspec.json.encode(body).decode())
    turn.event(row.id, "awakeable", None, awakeable=id, status=status, **who)


def _refuse(turn: Turn, request: SettleAwakeable, error: HarkError) -> None:
    request.answer = error
    if request.sender is not None and request.settle.status != "CANCELLED":
        claim = request.sender.claim
        turn.event(claim.id, "unsettled", claim.step, awakeable=request.settle.awakeable, error=str(error))
