"""A process that has itself killed, over and over: at every statement of its turns, one death each.

`python -m tests.crash.victim FOLDER URL OPTIONS FIRST STRIDE` forks one child per boundary (the imports
are paid once). Child n first finishes what child n - 1 left, looks whether all of it happened once, and
then does an errand of its own, in which SIGKILL strikes at the n-th boundary. The child that gets through
its errand alive has shown that there are no more boundaries.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hark import Hark
from hark.store.postgres import PostgresStore, PostgresTx
from hark.store.sqlite import SqliteStore, SqliteTx
from tests.crash.errand import Errand, Leaf, Listener, Notes, Order
from tests.support.inspect import name_of, query
from tests.support.stores import Store


class Bomb:
    """Counts boundaries, and goes off at one of them."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.places = os.open("/dev/null", os.O_WRONLY)

    def tick(self, place: str) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left == 0:
            os.write(self.places, place.encode() + b"\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def plant(self) -> None:
        """Between any two statements; before BEGIN, before COMMIT, and after it when nobody was told yet."""
        for kind in (SqliteTx, PostgresTx):
            self._wrap(kind, "fetch", before=name_of)
            self._wrap(kind, "reserve", before=lambda *_: "reserve")
            self._wrap(kind, "commit", before=lambda *_: "commit", after="committed")
        for kind in (SqliteStore, PostgresStore):
            self._wrap(kind, "begin", before=lambda *_: "begin")

    def _wrap(self, kind: type, name: str, *, before: Callable[..., str], after: str | None = None) -> None:
        original = getattr(kind, name)

        async def wrapped(me: Any, *args: Any, **kwargs: Any) -> Any:
            self.tick(before(*args[:1]))
            result = await original(me, *args, **kwargs)
            if after is not None:
                self.tick(after)
            return result

        setattr(kind, name, wrapped)


async def live(number: int, previous: int | None, folder: Path, store: Store, bomb: Bomb) -> None:
    app = Hark(store.url, lease=1.0, **store.options)
    app.register(Order, Leaf, Notes, Listener)
    async with app, app.worker():
        if previous is not None:
            await finish(Errand(app, previous, folder), app, store)
        bomb.left = number
        await Errand(app, number, folder).run()
        bomb.left = None


async def finish(errand: Errand, app: Hark, store: Store) -> None:
    """The dead one's lease is over at once: time is not what is tested here."""
    await query(store, "UPDATE workers SET until = 0 WHERE started_at < (SELECT max(started_at) FROM workers)")
    work = asyncio.create_task(errand.run())
    while not work.done():
        await app.sweep()
        await asyncio.wait([work], timeout=0.02)
    await work
    await errand.verify()


def child(number: int, previous: int | None, folder: Path, store: Store, places: int) -> int:
    faulthandler.dump_traceback_later(90)
    bomb = Bomb()
    bomb.places = places
    bomb.plant()
    try:
        asyncio.run(asyncio.wait_for(live(number, previous, folder, store, bomb), 80))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> int:
    folder, url, options, first, stride = sys.argv[1:]
    store = Store("sqlite" if url.startswith("sqlite") else "postgres", url, json.loads(options))
    places = os.open(Path(folder) / "places", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    previous, number = None, int(first)
    while True:
        pid = os.fork()
        if pid == 0:
            os._exit(child(number, previous, Path(folder), store, places))
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            print(json.dumps({"boundary": number, "exit": code}), flush=True)
            return code
        previous, number = number, number + int(stride)


if __name__ == "__main__":
    sys.exit(main())
