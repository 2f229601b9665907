"""A reply is settled by the clerk's thread and converted by the thread that reads it, once."""

import asyncio
import gc
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hark.engine.turns.reply import Reply, answer_all


def settle_elsewhere(reply: Reply[Any], value: Any) -> None:
    """Settle it as the clerk does: in another thread than the readers'."""
    thread = threading.Thread(target=answer_all, args=([(reply, value)],))
    thread.start()
    thread.join()


class Conversion:
    """Doubles the value and records the threads it ran in."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def __call__(self, value: int) -> int:
        self.threads.append(threading.get_ident())
        return 2 * value


def fail(value: Any) -> Any:
    raise LookupError(f"no {value}")


def test_sync_code_converts_in_its_own_thread_when_it_reads() -> None:
    convert = Conversion()
    reply = Reply(convert)
    settle_elsewhere(reply, 21)
    assert reply.done()
    assert convert.threads == []
    assert reply.result() == reply.result() == 42
    assert convert.threads == [threading.get_ident()]


async def test_async_code_converts_in_the_thread_of_its_loop() -> None:
    convert = Conversion()
    reply = Reply(convert)
    threading.Timer(0.01, answer_all, ([(reply, 21)],)).start()
    assert await reply == 42
    assert await reply == 42
    assert convert.threads == [threading.get_ident()]


def test_threads_that_read_at_the_same_time_convert_once() -> None:
    reading = threading.Semaphore(0)

    def convert(value: int) -> object:
        for _ in range(8):  # not done before all threads read
            reading.acquire(timeout=1)
        return object()

    reply = Reply(convert)
    settle_elsewhere(reply, 21)

    def read() -> object:
        reading.release()
        return reply.result()

    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(read) for _ in range(8)]
        assert len({id(one.result(60)) for one in reads}) == 1


def test_an_error_of_the_conversion_is_raised_at_every_read() -> None:
    reply = Reply(fail)
    settle_elsewhere(reply, "answer")
    for _ in range(2):
        with pytest.raises(LookupError, match="no answer"):
            reply.result()


def test_an_error_is_raised_and_never_converted() -> None:
    convert = Conversion()
    reply = Reply(convert)
    settle_elsewhere(reply, ValueError("refused"))
    with pytest.raises(ValueError, match="refused"):
        reply.result()
    assert convert.threads == []


@pytest.mark.parametrize("convert", [None, fail], ids=["of the call", "of the conversion"])
def test_an_error_that_is_never_read_is_logged(convert: Any, caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()  # what earlier tests left, which may log too
    reply: Reply[Any] = Reply(convert)
    answer_all([(reply, LookupError("no answer") if convert is None else "answer")])
    with caplog.at_level(logging.ERROR, logger="hark"):
        del reply
        gc.collect()
    [record] = caplog.records
    assert record.getMessage() == (
        "The result of this call was never read, and it failed: LookupError('no answer')"
    )  # fmt: skip


def test_an_error_that_was_read_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()
    reply: Reply[Any] = Reply(fail)
    answer_all([(reply, "answer")])
    with caplog.at_level(logging.ERROR, logger="hark"):
        with pytest.raises(LookupError):
            reply.result()
        del reply
        gc.collect()
    assert caplog.records == []


def test_replies_without_an_error_or_without_a_result_are_dropped_silently(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()
    replies: list[Reply[Any]] = [Reply(), Reply(Conversion()), Reply(fail)]
    answer_all([(reply, 21) for reply in replies[:2]])  # the third has no result yet
    with caplog.at_level(logging.ERROR, logger="hark"):
        replies.clear()
        gc.collect()
    assert caplog.records == []


async def test_a_task_cancelled_while_it_waits_no_longer_expects_the_result(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()
    reply: Reply[Any] = Reply(fail)

    async def read(reply: Reply[Any]) -> Any:
        return await reply

    task = asyncio.create_task(read(reply))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    answer_all([(reply, "answer")])
    with caplog.at_level(logging.ERROR, logger="hark"):
        del reply, task
        gc.collect()
    assert caplog.records == []
