"""OneCalls: which turns are tried as one call of the database, and what that brought.

A call that finds a case for the ordinary turn has cost a round trip. After each of those, twice as many turns go the
ordinary way at once, up to a limit: a process whose turns are never of the frequent kind pays next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hark.kernel.one_call_turn import one_call, run_one_call_turn
from hark.kernel.requests import Capacity, Request
from hark.kernel.result import TurnResult
from hark.store.protocol import Refused, Store, Tx

_MOST_SKIPPED = 64  # turns


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
        tx = await store.begin(one_call=True)
        result: TurnResult | None
        try:
            result = await run_one_call_turn(tx, requests, capacity, values)
        except Refused:  # a bad row, or no right to call the function: the ordinary turn finds out which
            result = None
        except BaseException:
            await tx.rollback()
            raise
        if result is None:
            await tx.rollback()
            self._skip = self._skipped_last = min(_MOST_SKIPPED, 2 * self._skipped_last + 1)
            return None
        self._skipped_last = 0
        return tx, result
