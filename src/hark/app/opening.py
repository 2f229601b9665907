"""Open an app whose database may be starting too, and start its worker, as `hark worker` and `hark serve` do.

A machine or a cluster starts its services in any order. Calls from your own code do not wait like this: `async with
app` raises at once.
"""

from __future__ import annotations

import asyncio
import time

from hark.app.hark import Hark
from hark.engine.worker.worker import Worker
from hark.model.errors import StoreUnavailable
from hark.model.log import get_logger
from hark.store.protocol import Unreachable

_log = get_logger()
_WAIT = 300.0  # seconds: then the process ends with the error, and its service manager may restart it
_TRY_AGAIN = 0.5
_SAY_AGAIN = 10.0


async def open_when_reachable(app: Hark) -> None:
    """Open the app. While its database cannot be reached, wait and say so in the log.

    Raises:
        StoreUnavailable: The database could not be reached for five minutes; or, at once, it refuses the connection.
    """
    give_up, say_again = time.monotonic() + _WAIT, 0.0
    while True:
        try:
            await app.__aenter__()
            return
        except Unreachable as error:
            now = time.monotonic()
            if now >= give_up:
                raise
            if now >= say_again:
                say_again = now + _SAY_AGAIN
                _log.warning("Waiting up to %d s for the database. %s", round(give_up - now), error)
        await asyncio.sleep(_TRY_AGAIN)


async def start_unless_stopped(worker: Worker, stop: asyncio.Event) -> bool:
    """Start the worker. Return False if the process is to stop before the database has accepted its lease.

    Raises:
        StoreUnavailable: The database has accepted no lease for five minutes.
    """
    starting = asyncio.ensure_future(worker.start())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, timeout=_WAIT, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        if stop.is_set():
            return False
        raise StoreUnavailable(
            f"The worker cannot start: for {_WAIT:.0f} s the database has accepted no lease. It must accept writes and "
            "one more connection; the log has the cause."
        )
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.wait({starting, stopping})
