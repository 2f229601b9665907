"""Waiting: callers of this process that wait for the end of an instance, for a status, or for an open awakeable.

The commits of this process answer those that wait for an end without a read; the ends in other processes are found by
one read for all of them, at each hint and each poll. A status or an awakeable is found by a check that reads for all
callers: after each turn of this process that may have changed an instance, and at each hint and poll. It is a level,
not an edge: a status that an instance has for a moment only may be missed.

Replies are held weakly: a caller that stops waiting drops its reply, and nothing has to be removed here. Everything but
`ask` and `hint` runs on the clerk's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, assert_never
from weakref import ref

from msgspec import Struct

from hark.engine.turns.reply import Reply, answer_all
from hark.engine.turns.thread_loop import ThreadLoop
from hark.kernel.result import End
from hark.model.errors import Conflict, NotOpen, no_instance
from hark.model.log import get_logger
from hark.model.values import TERMINAL, Instance
from hark.store import reads
from hark.store.protocol import Store, StoreFault
from hark.store.statements import AwakeableRow
from hark.views import instance_views

_RETRY = 0.2  # seconds until a check that the database did not answer is repeated
_Read = Callable[[Callable[[Store], Awaitable[Any]], Reply[Any]], Awaitable[None]]
_log = get_logger()


class Ended(Struct, frozen=True):
    """The instance has ended. Answered with (id, status, result, error)."""


class StatusReached(Struct, frozen=True):
    """The instance has this status. Answered with the `Instance`."""

    status: str


class AwakeableOpen(Struct, frozen=True):
    """The instance has an open awakeable. Answered with the row of the oldest one."""


Condition = Ended | StatusReached | AwakeableOpen


class Waiter:
    """A reply, and what it waits for."""

    __slots__ = ("_reply", "condition")

    def __init__(self, reply: Reply[Any], condition: Condition) -> None:
        self._reply = ref(reply)
        self.condition = condition

    @property
    def reply(self) -> Reply[Any] | None:
        """The reply, or None when its caller has dropped it."""
        return self._reply()


_Waiting = dict[str, list[Waiter]]  # by the id of the instance


class Waiters:
    """Waiters by the id of their instance, each with a timeout of its own."""

    def __init__(self) -> None:
        self._by_id: _Waiting = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def add(self, id: str, reply: Reply[Any], condition: Condition) -> Waiter:
        """Wait, with no timeout yet."""
        waiter = Waiter(reply, condition)
        self._by_id.setdefault(id, []).append(waiter)
        return waiter

    def start_timeout(self, id: str, waiter: Waiter, seconds: float | None) -> None:
        """Answer the reply with a TimeoutError if it still waits after this many seconds; None: wait without a
        limit."""
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._time_out, id, waiter, seconds)

    def _time_out(self, id: str, waiter: Waiter, seconds: float) -> None:
        if self.remove(id, waiter) and (reply := waiter.reply) is not None:
            text = f"Instance {id} {_not_yet(waiter.condition)} within {seconds:g} s; its work continues."
            answer_all([(reply, TimeoutError(text))])

    def has(self, id: str, waiter: Waiter) -> bool:
        return waiter in self._by_id.get(id, ())

    def remove(self, id: str, waiter: Waiter) -> bool:
        """Stop waiting. Return False if this waiter had been removed before."""
        if not self.has(id, waiter):
            return False
        waiters = self._by_id[id]
        waiters.remove(waiter)
        if not waiters:
            del self._by_id[id]
        return True

    def pop(self, id: str) -> list[Reply[Any]]:
        """Stop waiting for this instance. Return the replies that waited."""
        return [reply for waiter in self._by_id.pop(id, ()) if (reply := waiter.reply) is not None]

    def clear(self) -> list[Reply[Any]]:
        """Stop all waiting. Return the replies that waited."""
        return [reply for id in list(self._by_id) for reply in self.pop(id)]

    def alive(self) -> _Waiting:
        """Return the waiters whose reply is still held by a caller; remove the others."""
        for id, waiters in list(self._by_id.items()):
            waiters[:] = [waiter for waiter in waiters if waiter.reply is not None]
            if not waiters:
                del self._by_id[id]
        return {id: list(waiters) for id, waiters in self._by_id.items()}


class WaitingCallers:
    """The callers of one process that wait."""

    def __init__(self, read: _Read, loop: ThreadLoop, check_again: Callable[[], None]) -> None:
        """`read` reads with retries, `loop` is the clerk's, `check_again` causes another check for other processes."""
        self._read = read
        self._loop = loop
        self._check_again = check_again
        self.asked: deque[tuple[str, Condition, float | None, Reply[Any]]] = deque()
        self._spawned = False
        self.for_ends = Waiters()
        self.for_levels = Waiters()  # for a status or an awakeable
        # While `_resolve` reads, its waiters are not added yet: what ends meanwhile is kept for them.
        self._resolving = 0
        self._ended: dict[str, End] = {}
        self._hinted = False
        self._checking = self._again = self._ends_too = False

    def ask(self, target: str, condition: Condition, seconds: float | None, reply: Reply[Any]) -> None:
        """Wait until an instance meets a condition. From any thread."""
        self.asked.append((target, condition, seconds, reply))
        if not self._spawned:
            try:
                self._spawned = True
                self._spawn()
            except BaseException:  # a Ctrl-C comes at any line, and another thread may rely on this spawn
                self._spawned = False
                with contextlib.suppress(NotOpen):
                    self._spawn()
                raise

    def _spawn(self) -> None:
        self._loop.spawn(self._resolve)

    def _take(self) -> list[tuple[str, Condition, float | None, Reply[Any]]]:
        self._spawned = False
        return [self.asked.popleft() for _ in range(len(self.asked))]

    async def _resolve(self) -> None:
        """Find the instances of the targets; answer for those that have ended, and wait for the others."""
        asked = self._take()
        if not asked:  # a Ctrl-C may have spawned this twice
            return
        targets = sorted({target for target, *_ in asked})
        found: Reply[Any] = Reply()
        self._resolving += 1
        await self._read(lambda store: store.read(reads.results, [(target,) for target in targets]), found)
        self._resolving -= 1
        try:
            ends = {target: (id, status, result, error) for target, id, status, result, error in await found}
        except Exception as error:
            answer_all([(reply, error) for *_, reply in asked])
            return
        answers: list[tuple[Reply[Any], Any]] = []
        levels: list[tuple[str, Waiter, float | None]] = []
        for target, condition, seconds, reply in asked:
            id, status, _, _ = end = ends[target]
            if id is None:
                answers.append((reply, no_instance(target)))
            elif condition != Ended():
                levels.append((id, self.for_levels.add(id, reply, condition), seconds))
            elif status in TERMINAL:
                answers.append((reply, end))
            elif id in self._ended:
                answers.append((reply, self._ended[id]))
            else:
                self.for_ends.start_timeout(id, self.for_ends.add(id, reply, condition), seconds)
        answer_all(answers)
        if not self._resolving:
            self._ended.clear()
        if self._hinted:  # another process may have ended one of them meanwhile
            self._hinted = False
            self._check_again()
        if levels:
            await self._check_first(levels)

    async def _check_first(self, added: list[tuple[str, Waiter, float | None]]) -> None:
        """Check waiters that were added before this reads: a change is seen by this check, or causes another one.

        A timeout begins after it: a condition that is met already is found with a timeout of 0, too.
        """
        waiting: _Waiting = {}
        for id, waiter, _ in added:
            waiting.setdefault(id, []).append(waiter)
        checked: Reply[dict[str, _Found]] = Reply()
        await self._read(lambda store: _read_levels(store, waiting), checked)
        try:
            self._answer(waiting, await checked)
        except Exception as error:
            failed = [waiter.reply for id, waiter, _ in added if self.for_levels.remove(id, waiter)]
            answer_all([(reply, error) for reply in failed if reply is not None])
        for id, waiter, seconds in added:
            if self.for_levels.has(id, waiter):
                self.for_levels.start_timeout(id, waiter, seconds)

    def after_turn(self, store: Store, ended: dict[str, End], *, keeps_statuses: bool) -> None:
        """Answer the callers after a turn of this process that ended these instances, and may have changed others."""
        if self._resolving:
            self._ended |= ended
        if self.for_ends:
            self._answer_ends(end for id, end in ended.items() if id in self.for_ends)
        if self.for_levels and not keeps_statuses:
            self._check_soon(store)

    def hint(self) -> None:
        """Check soon: another process did something. From any thread."""
        self._hinted = self._hinted or self._resolving > 0

    def check_for_others(self, store: Store) -> None:
        """Check for instances that other processes ended or changed."""
        if self.for_ends:
            self._ends_too = True
        if self.for_ends or self.for_levels:
            self._check_soon(store)

    def _check_soon(self, store: Store) -> None:
        """Check now, or once more when the running check has ended."""
        if self._checking:
            self._again = True
        else:
            self._checking = True
            self._loop.start(self._check(store))

    async def _check(self, store: Store) -> None:
        try:
            while True:
                ends_too, self._ends_too, self._again = self._ends_too, False, False
                if ends_too and (ids := list(self.for_ends.alive())):
                    self._answer_ends(await store.read(reads.outcomes, ids=ids))
                if waiting := self.for_levels.alive():
                    self._answer(waiting, await _read_levels(store, waiting))
                if not self._again:
                    return
        except StoreFault:
            asyncio.get_running_loop().call_later(_RETRY, self.check_for_others, store)
        except Exception:
            _log.exception("Checking what callers wait for failed. The next change or poll checks again.")
        finally:
            self._checking = False

    def _answer_ends(self, ends: Iterable[Any]) -> None:
        answers: list[tuple[Reply[Any], End]] = []
        for id, status, result, error in ends:
            answers.extend((reply, (id, status, result, error)) for reply in self.for_ends.pop(id))
        answer_all(answers)

    def _answer(self, waiting: _Waiting, found: dict[str, _Found]) -> None:
        answers: list[tuple[Reply[Any], Any]] = []
        for id, waiters in waiting.items():
            for waiter in waiters:
                answer = _answer(id, waiter.condition, found.get(id))
                # It may have timed out while the check read.
                if answer is not None and self.for_levels.remove(id, waiter) and (reply := waiter.reply) is not None:
                    answers.append((reply, answer))
        answer_all(answers)

    def close(self, error: Exception) -> None:
        replies = [*(reply for *_, reply in self._take()), *self.for_ends.clear(), *self.for_levels.clear()]
        answer_all([(reply, error) for reply in replies])


