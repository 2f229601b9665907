"""A process that is killed over and over: between any two statements of its turns, one kill each.

`python -m tests.crash.victim ERRAND FOLDER URL OPTIONS PART PARTS [full|commits]` forks one child per kill (so that
imports are paid once). Each child first finishes what the previous one left, checks that all of it happened once,
and then runs an errand of its own, in which SIGKILL strikes at the first boundary that no child was killed at yet.
A child that survives its errand has shown that there are no more boundaries.

A boundary is a pair of statements that follow each other; with `full`, each statement of the errand, and with `commits`
the moment after each of its commits.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hark import Hark
from hark.store.postgres import PostgresStore, PostgresTx
from hark.store.sqlite import SqliteStore, SqliteTx
from tests.crash.bpmn_errand import BpmnErrand
from tests.crash.errand import Errand
from tests.crash.function_errand import FunctionErrand
from tests.crash.held_errand import HeldErrand
from tests.crash.job_errand import JobErrand
from tests.crash.migrating_errand import MigratingErrand
from tests.crash.undo_errand import UndoErrand
from tests.support.inspect import name_of, query
from tests.support.stores import Store

ERRANDS: dict[str, type[Errand]] = {
    "machines": Errand,
    "functions": FunctionErrand,
    "undo": UndoErrand,
    "held": HeldErrand,
    "migrations": MigratingErrand,
    "jobs": JobErrand,
    "processes": BpmnErrand,
}


class Bomb:
    """Kills this process at a boundary that is not on the list of kills yet."""

    def __init__(self, deaths: Path, part: int, parts: int, mode: str) -> None:
        self.armed = False
        self._deaths = deaths
        self._part = (part, parts)
        self._mode = mode
        self._seen = set(deaths.read_text().splitlines()) if deaths.exists() else set()
        self._places: set[str] = set()  # that this life has come to; a kill may be at a place of another part
        self._count = 0
        self._last = ""

    def tick(self, place: str) -> None:
        if not self.armed or (self._mode == "commits" and place != "committed"):
            return
        self._count += 1
        boundary = f"{self._count}: {place}" if self._mode else f"{self._last} > {place}"
        self._last = place
        if place not in self._places:
            self._places.add(place)
            with self._deaths.with_name("places").open("a") as file:
                file.write(place + "\n")
        part, parts = self._part
        if boundary not in self._seen and zlib.crc32(boundary.encode()) % parts == part:
            with self._deaths.open("a") as file:
                file.write(boundary + "\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def plant(self) -> None:
        """Between any two statements; before BEGIN, before COMMIT, and after it but before any reply."""
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


async def live(kind: type[Errand], number: int, folder: Path, store: Store, bomb: Bomb) -> None:
    app = Hark(store.url, lease=6.0, **store.options)
    app.register(*kind.definitions)
    kind.prepare(app)
    async with app, app.worker():
        if number > 0:
            await finish(kind(app, number - 1, folder), app, store)
        bomb.armed = True
        await kind(app, number, folder).run()
        bomb.armed = False


async def finish(errand: Errand, app: Hark, store: Store) -> None:
    """Expire the killed worker's lease immediately, as a short one: time is not what is tested here."""
    await query(
        store,
        """UPDATE workers SET until = 0, info = '{"lease": 0.01}'
        WHERE started_at < (SELECT max(started_at) FROM workers)""",
    )
    work = asyncio.create_task(errand.run())
    while not work.done():
        await app.sweep()
        await asyncio.wait([work], timeout=0.02)
    await work
    await errand.verify()


def child(kind: type[Errand], number: int, folder: Path, store: Store, bomb: Bomb) -> int:
    bomb.plant()
    try:
        asyncio.run(asyncio.wait_for(live(kind, number, folder, store, bomb), 80))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> int:
    errand, folder, url, options, part, parts, *mode = sys.argv[1:]
    store = Store("sqlite" if url.startswith("sqlite") else "postgres", url, json.loads(options))
    for number in itertools.count():
        pid = os.fork()
        if pid == 0:
            bomb = Bomb(Path(folder) / "deaths", int(part), int(parts), "".join(mode))
            os._exit(child(ERRANDS[errand], number, Path(folder), store, bomb))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != -signal.SIGKILL:
            print(f"{number} died; the last one ended with {code}.", flush=True)
            return code
    raise AssertionError


if __name__ == "__main__":
    sys.exit(main())
