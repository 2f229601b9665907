"""OneCalls: which turns are tried as one call of the database, and what that brought.

A call that finds a case for the ordinary turn has cost a round trip. After each of those, twice as many turns go the
ordinary way at once, up to a limit: a process whose turns are never of the frequent kind pays next to nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from hark.kernel.one_call_turn import one_call, run_one_call_turn, target_of
from hark.kernel.requests import Capacity, Request, SettleAwakeable
from hark.kernel.result import TurnResult
from hark.model.activation import Claim
from hark.model.values import Delivery
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import LostCall, Refused, Store, Tx

_MOST_SKIPPED = 64  # turns
# A call of up to this many requests is a transaction of its own, which saves two round trips. Of several requests, some
# may have been written when one is found that is for the ordinary turn.
_MOST_ALONE = 1


class UnknownCall(Exception):
    """Connection lost during a call that is a transaction of its own. `outcome` finds out what became of it."""

    def __init__(
        self, session: object, call: int | None, requests: Sequence[Request], capacity: Capacity | None
    ) -> None:
        super().__init__(session, call)
        self._session = session
        self._call = call
        self._requests = requests
        self._owner = None if capacity is None else capacity.owner
        self.held: list[Claim] = []  # what the store says that this worker holds, after `outcome`

    async def outcome(self, store: Store) -> bool:
        """Whether it has committed; then its request has its result. Its claims are not known: they are among `held`.

        Raises:
            StoreFault: The database does not answer; ask again.
        """
        await store.end_session(self._session)
        if self._owner is not None:
            self.held = [Claim(*row) for row in await store.read(sql.held, owner=self._owner)]
        for request in self._requests:
            found = await store.read(sql.proof_of_call, target=target_of(request), call=self._call)
            if not found:
                return False
            if isinstance(request, SettleAwakeable):
                [request.result] = await store.read(reads.read_awakeables, ids=[request.settle.awakeable])
            else:
                request.result = Delivery("woke", found[0][0])
        return bool(self._requests)


class OneCalls:
    """Tries turns as one call, and remembers how often that was in vain."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._skip = 0  # turns that are not tried from here on
        self._skipped_last = 0  # how many were not, after the last vain call

    async def run(
        self, store: Store, requests: Sequence[Request], capacity: Capacity | None
    ) -> tuple[Tx, TurnResult] | None:
        """Carry out a turn that only has these requests and claims. None: nothing has happened, and the turn has to run
        in the ordinary way."""
        if not self._enabled or not store.has_one_calls:
            return None
        values = one_call(requests, capacity)
        if values is None:
            return None
        if self._skip:
            self._skip -= 1
            return None
        alone = len(requests) <= _MOST_ALONE
        values["call"] = call = random.getrandbits(62) if alone else None
        tx = await store.begin(one_call=True, alone=alone)
        result: TurnResult | None
        try:
            result = await run_one_call_turn(tx, requests, capacity, values)
        except Refused:  # a bad row, or no right to call the function: the ordinary turn finds out which
            result = None
        except LostCall as error:
            raise UnknownCall(error.session, call, requests, capacity) from error
        except BaseException:
            await tx.rollback()
            raise
        if result is None:
            await tx.rollback()
            self._skip = self._skipped_last = min(_MOST_SKIPPED, 2 * self._skipped_last + 1)
            return None
        self._skipped_last = 0
        return tx, result
