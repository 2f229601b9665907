"""Decide where `ctx.log` starts to log after a replay: the code after the last line may have run before (X9).

A function that was parked received every line, and ran from the last one to its next operation. One that gave up its
slot between two commits did not: it receives the results of the last commit in the replay. Nothing in the store says
which of the two it was, and storing it would cost every park a write; what the claim has is enough to tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from hark.model.activation import Claim
from hark.programs.functions.function_journal import KNOWN_WHEN_ASKED, MARKERS, Line
from hark.programs.functions.operations import label_of

_RECEIVED_BEFORE_COMMIT = KNOWN_WHEN_ASKED | {"sleep", "wait", "answer", "call"}


def was_parked(claim: Claim, lines: Sequence[Line]) -> bool:
    """Return True if the code after the last line has run before, as far as the claim can tell.

    After a crash or a hand-back it may be False although the code has run: then its lines are logged again.
    """
    last = lines[-1] if lines else None
    if last is not None and last.kind in _RECEIVED_BEFORE_COMMIT:
        return True
    if not claim.waits or not claim.inbox:
        return False  # it was not woken
    if last is None or last.kind in MARKERS:
        return True
    # The last line is a run or an effect. Between two commits the step is the label of the last line; in a park it is
    # that of an open operation, which is the same for a run that is to be repeated.
    return claim.step != label_of(last.kind, last.name) or any("+" in wait.place for wait in claim.waits)
