"""Recognise exits in the code of a user: `sys.exit`, or a KeyboardInterrupt that no Ctrl-C raised (M5).

An exit is a crash of its activation alone. asyncio would end the event loop with it, and cancel whatever else runs
there; so it never leaves an activation, or an asyncio task that one has made. The exit that a signal asks for does: it
ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
from types import CodeType
from typing import Any


class TaskExited(BaseException):
    """An asyncio task or a thread that ran code of an activation has exited; the exit is the cause."""


def exit_in(error: BaseException) -> BaseException | None:
    """Return the exit that this error is, or that a group has in it; None if it is another error."""
    match error:
        case SystemExit() | KeyboardInterrupt():
            return error
        case TaskExited():
            return error.__cause__ or error
        case BaseExceptionGroup():
            return next((found for one in error.exceptions if (found := exit_in(one)) is not None), None)
        case _:
            return None


def end_if_forked(process: int, error: BaseException) -> None:
    """End this process if the code of an activation has forked it from the worker's: it has a copy of the event loop,
    and would read and close what that of the worker waits for.

    Args:
        process: The id of the worker's process.
        error: What ends the activation in this process.
    """
    if os.getpid() != process:
        found = exit_in(error)
        code = found.code if isinstance(found, SystemExit) else 1
        os._exit(0 if code is None else code if isinstance(code, int) else 1)


def comes_from_signal(error: BaseException) -> bool:
    """Return True if the handler of a signal raised this exit: a Ctrl-C, or a SIGTERM whose handler calls `sys.exit`.

    Python runs these handlers between two lines of the main thread, whichever code that is in. The handler of SIGINT
    that Python itself installs leaves no frame; asyncio replaces it while `asyncio.run` runs.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code in handlers:
            return True
        frame = frame.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    while hasattr(handler, "func"):  # a functools.partial
        handler = handler.func
    code = getattr(handler, "__code__", None) or getattr(getattr(handler, "__call__", None), "__code__", None)  # noqa: B004
    return code if isinstance(code, CodeType) else None
