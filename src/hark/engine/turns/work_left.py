"""WorkLeft: keeps track of the work besides the queued requests.

A turn leaves claimable rows, pending deliveries and deadlines; other processes make work and send hints. The
clerk starts a turn for these when no request is queued. Used on the clerk's thread, except `hinted`.
"""

from __future__ import annotations

from hark.kernel.result import TurnResult


class WorkLeft:
    def __init__(self) -> None:
        self.claimable = False  # the last turn left rows that the next one may claim
        self.backlog_waits = False  # rows may wait for a slot: a step that wants to run ahead has to check
        self.held = False  # held instances may fit the code of the worker
        self.code_changed = False  # code was registered. Set by any thread, before a hint.
        self.pending_deliveries = True  # of a large broadcast; a process that died may have left some
        self.due: int | None = None  # the earliest time at which something is due, as far as this process knows
        # Another process may have made work. Not `claimable`: the turn that runs now would reset that, although it may
        # have claimed before that work was made. Set by any thread.
        self.hinted = False

    def __bool__(self) -> bool:
        """Return True if the next turn may have something to claim or to deliver."""
        return self.hinted or self.claimable or self.pending_deliveries

    def take_hint(self) -> bool:
        """Return True if there was a hint. What it is about may be claimable."""
        if not self.hinted:
            return False
        self.hinted = False
        self.claimable = True
        if self.code_changed:
            self.code_changed, self.held = False, True
        return True

    def update(self, result: TurnResult, *, freed: bool, claimed: bool, swept: bool, pending_deliveries: bool) -> None:
        """Update after a turn. `freed`: slots came free that it could not fill; the others: what it was asked to do."""
        pending = result.pending
        self.claimable = pending.more or pending.left_claimable or freed or (self.claimable and not claimed)
        self.backlog_waits = pending.backlog or (self.backlog_waits and not claimed)
        self.held = pending.left_held or (self.held and not claimed)
        self.pending_deliveries = pending.pending_deliveries or (self.pending_deliveries and not pending_deliveries)
        if swept:
            self.due = result.now if pending.more else None
        if pending.earliest is not None:
            self.note_due(pending.earliest)

    def note_due(self, at: int) -> bool:
        """Note that something is due at this time. Return True if it is earlier than everything known before."""
        if self.due is not None and self.due <= at:
            return False
        self.due = at
        return True
