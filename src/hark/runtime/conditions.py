"""Conditions: callers that wait until an instance has a status, or an open awakeable.

One check reads for all of them: the status of every instance that is waited for, and its oldest open awakeable. It
runs after each turn of this process that may have changed an instance, and at each hint or poll for what other
processes did. A condition is a level, not an edge: a status that an instance has for a moment only may be missed.

Waiting for the end of an instance, which needs no read, is in completions.py. Everything but `ask` runs on the
clerk's loop.
"""

from __future__ import annotations

import asyncio
from typing import Any, assert_never

from msgspec import Struct

from hark.model.errors import Conflict, no_instance
from hark.model.log import get_logger
from hark.model.values import TERMINAL, Instance
from hark.runtime import views
from hark.runtime.reply import Reply, answer_all
from hark.runtime.thread_loop import ThreadLoop
from hark.runtime.waiters import RETRY, Asked, Read, Waiter, Waiters
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store, StoreFault
from hark.store.statements import AwakeableRow


class StatusReached(Struct, frozen=True):
    """The instance has this status. Answered with the `Instance`."""

    status: str


class AwakeableOpen(Struct, frozen=True):
    """The instance has an open awakeable. Answered with the row of the oldest one."""


Condition = StatusReached | AwakeableOpen
_Waiting = dict[str, list[Waiter[Condition]]]
_log = get_logger()


class Conditions:
    """The callers of one process that wait for a condition."""

    def __init__(self, read: Read, loop: ThreadLoop) -> None:
        """`read` reads with retries, `loop` is the clerk's."""
        self._read = read
        self._loop = loop
        self.asked: Asked[tuple[str, Condition, float | None, Reply[Any]]] = Asked(lambda: loop.spawn(self._resolve))
        self.waiting: Waiters[Condition] = Waiters(_late)
        self._checking = False
        self._check_again = False

    def ask(self, target: str, condition: Condition, seconds: float | None, reply: Reply[Any]) -> None:
        """Wait until an instance meets a condition. From any thread."""
        self.asked.add((target, condition, seconds, reply))

    async def _resolve(self) -> None:
        """Find the instances of the targets, add their waiters and check them.

        A timeout begins after this first check: a condition that is met already is found with a timeout of 0, too.
        """
        asked = self.asked.take()
        if not asked:  # a Ctrl-C may have spawned this twice
            return
        targets = sorted({target for target, *_ in asked})
        found: Reply[Any] = Reply()
        await self._read(lambda store: store.read(sql.addresses, [(target,) for target in targets]), found)
        try:
            ids: dict[str, str | None] = {target: id for target, id in await found}
        except Exception as error:
            answer_all([(reply, error) for *_, reply in asked])
            return
        added: list[tuple[str, Waiter[Condition], float | None]] = []
        for target, condition, seconds, reply in asked:
            id = ids[target]
            if id is None:
                answer_all([(reply, no_instance(target))])
            else:
                added.append((id, self.waiting.add(id, reply, condition), seconds))
        # Waiters are added before the check reads: a change is seen by this check, or causes another one.
        waiting: _Waiting = {}
        for id, waiter, _ in added:
            waiting.setdefault(id, []).append(waiter)
        checked: Reply[dict[str, _Found]] = Reply()
        await self._read(lambda store: _read_all(store, waiting), checked)
        try:
            self._answer(waiting, await checked)
        except Exception as error:
            failed = [waiter.reply for id, waiter, _ in added if self.waiting.remove(id, waiter)]
            answer_all([(reply, error) for reply in failed if reply is not None])
        for id, waiter, seconds in added:
            if self.waiting.has(id, waiter):
                self.waiting.start_timeout(id, waiter, seconds)

    def check_soon(self, store: Store) -> None:
        """Check all waiters: now, or once more when the check that runs has ended."""
        if self._checking:
            self._check_again = True
        elif self.waiting:
            self._checking = True
            self._loop.start(self._check(store))

    async def _check(self, store: Store) -> None:
        try:
            while True:
                self._check_again = False
                waiting = self.waiting.alive()
                if waiting:
                    self._answer(waiting, await _read_all(store, waiting))
                if not self._check_again:
                    return
        except StoreFault:
            asyncio.get_running_loop().call_later(RETRY, self.check_soon, store)
        except Exception:
            _log.exception("Checking what callers wait for failed. The next change or poll checks again.")
        finally:
            self._checking = False

    def _answer(self, waiting: _Waiting, found: dict[str, _Found]) -> None:
        answers: list[tuple[Reply[Any], Any]] = []
        for id, waiters in waiting.items():
            for waiter in waiters:
                answer = _answer(id, waiter.condition, found.get(id))
                # It may have timed out while the check read.
                if answer is not None and self.waiting.remove(id, waiter) and (reply := waiter.reply) is not None:
                    answers.append((reply, answer))
        answer_all(answers)

    def close(self, error: Exception) -> None:
        """Answer every waiter with this error."""
        replies = [*(reply for *_, reply in self.asked.take()), *self.waiting.clear()]
        answer_all([(reply, error) for reply in replies])


class _Found(Struct):
    """What a check read about an instance."""

    status: str
    instance: Instance | None = None
    awakeable: AwakeableRow | None = None


async def _read_all(store: Store, waiting: _Waiting) -> dict[str, _Found]:
    """One statement for the statuses of all instances; the rest only for those that may have an answer."""
    found = {id: _Found(status) for id, status in await store.read(reads.statuses, ids=list(waiting))}
    # After the statuses: an instance that was finished by then has no open awakeable any more (invariant 11).
    asking = [id for id, waiters in waiting.items() if any(w.condition == AwakeableOpen() for w in waiters)]
    for row in await store.read(reads.open_awakeables, ids=asking) if asking else ():
        asker = found.get(row.instance_id)
        if asker is not None and asker.awakeable is None:
            asker.awakeable = row
    reached = [id for id, one in found.items() if any(w.condition == StatusReached(one.status) for w in waiting[id])]
    for id, instance in (await views.instances(store, reached)).items() if reached else ():
        found[id].instance = instance
    return found


def _answer(id: str, condition: Condition, found: _Found | None) -> Any:
    """What a waiter is answered with; None while it has to wait."""
    if found is None:
        return no_instance(id)
    match condition:
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


def _late(id: str, condition: Condition, seconds: float) -> str:
    status = f"did not reach status {condition.status!r}" if isinstance(condition, StatusReached) else None
    return f"Instance {id} {status or 'opened no awakeable'} within {seconds:g} s; its work continues."