class _Found(Struct):
    """The result of a check of one instance."""

    status: str
    instance: Instance | None = None
    awakeable: AwakeableRow | None = None


async def _read_levels(store: Store, waiting: _Waiting) -> dict[str, _Found]:
    """Read the statuses of all instances with one statement; read the rest only for those that may have an answer."""
    found = {id: _Found(status) for id, status in await store.read(reads.statuses, ids=list(waiting))}
    # After the statuses: an instance that was finished by then has no open awakeable any more (invariant 11).
    asking = [id for id, waiters in waiting.items() if any(w.condition == AwakeableOpen() for w in waiters)]
    for row in await store.read(reads.open_awakeables, ids=asking) if asking else ():
        asker = found.get(row.instance_id)
        if asker is not None and asker.awakeable is None:
            asker.awakeable = row
    reached = [id for id, one in found.items() if any(w.condition == StatusReached(one.status) for w in waiting[id])]
    for id, instance in (await instance_views.instances(store, reached)).items() if reached else ():
        found[id].instance = instance
    return found


def _answer(id: str, condition: Condition, found: _Found | None) -> Any:
    """The answer to a waiter; None while it has to wait."""
    if found is None:
        return no_instance(id)
    match condition:
        case Ended():
            raise AssertionError("an end is answered by a commit, or by the read of the ends")
        case StatusReached(status):
            if found.status == status:
                # The instance was read after its status, which may have changed in between: then it waits on.
                return found.instance if found.instance is not None and found.instance.status == status else None
            never = f"cannot reach status {status!r} any more"
        case AwakeableOpen():
            if found.awakeable is not None:
                return found.awakeable
            never = "has no open awakeable, and cannot open one any more"
        case _ as other:
            assert_never(other)
    if found.status in TERMINAL:
        return Conflict(
            f"Instance {id} is {found.status}: it {never}. Read its history with `events`.", status=found.status
        )
    return None


def _not_yet(condition: Condition) -> str:
    match condition:
        case Ended():
            return "has not ended"
        case StatusReached(status):
            return f"did not reach status {status!r}"
        case AwakeableOpen():
            return "opened no awakeable"
        case _ as other:
            assert_never(other)
