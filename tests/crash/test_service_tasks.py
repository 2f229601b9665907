"""A worker is killed in the middle of a service task: another one runs it again, and the process goes on (X1, B6)."""

from __future__ import annotations

from pathlib import Path

from hark import Hark
from tests.crash.processes import Workers, gone
from tests.support.bpmn_text import bpmn, line, service
from tests.support.stores import Store


async def test_b6_a_service_task_survives_kill_9_of_its_worker(store: Store, tmp_path: Path) -> None:
    with Workers(store, tmp_path, lease=9.0) as workers:
        async with Hark(store.url, **store.options, lease=9.0) as app:
            await app.deploy(bpmn(line(service("wait", "wait at the gate", retries=1), service("after", "after"))))
            order = await app.start("order", {"n": 1})
            first = workers.start()
            await workers.until_traced("wait 1", first.pid)
            first.kill()
            await gone(first)
            await workers.take_back(app)
            second = workers.start()
            await workers.until_traced("wait 1", second.pid)  # a lost lease is not an attempt
            workers.open_gate()
            assert await order.result(timeout=60) == {"n": 1, "waited": second.pid, "after": True}
            assert [life.what for life in workers.trace()] == ["wait 1", "wait 1", "after"]
