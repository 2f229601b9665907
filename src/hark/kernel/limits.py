"""The configured limits: rate limits and the slots of concurrency keys. See buckets.py for how turns apply them."""

from __future__ import annotations

import math

from hark.model.errors import InvalidInput
from hark.model.names import check_name
from hark.model.values import Rate


class Limits:
    """The configured limits, and the buckets whose rows this process has seen in the store."""

    def __init__(self, rates: dict[str, Rate], slots: dict[str, int]) -> None:
        if not isinstance(slots, dict):
            raise InvalidInput(f"concurrency={slots!r}: give a dict of names and how many may run at once.")
        for name in (*rates, *slots):
            check_name(name, "limit name")
            if ":" in name:
                raise InvalidInput(f"The name of a limit cannot contain ':' (it separates the partition): {name!r}.")
        for name, size in slots.items():
            if type(size) is not int or size < 1:
                raise InvalidInput(f"concurrency={{{name!r}: {size!r}}}: give a whole number from 1.")
        self.rates = rates
        self.slots = slots
        self.known: set[tuple[str, str]] = set()

    def rate(self, key: str) -> Rate | None:
        """The rate limit of a bucket, or None when this process does not configure it."""
        return self.rates.get(key.split(":", 1)[0])

    def size(self, key: str) -> int:
        """The number of instances that may execute under a concurrency key."""
        return self.slots.get(key.split(":", 1)[0], 1)

    def check(self, rate_limit: str | tuple[str, str] | None, weight: float) -> str | None:
        """Validate a rate limit and a weight.

        Returns:
            The rate limit as it is stored in a row: its name, or `name:partition`.

        Raises:
            InvalidInput: The limit is not configured, or the weight is more than it can ever hold.
        """
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise InvalidInput(f"weight={weight!r} is not valid: give a number above zero.")
        if rate_limit is None:
            return None
        name, partition = rate_limit if isinstance(rate_limit, tuple) and len(rate_limit) == 2 else (rate_limit, None)
        if not isinstance(name, str):
            raise InvalidInput(f"rate_limit={rate_limit!r}: give a configured name, or (name, partition).")
        if name not in self.rates:
            known = ", ".join(sorted(self.rates)) or "none"
            raise InvalidInput(
                f"There is no rate limit {name!r} (configured: {known}). "
                f"Add it with Hark(rate_limits={{{name!r}: Rate(…)}})."
            )
        if weight > self.rates[name].capacity:
            raise InvalidInput(
                f"weight={weight} is more than the limit {name!r} can ever hold "
                f"({self.rates[name].capacity:g}). Lower the weight or raise its burst."
            )
        return name if partition is None else f"{name}:{check_name(str(partition), 'rate limit partition')}"
