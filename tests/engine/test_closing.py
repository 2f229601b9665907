"""A call that an app accepts just before it is closed gets an answer."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hark import Await, Context, Handle, Hark, Machine, NotOpen, Reply, step
from tests.support.stores import Store

CALLS: dict[str, Callable[[Handle[Any]], Reply[Any]]] = {
    "a wait for the end": lambda parked: parked.result(),
    "a wait for a status": lambda parked: parked.wait_for("done"),
}


class Parked(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.start)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_accepted_just_before_the_close_is_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    app = Hark(store.url, **store.options)
    replies: list[Reply[Any]] = []
    with app:
        parked = app.start(Parked).result()
        loop = app._clerk.loop
        original = loop.leave

        async def leave() -> None:
            loop.closing = False  # as it was when the call came
            replies.append(CALLS[name](parked))
            loop.closing = True
            await original()

        monkeypatch.setattr(loop, "leave", leave)
    with pytest.raises(NotOpen, match="closed before"):
        replies[0].result(20)


async def test_a_worker_that_starts_while_its_app_is_closed_does_not_hang(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Hark(store.url, **store.options) as app:
        loop = app._clerk.loop
        monkeypatch.setattr(app._clerk, "code_changed", lambda: setattr(loop, "closing", True))
        worker = app.worker()
        await asyncio.wait_for(worker.start(), 20)
        loop.closing = False
        await worker.stop()


UNCLOSED = """
import asyncio, sys
from hark import Context, Done, Hark, Machine, step

class Order(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()

app = Hark(f"sqlite:///{sys.argv[1]}")

async def main():
    await app.__aenter__()
    await app.register(Order)
    await app.start(Order)
    # Polls and reads go on while the interpreter ends
    for _ in range(50):
        app.list()
    await asyncio.sleep(0.3)
    app.list()

asyncio.run(main())
"""


def test_a_program_that_ends_without_closing_its_app_prints_no_traceback(tmp_path: Path) -> None:
    for attempt in range(3):
        command = [sys.executable, "-c", UNCLOSED, str(tmp_path / f"{attempt}.db")]
        done = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True)
        assert done.stderr == ""
