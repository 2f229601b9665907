"""CallAttempts: tries turns as one call of the database, and spaces the tries that were of no use.

A call that meets a case for the full turn has cost a round trip. After each of those, twice as many turns are executed
in full at once, up to a limit: a process whose turns are never of the frequent kind pays next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from hark.kernel.execution import CallTurn
from hark.kernel.fast.call_turn import run_call_turn
from hark.kernel.requests import Capacity, Request
from hark.kernel.result import TurnResult
from hark.store.protocol import Refused, Store, Tx

_MOST_SKIPPED = 64  # turns


class CallAttempts:
    """Executes a `CallTurn`, unless too many calls were of no use lately."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._skip = 0  # turns that are not tried from here on
        self._skipped_last = 0  # turns that were not tried after the last unused call

    def possible(self, store: Store) -> bool:
        """Return True if a turn on this store may be a call."""
        return self._enabled and store.has_call_turns

    async def run(
        self, store: Store, requests: Sequence[Request], capacity: Capacity | None, call: CallTurn
    ) -> tuple[Tx, TurnResult] | None:
        """Execute a turn as this call, all but its COMMIT. Return None if nothing has happened: execute it in full."""
        if self._skip:
            self._skip -= 1
            return None
        tx = await store.begin(call_turn=True)
        result: TurnResult | None
        try:
            result = await run_call_turn(tx, requests, capacity, call.values)
        except Refused:  # a bad row, or no right to call the function: the full turn finds out which
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
