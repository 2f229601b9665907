"""Make the request of each effect.

An effect is a request that commits with an outcome (invariant 12). The verb that carries it out registers, beside
its own code, how the effect becomes its request; nothing else in the kernel lists the effects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hark.kernel.requests import Commit, Request
from hark.model.decisions import Effect

E = TypeVar("E")
_requests: dict[type, Callable[[Any, Commit], Request]] = {}


def request_for(kind: type[E]) -> Callable[[Callable[[E, Commit], Request]], Callable[[E, Commit], Request]]:
    """Register a function that makes the request of this effect; it takes the effect and the commit that sends it."""

    def register(make: Callable[[E, Commit], Request]) -> Callable[[E, Commit], Request]:
        _requests[kind] = make
        return make

    return register


def as_request(effect: Effect, sender: Commit) -> Request:
    return _requests[type(effect)](effect, sender)
