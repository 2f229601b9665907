"""The errors a caller gets from the runtime itself: the app is not open, or the database does not serve it."""

from __future__ import annotations

from hark.model.errors import NotOpen, StoreUnavailable
from hark.store.protocol import StoreFault, Unknown

PATIENCE = 10.0  # seconds a caller waits for a database that does not answer


def not_open() -> NotOpen:
    return NotOpen("This app is not open. Use `async with app:` (or `with app:`) around the call.")


def closed_early() -> NotOpen:
    return NotOpen("The app was closed before this was done. Open it again and repeat the call.")


def unavailable(fault: StoreFault) -> StoreUnavailable:
    if isinstance(fault, Unknown):
        text = "Connection lost during COMMIT; the outcome is unknown"
        return StoreUnavailable(f"{text}: {fault}. Check whether it was stored before you repeat the call.")
    return StoreUnavailable(f"The database cannot do this now: {fault}. Nothing was stored; try again later.")
