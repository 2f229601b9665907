"""The memory of the worker against the store: a check for lost steps around the COMMIT of an outcome (X8)."""

from typing import Any

import pytest

from hark import Context, Done, Hark, Machine, Next, step
from tests.support.stores import Store


class Two(Machine):
    @step
    async def start(self, ctx: Context) -> Next:
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done("both")


async def test_x8_a_check_after_the_commit_of_an_outcome_does_not_abandon_its_live_step(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is one epoch ahead of the worker then."""
    app, checked = Hark(store.url, **store.options), []
    app.register(Two)
    commit = store.database.tx.commit

    async def commit_and_check(tx: Any) -> None:
        await commit(tx)
        if committing := set(app._clerk.turns.committing):
            checked.append(committing)
            await app._clerk.others.find_lost_steps()

    monkeypatch.setattr(store.database.tx, "commit", commit_and_check)
    async with app, app.worker():
        handle = await app.start(Two)
        assert await handle.result(timeout=20) == "both"
        assert checked == [{handle.id}] * 2
