"""Claims: which rows get the free slots of one turn."""

from typing import Any

from hark.kernel.requests import StartInstances
from tests.support.turns import capacity, new


async def test_a_backlog_of_refused_rows_does_not_hold_up_the_row_behind_it(turns: Any) -> None:
    """The turn reads past the rows whose bucket has refused one of them, instead of three of them per turn."""
    await turns.run(StartInstances(items=[new("holder", concurrency_key="k")]))
    await turns.run(claim=capacity("worker"))
    await turns.run(StartInstances(items=[new(f"blocked-{n:03}", concurrency_key="k") for n in range(500)]))
    await turns.run(StartInstances(items=[new("behind")]))
    result = await turns.run(claim=capacity("worker"))
    assert [claim.id for claim in result.claims] == ["behind"]
