"""Find the next attempt of a step or a run that an instance in a backoff waits for, and the last failure (X9)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from hark.model import json
from hark.model.failures import Failure, attempt_text, next_try_text
from hark.model.names import from_micros
from hark.store import reads
from hark.store.protocol import Store


class NextAttempt(Struct, frozen=True):
    """An attempt that begins at `until`, with what the event `retry` said about the one before."""

    step: str
    attempt: int  # of the one before, from 0
    retries: int | None
    failure: Failure | None  # None: the step returned `Retry`
    until: datetime | None

    def text(self, now: int) -> str:
        """`run charge: attempt 2 of 5 failed: KeyError: 'x'; next try in 2 s`."""
        wait = 0.0 if self.until is None else (self.until - from_micros(now)).total_seconds()
        if self.failure is None:
            return f"{self.step} returned Retry; {next_try_text(wait)}"
        return f"{self.step}: {attempt_text(self.attempt, self.retries, self.failure, wait)}"


async def next_attempts(store: Store, id: str) -> dict[str | None, NextAttempt]:
    """The latest retries of an instance, by the place of the wait for the next attempt; None: a step of a machine."""
    found: dict[str | None, NextAttempt] = {}
    for step, text in await store.read(reads.latest_retries, id=id):
        data: dict[str, Any] = {} if text is None else json.load(text)
        if "attempt" not in data:
            continue  # written by an earlier version
        failure = Failure(data["type"], data["message"], data["traceback"]) if "message" in data else None
        until = None if data.get("until") is None else datetime.fromisoformat(data["until"])
        retry = NextAttempt(step or "", data["attempt"], data.get("retries"), failure, until)
        found.setdefault(data.get("place"), retry)
    return found
