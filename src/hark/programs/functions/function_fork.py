"""Choose the lines of a journal that a fork of a function begins with (V5).

A fork receives what the function had received up to an entry, and goes on by itself from there. Lines are in the order
in which results came, entries in the order in which the code asked: of operations that were under way at the same time,
a fork keeps all or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from hark.model import json
from hark.model.activation import Claim, JournalRow
from hark.model.errors import InvalidInput
from hark.programs.functions.function_check import check_function, open_before_last
from hark.programs.functions.function_journal import (
    FAILED,
    FORKED,
    KNOWN_WHEN_ASKED,
    MARKERS,
    NEW_VISIT,
    PATCH,
    RETRIED,
    UNDO,
)
from hark.programs.functions.function_program import FunctionProgram
from hark.programs.misfits import reason_alone

NOTHING: Final = -1
"""The `at` of a fork that begins from the beginning."""


def kept_lines(claim: Claim, lines: Sequence[JournalRow], at: int | None) -> list[JournalRow]:
    """The lines that a fork begins with, in the order of the journal.

    Args:
        claim: The function whose journal it is.
        lines: The journal.
        at: The last entry that is kept, or NOTHING; None: what a retry would keep.

    Raises:
        InvalidInput: There is no such entry, or the fork would keep a part of what was under way at the same time, or
            a run that was undone.
    """
    if at is None:
        cut = int(lines[-1].value or lines[-1].seq) if lines and lines[-1].kind == FAILED else None
        kept = [line for line in lines if cut is None or line.seq < cut]
        at = max((line.entry for line in kept if _is_result(line)), default=NOTHING)
    _check_entry(lines, at)
    received = [line for line in lines if _is_result(line)]
    last = max((line.seq for line in received if line.entry <= at), default=NOTHING)
    beside = [line.entry for line in received if line.entry > at and line.seq < last]
    if beside:
        raise under_way(at, beside)
    undone = {line.entry for line in lines if line.kind == UNDO and line.entry <= at}
    if undone:
        raise InvalidInput(
            f"Entry {min(undone)} was undone when the function failed: fork before it, with at={min(undone) - 1}."
        )
    answered = {line.entry for line in received}
    return [line for line in lines if _is_kept(line, at, last, answered)]


def _is_result(line: JournalRow) -> bool:
    """Return True for a line that the code received in the order of the journal."""
    return line.kind not in MARKERS and line.kind not in KNOWN_WHEN_ASKED


def _is_kept(line: JournalRow, at: int, last: int, answered: set[int]) -> bool:
    if line.kind in (NEW_VISIT, FORKED):
        return True
    if line.kind == RETRIED:
        return line.seq < last
    if line.kind == "awakeable":  # one without an answer is asked anew, as a question of the fork
        return line.entry <= at and line.entry in answered
    return line.entry <= at and (line.kind == PATCH or line.kind not in MARKERS)


def _check_entry(lines: Sequence[JournalRow], at: int) -> None:
    entries = {line.entry for line in lines if line.kind not in MARKERS}
    if at != NOTHING and at not in entries:
        has = f"it has {min(entries)} to {max(entries)}" if entries else "it is empty"
        raise InvalidInput(
            f"The journal has no entry {at}; {has}. `hark instance journal` shows the entries, and at=-1 keeps none."
        )


def under_way(at: int, beside: Sequence[int]) -> InvalidInput:
    """The error of a fork between operations that were under way at the same time."""
    others = ", ".join(map(str, sorted(set(beside))))
    return InvalidInput(
        f"Entry {at} was under way together with entry {others}, for example in a gather. Fork behind all of them, "
        f"with at={max(beside)}, or before the first of them; `hark instance journal` shows the entries."
    )


def check_fork(program: FunctionProgram, fork: Claim, dropped: Sequence[JournalRow], services: Any) -> None:
    """Replay a fork with the code that is here, before it is started.

    Args:
        program: The code.
        fork: The new instance as it would be claimed, with its lines.
        dropped: The lines that it does not have.
        services: As for a check (engine/check/code_check.py).

    Raises:
        InvalidInput: The code does not fit the lines, or other operations were under way when the last one ended.
    """
    received = [line for line in fork.journal if _is_result(line)]
    misfit = check_function(program, fork, services).misfit
    if misfit is not None:
        reason = reason_alone(str(misfit))
        raise InvalidInput(f"The code that is registered here does not fit the entries that the fork keeps: {reason}")
    if not received:
        return
    last = received[-1]
    before = replace(fork, journal=[line for line in fork.journal if line is not last])
    beside = open_before_last(program, before, services) & {line.entry for line in dropped if _is_result(line)}
    if beside:
        raise under_way(last.entry, sorted(beside))


def journal_of_fork(claim: Claim, kept: Sequence[JournalRow]) -> list[JournalRow]:
    """The lines as the fork has them. It draws the same random numbers as the function did."""
    lines = list(kept)
    if all(line.kind != FORKED for line in lines):
        seed = json.dump_unchecked(seed_of(claim))
        place = 1 if lines and lines[0].kind == NEW_VISIT else 0
        lines.insert(place, JournalRow(0, 0, FORKED, None, seed, None))
    return [replace(line, seq=seq) for seq, line in enumerate(lines)]


def seed_of(claim: Claim) -> str:
    """The seed of the random numbers of a function that was not forked."""
    return f"{claim.id}/{claim.visit}"
