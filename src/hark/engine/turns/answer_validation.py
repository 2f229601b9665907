"""AnswerValidation: validates large and wrong answers in a thread, beside the turns.

The turn that finds such an answer hands it over with the schema of its awakeable. Afterwards the request is queued
again, and a second turn settles the awakeable, or refuses the answer if another one was first.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from hark.engine.turns.reply import answer_all
from hark.engine.turns.request_queue import Queued, RequestQueue
from hark.engine.turns.thread_loop import ThreadLoop
from hark.kernel import settle
from hark.kernel.requests import SettleAwakeable


class AnswerValidation:
    """Used on the clerk's loop."""

    def __init__(self, loop: ThreadLoop, queue: RequestQueue) -> None:
        self._loop = loop
        self._queue = queue
        # One thread: the validator holds the interpreter's lock, so more of them would only slow down everything else.
        self._thread: ThreadPoolExecutor | None = None

    def start(self, items: list[Queued]) -> None:
        """Validate the answers of these requests, and queue each of them again."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="hark-answers")
        for item in items:
            self._loop.start(self._validate(item, self._thread))

    async def _validate(self, item: Queued, thread: ThreadPoolExecutor) -> None:
        assert isinstance(item.request, SettleAwakeable)
        try:
            await asyncio.get_running_loop().run_in_executor(thread, settle.validate, item.request)
        except BaseException as error:  # a panic of the validator is not an Exception, and the caller waits
            if item.reply is not None:
                answer_all([(item.reply, error)])
            raise
        self._queue.put_back([item])
        self._loop.wake()

    def close(self) -> None:
        """End the thread. Nothing is being validated any more."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
