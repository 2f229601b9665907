"""ReadAhead: gives a run whose line is the next one its result in a replay without suspending the code.

Most of a long replay is `await ctx.run(…)`, again and again, in one branch. Nothing else can happen between such a call
and its `await`, so the run is not registered as open: it is `pending`, and its `await` takes the next line. If the code
does anything else first, the run is registered, and the replay goes on as with any other operation (replay.py).

Determinism is checked as in `Replay.ask`: only a run with the entry, kind and name of the next line becomes pending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from sys import _getframe
from typing import Any, Final

from hark.programs.functions.function_journal import Journal, Line
from hark.programs.functions.operations import Run

_NO_LINES: Final[deque[Line]] = deque()


class ReadAhead:
    """The next lines of a replay, and the run that is about to receive the first of them.

    Attributes:
        pending: The run that the code has asked for last, if its line is the next one and the code has done nothing
            else since.
        unread: The lines that the code has not received yet.
        decoders: What reads the results of runs, by function.
    """

    __slots__ = ("_current_thread", "_journal", "_lines", "_thread", "_waits", "decoders", "pending", "unread")

    def __init__(self, journal: Journal, waits: Container[int], current_thread: Callable[[], int]) -> None:
        """Begin without lines. `waits`: the entries with waits. Operations at these entries are not read ahead."""
        self._journal = journal
        self._waits = waits
        self._current_thread = current_thread
        self._thread = current_thread()
        self._lines = _NO_LINES  # `unread` while reading ahead is allowed
        self.pending: Run | None = None
        self.unread = journal.unread
        self.decoders: dict[Callable[..., Any], Callable[[str], Any]] = {}

    def start(self) -> None:
        """Allow reading ahead: the code that runs is the only branch, in a replay."""
        self._lines = self.unread

    def stop(self) -> None:
        """Forbid reading ahead: the replay has ended, there is a second branch, or code is being closed."""
        self._lines = _NO_LINES

    def expect(self, run: Run) -> bool:
        """Make a run pending that the code asks for through ctx. Return False if it has to go the usual way."""
        lines = self._lines
        if not lines or self.pending is not None or self._current_thread() != self._thread:
            return False
        line, journal = lines[0], self._journal
        entry = journal.next_entry
        if line.entry != entry or line.name != run.name or line.kind != "run" or entry in self._waits:
            return False
        journal.next_entry = entry + 1
        run.entry = entry
        run.ahead = self
        caller = _getframe(2)
        run.asked = caller.f_code, caller.f_lasti
        self.pending = run
        return True
