"""Find operations that a function asked for and never awaited, when it returns.

A run that was not done, or a child that was not started, is work that the author expected, and that would be missed
only when it matters: the function fails. Everything else is a warning: a child that runs on, a sleep or a wait that did
not hold the function up, a run whose result or error was not read. Effects happen without `await`, and an awakeable may
be left to its end; both are silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import CodeType

from hark.model.activation import Claim
from hark.model.errors import InvalidOutcome
from hark.model.log import fields_of, get_logger
from hark.programs.functions.branches import Branch
from hark.programs.functions.operations import ChildCall, Operation, Run, Sleep, WaitForSignal

_log = get_logger()
_ADVICE = "Await it, or give it to ctx.gather or ctx.first and await that."

Asked = tuple[CodeType, int]
"""The place where an operation was asked for: the code and the instruction. The line is looked up when shown."""


def line_of(asked: Asked | None) -> str:
    """The file and line of an instruction, for people and editors."""
    if asked is None:
        return "an unknown line"
    code, instruction = asked
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return f"{code.co_filename}:{line}"
    return f"{code.co_filename}:{code.co_firstlineno}"


def check_all_awaited(
    claim: Claim,
    name: str,
    unresolved: Mapping[int, Operation],
    resolved: Iterable[Operation],
    branches: Iterable[Branch],
) -> None:
    """Raise InvalidOutcome for lost work when a function has returned, and log the rest.

    Args:
        claim: The instance.
        name: Its workflow.
        unresolved: Its open operations, by entry.
        resolved: Operations that were resolved before they were awaited.
        branches: Its branches that have not ended, without the function itself.
    """
    unawaited = [operation for operation in unresolved.values() if not operation.awaited]
    armed = {wait.place for wait in claim.waits}
    for operation in unawaited:
        if isinstance(operation, Run) or (isinstance(operation, ChildCall) and operation.place not in armed):
            done = "was not done" if isinstance(operation, Run) else "was not started"
            raise InvalidOutcome(
                f"Workflow {name} returned without awaiting {operation.label}, which it asked for at "
                f"{line_of(operation.asked)}, so it {done}. {_ADVICE} Then retry the instance."
            )
    problems = [
        f"{operation.label}, asked for at {line_of(operation.asked)}: {found}."
        for operation in unawaited
        if (found := _unresolved_problem(operation)) is not None
    ]
    problems += [
        f"{operation.label}, asked for at {line_of(operation.asked)}: {_resolved_problem(operation)}."
        for operation in resolved
        if not operation.awaited
    ]
    problems += [
        f"{branch.label}: it was given to ctx.gather or ctx.first, and ended with the function."
        for branch in branches
        if not branch.awaited
    ]
    for problem in problems:
        _log.warning("Workflow %s (%s) never awaited %s %s", name, claim.id, problem, _ADVICE, extra=fields_of(claim))


def _unresolved_problem(operation: Operation) -> str | None:
    match operation:
        case ChildCall():
            return "the child runs on, and its result is not read"
        case Sleep() | WaitForSignal():
            return "the function did not wait for it"
        case _:
            return None  # an effect, which happens, or an awakeable


def _resolved_problem(operation: Operation) -> str:
    return (
        "its result was not read"
        if operation.error is None
        else f"it failed, and its error was not read: {operation.error}"
    )
