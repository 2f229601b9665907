"""The testing kit's engine, with its hand-moved clock, on the store of a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hark import Handle
from hark.testing import Harness
from tests.support.stores import Store


def harness(store: Store, *definitions: Any, **options: Any) -> Harness:
    return Harness(*definitions, url=store.url, **{**store.options, **options})


@asynccontextmanager
async def parked(store: Store, *definitions: Any, **start: Any) -> AsyncIterator[tuple[Harness, Handle]]:
    """Start the first of these definitions, and run until nothing can run."""
    async with harness(store, *definitions) as app:
        it = await app.start(definitions[0], **start)
        await app.drain()
        yield app, it
