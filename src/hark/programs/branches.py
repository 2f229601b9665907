"""Branches: a function's code, driven by hand.

A function is a coroutine that awaits promises and nothing else. Nobody's event loop drives it: a branch
takes it from one promise to the next, so the same promises, kept in the same order, lead it down the same
road. `gather` and `first` are promises over branches. Knows no journal: see replay.py.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from hark.model.errors import InvalidOutcome


class Suspended(BaseException):
    """The function has no business any more: it is parked, or has left its road. No `except Exception` holds it."""


class Promise:
    """Something a branch can await. Its beginning is on the class: a replay makes thousands."""

    done = False
    withdrawn = False
    value: Any = None
    error: BaseException | None = None
    watchers: Sequence[Callable[[], None]] = ()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done:
            yield self
        return self.outcome()

    def gone(self) -> BaseException:
        """What it means to await what was withdrawn."""
        return InvalidOutcome(
            "This was withdrawn: another of ctx.first came before it, or another of ctx.gather failed. Ask anew."
        )

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value

    def keep(self, value: Any = None, error: BaseException | None = None) -> None:
        """It is known now. Who watches hears of it, in the order they began to."""
        self.done = True
        self.value = value
        if error is not None:
            self.error = error
        if self.watchers:
            watchers, self.watchers = self.watchers, ()
            for watcher in watchers:
                watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        self.watchers = [*self.watchers, watcher]

    def withdraw(self) -> None:
        """It will not be known any more. Who awaits it elsewhere hears that, and does not wait for ever."""
        if not self.done:
            self.withdrawn = True
            self.keep(error=self.gone())


class Ready(deque["Branch"]):
    """Those who can go on, in order."""

    leaving = False  # a branch is being let go of: what its `finally` asks for, nobody waits for
    pleas = 0  # how often it asked all the same

    def leave(self, close: Callable[[], Any]) -> None:
        """Let go of code. Its `finally` runs, and finds that it can ask for nothing any more."""
        before, self.leaving, self.pleas = self.leaving, True, 0
        try:
            close()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            return  # it wanted to go on, or raised while it was being left: there is nobody to hear it
        finally:
            self.leaving = before


class Branch(Promise):
    """A coroutine on its way from promise to promise; kept when it ends."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], ready: Ready) -> None:
        self._coroutine = coroutine
        self._ready = ready
        self._waits_for: Promise | None = None
        ready.append(self)

    def step(self) -> None:
        """Go on to the next promise that is not kept yet, or to the end."""
        if self.done:
            return
        self._waits_for = None
        try:
            awaited = self._coroutine.send(None)
            while not isinstance(awaited, Promise):
                awaited = self._coroutine.throw(_foreign(awaited))
        except StopIteration as end:
            self.keep(end.value)
        except Exception as error:
            self.keep(error=error)
        else:
            self._waits_for = awaited
            awaited.watch(self._wake)

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
        self._ready.leave(self._coroutine.close)


class Gather(Promise):
    """All of them, in order. The first that fails fails it, and the others are withdrawn."""

    def __init__(self, parts: Sequence[Promise]) -> None:
        self._parts = list(parts)
        self._left = len(self._parts)
        for part in self._parts:
            _watch(part, self._heard)
        if not self._parts:
            self.keep([])

    def _heard(self, part: Promise) -> None:
        self._left -= 1
        if self.done:
            return
        if part.error is not None:
            self.keep(error=part.error)
            _withdraw_rest(self._parts)
        elif self._left == 0:
            self.keep([part.value for part in self._parts])

    def withdraw(self) -> None:
        super().withdraw()
        _withdraw_rest(self._parts)


class First(Promise):
    """The first of them, as (index, value); the others are withdrawn."""

    def __init__(self, parts: Sequence[Promise]) -> None:
        self._parts = list(parts)
        for part in self._parts:
            _watch(part, self._heard)

    def _heard(self, part: Promise) -> None:
        if self.done:
            return
        if part.error is not None:
            self.keep(error=part.error)
        else:
            self.keep((next(n for n, one in enumerate(self._parts) if one is part), part.value))
        _withdraw_rest(self._parts)

    def withdraw(self) -> None:
        super().withdraw()
        _withdraw_rest(self._parts)


def part_of(awaitable: Any, branch: Callable[[Coroutine[Any, Any, Any]], Promise]) -> Promise:
    """What is given to gather or first: a promise, or a coroutine to be driven beside the others."""
    if isinstance(awaitable, Promise):
        return awaitable
    promise = getattr(awaitable, "__hark_promise__", None)
    if isinstance(promise, Promise):
        return promise
    if inspect.iscoroutine(awaitable):
        return branch(awaitable)
    raise InvalidOutcome(
        f"{awaitable!r} cannot be awaited here. Give what ctx.… returns, or a coroutine that awaits it."
    )


def _watch(part: Promise, heard: Callable[[Promise], None]) -> None:
    if part.done:
        heard(part)
    else:
        part.watch(lambda: heard(part))


def _withdraw_rest(parts: Sequence[Promise]) -> None:
    """Those that are not known yet: whoever listens to them from here has its answer already."""
    for part in parts:
        if not part.done:
            part.withdraw()


def _foreign(awaited: Any) -> InvalidOutcome:
    what = type(awaited).__name__ if awaited is not None else "a bare yield"
    return InvalidOutcome(
        f"A workflow awaited something of its own ({what}), which a replay could not repeat. "
        "Do it in a function of its own and `await ctx.run(that_function)`; for waiting there is ctx.sleep, "
        "for several at once ctx.gather and ctx.first."
    )
