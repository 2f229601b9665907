"""Ctrl-C in a thread that makes a call ends that call and harms no other.

Python raises KeyboardInterrupt between any two instructions of the main thread: also after a request was passed to the
clerk and before the caller has its reply. A trace function raises it here, at each line of a call in turn.
"""

import gc
import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hark import Context, Done, Handle, Hark, Machine, Reply, step


class Nap(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


CALLS: dict[str, Callable[[Handle[Any], Hark], Reply[Any]]] = {
    "a read": lambda nap, app: app.list(),
    "a request": lambda nap, app: app.broadcast("news"),
    "a wait for the end": lambda nap, app: nap.result(),
    "a wait for a status": lambda nap, app: nap.wait_for("done"),
}


class Interruption:
    """Raises KeyboardInterrupt at the given line, counted from the beginning of the `with` block."""

    def __init__(self, line: int) -> None:
        self.lines_left = line

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_globals is not globals():
            self.lines_left -= 1
            if not self.lines_left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


@pytest.mark.parametrize("name", CALLS)
def test_a_ctrl_c_at_any_line_of_a_call_harms_no_other_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    gc.collect()  # what earlier tests left, which may log too
    caplog.set_level(logging.WARNING)
    lines = 0
    with Hark(f"sqlite:///{tmp_path}/hark.db") as app:
        nap = finished(app)
        while True:
            try:
                with Interruption(lines + 1):
                    reply = CALLS[name](nap, app)
            except KeyboardInterrupt:
                lines += 1
                for call in CALLS.values():
                    read(call(nap, app), app)
            else:
                read(reply, app)
                break
    gc.collect()
    assert lines > 20
    assert caplog.messages == []


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_another_thread_does_not_rely_on_the_interrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    replies: list[Reply[Any]] = []
    with Hark(f"sqlite:///{tmp_path}/hark.db") as app:
        nap = finished(app)

        def call_in_another_thread() -> None:
            other = threading.Thread(target=lambda: replies.append(CALLS[name](nap, app)))
            other.start()
            other.join()

        loop = app._clerk.loop.running
        monkeypatch.setattr(app._clerk, "hint", lambda: None)  # a poll would wake the clerk by chance
        while app._clerk.loop._woken:  # until the clerk sleeps: a call does not wake it otherwise
            time.sleep(0.01)
        monkeypatch.setattr(app._clerk.loop, "_loop", InterruptedLoop(loop, call_in_another_thread))
        with pytest.raises(KeyboardInterrupt):
            CALLS[name](nap, app)
        monkeypatch.setattr(app._clerk.loop, "_loop", loop)
        [reply] = replies
        read(reply, app)


class InterruptedLoop:
    """An event loop whose first `call_soon_threadsafe` is interrupted before it does anything."""

    def __init__(self, loop: Any, meanwhile: Callable[[], None]) -> None:
        self.loop = loop
        self.meanwhile: Callable[[], None] | None = meanwhile

    def call_soon_threadsafe(self, *args: Any) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            raise KeyboardInterrupt
        self.loop.call_soon_threadsafe(*args)


def finished(app: Hark) -> Handle[Any]:
    """An instance that has ended; no worker is left that would wake the clerk by chance."""
    app.register(Nap)
    with app.worker():
        nap = app.start(Nap).result()
        nap.result().result(30)
    return nap


def read(reply: Reply[Any], app: Hark) -> None:
    try:
        reply.result(30)
    except TimeoutError:
        app._clerk.loop._woken = False  # so that the app can be closed, and the test fails instead of hanging
        raise
