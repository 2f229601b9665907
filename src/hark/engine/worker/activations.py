"""Activations: run the steps of claimed instances on the worker's loop, and commit their outcomes.

All outcomes of one round of the loop go to the clerk together. Which claims there are, and which slots they take, is
counted in slots.py. Everything here runs on the worker's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any

from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply
from hark.engine.worker import coroutine_batch
from hark.engine.worker.registry import Registry
from hark.engine.worker.residents import Residents
from hark.engine.worker.worker_services import WorkerServices
from hark.kernel.journal import read_journal
from hark.kernel.requests import Commit
from hark.model.activation import Claim, JournalRow
from hark.model.decisions import Decision, Hold, give_up, stop
from hark.model.errors import NotOpen, StoreUnavailable
from hark.model.exits import comes_from_signal, end_if_forked, exit_in
from hark.model.failures import failure_of
from hark.programs.cancellation import cancel

_READ_AGAIN = 0.5  # seconds after a read that the database did not answer


class Activations:
    def __init__(self, clerk: Clerk, registry: Registry, services: WorkerServices, residents: int) -> None:
        self.open = True  # False while the worker stops: nothing begins any more
        self.tally: dict[str, int] = {}
        self._process = os.getpid()
        self._clerk = clerk
        self._registry = registry
        self._services = services
        self._asyncio_tasks: dict[
            str, tuple[Claim, coroutine_batch.Task | None]
        ] = {}  # with a task of its own once it waits
        self._residents = Residents(residents, _close)
        self.in_memory = self._residents.epochs
        self._outcomes: list[Commit] = []
        self._ended = asyncio.Event()
        self._bystander: asyncio.Task[None] | None = None

    def start(
        self, claims: Iterable[Claim], refused: Iterable[Commit], closed: Iterable[Claim], parked: Iterable[Claim]
    ) -> None:
        """Run these claims, and recover those whose outcome the store refused. `closed`: their sessions have ended.
        `parked`: their sessions may continue in the next activation."""
        items: deque[Claim | Commit] = deque(claims)
        items.extend(refused)
        if self.open:
            for item in items:
                claim = _claim_of(item)
                self._asyncio_tasks[claim.id] = (claim, None)
            if items:
                self._watch_for_end_of_loop()
                # They begin after what follows: a function may have parked and been claimed in one turn
                coroutine_batch.run(self, items)
        else:  # claimed while the worker stops: handed back, and not begun beside its next owner
            for item in items:
                _close(_claim_of(item))
        for claim in closed:
            _close(claim)
        for claim in parked:
            self._residents.keep(claim)

    def begin(self, item: Claim | Commit) -> Coroutine[Any, Any, None] | None:
        """Return the coroutine of one item of a round; None if it was abandoned meanwhile, or the worker stops."""
        if not self.open or not self._is_current(_claim_of(item)):
            return None
        if not isinstance(item, Claim):
            return self._recover_refused(item)
        if item.session is None and item.traits.keeps_journal:
            self._residents.resume(item)
        return self._run(item) if self._services.tracing is None else self._run_traced(item)

    def keep_task(self, item: Claim | Commit, task: coroutine_batch.Task) -> None:
        claim = _claim_of(item)
        if self._is_current(claim):
            self._asyncio_tasks[claim.id] = (claim, task)

    def abandon(self, claims: Iterable[Claim]) -> None:
        """Stop the steps of these cancelled or reclaimed instances, and commit nothing."""
        for claim in claims:
            _, task = self._asyncio_tasks.pop(claim.id, (None, None))
            if task is not None:
                cancel(task)
            _close(claim)

    def waiting(self) -> list[coroutine_batch.Task]:
        """The asyncio tasks of the activations that wait for something."""
        return [task for _, task in self._asyncio_tasks.values() if task is not None]

    async def until_idle(self) -> None:
        """Wait until nothing runs and all outcomes have been handed to the clerk."""
        while self._asyncio_tasks or self._outcomes:
            self._ended.clear()
            await self._ended.wait()

    def flush(self) -> None:
        """Hand all outcomes so far to the clerk."""
        outcomes, self._outcomes = self._outcomes, []
        self._ended.set()
        with contextlib.suppress(NotOpen):  # the app is closing: the lease will run out, and the steps run again
            self._clerk.submit_outcomes(outcomes)

    # -- one activation ---------------------------------------------------------------------------

    async def _run(self, claim: Claim) -> None:
        try:
            try:
                if claim.is_journal_unread and claim.session is None:
                    await self._read_journal(claim)
                decision = await self._registry.program(claim.lane).run(claim, self._services)
            except BaseException as error:
                decision = self._without_outcome(claim, error) or await self._recover(claim, error)
        except asyncio.CancelledError:
            return  # cancelled, reclaimed or handed back: this outcome does not count
        self._commit(claim, decision)

    async def _read_journal(self, claim: Claim) -> None:
        """Read the journal if the turn of the claim did not. While the database does not answer, the activation waits,
        as its outcome would, until its lease or the worker ends."""
        while claim.is_journal_unread:
            lines: Reply[list[JournalRow]] = Reply()
            self._clerk.read(lambda store: read_journal(store, claim), lines)
            try:
                claim.journal = await lines
            except StoreUnavailable:
                await asyncio.sleep(_READ_AGAIN)
            else:
                claim.is_journal_unread = False

    async def _run_traced(self, claim: Claim) -> None:
        assert self._services.tracing is not None
        with self._services.tracing.activation(claim):
            await self._run(claim)

    def _without_outcome(self, claim: Claim, error: BaseException) -> Decision | None:
        """Give up the claim if an exit or the end of the loop has ended this activation. Return None for an error of
        the step's own; raise the cancellation of an abandoned step, and the exit that a signal asks for."""
        end_if_forked(self._process, error)
        if (exit := exit_in(error)) is not None:
            if comes_from_signal(exit):
                raise exit
            return give_up(claim.step, claim.state, failure_of(exit))
        if isinstance(error, asyncio.CancelledError):
            if not self._is_current(claim) or not self.open:
                raise error
            if self._has_loop_ended():
                return give_up(claim.step, claim.state, None)
        return None

    def _watch_for_end_of_loop(self) -> None:
        """Keep a task that only waits. `asyncio.run` cancels all tasks when it ends: this one too."""
        if self._bystander is None or self._bystander.done():
            self._bystander = asyncio.get_running_loop().create_task(_wait_forever(), name="hark-worker")

    def _has_loop_ended(self) -> bool:
        return self._bystander is not None and (self._bystander.done() or bool(self._bystander.cancelling()))

    def close(self) -> None:
        """End what does not belong to one activation. The worker has stopped."""
        self._residents.close()
        if self._bystander is not None:
            self._bystander.cancel()
            self._bystander = None

    async def _recover_refused(self, commit: Commit) -> None:
        """Let `handle` decide after the store refused the outcome; if that is refused too, the instance fails."""
        claim, error = commit.claim, commit.result
        if commit.decision.label == "stop":
            self._commit(claim, _failed(claim, error))
        else:
            self._commit(claim, await self._recover(claim, error))

    async def _recover(self, claim: Claim, error: Any) -> Decision:
        """Turn an error into a decision. A CancelledError that only the step itself raised fails it too: nothing else
        would ever end the instance."""
        try:
            return await self._registry.program(claim.lane).recover(claim, self._services, error)
        except BaseException as second:
            return self._without_outcome(claim, second) or _failed(claim, second)

    def _is_current(self, claim: Claim) -> bool:
        """Return False if this claim was abandoned; its instance may have been claimed again since."""
        held = self._asyncio_tasks.get(claim.id)
        return held is not None and held[0] is claim

    def _commit(self, claim: Claim, decision: Decision) -> None:
        if self._is_current(claim):
            del self._asyncio_tasks[claim.id]
        if claim.span is not None and self._services.tracing is not None:
            self._services.tracing.decided(claim, decision)
        match decision.move:
            case Hold() as move:
                move.fingerprint = self._registry.fingerprints()[claim.lane]
        if decision.move.ends_step:
            self.tally["steps"] = self.tally.get("steps", 0) + 1
            self.tally[decision.label] = self.tally.get(decision.label, 0) + 1
        if not self._outcomes:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outcomes.append(Commit(claim=claim, decision=decision))


def _close(claim: Claim) -> None:
    """End a claim that does not go on, with what it keeps between two commits."""
    if claim.session is not None:
        claim.session.release()
    if claim.span is not None:
        claim.span.end()


def _claim_of(item: Claim | Commit) -> Claim:
    return item if isinstance(item, Claim) else item.claim


async def _wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


def _failed(claim: Claim, error: object) -> Decision:
    return stop(claim.step, claim.state, failure_of(error), keeps_undo=True)
