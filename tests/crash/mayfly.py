"""A client that dies between the COMMIT of its request and the reply, and a second client that repeats the request.

`python -m tests.crash.mayfly URL OPTIONS` prints the replies to the second client, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from hark import Await, Broadcast, Context, Done, Duplicate, Hark, Machine, step
from hark.store.postgres import PostgresTx
from hark.store.sqlite import SqliteTx


class Patient(Machine):
    """Waits for the signal `bell`."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await(Broadcast("bell"), then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(len(ctx.awaited))


class Guest(Machine):
    """Waits for the signal `word`: on PostgreSQL, one call delivers it."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("word", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(len(ctx.awaited))


async def start(app: Hark) -> str:
    try:
        return (await app.start(Patient, id="patient", correlation_key="the-patient")).id
    except Duplicate as known:
        return f"held by {known.holder}"


async def tell(app: Hark) -> str:
    return (await app.signal("the-patient", "word", 1, dedup_key="word-1")).status


async def wake(app: Hark) -> str:
    return (await app.signal("guest", "word", 1, dedup_key="word-1")).status


async def tell_or_start(app: Hark) -> bool:
    handle = await app.signal_with_start(Patient, "another-patient", "word", 1, dedup_key="word-1")
    return handle.id == (await app.get("another-patient")).id


async def ring(app: Hark) -> int:
    return await app.broadcast("bell", dedup_key="bell-1")


VERBS: tuple[Callable[[Hark], Awaitable[Any]], ...] = (start, tell, wake, tell_or_start, ring)


def die_at_the_next_commit() -> None:
    for kind in (SqliteTx, PostgresTx):

        async def and_die(self: Any, commit: Any = kind.commit) -> None:
            await commit(self)
            os.kill(os.getpid(), signal.SIGKILL)

        kind.commit = and_die  # type: ignore[assignment, method-assign]


async def live(url: str, options: dict[str, Any], verb: Callable[[Hark], Awaitable[Any]], *, mortal: bool) -> Any:
    app = Hark(url, **options)
    app.register(Patient, Guest)
    async with app:
        if verb is wake and mortal:
            await app.start(Guest, id="guest")
            async with app.worker():
                while not await app.waits(kind="signal"):
                    await asyncio.sleep(0.01)
        if verb is ring and mortal:
            async with app.worker():
                while len(await app.waits(kind="broadcast")) < 2:
                    await asyncio.sleep(0.01)
        if mortal:
            die_at_the_next_commit()
        return await verb(app)


def main() -> int:
    url, options = sys.argv[1], json.loads(sys.argv[2])
    for verb in VERBS:
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(live(url, options, verb, mortal=True))
            except BaseException:
                traceback.print_exc()
            os._exit(1)  # the first client should have died here
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != -signal.SIGKILL:
            return 1
    print(json.dumps([asyncio.run(live(url, options, verb, mortal=False)) for verb in VERBS]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
