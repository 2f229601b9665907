"""V3: held instances, below the programs."""

from typing import Any

import pytest

from hark.kernel.requests import Cancel, StartInstances
from hark.model.activation import Claim
from tests.kernel.conftest import KernelTurns
from tests.support.turns import DEFINITION, capacity, hold, new, undoable


async def _executing(turns: KernelTurns) -> Claim:
    await turns.run(StartInstances(items=[new("x")]))
    return await _claimed(turns)


async def _claimed(turns: KernelTurns, **options: Any) -> Claim:
    [claim] = (await turns.run(claim=capacity("worker", **options))).claims
    return claim


async def test_v3_an_instance_that_fits_none_of_hundreds_of_codes_stays_held(turns_on_both: KernelTurns) -> None:
    """PostgreSQL refuses rows whose list of codes does not fit into an entry of its index."""
    turns = turns_on_both
    claim = await _executing(turns)
    codes = [f"{number * 982451653 % 2**48:012x}" for number in range(300)]
    for code in codes:
        await turns.run(hold(claim, code))
        claim = await _claimed(turns, codes={f"{DEFINITION}@1": "another"}, try_held=True)
    await turns.run(hold(claim, codes[0]))
    [(status, held_by)] = await turns.read("SELECT status, held_by FROM instances")
    assert status == "held"
    assert held_by.split(",")[-2:] == [codes[-1], codes[0]]


@pytest.mark.parametrize(("force", "ends"), [(False, ("runnable", None, None)), (True, ("cancelled", "late", None))])
async def test_v3_a_cancel_of_a_held_instance_removes_the_error_that_held_it(
    turns_on_both: KernelTurns, force: bool, ends: tuple[str, str | None, None]
) -> None:
    turns = turns_on_both
    claim = await _executing(turns)
    ahead = undoable(claim)
    turn = await turns.run(ahead)
    claim.run_ahead(ahead.decision, turn.now, [])
    holding = hold(claim)
    holding.decision.move.traceback = "Traceback"
    await turns.run(holding)
    await turns.run(Cancel(target="x", reason="late", force=force))
    [row] = await turns.read("SELECT status, error, traceback FROM instances")
    assert tuple(row) == ends
