"""HandlerSupport: gives the handlers of tasks what they use of their worker. A part of WorkerServices.

A handler runs on the worker's loop, or in a thread; what it calls runs on the loop, and gives a `Reply` that either can
wait for.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply, answer_all
from hark.engine.worker.stream_pace import StreamPace
from hark.kernel.requests import Deliver
from hark.model.errors import NotOpen, TaskLost
from hark.model.lingering import Lingering
from hark.model.values import Delivery
from hark.programs.functions.branches import Suspended

if TYPE_CHECKING:
    from hark.programs.jobs.job_services import RunningHandler

T = TypeVar("T")


class HandlerSupport:
    """The handlers that run in this process, and their way to its loop. Implements a part of TaskServices."""

    def __init__(self, clerk: Clerk) -> None:
        self.linger = 60.0
        self.max_signal_wait = 3600.0
        self.running: set[RunningHandler] = set()
        self.lingering: dict[str, Lingering] = {}
        self.is_full: Callable[[str], bool] = _never_full
        self.stopping = False
        self.stream_delay = StreamPace(clerk.queue).delay
        self._clerk = clerk
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun: set[asyncio.Task[None]] = set()
        self._done: Reply[None] = Reply()
        answer_all([(self._done, None)])

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that a worker starts on this loop."""
        self._loop = loop
        self.stopping = False

    def park_waiting(self) -> None:
        """Park the tasks whose handlers wait, because the worker stops: others need not wait for the lease."""
        self.stopping = True
        for handler in list(self.running):
            handler.suspend_if_waiting()

    def begin_linger(self, handler: Lingering) -> None:
        """Note that a handler begins to linger: it leaves as soon as work waits for its slot."""
        self.lingering[handler.id] = handler  # before the question: a turn that fills the queue looks here after it
        if handler.concurrency_key is not None or self.is_full(handler.queue):
            self._clerk.slot_demand.ask()

    def end_linger(self, handler: Lingering, *, leaves: bool, was_asked: bool) -> None:
        """Note that a handler goes on, or has ended. `leaves`: its slot comes free with the park of its task.
        `was_asked`: if it does not leave, another one may have to, in its place."""
        if self.lingering.get(handler.id) is handler:
            del self.lingering[handler.id]
        if not leaves:
            handler.is_over = True
            if was_asked:
                self._clerk.slot_demand.ask()

    def begin(self, work: Coroutine[Any, Any, T], *, given_up: Callable[[], None] | None = None) -> Reply[T]:
        reply: Reply[T] = Reply() if given_up is None else _WaitReply(given_up)
        loop = self._loop
        if loop is None or loop.is_closed():
            work.close()
            raise NotOpen("The worker of this task has stopped. End the handler; the task runs again elsewhere.")
        if _get_running_loop() is loop:
            self._start(work, reply)
        else:
            loop.call_soon_threadsafe(self._start, work, reply)
        return reply

    def _start(self, work: Coroutine[Any, Any, T], reply: Reply[T]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(_settle(work, reply))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        if isinstance(reply, _WaitReply):
            reply.work = task

    def done(self) -> Reply[None]:
        return self._done

    def signal(self, target: str, name: str, payload: str, dedup_key: str | None) -> Reply[Delivery]:
        reply: Reply[Delivery] = Reply()
        self._clerk.submit(Deliver(target=target, name=name, payload=payload, dedup_key=dedup_key), reply)
        return reply


def _never_full(queue: str) -> bool:
    return False


class _WaitReply(Reply[T]):
    """The reply of a wait. If the asyncio task that awaits it is cancelled, the wait ends: nothing uses its answer,
    even if the answer is there already and only that asyncio task does not know."""

    __slots__ = ("_given_up", "_is_used", "work")

    def __init__(self, given_up: Callable[[], None]) -> None:
        super().__init__()
        self.work: asyncio.Task[None] | None = None
        self._given_up = given_up
        self._is_used = False

    def __await__(self) -> Generator[Any, None, T]:
        try:
            value = yield from super().__await__()
        except asyncio.CancelledError:
            if self.work is not None:
                self.work.cancel()
            if not self._is_used:
                self._value, self._error = None, asyncio.CancelledError()
                self._given_up()
            raise
        self._is_used = True
        return value


async def _settle(work: Coroutine[Any, Any, T], reply: Reply[T]) -> None:
    value: Any
    try:
        value = await work
    except BaseException as error:
        value = error
    answer_all([(reply, value)])
    if isinstance(value, Suspended | TaskLost | asyncio.CancelledError):
        reply.expect_nothing()  # the handler that called it need not wait for it: it has ended
