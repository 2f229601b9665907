"""TaskRuns: the functions that a handler runs once, `task.run`, and their recorded results.

A result is a line of the task's journal, committed by a note as soon as the function has ended. The lines of a period
(until the next checkpoint or outcome) are numbered in the order in which the handler asks; a handler that runs again
in the same period gets the line of the same number instead of another call. All of this runs on the worker's loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hark.model.activation import JournalRow
from hark.model.error_codec import decode_error
from hark.model.errors import BpmnError, NonDeterministic, StoreUnavailable, TaskLost
from hark.model.notes import NoteRun, NoteRuns
from hark.programs.functions.branches import Suspended
from hark.programs.functions.function_runs import Runs
from hark.programs.functions.operations import Run

if TYPE_CHECKING:
    from hark.programs.jobs.tasks.task_session import TaskSession

_TRY_AGAIN = 0.5  # seconds
_ADVICE = (
    "It is held and loses nothing: it goes on by itself when a worker registers a handler that asks for the same runs "
    "in the same order up to its next checkpoint. To begin anew with changed code, cancel the job and start it again."
)


class TaskRuns:
    """The runs of one activation."""

    def __init__(self, session: TaskSession) -> None:
        self._session = session
        self._asked = 0  # since the last checkpoint
        self._stored: dict[int, JournalRow] | None = None if session.claim.has_run else {}  # None: not read yet
        self._reading: asyncio.Task[None] | None = None
        self._is_first = True  # no line of this period was written here: older ones may be left to delete
        self._runs: Runs | None = None
        self._working: set[asyncio.Task[Any]] = set()
        self.ended_at = 0.0  # when the last one ended, by the clock of the loop

    @property
    def are_working(self) -> bool:
        """True while a function runs, or its result is being committed."""
        return bool(self._working)

    def begin_period(self) -> None:
        """Count from the start: what was recorded before the checkpoint does not count any more."""
        self._asked, self._stored, self._is_first = 0, {}, True

    async def run(self, run: Run) -> Any:
        """The recorded result of this run; or call its function, and record the result."""
        session = self._session
        session.check()
        seq, period = self._asked, session.state.period
        self._asked += 1
        work = asyncio.current_task()
        assert work is not None
        self._working.add(work)
        session.update_linger()
        try:
            stored = (await self._lines()).get(seq)
            if stored is None:
                value, error = await self._execute(run, seq, period)
            elif stored.name != run.name:
                self._hold(seq, f"run {stored.name!r}", f"run {run.name!r}", "asks for its runs in another order")
            else:
                value, error = stored.value, stored.error
        finally:
            self._working.discard(work)
            self.ended_at = asyncio.get_running_loop().time()
            session.update_linger()
        if session.is_suspended:  # recorded: the next activation gets it
            raise Suspended
        if error is not None:
            raise decode_error(error)
        try:
            return run.decode(value or "null")
        except Exception as cause:
            reason = f"{type(cause).__name__}: {cause}"
            self._hold(seq, f"run {run.name!r}", reason, f"cannot read a result ({reason})", cause)

    async def _execute(self, run: Run, seq: int, period: int) -> tuple[str | None, str | None]:
        session = self._session
        if self._runs is None:
            call = session.services.call_handler
            self._runs = Runs(session.claim, session.services, call=call, raises=(BpmnError, TaskLost))
        value, error = await self._runs.execute(run)
        if session.lost is not None:
            raise session.lost
        is_first = self._is_first
        self._is_first = False
        await self._record(
            NoteRun(
                session.claim.id, session.claim.epoch, period=period, seq=seq, name=run.name, value=value, error=error,
                is_first=is_first,
            )
        )  # fmt: skip
        return value, error

    async def _record(self, note: NoteRun) -> None:
        """Commit a result, however long the database cannot be reached: the function has run, and shall not run again.
        A commit whose outcome is unknown is looked up before the next attempt."""
        while True:
            try:
                await self._session.note(note)
            except StoreUnavailable:
                await asyncio.sleep(_TRY_AGAIN)
                if any(line.seq == note.seq for line in await self._read_lines(note.period)):
                    return
            else:
                return

    async def _read_lines(self, period: int) -> list[JournalRow]:
        claim = self._session.claim
        lines: list[JournalRow] = await self._session.patient_note(NoteRuns(claim.id, claim.epoch, period=period))
        return lines

    async def _lines(self) -> dict[int, JournalRow]:
        """The lines of this period, by number. Read once, if another activation may have written some."""
        if self._stored is None:
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._read())
            await asyncio.shield(self._reading)
        assert self._stored is not None
        return self._stored

    async def _read(self) -> None:
        lines = await self._read_lines(self._session.state.period)
        if self._stored is None:  # no checkpoint came first
            self._stored = {line.seq: line for line in lines}

    def _hold(self, seq: int, expected: str, found: str, problem: str, cause: Exception | None = None) -> None:
        name = self._session.claim.step
        error = NonDeterministic(
            f"The handler of task {name!r} {problem}: run {seq} since its last checkpoint was {expected}, and is now "
            f"{found}. {_ADVICE}",
            cause=f"the handler {problem}", entry=seq, expected=expected, found=found,
        )  # fmt: skip
        error.__cause__ = cause
        self._session.hold(error)
        raise Suspended

    async def finish(self) -> None:
        """Wait until the functions that still run have ended, and their results are recorded."""
        while self._working:
            await asyncio.wait(self._working)

    def close(self) -> None:
        """Cancel the functions that still run: their results are not used."""
        for work in list(self._working):
            work.cancel()
        self._working.clear()
        if self._reading is not None:
            self._reading.cancel()
