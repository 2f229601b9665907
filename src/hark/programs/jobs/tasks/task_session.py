"""TaskSession: one activation of a handler, between its claim and its outcome.

Everything a handler does while it runs is a note: committed by itself, at once, and fenced by the epoch of the claim. A
handler that waits keeps its slot for `linger` seconds; then the session *suspends* it: every wait of the handler raises
`Suspended`, and the task parks. The next activation continues the same waits (task_waits.py). All of this runs on the
worker's loop; a handler in a thread reaches it through `services.begin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw

from hark.model import json
from hark.model.activation import Arrived, InboxRow, WaitRow
from hark.model.answers import load_answer
from hark.model.decisions import Arm, Settle
from hark.model.errors import HarkError, NonDeterministic, SignalTimeout, StoreUnavailable, TaskLost
from hark.model.lingering import Lingering
from hark.model.names import SECOND
from hark.model.notes import (
    AnyNote,
    NoteAwakeable,
    NotedEvent,
    NoteEvents,
    NoteInbox,
    NoteParent,
    NoteRuns,
    NoteState,
    NoteTimeout,
    NoteWait,
    TaskAwakeable,
)  # fmt: skip
from hark.programs.functions.branches import Suspended
from hark.programs.functions.operations import Run
from hark.programs.jobs.job_services import TaskReply, TaskServices
from hark.programs.jobs.tasks.task_outcomes import QUESTION, TaskActivation
from hark.programs.jobs.tasks.task_runs import TaskRuns
from hark.programs.jobs.tasks.task_state import dump_task_state
from hark.programs.jobs.tasks.task_waits import TaskWaits
from hark.programs.jobs.tasks.work_clock import WorkClock
from hark.programs.services import InboxListener

T = TypeVar("T")
MAX_UNWRITTEN: Final = 1000  # chunks of a stream that a handler does not wait for
_MAX_CHUNKS: Final = 200  # in one note: a turn must not be long
_MIN_LINGER: Final = 0.05  # seconds in which a handler uses an answer while another of its waits is open
_ROUNDS: Final = 20  # of the loop, within which a handler that can go on does so
_TRY_AGAIN: Final = 0.5  # seconds
_CLOCKS_DIFFER: Final = 0.02  # seconds until the database is asked again about a deadline that has not come there


class TaskSession:
    """The activity of a handler while it runs. `claim.session` of its claim."""

    def __init__(self, activation: TaskActivation, services: TaskServices) -> None:
        self.activation = activation
        self.services = services
        self.claim = activation.claim
        self.state = activation.state
        self.is_suspended = False
        self.lost: BaseException | None = None  # the claim is not ours any more, or the handler has ended
        self.misfit: NonDeterministic | None = None  # the handler does not fit what its runs have recorded
        task = activation.task
        self.clock = WorkClock(self.state.worked, task.timeout_sec, task.heartbeat_sec)
        self.waits = TaskWaits(self.claim.waits, self.claim.inbox)
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, asyncio.Future[InboxRow]] = {}  # by wait: what a handler waits for
        self._has_stored_waits = any(wait.fired_at is None for wait in self.claim.waits)
        self._listener: InboxListener | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._active_at = 0.0  # when the handler last received an answer, by the clock of the loop
        self._activity = 0  # how often it has asked or received something
        self._lingering: Lingering | None = None
        self._is_asked_to_leave = False
        self._asked = 0  # awakeables since the last checkpoint
        self._pending_awakeables: set[str] = set()  # created since the last checkpoint and not settled, as far as known
        self._notes: set[TaskReply[Any]] = set()  # not committed yet
        self._disarming: asyncio.Task[None] | None = None  # the last wait that the handler has given up
        self._has_ended = False
        self._has_begun = False  # something of what the handler called may not have started yet
        self._chunks: deque[NotedEvent] = deque()  # not written yet
        self._streaming: asyncio.Task[None] | None = None
        self.runs: TaskRuns | None = None  # from its first run on: few handlers have one
        services.running.add(self)

    def begin(self, work: Coroutine[Any, Any, T]) -> TaskReply[T]:
        """Start what the handler called, on the worker's loop, whatever the handler does then. From any thread."""
        self._has_begun = True
        return self.services.begin(work)

    def begin_wait(self, work: Callable[[WaitingCall], Coroutine[Any, Any, T]]) -> TaskReply[T]:
        """Start a call that waits: it ends when the handler does not wait for it any more."""
        self._has_begun = True
        call = WaitingCall()
        return self.services.begin(work(call), given_up=lambda: self._give_up(call))

    def begin_run(self, run: Run) -> TaskReply[Any]:
        """Start a run: it is cancelled when the asyncio task that awaits it is."""
        self._has_begun = True
        if self.runs is None:
            self.runs = TaskRuns(self)
        return self.services.begin(self.runs.run(run), given_up=_nothing_to_give_up)

    # -- waiting ----------------------------------------------------------------------------------

    async def wait_for_signal(self, name: str, timeout: int, call: WaitingCall | None = None) -> Any:
        """The payload of the next signal of the run with this name; `timeout` in µs."""
        self.check()
        now = self.services.micros()
        wait, is_new = self.waits.ask("signal", name, now + timeout, now)
        arm = Arm("signal", wait.id, wait.place, name, deadline=wait.deadline, run=self.state.run)
        row = await self._answer(wait, arm if is_new else None, call)
        if row.kind == "timer":
            raise SignalTimeout(f'signal "{name}" timed out after {timeout / SECOND:g} s')
        return json.load_for_code(row.payload)

    async def await_awakeable(
        self, id: str, decode: Callable[[str], Any], title: str | None = None, call: WaitingCall | None = None
    ) -> Any:
        """The answer to an awakeable of this task."""
        self.check()
        wait, is_new = self.waits.ask("awakeable", id, None, self.services.micros())
        row = await self._answer(wait, Arm("awakeable", wait.id, wait.place, id) if is_new else None, call)
        self._pending_awakeables.discard(id)
        answer = load_answer(row.payload)
        if (error := answer.failure(id, title)) is not None:
            raise error
        return decode(answer.text)

    async def _answer(self, wait: WaitRow, arm: Arm | None, call: WaitingCall | None) -> InboxRow:
        """The row that answers this wait. `arm`: it is new, and is armed first."""
        if call is not None:
            call.wait = wait
        self.clock.begin_wait()
        self._activity += 1
        try:
            row = self.waits.answer(wait)
            if row is None:
                self._listen()
                row = await self._arm(wait, arm) if arm is not None else None
            if row is None:
                row = self.waits.answer(wait) or await self._arrival(wait)
            if self.is_suspended:  # it came too late: the park finds it in the inbox
                raise Suspended
            self.waits.receive(wait, row)
            self._activity += 1
            self._active_at = self._loop.time()
            if self._answers:  # it uses this answer, or has gone back to another wait
                self.update_linger()
                self._loop.call_later(_MIN_LINGER, self.update_linger)
            return row
        finally:
            self.clock.end_wait()

    def _give_up(self, call: WaitingCall) -> None:
        """Give up a wait whose call the handler has cancelled: it must not take a signal from waits asked for later."""
        wait, call.wait = call.wait, None
        if wait is not None and not self.is_suspended and self.lost is None:  # else the handler itself has ended
            self.waits.withdraw(wait)
            self._disarming = self._loop.create_task(self._disarm(wait.id, self._disarming))

    async def _disarm(self, wait: str, before: asyncio.Task[None] | None) -> None:
        """Delete a wait. A signal that it has received goes back to the run."""
        if before is not None:
            await before
        for reply in list(self._notes):  # it may be about to be armed, and a turn deletes waits before it arms them
            with contextlib.suppress(Exception):
                await reply
        with contextlib.suppress(Exception):
            await self.patient_note(NoteState(self.claim.id, self.claim.epoch, disarm=(wait,), run_id=self.state.run))

    async def _arm(self, wait: WaitRow, arm: Arm) -> InboxRow | None:
        if self._disarming is not None:
            await asyncio.wait([self._disarming])
        try:
            row: InboxRow | None = await self.note(NoteWait(self.claim.id, self.claim.epoch, arm=arm))
        except Exception:
            self.waits.withdraw(wait)
            raise
        wait.deadline = arm.deadline
        if row is not None:
            self.waits.arrived(row)
        return row

    async def _arrival(self, wait: WaitRow) -> InboxRow:
        """Wait in the slot: until the answer arrives, the deadline comes, or the handler has lingered long enough."""
        answer: asyncio.Future[InboxRow] = self._loop.create_future()
        self._answers[wait.id] = answer
        asked_at = self._loop.time()
        self.update_linger()
        try:
            while True:
                self.check()
                lingers = self._lingers_until(asked_at) - self._loop.time()
                left = None if wait.deadline is None else (wait.deadline - self.services.micros()) / SECOND
                is_deadline = left is not None and left <= lingers
                timeout = left if left is not None and is_deadline else lingers
                if timeout > 0:
                    await asyncio.wait([answer], timeout=timeout)
                if answer.done():
                    return answer.result()
                if is_deadline:
                    late: InboxRow | None = await self.patient_note(
                        NoteTimeout(self.claim.id, self.claim.epoch, wait_id=wait.id)
                    )
                    if late is not None:
                        return late
                    await asyncio.wait([answer], timeout=_CLOCKS_DIFFER)
                elif self._lingers_until(asked_at) <= self._loop.time() and await self._is_idle():
                    self.suspend()
        finally:
            del self._answers[wait.id]
            self.update_linger()
            if answer.done() and not answer.cancelled():
                answer.exception()  # it may have been answered twice: an error that is not raised is not logged

    def _lingers_until(self, asked_at: float) -> float:
        """The time until which the handler keeps its slot. With an answer that it has not used yet, it may be at work
        beside this wait: then the time begins with that answer. With a run, it is at work until that has ended."""
        linger = 0.0 if self.services.stopping else self.services.linger
        if self.runs is not None:
            if self.runs.are_working:
                return self._loop.time() + max(linger, _MIN_LINGER)
            asked_at = max(asked_at, self.runs.ended_at)
        if not self.waits.has_unused_answer:
            return asked_at + linger
        return max(asked_at, self._active_at) + max(linger, _MIN_LINGER)

    def update_linger(self) -> None:
        """Note whether the handler waits in its slot, and does nothing else as far as known."""
        is_working = self.runs is not None and self.runs.are_working
        lingers = bool(self._answers) and not is_working and self.lost is None and not self._has_ended
        if lingers and self.waits.has_unused_answer:
            lingers = self._loop.time() >= self._active_at + _MIN_LINGER
        if self.is_suspended or lingers == (self._lingering is not None):
            return  # once it is suspended, it keeps its slot until its park is committed
        if lingers:
            claim, since = self.claim, self._loop.time()
            self._lingering = Lingering(claim.id, claim.epoch, claim.queue, claim.concurrency_key, since, self._leave)
            self.services.begin_linger(self._lingering)
        else:
            self._end_linger()

    def _end_linger(self) -> None:
        if self._lingering is not None:
            leaves, was_asked = self.is_suspended, self._is_asked_to_leave
            self.services.end_linger(self._lingering, leaves=leaves, was_asked=was_asked)
            self._lingering, self._is_asked_to_leave = None, False

    def _leave(self) -> None:
        """Park the task, if it still lingers: other work waits for its slot."""
        if self._lingering is not None and not self._is_asked_to_leave and not self.is_suspended:
            self._is_asked_to_leave = True
            self._leaving = self._loop.create_task(self._leave_if_idle(self._lingering))

    async def _leave_if_idle(self, lingering: Lingering) -> None:
        if await self._is_idle() and self._lingering is lingering:
            self.suspend()
        elif self._lingering is lingering:  # it has asked for something else beside its wait: it is asked again
            self._end_linger()
            self.update_linger()

    async def _is_idle(self) -> bool:
        """Return True if the handler asks for nothing more, and receives nothing, while everything that can go on does
        so.

        A call that it has made may not have started yet, and may have its answer."""
        before = self._activity
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        return self._activity == before

    def _listen(self) -> None:
        """Be notified of rows that arrive. Before the wait is armed: no row may come between."""
        if self._listener is None:
            self._listener = self.services.listen(self.claim.id, self._take)
            self._listener.reset(self.claim.read_to)
            if self._has_stored_waits:  # they were armed when the task was claimed, and nothing listened until now
                self._listener.notify()
            self._listening = self._loop.create_task(self._read_arrivals(self._listener))

    async def _read_arrivals(self, listener: InboxListener) -> None:
        while True:
            await listener.wait()
            listener.reset(listener.seen)
            try:
                # All of it: a signal that another task gave back has the number that it had in the queue of the run.
                rows = await self.patient_note(NoteInbox(self.claim.id, self.claim.epoch))
            except Exception as error:
                self._end_waits(error)
                return
            self._receive(rows)
            listener.seen = max([listener.seen, *(row.seq for row in rows)])

    def _take(self, arrived: Arrived) -> bool:
        """Take rows that a turn of this process has added to the inbox. Return False if they may belong to another
        activation: then the inbox is read, which finds out."""
        if arrived.epoch != self.claim.epoch:
            return False
        self._receive(arrived.rows)
        return True

    def _receive(self, rows: Iterable[InboxRow]) -> None:
        for row in rows:
            for wait in self.waits.arrived(row):
                answer = self._answers.get(wait.id)
                if answer is not None and not answer.done():
                    answer.set_result(row)

    # -- suspending and ending --------------------------------------------------------------------

    def suspend(self) -> None:
        """Suspend the handler: it has lingered long enough, or the worker stops. Its waits are left to a park."""
        if not self.is_suspended and self.lost is None:
            self.is_suspended = True
            self.clock.unwind()
            self._end_waits(Suspended())

    def hold(self, misfit: NonDeterministic) -> None:
        """End the handler: it does not fit what was recorded. Its task is held."""
        self.misfit = self.misfit or misfit
        self.suspend()

    def suspend_if_waiting(self) -> None:
        """Suspend a handler that waits, because the worker stops; any other may finish."""
        if self._answers:
            self.suspend()

    def check(self) -> None:
        """Raise if the handler may do nothing more."""
        if self.is_suspended:
            raise Suspended
        if self.lost is not None or self._has_ended:  # a thread whose time is over may still run
            raise self.lost or self._gone()

    def _gone(self) -> TaskLost:
        return TaskLost(
            f"Task {self.claim.step!r} ({self.claim.id}) does not run here any more: it has ended, was cancelled, or "
            "another worker has it. Nothing was stored."
        )

    def _end_waits(self, error: BaseException) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)

    async def finish(self) -> None:
        """Commit what the handler has submitted before its outcome: the handler has ended."""
        self.state.worked = self.clock.worked()
        if self._has_begun:
            await asyncio.sleep(0)  # the last call of the handler, if it was not awaited, has started now
        if self.runs is not None:
            await self.runs.finish()
        self._has_ended = True
        if self._disarming is not None:
            await asyncio.wait([self._disarming])
        while self._chunks or self._streaming is not None:
            self._write()
            await asyncio.wait([self._streaming] if self._streaming is not None else [])
        for reply in list(self._notes):
            with contextlib.suppress(HarkError):  # the handler did not wait for it
                await reply
        self.close()

    def close(self) -> None:
        """End the claim: it has its outcome, or was cancelled, reclaimed or handed back."""
        self.services.running.discard(self)
        if self.lost is None:
            self.lost = self._gone()
        self._end_waits(Suspended() if self.is_suspended else self.lost)
        self._end_linger()
        self.close_runs()
        if self._listener is not None:
            self._listener.close()
        if self._listening is not None:
            self._listening.cancel()

    def close_runs(self) -> None:
        """Cancel the functions that the handler has left running."""
        if self.runs is not None:
            self.runs.close()

    release = close  # what the worker calls when the claim does not go on

    def withdrawn(self) -> list[Settle]:
        """The awakeables that a failed attempt leaves behind."""
        return [Settle(id, "CANCELLED") for id in sorted(self._pending_awakeables)]

    # -- notes ------------------------------------------------------------------------------------

    async def note(self, note: AnyNote) -> Any:
        """Commit a note, and return its result."""
        if self.lost is not None:
            raise self.lost
        reply = self.services.note(note)
        self._notes.add(reply)
        try:
            result = await reply
        except asyncio.CancelledError:
            raise  # it is still to be committed: `finish` waits for it
        except BaseException as error:
            self._notes.discard(reply)
            if isinstance(error, TaskLost):
                self.lost = self.lost or error
            raise
        self._notes.discard(reply)
        return result

    async def patient_note(self, note: NoteInbox | NoteTimeout | NoteState | NoteRuns) -> Any:
        """The result of a note that may be taken again: a handler that waits does not fail because the database cannot
        be reached for a while."""
        while True:
            try:
                return await self.note(note)
            except StoreUnavailable:
                await asyncio.sleep(_TRY_AGAIN)

    async def checkpoint(self, value: str) -> None:
        """Store a value, and with it that everything received so far is dealt with."""
        self.check()
        state = self.state
        consume, disarm = self.waits.forget_received()
        self._asked = 0
        self._pending_awakeables.clear()
        if self.runs is not None:
            self.runs.begin_period()
        state.checkpoint = Raw(value.encode())
        state.period += 1
        state.worked = self.clock.worked()
        event = NotedEvent("checkpoint", _encode({"task": self.claim.step}))
        text = dump_task_state(state)
        await self.note(
            NoteState(
                self.claim.id, self.claim.epoch, state=text, consume=consume, disarm=disarm,
                events=(event,), step=self.claim.step, run_id=state.run if disarm else None,
            )
        )  # fmt: skip
        self.claim.state = text  # what `recover` starts from

    async def load_checkpoint(self) -> Any:
        self.check()
        kept = self.state.checkpoint
        return None if kept is UNSET else json.load_for_code(bytes(kept).decode())

    async def start_over(self) -> None:
        """Begin a retried task without what it has left before: waits that are open again, rows not consumed."""
        claim = self.claim
        if claim.waits or claim.inbox:
            seqs, waits = tuple(row.seq for row in claim.inbox), tuple(wait.id for wait in claim.waits)
            claim.waits.clear()
            self.waits = TaskWaits(claim.waits, [])
            await self.note(
                NoteState(
                    claim.id,
                    claim.epoch,
                    state=dump_task_state(self.state),
                    consume=seqs,
                    disarm=waits,
                    run_id=self.state.run,
                )
            )

    async def ask(self, awakeable: dict[str, Any]) -> TaskAwakeable:
        """Create an awakeable of the run. The same call of a handler that runs again gives the same one."""
        self.check()
        place = f"{QUESTION}{self.state.period}.{self._asked}"
        self._asked += 1
        asked: TaskAwakeable = await self.note(
            NoteAwakeable(
                self.claim.id, self.claim.epoch, run_id=self.state.run, place=place, task=self.claim.step,
                nonce=secrets.token_urlsafe(12), **awakeable,
            )
        )  # fmt: skip
        if asked.status == "PENDING":
            self._pending_awakeables.add(asked.id)
        return asked

    async def escalate(self, escalation: NoteParent) -> bool:
        """Throw an escalation. Returns whether the process still waits for this task."""
        self.check()
        is_heard: bool = await self.note(escalation)
        return is_heard

    async def heartbeat(self, details: str | None) -> None:
        self.check()
        self.clock.beat()
        data = b'{"task":%s' % msgspec.json.encode(self.claim.step)
        data += b"}" if details is None else b',"details":%s}' % details.encode()
        events = (NotedEvent("heartbeat", data.decode()),)
        await self.note(
            NoteEvents(
                self.claim.id,
                self.claim.epoch,
                events=events,
                step=self.claim.step,
                progress=details,
                run_id=self.state.run,
            )
        )

    # -- the stream -------------------------------------------------------------------------------

    def stream(self, chunk: str) -> TaskReply[None]:
        """Add a chunk. The result is there at once, unless many chunks are not written yet. From any thread."""
        self.check()
        name = msgspec.json.encode(self.claim.step).decode()
        self._chunks.append(NotedEvent("stream", f'{{"task":{name},"chunk":{chunk}}}'))
        if len(self._chunks) >= MAX_UNWRITTEN:
            return self.begin(self._stream_written())
        if _get_running_loop() is self._loop:
            self._write()
        else:
            self._loop.call_soon_threadsafe(self._write)
        return self.services.done()

    async def _stream_written(self) -> None:
        """Wait until there is room for more chunks."""
        while len(self._chunks) >= MAX_UNWRITTEN // 2 and self.lost is None:
            self._write()
            assert self._streaming is not None
            await asyncio.wait([self._streaming])
        self.check()

    def _write(self) -> None:
        if self._streaming is None and self._chunks:
            self._streaming = self._loop.create_task(self._write_chunks())

    async def _write_chunks(self) -> None:
        """Write one note at a time: chunks that come meanwhile share the next one."""
        claim = self.claim
        try:
            while self._chunks:
                chunks = [self._chunks.popleft() for _ in range(min(_MAX_CHUNKS, len(self._chunks)))]
                await self.note(
                    NoteEvents(claim.id, claim.epoch, events=tuple(chunks), step=claim.step, run_id=self.state.run)
                )
                if (delay := self.services.stream_delay(len(chunks))) > 0:
                    await asyncio.sleep(delay)
        except Exception as error:
            self.lost = self.lost or error  # what follows in the stream cannot be written either
            self._chunks.clear()
        finally:
            self._streaming = None


class WaitingCall:
    """A call of a handler that waits, with its wait once there is one."""

    __slots__ = ("wait",)

    def __init__(self) -> None:
        self.wait: WaitRow | None = None


def _nothing_to_give_up() -> None:
    """A run has no wait."""


_encode_bytes = msgspec.json.Encoder().encode


def _encode(value: Any) -> str:
    return _encode_bytes(value).decode()
