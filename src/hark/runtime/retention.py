"""Retention: removes finished instances, and old events, after their time, batch after batch, a turn each.

Runs every minute in each process that has a worker. Other requests have their turns in between. Which rows are removed
is decided in kernel/retain.py.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from hark.kernel.requests import Retain, RetainEvents
from hark.model.errors import HarkError
from hark.runtime import views
from hark.runtime.reply import Reply
from hark.store.protocol import StoreFault

if TYPE_CHECKING:
    from hark.runtime.clerk import Clerk


class Retention(NamedTuple):
    """For how many seconds something is kept."""

    finished: float
    """Finished instances, consumed signals, near misses, broadcasts."""
    events: float | None
    """Events, of live instances too; None: for as long as their instance."""


async def remove_old(clerk: Clerk, kept: Retention) -> None:
    """Remove everything that is older. What fails is left for the next run."""
    with contextlib.suppress(HarkError, StoreFault):
        before = clerk.now() - int(kept.finished * 1_000_000)
        async for ids in views.expirable(clerk.store, before):
            if ids:
                await _remove(clerk, Retain(before=before, ids=ids))
        while await _remove(clerk, Retain(before=before)):
            pass
        if kept.events is not None:
            before = clerk.now() - int(kept.events * 1_000_000)
            while await _remove(clerk, RetainEvents(before=before)):
                pass


async def _remove(clerk: Clerk, request: Retain | RetainEvents) -> bool:
    """True when there may be more."""
    done: Reply[Any] = Reply()
    clerk.submit(request, done)
    await done
    return request.more
