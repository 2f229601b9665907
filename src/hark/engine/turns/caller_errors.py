"""The errors a caller gets from the engine itself: the app is not open, or the database does not serve it.

Such an error may be read by anyone, for example on an answer page. So its text says what it means for the call; what
the driver said is in the log, and in `__cause__`.
"""

from __future__ import annotations

import time

from hark.model.errors import NotOpen, StoreUnavailable
from hark.model.log import get_logger
from hark.model.reasons import reason
from hark.store.protocol import Conflicted, Damaged, Full, Replaced, StoreFault, Unknown

PATIENCE = 10.0  # seconds a caller waits for a database that does not answer
_log = get_logger()
_LOG_AGAIN = 5.0  # seconds until the same reason is logged again: in an outage every call fails for it
_logged = ("", 0.0)  # the last reason, and when it was logged


def not_open() -> NotOpen:
    return NotOpen("This app is not open. Use `async with app:` (or `with app:`) around the call.")


def closed_early() -> NotOpen:
    return NotOpen("The app was closed before this was done. Open it again and repeat the call.")


def unavailable(fault: StoreFault) -> StoreUnavailable:
    match fault:
        case Unknown():
            text = (
                "Connection lost during COMMIT; the outcome is unknown. Check whether it was stored before you repeat "
                "the call."
            )
        case Replaced():
            text = (
                "The database was removed or replaced under the running process. Nothing was stored in the one that is "
                "there now. Restart that process, once the database is restored; its log says more."
            )
        case Damaged():
            text = (
                "The database is damaged. Nothing was stored; it has to be repaired, or restored from a backup. The "
                "log says how."
            )
        case Full():
            text = (
                "The database cannot write now: its disk may be full, or it is read-only. Nothing was stored; the log "
                "has the cause. Try again when it is fixed."
            )
        case Conflicted():
            text = "The database is busy: another program holds a lock. Nothing was stored; try again later."
        case _:
            text = "The database does not answer. Nothing was stored; try again later."
    _log_reason(fault)
    error = StoreUnavailable(text)
    error.__cause__ = fault
    return error


def _log_reason(fault: StoreFault) -> None:
    global _logged
    text, now = f"{type(fault).__name__}: {reason(fault)}", time.monotonic()
    if text != _logged[0] or now - _logged[1] > _LOG_AGAIN:
        _logged = (text, now)
        _log.warning("Calls fail because of the database. %s.", text)
