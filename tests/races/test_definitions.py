"""Every process records its definitions when it opens; two processes that do so at once do not deadlock."""

import pytest

from hark.kernel.requests import DefinitionRow, Register
from tests.support.stage import Duel, Stage, part

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _register(*names: str) -> Register:
    return Register(rows=[DefinitionRow(name, 1, "machine", "default", "start") for name in names])


async def test_two_processes_that_register_in_different_orders_do_not_deadlock(stage: Stage) -> None:
    async def prepare() -> Duel:
        return Duel(
            part(_register("a"), _register("b", "c"), _register("a")), part(_register("c", "b"), _register("a"))
        )

    await stage.explore(prepare, deep=True, every=True)
    names = await stage.eye.fetch("SELECT name FROM definitions WHERE name <> 'm' ORDER BY name")
    assert [row[0] for row in names] == ["a", "b", "c"]
