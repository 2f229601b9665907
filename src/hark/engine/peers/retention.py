"""Retention: removes finished instances, and old events, after their time, batch after batch, a turn each.

Runs every minute in each process that has a worker. Other requests have their turns in between. Which rows are removed
is decided in kernel/retain.py. Tasks are looked at once an hour: those of failed jobs stay for months, and are all read
to find the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from hark.engine.turns.reply import Reply
from hark.kernel.requests import Retain, RetainEvents
from hark.model.errors import HarkError
from hark.store.protocol import Store, StoreFault
from hark.views import instance_views


class Retention(NamedTuple):
    """The numbers of seconds for which rows are kept."""

    finished: float
    """Finished instances, consumed signals, near misses, broadcasts."""
    failed: float
    """Failed instances, with the tasks of failed jobs; not less than `finished`."""
    events: float | None
    """Events, of live instances too; None: for as long as their instance."""


Submit = Callable[[Retain | RetainEvents, Reply[Any]], None]


async def remove_old(
    store: Store, kept: Retention, now: Callable[[], int], submit: Submit, *, tasks: bool = True
) -> None:
    """Remove everything that is older, tasks only if asked to. A failure is left for the next run."""
    with contextlib.suppress(HarkError, StoreFault):
        before = now() - int(kept.finished * 1_000_000)
        failed = now() - int(kept.failed * 1_000_000)
        async for ids in instance_views.expirable(store, before, failed, tasks=tasks):
            if ids:
                await _remove(submit, Retain(before=before, failed_before=failed, ids=ids))
        while await _remove(submit, Retain(before=before)):
            pass
        if kept.events is not None:
            before = now() - int(kept.events * 1_000_000)
            while await _remove(submit, RetainEvents(before=before)):
                pass


async def _remove(submit: Submit, request: Retain | RetainEvents) -> bool:
    """Return True if there may be more."""
    done: Reply[Any] = Reply()
    submit(request, done)
    await done
    return request.more
