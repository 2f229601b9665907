"""RetryPolicy: the number of retries of a failed `ctx.run`, and the delays before them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hark.model.errors import InvalidInput
from hark.model.names import CENTURY, micros
from hark.model.outcomes import Duration

MAX_RETRIES = 1000


@dataclass(frozen=True)
class RetryPolicy:
    """The retries of a failed function: for `ctx.run(…, retries=RetryPolicy(…))`.

    Before retry n (from 1) the run waits `delay` times `factor` to the power of n - 1, at most `max_delay`. The wait is
    a timer of the instance: it holds no slot, and survives a crash.

    Attributes:
        limit: How often to repeat it, 0 to 1000; with 3 it is called up to four times.
        delay: Seconds or timedelta before the first retry.
        factor: By how much each delay is longer than the one before, from 1.
        max_delay: Seconds or timedelta that no delay exceeds; None for 100 years.
        jitter: Whether each delay is a random time between half of it and all of it, so that many runs that failed
            together do not all repeat together. It is chosen when the timer is set; a replay does not choose again.
        unless: Exception classes that are not worth a retry: the run fails at once with such an error.

    Raises:
        InvalidInput: A value is malformed.

    Example:
        policy = RetryPolicy(5, delay=2.0, max_delay=60.0, jitter=True, unless=(ValueError,))
        receipt = await ctx.run(charge, order, retries=policy)
    """

    limit: int
    delay: Duration = 1.0
    factor: float = 2.0
    max_delay: Duration | None = None
    jitter: bool = False
    unless: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if type(self.limit) is not int or not 0 <= self.limit <= MAX_RETRIES:
            raise InvalidInput(
                f"retries={self.limit!r}: give a whole number from 0 to {MAX_RETRIES}, or a RetryPolicy."
            )
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not 1 <= self.factor < 1e6:
            raise InvalidInput(f"RetryPolicy(factor={self.factor!r}): give a number from 1 to a million.")
        if not isinstance(self.jitter, bool):
            raise InvalidInput(f"RetryPolicy(jitter={self.jitter!r}): give True or False.")
        object.__setattr__(self, "unless", _exception_classes(self.unless))  # a frozen dataclass
        _delays(self)


def retry_policy(retries: int | RetryPolicy, backoff: Duration) -> RetryPolicy:
    """The policy of `ctx.run(retries=, backoff=)`; raises InvalidInput if they are malformed."""
    if not isinstance(retries, RetryPolicy):
        return RetryPolicy(retries, backoff)
    if backoff != 1.0:
        raise InvalidInput(f"backoff={backoff!r} is for a number of retries. Set the delay of the RetryPolicy instead.")
    return retries


def allows_retry(policy: RetryPolicy, failed: int, error: BaseException) -> bool:
    """Return True if another attempt follows this error. `failed` attempts have failed so far, this one included."""
    return failed <= policy.limit and not isinstance(error, policy.unless)


def delay_before(policy: RetryPolicy, retry: int) -> int:
    """The µs to wait before this retry, counted from 1; with jitter, a new random time at each call."""
    first, most = _delays(policy)
    try:
        delay = min(first * float(policy.factor) ** (retry - 1), most) if first else 0.0
    except OverflowError:
        delay = float(most)
    return round(delay * random.uniform(0.5, 1.0)) if policy.jitter else round(delay)


def _delays(policy: RetryPolicy) -> tuple[int, int]:
    """The first and the longest delay, in µs."""
    most = CENTURY if policy.max_delay is None else micros(policy.max_delay, "max_delay", zero=True)
    return micros(policy.delay, "delay", zero=True), most


def _exception_classes(unless: Any) -> tuple[type[BaseException], ...]:
    """`unless` as a tuple; one class alone is accepted, as in `isinstance`."""
    classes = (unless,) if isinstance(unless, type) else unless
    if not isinstance(classes, tuple | list) or not all(
        isinstance(one, type) and issubclass(one, BaseException) for one in classes
    ):
        raise InvalidInput(f"RetryPolicy(unless={unless!r}): give exception classes, for example unless=(ValueError,).")
    return tuple(classes)
