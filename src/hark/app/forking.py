"""The verb that repeats an instance from a point in its past, in a new instance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hark.app.arguments import optional_name, target_of
from hark.app.core import Core
from hark.app.handle import Handle, Target
from hark.engine.turns.reply import Reply
from hark.engine.worker.registry import Program
from hark.kernel.requests import Fork, StartInstances
from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidInput
from hark.model.names import check_id, check_name, new_id, version_problem
from hark.model.outcomes import Step
from hark.model.values import PARKED, TERMINAL
from hark.store.protocol import Store
from hark.views import instance_views, live

if TYPE_CHECKING:
    from hark.programs.functions.function_program import FunctionProgram


class ForkVerbs(Core):
    """fork."""

    def fork(
        self,
        target: Target,
        *,
        at: int | None = None,
        step: Step | None = None,
        state: Any = None,
        input: Any = None,
        version: int | None = None,
        id: str | None = None,
        correlation_key: str | None = None,
        by: str | None = None,
    ) -> Reply[Handle[Any]]:
        """Start a new instance from a point in the past of another one, to repeat with corrected code or input what
        has gone wrong. The other one is not changed, whether it is finished or not.

        A function begins with the entries of the journal up to `at`: it receives the same results and answers, draws
        the same random numbers, and goes on by itself behind them. A machine begins at a step, with a state. Children,
        open questions and open waits are not copied: the new instance asks for its own.

        Args:
            target: The other instance: its id, its correlation key or its handle. It is a function or a machine.
            at: Of a function: the number of the last entry of its journal that is kept, as `journal` shows it; -1 keeps
                none. By default all are kept, of a failed function those that a retry would keep; with a new `input`,
                none.
            step: Of a machine: the step to begin with, by default its present one; one that waits has none.
            state: Of a machine: the state to begin with, by default its present one.
            input: Of a function: its new input, as for `start`.
            version: The version of the definition, by default that of the other instance.
            id: The id of the new instance, by default a UUIDv7.
            correlation_key: Its correlation key. That of the other instance is not taken over; its tags are.
            by: The name of the person or program that asks for it, for the history.

        Returns:
            A reply with the `Handle` of the new instance. Its `Instance.forked_from` is the id of the other one.

        Raises:
            NotFound: There is no such instance or version.
            Duplicate: The id or the key is taken; `.holder` is the id of the instance that has it.
            InvalidInput: The journal has no such entry, or `at` is in the middle of operations that were under way at
                the same time, such as those of a gather; the code that is here does not fit; or an argument is
                malformed.

        Example:
            again = await app.fork("order:42", at=3)  # without what came after entry 3
        """
        wanted, name = target_of(target), optional_name(by, "by")
        if at is not None and (type(at) is not int or at < -1):
            raise InvalidInput(f"at={at!r}: give the number of an entry of the journal, or -1 for none.")
        if version is not None and (problem := version_problem(version)):
            raise InvalidInput(f"{problem}.")
        new = None if id is None else check_id(id)
        key = optional_name(correlation_key, "correlation key")
        named: Any = step
        begin = None if step is None else check_name(getattr(named, "__hark_step__", named), "step name")

        async def start(store: Store) -> Handle[Any]:
            claim, status, tags = await live.forkable(store, await instance_views.find(store, wanted))
            changed = claim if version is None else replace(claim, version=version)
            program = self._registry.find(claim.definition, changed.version)
            item = NewInstance(
                definition=claim.definition, state=claim.state, id=new or new_id(), named=new is not None,
                version=changed.version, queue=claim.queue, priority=claim.priority, correlation_key=key,
                concurrency_key=claim.concurrency_key, tags=tags,
            )  # fmt: skip
            request = Fork(start=StartInstances(items=[item]), source=claim.id, by=name)
            if claim.kind == "workflow":
                _refuse(wanted, "a function", step=begin, state=state)
                if at != -1 and input is None and _is_being_undone(claim, status):
                    raise InvalidInput(
                        f"{wanted!r} is being undone: fork it when that has ended, or keep no entry, with at=-1."
                    )
                # In a thread: the code is replayed, which may take long.
                await asyncio.to_thread(self._fork_function, request, item, changed, program, at, input)
            elif claim.kind == "machine":
                _refuse(wanted, "a machine", at=at, input=input)
                if begin is None and status in PARKED:
                    raise InvalidInput(
                        f"{wanted!r} waits, and would go on at {claim.step!r} without what it waits for. Name the "
                        "step to begin with, with step=."
                    )
                self._fork_machine(item, changed, program, begin, state)
            else:
                raise InvalidInput(f"{wanted!r} is a {claim.kind}: only functions and machines can be forked.")
            asked: Reply[str] = self._ask(request)
            return self._handle(await asked)

        return self._read(start)

    def _fork_machine(self, item: NewInstance, claim: Claim, program: Any, step: str | None, state: Any) -> None:
        item.step = step or claim.step
        if program is not None and item.step not in program.steps:
            raise InvalidInput(
                f"{claim.definition} version {claim.version} has no step {item.step!r}. It has: "
                f"{', '.join(program.steps)}. Name another one with step=."
            )
        if state is None:
            if program is not None:
                program.codec.load(claim.state)
        elif program is None:
            item.state = json.dump(state, limit=self._max_payload, what="state")
        else:
            codec = program.codec
            item.state = codec.dump(codec.build(state, limit=self._max_payload, what="state"), self._max_payload)

    def _fork_function(
        self, request: Fork, item: NewInstance, claim: Claim, program: Program | None, at: int | None, input: Any
    ) -> None:
        from hark.programs.functions import function_fork as fork

        if input is not None:
            at = fork.NOTHING if at is None else at
            if program is None:
                item.state = json.dump(input, limit=self._max_payload, what="input")
            else:
                item.state = program.codec.dump(program.codec.build(input, limit=self._max_payload), self._max_payload)
        kept = fork.kept_lines(claim, claim.journal, at)
        request.at = max((line.entry for line in kept if line.entry >= 0), default=fork.NOTHING) if at is None else at
        if not kept:
            return
        request.journal = fork.journal_of_fork(claim, kept)
        request.on_cancel = claim.on_cancel
        if program is not None:
            code: FunctionProgram = program  # type: ignore[assignment]
            begun = replace(
                claim, id=item.id, state=item.state, journal=request.journal, visit=0, waits=[], inbox=[],
                on_cancel=None, cancel_reason=None, has_run=True,
            )  # fmt: skip
            dropped = [line for line in claim.journal if line not in kept]
            fork.check_fork(code, begun, dropped, self._check_services())


def _is_being_undone(claim: Claim, status: str) -> bool:
    """Return True if runs of this function may be undone at any moment."""
    from hark.programs.functions.function_journal import Journal

    journal = Journal(claim.journal)
    is_cancelling = claim.cancel_reason is not None and status not in TERMINAL
    return is_cancelling or (journal.undoing is not None and not journal.is_undone)


def _refuse(target: str, what: str, **given: Any) -> None:
    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        raise InvalidInput(f"{target!r} is {what}, which is not forked with {' and '.join(wrong)}=.")
