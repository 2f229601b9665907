"""A progress bar on the terminal, for commands that take long."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_BAR = 30  # characters
_REDRAW = 0.1  # seconds


@contextmanager
def progress_bar(done_word: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal; nothing if standard error is not a terminal."""
    shown, last = sys.stderr.isatty(), 0.0

    def draw(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if shown and total and (now - last >= _REDRAW or done == total):
            last = now
            full = _BAR * done // total
            bar = f"\r{'█' * full}{'░' * (_BAR - full)} {done} of {total} {done_word}"
            print(bar, end="", file=sys.stderr, flush=True)

    try:
        yield draw
    finally:
        if last:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
