"""Branches: the coroutines of a durable function, driven without an event loop.

A function awaits promises and nothing else. A branch takes its coroutine from one promise to the next, so
the same promises, resolved in the same order, always produce the same execution: that is what makes a
replay possible. `gather` and `first` are promises over branches. The journal is in function_journal.py, the order
of an activation in function_session.py.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any, Generic, TypeVar

from hark.model.errors import InvalidOutcome
from hark.model.exits import comes_from_signal, exit_in

T = TypeVar("T")


class Suspended(BaseException):
    """Unwinds a function that is parked or has diverged. Not an Exception: `except Exception` must not catch it."""


class Promise(Generic[T]):
    """A value that is known later. A branch awaits it.

    The initial values are on the class, because a replay creates thousands of promises.
    """

    done = False
    withdrawn = False
    awaited = False  # the code has awaited it, or a gather or first that it is a part of
    value: Any = None
    error: BaseException | None = None
    callbacks: Sequence[Callable[[], None]] = ()

    def __await__(self) -> Generator[Any, None, T]:
        if not self.awaited:
            self.mark_awaited()
        if not self.done:
            yield self
        return self.value_or_raise()

    def mark_awaited(self) -> None:
        """Note that the code awaits it. A promise that is never awaited is reported when the function returns."""
        self.awaited = True

    def withdrawn_error(self) -> BaseException:
        """The error that awaiting this promise raises once it is withdrawn."""
        return InvalidOutcome(
            "This operation was withdrawn: ctx.first was decided by another one, or another one of ctx.gather failed. "
            "Start the operation again if you still need its result."
        )

    def value_or_raise(self) -> T:
        """The value; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[no-any-return]

    def resolve(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the value or the error, then run the callbacks in the order they were added."""
        self.done = True
        self.value = value
        if error is not None:
            self.error = error
        if self.callbacks:
            callbacks, self.callbacks = self.callbacks, ()
            for callback in callbacks:
                callback()

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Run this when the promise is resolved."""
        self.callbacks = [*self.callbacks, callback]

    def withdraw(self) -> None:
        """Give it up. A branch that still awaits it gets an error, so that it does not wait forever."""
        if not self.done:
            self.withdrawn = True
            self.resolve(error=self.withdrawn_error())


class ReadyQueue(deque["Branch"]):
    """The branches that can continue, in order."""

    closing = False  # a coroutine is being closed: what its `finally` asks for is not started
    calls_while_closing = 0

    def close_code(self, close: Callable[[], Any]) -> None:
        """Close a coroutine. Its `finally` blocks run, but every operation they ask for raises Suspended."""
        before, self.closing, self.calls_while_closing = self.closing, True, 0
        try:
            close()
        except BaseException as error:
            # It refused to end, or raised while it was closed: its result is not used any more. An exit is no
            # exception to that: this may be a callback of the worker's loop, which it would end.
            if (exit := exit_in(error)) is not None and comes_from_signal(exit):
                raise
        finally:
            self.closing = before


class Branch(Promise[Any]):
    """A coroutine that is driven from promise to promise; resolved when it returns or raises."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], ready: ReadyQueue) -> None:
        self._coroutine = coroutine
        # Its own from the first line to the last, as in a task: the parts between two commits run in different tasks.
        self._context = copy_context()
        self._ready = ready
        self._waits_for: Promise[Any] | None = None
        ready.append(self)

    @property
    def label(self) -> str:
        """The coroutine in messages."""
        coroutine: Any = self._coroutine
        return f"{coroutine.__qualname__}() of {coroutine.cr_code.co_filename}:{coroutine.cr_code.co_firstlineno}"

    @property
    def frame(self) -> FrameType | None:
        """The place in the code where it is, or None if it has ended."""
        coroutine: Any = self._coroutine
        return coroutine.cr_frame  # type: ignore[no-any-return]

    def step(self) -> None:
        """Run the code up to the next unresolved promise, or to its end."""
        if self.done:
            return
        self._waits_for = None
        try:
            awaited = self._context.run(self._coroutine.send, None)
            while not isinstance(awaited, Promise):
                awaited = self._context.run(self._coroutine.throw, _foreign_awaitable(awaited))
        except StopIteration as end:
            self.resolve(end.value)
        except Exception as error:
            self.resolve(error=error)
        else:
            self._waits_for = awaited
            awaited.add_callback(self._wake)

    def _wake(self) -> None:
        self._ready.append(self)

    def withdraw(self) -> None:
        if self.done:
            return
        super().withdraw()
        if self._waits_for is not None:
            self._waits_for.withdraw()
        self.close()

    def close(self) -> None:
        self._waits_for = None
        self._ready.close_code(lambda: self._context.run(self._coroutine.close))


class Branches:
    """All branches of one function: the function itself, and the coroutines given to `gather` and `first`."""

    __slots__ = ("_by_coroutine", "parallel", "ready", "root")

    def __init__(self) -> None:
        self.ready = ReadyQueue()
        self.root: Branch | None = None
        self.parallel = False  # there is, or was, more than one
        self._by_coroutine: dict[Coroutine[Any, Any, Any], Branch] = {}

    def add(self, coroutine: Coroutine[Any, Any, Any]) -> Branch:
        """The branch of a coroutine. The same coroutine twice is one branch: it can be driven only once."""
        branch = self._by_coroutine.get(coroutine)
        if branch is None:
            branch = self._by_coroutine[coroutine] = Branch(coroutine, self.ready)
            if self.root is None:
                self.root = branch
            else:
                self.parallel = True
        return branch

    def unfinished(self) -> list[Branch]:
        """The branches that have not ended, without the function itself."""
        return [branch for branch in self._by_coroutine.values() if not branch.done and branch is not self.root]

    def close(self) -> None:
        for branch in self._by_coroutine.values():
            branch.close()


class _Whole(Promise[Any]):
    """A promise over several parts."""

    def __init__(self, parts: Sequence[Promise[Any]]) -> None:
        self._parts = list(parts)
        for part in self._parts:
            if part.done:
                self._part_done(part)
            else:
                part.add_callback(partial(self._part_done, part))

    def _part_done(self, part: Promise[Any]) -> None:
        raise NotImplementedError

    def mark_awaited(self) -> None:
        self.awaited = True
        for part in self._parts:
            part.mark_awaited()

    def withdraw(self) -> None:
        super().withdraw()
        self._withdraw_unresolved()

    def _withdraw_unresolved(self) -> None:
        """Withdraw the other parts of a promise that is resolved: their callbacks no longer change it."""
        for part in self._parts:
            if not part.done:
                part.withdraw()


class Gather(_Whole):
    """A list of all parts, in order. The first part that fails fails it, and the others are withdrawn; unless
    exceptions are results too."""

    def __init__(self, parts: Sequence[Promise[Any]], return_exceptions: bool = False) -> None:
        self._return_exceptions = return_exceptions
        self._left = len(parts)
        super().__init__(parts)
        if not parts:
            self.resolve([])

    def _part_done(self, part: Promise[Any]) -> None:
        self._left -= 1
        if self.done:
            return
        if part.error is not None and not self._return_exceptions:
            self.resolve(error=part.error)
            self._withdraw_unresolved()
        elif self._left == 0:
            self.resolve([part.value if part.error is None else part.error for part in self._parts])


class First(_Whole):
    """The first part that is resolved, as (index, value); the others are withdrawn."""

    def _part_done(self, part: Promise[Any]) -> None:
        if self.done:
            return
        if part.error is not None:
            self.resolve(error=part.error)
        else:
            self.resolve((next(n for n, one in enumerate(self._parts) if one is part), part.value))
        self._withdraw_unresolved()


def as_promise(awaitable: Any, branch: Callable[[Coroutine[Any, Any, Any]], Promise[Any]]) -> Promise[Any]:
    """An argument of `gather` or `first` as a promise; `branch` makes one of a coroutine."""
    if isinstance(awaitable, Promise):
        return awaitable
    promise = getattr(awaitable, "__hark_promise__", None)
    if isinstance(promise, Promise):
        return promise
    if inspect.iscoroutine(awaitable):
        return branch(awaitable)
    raise InvalidOutcome(
        f"{awaitable!r} cannot be awaited here. Pass what ctx.… returns, or a coroutine that awaits it."
    )


def _foreign_awaitable(awaited: Any) -> InvalidOutcome:
    what = type(awaited).__name__ if awaited is not None else "a bare yield"
    return InvalidOutcome(
        f"A workflow awaited {what}, which does not come from its ctx: a replay could not repeat it. "
        "Move that code into a function and `await ctx.run(that_function)`. To wait, use ctx.sleep; "
        "to run several operations at the same time, use ctx.gather or ctx.first."
    )
