"""V3: held instances, below the programs."""

from typing import Any

from hark.kernel.requests import StartInstances
from hark.model.activation import Claim
from tests.kernel.conftest import KernelTurns
from tests.support.turns import DEFINITION, capacity, hold, new


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
