"""The same turn in both ways, in full and as one call, each in a transaction that is rolled back.

Both begin with the same rows, at the same time and queue position, so everything they return and everything they leave
in the tables can be compared. Only numbers that the database draws differ: those of transactions, and of rows that the
turn inserts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from hark.kernel.definitions import Catalog
from hark.kernel.fast.call_turn import call_parameters, run_call_turn
from hark.kernel.requests import Capacity, Request, SettleAwakeable
from hark.kernel.result import Pending, TurnResult
from hark.kernel.rules import Rules
from hark.kernel.turn import run_turn
from hark.model.activation import Claim, InboxRow
from hark.model.values import Rate
from hark.store.postgres import PostgresStore, PostgresTx
from tests.support.turns import TickingClock, rules, same_nonces

Requests = Callable[[], Sequence[Request]]
Shown = dict[str, Any]
_TABLES = (
    "instances", "inbox", "waits", "awakeables", "journal", "events", "misses", "buckets", "broadcasts", "deliveries",
    "messages", "tombstones", "workers", "triggers", "tags", "streams", "definitions",
)  # fmt: skip


class BothWays:
    """Runs turns on a store of PostgreSQL that nothing else uses."""

    def __init__(self, store: PostgresStore, clock: TickingClock) -> None:
        self.store = store
        self.clock = clock
        self.rules: Rules = rules(slots={"two": 2}, rates={"rate": Rate(allowed=2, period=10)})
        self.catalog = Catalog()
        self.in_one_call = 0  # turns that were, of those that were compared

    async def run(self, *requests: Request, claim: Capacity | None = None, **how: bool) -> TurnResult:
        """A full turn that is committed, to prepare rows."""
        tx = await self.store.begin()
        result = await run_turn(tx, self.rules, self.catalog, requests, claim, **how)
        await tx.commit()
        assert not result.again
        return result

    async def compare(self, make: Requests, capacity: Capacity | None) -> bool:
        """Run a turn in both ways and compare. `make` makes its requests anew for each of them.

        Returns:
            True if the turn was carried out as one call; then both ways are really two.
        """
        last, now = self.store._last_tx, self.clock.now
        with same_nonces():
            full, _ = await self._play(make(), capacity, call_turns=False)
            self.store._last_tx, self.clock.now = last, now
            quick, in_one_call = await self._play(make(), capacity, call_turns=True)
        self.store._last_tx, self.clock.now = last, now
        self.in_one_call += in_one_call
        assert quick.keys() == full.keys()
        for what, shown in full.items():
            # A key that looks like an id takes two full turns, each with pending work of its own.
            if what != "pending" or shown:
                assert quick[what] == shown, what
        return in_one_call

    async def _play(
        self, requests: Sequence[Request], capacity: Capacity | None, *, call_turns: bool
    ) -> tuple[Shown, bool]:
        self.rules.limits.known.clear()  # a turn that was rolled back may have added buckets
        tx, done = await self._turn(requests, capacity, call_turns=call_turns)
        try:
            result = done or await run_turn(tx, self.rules, self.catalog, requests, capacity)
            shown = {name: getattr(result.pending, name) for name in Pending.__slots__}
            if result.again:  # as the clerk does, but in the same transaction, which is rolled back
                first = result
                result = await run_turn(tx, self.rules, self.catalog, first.again, capacity)
                result.claims += first.claims
                result.deliveries = [*first.deliveries, *result.deliveries]
                shown = {}
                assert not result.again
            return {"pending": shown, **await self._shown(tx, requests, result)}, done is not None
        finally:
            await tx.rollback()

    async def _turn(
        self, requests: Sequence[Request], capacity: Capacity | None, *, call_turns: bool
    ) -> tuple[PostgresTx, TurnResult | None]:
        """As engine/turns/call_attempts.py: a call that was of no use is rolled back."""
        values = call_parameters(requests, capacity) if call_turns else None
        if values is None:
            return await self.store.begin(), None
        last, now = self.store._last_tx, self.clock.now
        tx = await self.store.begin(call_turn=True)
        done = await run_call_turn(tx, requests, capacity, values)
        if done is not None:
            return tx, done
        await tx.rollback()
        assert all(request.result is None for request in requests)
        self.store._last_tx, self.clock.now = last, now
        return await self.store.begin(), None

    # -- what is compared -------------------------------------------------------------------------

    async def _shown(self, tx: PostgresTx, requests: Sequence[Request], result: TurnResult) -> Shown:
        await tx._send_waiting()
        shown: Shown = {"requests": list(map(_shown_request, requests))}
        numbers: dict[int, int] = {}  # the place of each inserted inbox row in its own inbox, below zero
        for table in _TABLES:
            rows = [dict(row) for row in await tx._db.fetch(f"SELECT * FROM {table}")]
            shown[table] = _shown_rows(rows, tx.xid, tx.now, numbers if table == "inbox" else {})
        shown["claims"] = sorted((_shown_claim(claim, numbers) for claim in result.claims), key=lambda c: str(c["id"]))
        if not requests:  # claims that a turn woke itself have no queue position yet
            shown["order of claims"] = [claim.id for claim in result.claims]
        shown["position"] = tx.position
        shown["validated beside"] = list(map(requests.index, result.to_validate))
        shown["deliveries"] = sorted(set(map(requests.index, result.deliveries)))
        shown["counts"] = [dict(getattr(result.counts, name)) for name in ("started", "ended", "happened")]
        for name in ("now", "ran_ahead", "kept", "finished", "cancelled", "signalled", "keeps_statuses", "retired",
                     "provable"):  # fmt: skip
            shown[name] = getattr(result, name)
        shown["arrived"] = {
            id: (arrived.epoch, arrived.is_complete, _shown_inbox(arrived.rows, numbers))
            for id, arrived in result.arrived.items()
        }
        shown["failures"] = list(result.failures)
        return shown


def _shown_rows(rows: list[dict[str, Any]], xid: int, now: int, numbers: dict[int, int]) -> list[dict[str, Any]]:
    """The rows in an order that both ways have, with places instead of the numbers that the database drew."""
    made: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.get("seq") or 0):
        # A turn has a time of its own, later than all rows before it.
        if "seq" in row and row.get("at") == now:
            owner = str(row.get("instance_id"))
            made[owner] = numbers[row["seq"]] = made.get(owner, 0) - 1
            row["seq"] = made[owner]
        if row.get("tx") == xid:
            row["tx"] = "this turn"
    return sorted(rows, key=lambda row: list(map(repr, row.values())))


def _shown_claim(claim: Claim, numbers: dict[int, int]) -> dict[str, Any]:
    shown = structs.asdict(claim)
    shown["inbox"] = _shown_inbox(claim.inbox, numbers)
    shown["read_to"] = numbers.get(claim.read_to, claim.read_to)
    return shown


def _shown_inbox(rows: list[InboxRow], numbers: dict[int, int]) -> list[InboxRow]:
    return [structs.replace(row, seq=numbers.get(row.seq, row.seq)) for row in rows]


def _shown_request(request: Request) -> dict[str, Any]:
    shown = structs.asdict(request)
    if isinstance(request.result, Exception):
        shown["result"] = (type(request.result), str(request.result), vars(request.result))
    if isinstance(request, SettleAwakeable):
        assert request.sender is None
    else:
        shown.pop("by_key")  # the full turn sets it when it takes a key for an id at first
    return shown
