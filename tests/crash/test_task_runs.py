"""J8: `task.run` against kill -9: after its commit the function is not called again, before it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hark import Dag, Hark
from tests.crash.processes import Workers, gone
from tests.support.stores import Store


@pytest.mark.parametrize(
    ("gate", "killed_after", "times"), [("bank", "has the receipt", 1), ("gate", "paid", 2)], ids=["after", "during"]
)
async def test_j8_a_function_is_called_again_only_if_its_worker_was_killed_before_its_result_was_committed(
    store: Store, tmp_path: Path, gate: str, killed_after: str, times: int
) -> None:
    dag = Dag("payment", inputs={"gate": gate})
    dag.task("pay", "pay and wait")
    with Workers(store, tmp_path) as workers:
        workers.open_gate("bank")
        async with Hark(store.url, **workers.options) as app:
            await app.register(dag)
            first = workers.start()
            job = await app.start("payment")
            await workers.until_traced(killed_after)
            first.kill()
            await gone(first)
            workers.open_gate()
            workers.start()
            assert await job.result(timeout=120) == {"pay": "receipt"}
        assert [life.what for life in workers.trace()].count("paid") == times
