"""Invariant 3: a full turn locks all its instances in the order of their ids, whatever the order of its requests.

Stepped turns stop between statements, and the lock is one statement; so a third connection holds a row in its middle.
"""

import pytest

from hark.kernel.requests import Deliver
from tests.support.stage import Stage, part
from tests.support.turns import on

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_turn_that_waits_for_a_row_has_locked_all_those_before_it_and_none_behind_it(stage: Stage) -> None:
    for id in "abcdefgh":
        await stage.parked(id, on("go"))
    async with stage.eye.transaction():
        await stage.eye.execute("SELECT FROM instances WHERE id = 'e' FOR UPDATE")
        turn = stage.one.act(part(*[Deliver(target=id, name="go") for id in "gbhdaecf"]))
        assert await turn.run() == "blocked"
        free = await stage.eye.fetch("SELECT id FROM instances ORDER BY id FOR UPDATE SKIP LOCKED")
        assert "".join([id for (id,) in free]) == "efgh"
    await turn.finish()
