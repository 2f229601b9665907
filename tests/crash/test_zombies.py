"""A process that is stopped past its lease and then continues: every outcome it still sends is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from hark import Dag, Hark
from tests.crash.machines import ALL, Blocking, Family, Gated, Witness
from tests.crash.processes import Workers, all_renewed, has_workers, leases
from tests.support.inspect import everything, query, until
from tests.support.stores import Store


async def test_x2_fault_26_and_27_a_zombie_commits_nothing_whatever_its_outcome(store: Store, tmp_path: Path) -> None:
    with Workers(store, tmp_path, lease=9.0) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            zombie = workers.start(role="zombie", deaf=True)
            family, witness = await app.start(Family), await app.start(Witness, id="witness")
            ids = [f"zombie-{outcome}" for outcome in Family.OUTCOMES]
            await until(lambda: parked(app, "note", ids), "the children to wait")
            for id in ids:
                await app.signal(id, "note")
            for outcome in Family.OUTCOMES:
                await workers.until_traced(f"work {outcome}", zombie.pid)
            await workers.freeze(zombie)
            await workers.bury()  # it was stopped for longer than its lease
            successor = workers.start()
            for outcome in Family.OUTCOMES:
                await workers.until_traced(f"work {outcome}", successor.pid)
            before = await everything(store)

            workers.open_gate()
            zombie.send_signal(signal.SIGCONT)
            for id in ids:
                await workers.until_traced(f"refused {id}", zombie.pid)
            assert await everything(store) == before

            workers.open_gate("later gate")
            await until(lambda: parked(app, "end", [*ids, "witness"]), "the successor to commit its own outcomes")
            for id in ids:
                await app.signal(id, "end")
            assert await family.result(timeout=60) == {id: ["note", "end"] for id in ids}
            await app.signal("witness", "end")
            assert await witness.result(timeout=60) == [None]
        assert await query(store, "SELECT count(*) FROM instances WHERE definition = 'Gated'") == [(0,)]


async def parked(app: Hark, name: str, ids: list[str]) -> bool:
    return {wait.instance_id for wait in await app.waits(name=name)} == set(ids)


@pytest.mark.parametrize("what", ["step", "handler"])
async def test_m5_j7_a_step_or_handler_that_blocks_its_event_loop_past_the_lease_keeps_it(
    store: Store, tmp_path: Path, what: str
) -> None:
    dag = Dag("blocking")
    dag.task("wait", "block")
    begins = "start 0" if what == "step" else "attempt 1"
    with Workers(store, tmp_path, lease=3.0) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL, dag)
            workers.start()
            workers.start()
            await until(lambda: has_workers(store, 2), "both workers")
            handle = await app.start(Blocking if what == "step" else dag)
            await workers.until_traced(begins)
            begun = await leases(store)
            await until(lambda: all_renewed(store, begun, 3.5), "more than a lease to pass, renewed by both")
            workers.open_gate()
            pid = workers.trace()[0].pid
            assert await handle.result(timeout=60) == (pid if what == "step" else {"wait": pid})
            assert [life.what for life in workers.trace()] == [begins]
            assert not [event for event in await app.events(handle) if event.type == "reclaimed"]


async def test_fault_28_two_workers_with_the_same_host_name_and_pid_leave_each_other_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(socket, "gethostname", lambda: "container")
    with Workers(store, tmp_path, lease=3.0, max_crashes=1) as workers:
        first, second = (Hark(store.url, **workers.options) for _ in range(2))
        first.register(Gated)
        second.register(Gated)
        async with first, second, first.worker({"default": 1}), second.worker({"default": 1}):
            handles = [await first.start(Gated), await first.start(Gated)]
            await workers.until_traced("start 0", times=2)
            begun = await leases(store)
            assert len(begun) == 2
            await until(lambda: all_renewed(store, begun, 4.0), "more than a lease to pass")
            await asyncio.gather(first.sweep(), second.sweep())
            workers.open_gate()
            await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
            assert [life.what for life in workers.trace()].count("start 0") == 2
        assert await query(store, "SELECT max(attempt), max(crashes) FROM instances") == [(0, 0)]
