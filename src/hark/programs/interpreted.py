"""Fail an activation of a job or of a process, for both interpreters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from hark.model.activation import Claim
from hark.model.decisions import Decision, Redo, stop
from hark.model.errors import NonDeterministic, StoreUnavailable
from hark.model.failures import failure_of
from hark.programs.misfits import hold

NAMED_FAILURES: Final = 3  # in the error of an instance
_RETRY_DELAY: Final = 1_000_000  # µs: the store did not answer a read


def recover(claim: Claim, error: BaseException, *, keeps_undo: bool) -> Decision:
    """Decide about an activation that could not be carried out. It is repeated when the store did not answer. The
    instance is held when this version of Hark cannot read what was stored; else it fails, and can be retried."""
    failure = failure_of(error)
    if isinstance(error, StoreUnavailable):
        return Decision("retry", claim.step, claim.state, Redo(_RETRY_DELAY), failure=failure)
    if claim.has_run and isinstance(error, msgspec.MsgspecError):
        text = f"The stored state or source of {claim.definition} cannot be read: {failure.brief}."
        misfit = NonDeterministic(f"{text} Run it with the version of Hark that wrote it.", cause=failure.brief)
        misfit.__cause__ = error
        return hold(claim, misfit)
    return stop(claim.step, claim.state, failure, keeps_undo=keeps_undo)


def named(texts: Sequence[str], count: int) -> str:
    """The error of an instance: these failures, and how many there are beside them."""
    more = [f"and {count - len(texts)} more"] if count > len(texts) else []
    return "; ".join([*texts, *more])
