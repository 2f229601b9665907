"""A running handler without a store: notes are answered by a script."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from msgspec import Raw

from hark.model.activation import Arrived, InboxRow, WaitRow
from hark.model.errors import SignalTimeout, StoreUnavailable, TaskLost
from hark.model.lingering import Lingering
from hark.model.notes import NoteEvents, NoteInbox, NoteState, NoteTimeout, NoteWait
from hark.programs.functions.branches import Suspended
from hark.programs.jobs.job_services import TaskServices
from hark.programs.jobs.job_spec import RetrySpec
from hark.programs.jobs.tasks.task_program import TaskProgram
from hark.programs.jobs.tasks.task_session import MAX_UNWRITTEN, TaskSession
from hark.programs.jobs.tasks.task_state import load_task_state
from tests.programs.jobs.test_task_outcomes import activation_of

MINUTE = 60_000_000


class Listener:
    def __init__(self) -> None:
        self.seen = 0
        self.take: Callable[[Arrived], bool] = lambda arrived: False
        self.notified = asyncio.Event()

    async def wait(self) -> None:
        await self.notified.wait()

    def notify(self) -> None:
        self.notified.set()

    def reset(self, seen: int) -> None:
        self.notified.clear()

    def close(self) -> None: ...


class Script:
    """The services of a worker: `answers` are the results of notes, by their type; an error is raised."""

    def __init__(self, linger: float = 60.0) -> None:
        self.linger, self.max_signal_wait, self.stopping, self.max_payload = linger, 3600.0, False, 1 << 20
        self.running: set[Any] = set()
        self.answers: dict[type, list[Any]] = {}
        self.notes: list[Any] = []
        self.listener = Listener()
        self.now = 0

    def micros(self) -> int:
        return self.now

    def listen(self, id: str, take: Callable[[Arrived], bool]) -> Listener:
        self.listener.take = take
        return self.listener

    def note(self, note: Any) -> asyncio.Future[Any]:
        self.notes.append(note)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        left = self.answers.get(type(note), [])
        answer = left.pop(0) if left else None
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer(note) if callable(answer) else answer)
        return future

    def begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.ensure_future(work)

    def begin_linger(self, handler: Lingering) -> None: ...

    def end_linger(self, handler: Lingering, *, leaves: bool, was_asked: bool) -> None: ...

    def stream_delay(self, chunks: int) -> float:
        return 0.0

    def done(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future


@asynccontextmanager
async def session_on(script: Script, *stored: WaitRow, **task: Any) -> AsyncIterator[TaskSession]:
    activation = activation_of(**task)
    activation.claim.waits.extend(stored)
    session = TaskSession(activation, cast("TaskServices", script))
    try:
        yield session
    finally:
        session.close()


def answer_to(seq: int, payload: str, kind: str = "signal") -> Callable[[Any], InboxRow]:
    return lambda note: InboxRow(
        seq, kind, "s", note.arm.id if isinstance(note, NoteWait) else note.wait_id, payload, 1
    )


async def test_a_database_that_cannot_be_reached_for_a_while_does_not_fail_a_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hark.programs.jobs.tasks.task_session._TRY_AGAIN", 0.001)
    script = Script()
    async with session_on(script) as session:
        waiting = asyncio.ensure_future(session.wait_for_signal("s", MINUTE))
        while not (armed := [note.arm.id for note in script.notes if isinstance(note, NoteWait)]):
            await asyncio.sleep(0)
        row = InboxRow(4, "signal", "s", armed[0], '"here"', 1)
        script.answers[NoteInbox] = [StoreUnavailable("down"), StoreUnavailable("down"), [row]]
        script.listener.notified.set()
        assert await asyncio.wait_for(waiting, 60) == "here"


async def test_a_deadline_that_has_not_come_in_the_database_is_asked_about_again() -> None:
    script = Script()
    async with session_on(script) as session:
        script.answers[NoteTimeout] = [None, StoreUnavailable("down"), answer_to(5, "null", "timer")]
        with pytest.raises(SignalTimeout, match=r'signal "s" timed out after 0\.01 s'):
            await asyncio.wait_for(session.wait_for_signal("s", 10_000), 60)
        assert not any(script.answers.values())


async def test_a_wait_that_is_armed_late_sees_what_came_before_its_listener_was_read() -> None:
    script = Script(linger=0)
    script.answers[NoteWait] = [answer_to(3, "1")]
    async with session_on(script) as session:
        assert await session.wait_for_signal("s", MINUTE) == 1
        with pytest.raises(Suspended):
            await session.wait_for_signal("s", MINUTE)
        assert session.is_suspended
        assert session.waits.handed() == (3,)
        with pytest.raises(Suspended):
            await session.checkpoint("1")
        with pytest.raises(Suspended):
            session.stream("1")


async def test_a_checkpoint_consumes_what_was_received_and_names_the_run() -> None:
    script = Script()
    script.answers[NoteWait] = [answer_to(3, "1")]
    async with session_on(script) as session:
        await session.wait_for_signal("s", MINUTE)
        await session.checkpoint('{"n":1}')
        [note] = [note for note in script.notes if isinstance(note, NoteState)]
        assert (note.consume, len(note.disarm), note.run_id) == ((3,), 1, "job")
        assert session.claim.waits == []
        assert await session.load_checkpoint() == {"n": 1}


async def test_nothing_is_stored_after_the_task_was_lost() -> None:
    script = Script()
    async with session_on(script) as session:
        script.answers[NoteState] = [TaskLost("gone")]
        with pytest.raises(TaskLost, match="gone"):
            await session.checkpoint("1")
        taken = len(script.notes)
        for work in (session.checkpoint("2"), session.heartbeat(None), session.wait_for_signal("s", MINUTE)):
            with pytest.raises(TaskLost):
                await work
        with pytest.raises(TaskLost):
            session.stream("1")
        assert len(script.notes) == taken


async def test_chunks_share_notes_and_a_handler_waits_when_many_are_not_written() -> None:
    script = Script()
    async with session_on(script) as session:
        pending = [session.stream(str(n)) for n in range(MAX_UNWRITTEN)]
        assert [cast("asyncio.Future[None]", one).done() for one in pending[-2:]] == [True, False]
        await asyncio.wait_for(cast("Any", pending[-1]), 60)
        await session.finish()
        sizes = [len(note.events) for note in script.notes if isinstance(note, NoteEvents)]
        assert sum(sizes) == MAX_UNWRITTEN
        assert len(sizes) < 20
        with pytest.raises(TaskLost):
            session.stream("after the end")


async def armed_wait(script: Script) -> str:
    """The id of the wait that the handler has armed last, once it waits."""
    for _ in range(5):
        await asyncio.sleep(0)
    return [note.arm.id for note in script.notes if isinstance(note, NoteWait)][-1]


def arrived(seq: int, wait_id: str, payload: str, epoch: int = 3) -> Arrived:
    return Arrived(epoch, [InboxRow(seq, "signal", "s", wait_id, payload, 1)])


async def test_a_signal_that_a_turn_of_this_process_delivered_is_received_without_a_note() -> None:
    script = Script()
    async with session_on(script) as session:
        waiting = asyncio.ensure_future(session.wait_for_signal("s", MINUTE))
        wait = await armed_wait(script)
        assert script.listener.take(arrived(4, wait, '"here"'))
        assert await waiting == "here"
        assert [type(note) for note in script.notes] == [NoteWait]
        await session.checkpoint("1")
        assert script.notes[-1].consume == (4,)


async def test_a_signal_for_another_activation_of_the_task_is_not_received() -> None:
    """The lease is lost, and this handler has not noticed: the activation of the other worker has a higher epoch."""
    script = Script()
    async with session_on(script) as session:
        waiting = asyncio.ensure_future(session.wait_for_signal("s", MINUTE))
        wait = await armed_wait(script)
        assert not script.listener.take(arrived(4, wait, "1", epoch=5))
        script.answers[NoteInbox] = [TaskLost("another worker has it")]
        script.listener.notified.set()  # what a listener does with rows that were refused
        with pytest.raises(TaskLost, match="another worker"):
            await waiting
        assert session.waits.received() == ()


@pytest.mark.parametrize("suspended_before", [True, False])
async def test_a_signal_that_was_not_received_when_the_handler_is_suspended_is_left_to_the_park(
    suspended_before: bool,
) -> None:
    script = Script()
    async with session_on(script) as session:
        waiting = asyncio.ensure_future(session.wait_for_signal("s", MINUTE))
        wait = await armed_wait(script)
        if suspended_before:
            session.suspend()
            script.listener.take(arrived(4, wait, "1"))
        else:
            assert script.listener.take(arrived(4, wait, "1"))
            session.suspend()
        with pytest.raises(Suspended):
            await waiting
        assert (session.waits.received(), session.waits.handed()) == ((), ())


@pytest.mark.parametrize("asks_first", [(), ("another",)], ids=["alone", "beside another"])
async def test_a_signal_that_came_between_the_claim_and_the_call_is_received(asks_first: tuple[str, ...]) -> None:
    """The wait is stored, so a signal may come as soon as the task is claimed; nothing listened then."""
    script = Script()
    script.answers[NoteInbox] = [[InboxRow(4, "signal", "s", "w0", '"here"', 1)]]
    stored = WaitRow("w0", "signal#0", "signal", "s", "job", MINUTE, None, None)
    async with session_on(script, stored) as session:
        others = [asyncio.ensure_future(session.wait_for_signal(name, MINUTE)) for name in asks_first]
        if others:
            await armed_wait(script)
        assert await asyncio.wait_for(session.wait_for_signal("s", MINUTE), 10) == "here"
        for other in others:
            other.cancel()


async def test_a_wait_that_continues_nothing_does_not_read_the_inbox() -> None:
    script = Script()
    answered = WaitRow("w0", "signal#0", "signal", "s", "job", MINUTE, None, 1)
    async with session_on(script, answered) as session:
        waiting = asyncio.ensure_future(session.wait_for_signal("another", MINUTE))
        await armed_wait(script)
        assert [type(note) for note in script.notes] == [NoteWait]
        waiting.cancel()


async def test_recover_after_a_checkpoint_keeps_it_and_consumes_what_came_after_it() -> None:
    """The store has refused the outcome: the attempt fails as any other does."""
    script = Script()
    script.answers[NoteWait] = [answer_to(3, "1"), answer_to(4, "2")]
    async with session_on(script, retry=RetrySpec(limit=2, delay=0)) as session:
        claim = session.claim
        claim.session = session
        await session.wait_for_signal("s", MINUTE)
        await session.checkpoint('"kept"')
        await session.wait_for_signal("s", MINUTE)
        services = cast("TaskServices", SimpleNamespace(job_graph=AsyncMock(return_value=job_graph_of(session))))
        decision = await TaskProgram("h", lambda task: None).recover(claim, services, ValueError("refused"))
    state = load_task_state(decision.state)
    assert (decision.label, state.attempt, state.period) == ("retry", 2, 2)
    assert bytes(cast("Raw", state.checkpoint)) == b'"kept"'
    assert decision.consume == (4,)
    with pytest.raises(TaskLost):
        await session.checkpoint("1")


def job_graph_of(session: TaskSession) -> Any:
    return SimpleNamespace(spec=session.activation.job)
