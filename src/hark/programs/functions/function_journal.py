"""The journal of a function in memory: the lines it was claimed with, and those the next commit adds.

Lines are in the order in which the function received its results; `entry` is the order in which it asked
(decision 0007). This module reads the lines, cuts off those that a retry repeats, and numbers new ones.
Storing them is the kernel's part: see kernel/journal.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hark.model import json
from hark.model.activation import JournalRow
from hark.model.decisions import JournalLine
from hark.model.errors import CallFailed, RunFailed, SignalTimeout
from hark.programs.functions.operations import Result

Line = JournalRow | JournalLine

PATCH = "patch"  # `ctx.patched` answered True before the operation of its entry was asked for
KNOWN_WHEN_ASKED = frozenset(("now", "awakeable", PATCH))  # read by entry, not in the order of the journal
# Lines that belong to no operation. The texts are stored: a change would break the journals that exist.
NEW_VISIT = "anew"  # first line after continue_as_new: where the entries of this visit begin
RETRIED = "retried"  # a retry begins here, with the entry of the line
FAILED = "failed"  # last line of a failed function; `value` is the seq of the line that a retry repeats first
UNDOING = "undoing"  # the function has failed and is being undone; `value` is the error it ends with
UNDO = "undo"  # the undo of the run at this entry has ended
FORKED = "forked"  # the function began as a fork; `value` is the seed of its random numbers
UNDONE = "undone"  # last line of a failed function that was undone: a retry begins from the beginning
MARKERS = frozenset((NEW_VISIT, FORKED, RETRIED, FAILED, UNDOING, UNDO, UNDONE, PATCH))
_FEW = 20  # lines
_MAX_CAUSES = 100  # exceptions that were raised from each other


class Journal:
    """The lines of one activation."""

    __slots__ = (
        "_by_entry",
        "_counted",
        "_highest",
        "_last_entry",
        "_patches",
        "_replayed",
        "_retry_entry",
        "_size",
        "cut_from",
        "cut_lines",
        "lines",
        "next_entry",
        "uncommitted",
        "unread",
    )

    def __init__(self, rows: Sequence[JournalRow]) -> None:
        self.lines: list[Line] = list(rows)  # committed
        self.uncommitted: list[JournalLine] = []
        self.unread: deque[Line] = deque()  # in a replay: the lines the code has not received yet
        self.next_entry = 0
        self.cut_from: int | None = None  # the next commit deletes the lines from this seq on
        self.cut_lines: list[Line] = []
        self._retry_entry: int | None = None
        self._counted = self._size = 0  # how many lines `size` has counted, and what they have
        if rows and rows[0].kind == NEW_VISIT:
            self.next_entry = rows[0].entry
        if rows and rows[-1].kind == FAILED:
            self._cut(rows[-1])
        self._replayed = len(self.lines)
        self._by_entry: dict[int, Line] | None = None if self.lines else {}
        self._last_entry: int | None = None
        self._patches: set[tuple[int, str | None]] | None = None  # the answers of True, with the entry behind each
        self._highest: int | None = None  # the highest entry of the lines that are replayed

    def _cut(self, failed: Line) -> None:
        """Cut the failed line and all lines after it: this activation is the retry of a failed function."""
        cut = self.cut_from = int(failed.value or failed.seq)
        self._retry_entry = failed.entry
        self.cut_lines = [line for line in self.lines if line.seq >= cut]
        self.lines = [line for line in self.lines if line.seq < cut]
        self.write(RETRIED, failed.entry)

    @property
    def seed(self) -> str | None:
        """The seed of the random numbers of a fork; None if the function is not one."""
        forked = next((line for line in self.lines[:2] if line.kind == FORKED), None)
        return None if forked is None or forked.value is None else str(json.load(forked.value))

    @property
    def is_retry(self) -> bool:
        return self._retry_entry is not None

    @property
    def undoing(self) -> Line | None:
        """The line with which the undo of a failed function began."""
        return next((line for line in reversed(self.lines) if line.kind == UNDOING), None)

    @property
    def is_undone(self) -> bool:
        return bool(self.lines) and self.lines[-1].kind == UNDONE

    def cut_entries(self) -> set[int]:
        """The entries whose result a retry has cut off."""
        return {line.entry for line in self.cut_lines if line.kind not in KNOWN_WHEN_ASKED}

    # -- reading ----------------------------------------------------------------------------------

    def start_replay(self) -> None:
        # Without the line that begins a visit: all of a new visit is new, what it logs and its progress included.
        skipped = KNOWN_WHEN_ASKED | {NEW_VISIT, FORKED}
        self.unread.extend([line for line in self.lines if line.kind not in skipped])

    def line_at(self, entry: int) -> Line | None:
        """The line of the operation with this entry, among those that are replayed; of an awakeable, its creation."""
        by_entry = self._by_entry
        if by_entry is None:
            if self._last_entry is None:
                lines = self.lines
                self._last_entry = max([line.entry for line in lines]) if len(lines) > _FEW else entry
            if entry > self._last_entry:
                return None  # the usual end of a long replay: its runs were read ahead, and needed no dict
            by_entry = self._lines_by_entry()
        return by_entry.get(entry)

    def has_patch(self, entry: int, name: str) -> bool:
        """Return True if the code that first came to this entry was patched."""
        if self._patches is None:
            lines = (*self.lines, *self.uncommitted)
            self._patches = {(line.entry, line.name) for line in lines if line.kind == PATCH}
        return (entry, name) in self._patches

    def has_entry_from(self, entry: int) -> bool:
        """Return True if the lines that are replayed have an operation at this entry or a later one."""
        if self._highest is None:
            self._highest = max(self._lines_by_entry(), default=-1)
        return self._highest >= entry

    def _lines_by_entry(self) -> dict[int, Line]:
        if self._by_entry is None:
            lines = self.lines[: self._replayed]
            # An awakeable has two lines; reversed, so that its creation, which comes first, is the one found.
            self._by_entry = {line.entry: line for line in reversed(lines) if line.kind not in MARKERS}
        return self._by_entry

    def resume(self) -> None:
        """Continue with these lines in another activation: they count as replayed."""
        self._replayed = len(self.lines)

    def end_replay(self) -> None:
        """Give new operations of a retry entries of their own, so an awakeable that is created again has a new id."""
        if self._retry_entry is not None:
            self.next_entry = max(self.next_entry, self._retry_entry)

    def never_asked(self) -> Line | None:
        """The first line of an operation that the code, at its end, has not asked for."""
        lines = [line for line in self._lines_by_entry().values() if line.entry >= self.next_entry]
        return min(lines, key=lambda line: line.entry) if lines else None

    def has_doubled(self) -> bool:
        """Return True if this activation has added at least as many lines as it replayed, and at least one: functions
        that give up their slot before they have added any would take turns forever."""
        lines = len(self.lines)
        return lines > 0 and lines >= 2 * self._replayed

    def size(self) -> int:
        """The number of characters in the values of the lines. Only new lines are counted."""
        self._size += sum([len(line.value or "") for line in self.lines[self._counted :]])
        self._counted = len(self.lines)
        return self._size

    # -- writing ----------------------------------------------------------------------------------

    def write(self, kind: str, entry: int, name: str | None = None, result: Result = (None, None)) -> JournalLine:
        """Add a line to the next commit."""
        seq = self.lines[-1].seq + 1 if self.lines else 0
        line = JournalLine(seq + len(self.uncommitted), entry, kind, name, *result)
        self.uncommitted.append(line)
        if kind == PATCH and self._patches is not None:
            self._patches.add((entry, name))
        return line

    def write_failure(self, error: BaseException) -> None:
        """Record which line a retry repeats first: the one whose error the function ended with."""
        entry = _failed_entry(error)
        if entry is None:
            return
        for line in self.lines + self.uncommitted:
            if line.error is not None and line.entry == entry:
                self.write(FAILED, self.next_entry, None, (str(line.seq), None))
                return

    def take_uncommitted(self) -> list[JournalLine] | None:
        """The lines for a decision; None if there are none. From here on they count as committed."""
        lines, self.uncommitted = self.uncommitted, []
        self.lines += lines
        return lines or None


def _failed_entry(error: BaseException | None) -> int | None:
    """The entry whose error this is, directly or as the cause of later exceptions."""
    for _ in range(_MAX_CAUSES):
        if error is None:
            return None
        if isinstance(error, RunFailed | CallFailed | SignalTimeout) and hasattr(error, "entry"):
            return int(error.entry)
        error = error.__cause__ or error.__context__
    return None
