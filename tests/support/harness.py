"""The testing kit's engine, with its hand-moved clock, on the store of a test."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from hark import Handle, Instance, InstanceHeld
from hark.testing import Harness
from tests.support.stores import Store

T = TypeVar("T")


def harness(store: Store, *definitions: Any, **options: Any) -> Harness:
    return Harness(*definitions, url=store.url, **{**store.options, **options})


async def drained(app: Harness, call: Awaitable[T]) -> T:
    """Await a call, such as a start or a signal, then run everything that it made runnable."""
    answer = await call
    await app.drain()
    return answer


async def held(app: Harness, target: str) -> Instance:
    """Run everything that can run, and return the instance, which is held by that."""
    with pytest.raises(InstanceHeld) as caught:
        await app.drain()
    found = await app.get(target)
    assert (found.status, found.error) == ("held", caught.value.error)
    return found


@asynccontextmanager
async def parked(store: Store, *definitions: Any, **start: Any) -> AsyncIterator[tuple[Harness, Handle]]:
    """Start the first of these definitions, and run until nothing can run."""
    async with harness(store, *definitions) as app:
        yield app, await drained(app, app.start(definitions[0], **start))
