"""For the tests of machines: an engine on the given store, and workers that die on demand.

A worker dies here as seen from the database: it holds its claims, sends nothing more, and its lease
expires by the clock of another app.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hark.testing import Harness
from tests.support.inspect import until
from tests.support.stores import Store

LEASE = 30.0


def harness(store: Store, *definitions: Any, **options: Any) -> Harness:
    """An engine with a hand-moved clock on this store."""
    return Harness(*definitions, url=store.url, **{"lease": LEASE, **store.options, **options})


def neighbour(app: Harness, store: Store, *definitions: Any, **options: Any) -> Harness:
    """Another process on the same store, by the same time."""
    other = harness(store, *definitions, **options)
    other.clock.now = app.clock.now
    return other


class Fuse:
    """While it is lit, a step that touches it never returns, except for the spared touches."""

    def __init__(self, *spared: int) -> None:
        self.lit = True
        self.touched = 0
        self.spared = spared

    async def touch(self) -> None:
        self.touched += 1
        if self.lit and self.touched not in self.spared:
            await asyncio.Event().wait()


@asynccontextmanager
async def doomed(app: Harness, store: Store, fuse: Fuse, *definitions: Any, **options: Any) -> AsyncIterator[Harness]:
    """A worker whose step has touched the fuse, will not return, and claims nothing more."""
    before = fuse.touched
    other = neighbour(app, store, *definitions, **options)
    worker = other.worker({"default": 10}, grace=0)
    async with other, worker:
        await until(lambda: fuse.touched > before, "a step to touch the fuse")
        worker._activations.open = False
        yield other


async def kill_a_worker(app: Harness, store: Store, fuse: Fuse, *definitions: Any, **options: Any) -> None:
    """A worker claims what is runnable and dies; `app` finds its lease expired."""
    async with doomed(app, store, fuse, *definitions, **options):
        await app.advance(LEASE + 1)
