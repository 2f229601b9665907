"""Retention: removes finished instances after their time, batch after batch, a turn each.

Other requests have their turns in between. Which rows are removed is decided in kernel/retain.py.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hark.kernel.requests import Retain
from hark.model.errors import HarkError
from hark.runtime import views
from hark.runtime.reply import Reply
from hark.store.protocol import StoreFault

if TYPE_CHECKING:
    from hark.runtime.clerk import Clerk


async def remove_old(clerk: Clerk, seconds: float) -> None:
    """Remove everything that finished more than so many seconds ago. What fails is left for the next run."""
    before = clerk.now() - int(seconds * 1_000_000)
    with contextlib.suppress(HarkError, StoreFault):
        async for ids in views.expirable(clerk.store, before):
            if ids:
                await _remove(clerk, Retain(before=before, ids=ids))
        while await _remove(clerk, Retain(before=before)):
            pass


async def _remove(clerk: Clerk, request: Retain) -> bool:
    """True when there may be more."""
    done: Reply[Any] = Reply()
    clerk.submit(request, done)
    await done
    return request.more
