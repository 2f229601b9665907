"""Move a machine to another version of its definition: its step by a map of names, its state as given (V4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hark.model.activation import Claim
from hark.model.errors import HarkError
from hark.model.migration import Migrated, refuse
from hark.model.problem import Problem

if TYPE_CHECKING:
    from hark.programs.machines.steps import StepProgram


def migrate_machine(program: StepProgram, claim: Claim, steps: Mapping[str, str], state: str, label: str) -> Migrated:
    """Compute the row of a machine that goes on with `program`.

    Args:
        program: The new version.
        claim: The machine, as it was committed.
        steps: The new names of steps that are not called the same.
        state: Its new state, as JSON.
        label: The machine, in the error.

    Raises:
        InvalidMigration: The new version has no such step, or cannot read the state.
    """
    problems = []
    step = steps.get(claim.step, claim.step)
    if step not in program.steps:
        has = ", ".join(program.steps)
        advice = "correct the map" if claim.step in steps else f"map {claim.step!r} to one of them"
        message = f"version {program.version} has no step {step!r}. It has: {has}; {advice}"
        problems.append(Problem(claim.step, None, message))
    try:
        program.codec.load(state)
    except HarkError as error:
        reason = str(error).rstrip(".")
        problems.append(Problem(claim.step, None, f"{reason}, or give a function from the old state to the new one"))
    if problems:
        raise refuse(label, problems)
    return Migrated(step=step, state=state)
