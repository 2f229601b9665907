"""Execute the call turn: signals and answers to parked instances, and claims, as one call of a database function.

The function (store/schema/functions.sql) does the same as the phases of turn.py in the most frequent case: a few
requests, each for an instance of its own, which is parked, waits for this request and can be claimed by this worker. In
any other case the transaction is rolled back, and the turn is executed in full. This file decides which requests are
sent to the function, and reads its result. It refuses nothing: errors are left to turn.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from hark.kernel import journal
from hark.kernel.deliver import is_generated_id
from hark.kernel.requests import Capacity, Deliver, Request, SettleAwakeable
from hark.kernel.result import TurnResult
from hark.kernel.settle import answer_event, answer_payload, matches_schema
from hark.model import epochs
from hark.model.activation import CLAIM_COLUMNS, Claim, InboxRow, WaitRow
from hark.model.lanes import ENGINE_QUEUE, INTERPRETED
from hark.model.names import instance_of
from hark.model.values import Delivery
from hark.store import statements as sql
from hark.store.protocol import Tx

_MAX_REQUESTS: Final = 5  # requests, or claims: beyond it, a statement for all is quicker than one for each
_encode: Final = msgspec.json.Encoder().encode
_rows: Final = msgspec.json.Decoder(list[list[Any]]).decode
_row: Final = msgspec.json.Decoder(list[Any]).decode

_Values = dict[str, Any]


def call_parameters(requests: Sequence[Request], capacity: Capacity | None) -> _Values | None:
    """The parameters of the call for these requests; None if the function cannot carry them out.

    Args:
        requests: The requests of the turn. Without any, it only claims.
        capacity: What to claim for a worker, or None to claim nothing.
    """
    if len(requests) > _MAX_REQUESTS:
        return None
    deliveries = _deliveries(requests)
    worker = None if deliveries is None else _worker(capacity, len(requests))
    if deliveries is None or worker is None:
        return None
    return {**deliveries, **worker}


_COLUMNS: Final = (
    "targets", "kinds", "names", "payloads", "dedup_keys", "events", "statuses", "answers", "errors", "answered_by",
    "schemas",
)  # fmt: skip


def _deliveries(requests: Sequence[Request]) -> _Values | None:
    """The requests as columns; None if one of them is of another kind, or is a repetition after an earlier turn."""
    rows: list[tuple[str | None, ...]] = []
    has_keys = is_in_bucket = False
    for request in requests:
        if type(request) is SettleAwakeable:
            settle = request.settle
            owner = instance_of(settle.awakeable)
            if owner is None or request.read_owner or request.task_id is not None or settle.status == "CANCELLED":
                return None
            schema = request.schema if request.problems == [] else None
            rows.append((
                owner, "awakeable", settle.awakeable, answer_payload(settle), None, _json(answer_event(settle)),
                settle.status, settle.payload, settle.error, settle.by, schema,
            ))  # fmt: skip
        elif type(request) is Deliver:
            if request.by_key or request.also_lock or request.sender is not None:
                return None
            event = {"name": request.name, "status": "woke"}
            rows.append((
                request.target, "signal", request.name, request.payload, request.dedup_key, _json(event),
                None, None, None, None, None,
            ))  # fmt: skip
            has_keys = has_keys or not is_generated_id(request.target)
            is_in_bucket = is_in_bucket or request.is_in_bucket
        else:
            return None
    if has_keys and is_in_bucket:  # the function does not know what earlier holders of a key have seen
        return None
    columns = zip(*rows, strict=True) if rows else [None] * len(_COLUMNS)
    return {"has_keys": has_keys, **dict(zip(_COLUMNS, columns, strict=True))}


def _json(data: dict[str, str]) -> str:
    return _encode(data).decode()


def _worker(capacity: Capacity | None, count: int) -> _Values | None:
    if capacity is None:
        return {"owner": None, "queues": None, "lanes": None, "sizes": None, "most": _MAX_REQUESTS} if count else None
    if count and capacity.backlog:  # rows that have waited longer may need the slots
        return None
    if not count and not capacity.backlog:  # there is nothing to claim
        return None
    slots: list[tuple[str, str, int]] = []
    for queue, free in capacity.free.items():
        if free > 0 and free >= count:
            interpreted = queue == ENGINE_QUEUE
            slots += [(queue, lane, free) for lane in capacity.lanes if (lane in INTERPRETED) is interpreted]
    if not slots:
        return None
    queues, lanes, sizes = zip(*slots, strict=True)
    return {"owner": capacity.owner, "queues": queues, "lanes": lanes, "sizes": sizes, "most": _MAX_REQUESTS}


async def run_call_turn(
    tx: Tx, requests: Sequence[Request], capacity: Capacity | None, values: _Values
) -> TurnResult | None:
    """Carry out a turn in one call. The caller commits it.

    Args:
        tx: The transaction, of `Store.begin(call_turn=True)`.
        requests: As for `call_parameters`.
        capacity: As for `call_parameters`.
        values: What `call_parameters` returned.

    Returns:
        The result of the turn; None if the turn has to be rolled back and executed in full.
    """
    values = {**values, "nonce": epochs.new_nonce(), "base": tx.xid}
    found = await tx.fetch(sql.call_turn, **values)
    if len(found) == len(requests) == 1 and (schema := found[0]["unknown_schema"]) is not None:
        [request] = requests
        if not isinstance(request, SettleAwakeable) or not matches_schema(request, schema):
            return None
        # The function compares the schema again, under its lock.
        found = await tx.fetch(sql.call_turn, **{**values, "schemas": [schema]})
    if not found or len(found) < len(requests) or found[-1]["unknown_schema"] is not None:
        return None
    if len(found) > 1 and found[-1]["id"] is None:  # stopped at a claim that the full turn has to make
        return None
    tx.now, tx.xid, tx.position = (found[0][name] for name in ("turn_now", "turn_tx", "turn_position"))
    result = TurnResult(tx.now, tx.xid)
    result.provable = bool(requests)
    result.deliveries = [request for request in requests if isinstance(request, Deliver)]
    if capacity is None:
        result.pending.left_claimable = True
    else:
        claimed = [row for row in found if row["id"] is not None]
        result.claims = [_claim(row, capacity, values["nonce"], tx.now) for row in claimed]
        await journal.load(tx, result.claims, capacity.in_memory)
        taken = Counter([] if requests else [claim.queue for claim in result.claims])
        result.pending.left_claimable = any(taken[queue] >= size > 0 for queue, size in capacity.free.items())
        result.pending.backlog = any(taken[queue] >= size for queue, size in capacity.free.items())
    for request, row in zip(requests, found, strict=False):
        _answer(request, row, tx.now)
    return result


def _answer(request: Request, row: Any, now: int) -> None:
    if isinstance(request, SettleAwakeable):
        settle = request.settle
        (
            task, entry_index, timeout_at, created_at, title, description, schema, assignees, nonce, groups, claimed_by,
            due_at,
        ) = _row(row["awakeable"])  # fmt: skip
        request.result = sql.AwakeableRow(
            settle.awakeable, row["id"], task, entry_index, settle.status, settle.payload, settle.error, timeout_at,
            created_at, now, title, description, schema, assignees, settle.by, nonce, groups, claimed_by, due_at,
        )  # fmt: skip
    else:
        request.result = Delivery("woke", row["id"])


def _claim(row: Any, capacity: Capacity, nonce: int, now: int) -> Claim:
    claim = Claim(*row[: len(CLAIM_COLUMNS)])
    claim.epoch_before, claim.now = epochs.epoch_before(claim.epoch, nonce), now
    claim.traits = capacity.lanes[claim.lane]
    if row["inbox"] is not None:
        claim.give([InboxRow(*item) for item in _rows(row["inbox"])])
    if row["waits"] is not None:
        claim.waits = [WaitRow(*item) for item in _rows(row["waits"])]
    return claim
