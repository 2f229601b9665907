"""Fail an activation of a job or of a process, for both interpreters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hark.model.activation import Claim
from hark.model.decisions import Decision, Redo, stop
from hark.model.errors import StoreUnavailable
from hark.model.failures import failure_of

NAMED_FAILURES: Final = 3  # in the error of an instance
_RETRY_DELAY: Final = 1_000_000  # µs: the store did not answer a read


def recover(claim: Claim, error: BaseException, *, keeps_undo: bool) -> Decision:
    """Decide about an activation that could not be carried out. When the store did not answer, it is repeated;
    otherwise the instance fails, and can be retried from where it was."""
    failure = failure_of(error)
    if isinstance(error, StoreUnavailable):
        return Decision("retry", claim.step, claim.state, Redo(_RETRY_DELAY), failure=failure)
    return stop(claim.step, claim.state, failure, keeps_undo=keeps_undo)


def named(texts: Sequence[str], count: int) -> str:
    """The error of an instance: these failures, and how many there are beside them."""
    more = [f"and {count - len(texts)} more"] if count > len(texts) else []
    return "; ".join([*texts, *more])
