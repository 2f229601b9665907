"""X6: the workers of a store can be listed, and `why` says where a step runs."""

import asyncio
import os
import socket
from importlib import metadata
from typing import Any

import pytest

from hark import Context, Dag, Done, Hark, Machine, step
from tests.doors.support_cli import run_cli, store_options
from tests.support.http import serving
from tests.support.inspect import until
from tests.support.stores import Store


class Held(Machine, queue="billing"):
    """Runs until the test sets `go`."""

    go = asyncio.Event()

    @step
    async def start(self, ctx: Context) -> Done:
        await Held.go.wait()
        return Done()


@pytest.fixture(autouse=True)
def _new_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Held, "go", asyncio.Event())


async def test_x6_a_worker_is_listed_with_its_host_process_version_and_slots(store: Store) -> None:
    app = Hark(store.url, **store.options, lease=3.0)
    app.register(Held)
    async with app, app.worker({"billing": 3, "default": 100}) as worker:
        [found] = await app.workers()
        assert (found.id, found.host, found.pid) == (worker.owner, socket.gethostname(), os.getpid())
        assert found.version == metadata.version("hark")
        assert found.queues == found.free == {"billing": 3, "default": 100}
        assert found.definitions == ("Held@1",)
        assert found.live
        assert found.since < found.lease_until
        held = await app.start(Held)

        async def taken() -> bool:
            return (await app.workers())[0].free["billing"] == 2

        await until(taken, "the next renewal of the lease")
        Held.go.set()
        await held.result(timeout=30)
    async with app:
        assert await app.workers() == []


async def test_x6_why_names_the_host_and_the_process_of_the_worker_that_runs_a_step(store: Store) -> None:
    app = Hark(store.url, **store.options)
    app.register(Held)
    async with app, app.worker() as worker:
        held = await app.start(Held)
        await held.wait_for("executing", timeout=30)
        place = f"worker {worker.owner} (process {os.getpid()} on host {socket.gethostname()})"
        assert f"Step 'start' is running now, on {place}." in (await app.why(held)).text
        Held.go.set()


async def test_x6_workers_are_the_same_over_http_and_on_the_command_line(store: Store) -> None:
    app = Hark(store.url, **store.options)
    app.register(Held)
    async with app, serving(app) as http:
        [found] = (await http.get("/workers")).json()["items"]
        assert (found["host"], found["pid"], found["live"]) == (socket.gethostname(), os.getpid(), True)
        assert found["queues"] == found["free"] == {"billing": 100, "default": 100}
        local = (await asyncio.to_thread(run_cli, "workers", "--json", *store_options(store))).json
        remote = (await asyncio.to_thread(run_cli, "workers", "--json", "--server", str(http.base_url))).json
        assert [worker["id"] for worker in local] == [worker["id"] for worker in remote] == [found["id"]]
        table = (await asyncio.to_thread(run_cli, "workers", *store_options(store))).out
        assert socket.gethostname() in table
        assert "billing 100/100" in table
    assert "No worker is running" in (await asyncio.to_thread(run_cli, "workers", *store_options(store))).out


async def test_x6_why_and_doctor_say_which_handler_a_task_needs_and_workers_list_theirs(store: Store) -> None:
    dag = Dag("billing")
    dag.task("charge", "charge-card")
    app = Hark(store.url, **store.options)
    app.register(dag)
    # No slot in any queue that jobs or tasks are started with: jobs run all the same.
    async with app, app.worker({"unused": 1}):
        job = await app.start(dag)

        async def has_a_task() -> bool:
            return bool(await app.list(kind="task"))

        await until(has_a_task, "the first task")
        task = f"{job.id}.0"
        [blocker] = (await app.why(task)).blockers
        assert (blocker.reason, "the handler 'charge-card'" in blocker.text) == ("no_worker", True)
        doctor = (await asyncio.to_thread(run_cli, "doctor", *store_options(store))).out
        assert "no worker has the handler 'charge-card' (1 instance)" in " ".join(doctor.split())
        other = Hark(store.url, **store.options)

        @other.handler("charge-card")
        async def charge(task: Any) -> str:
            return "charged"

        async with other, other.worker():
            [mine] = [worker for worker in await other.workers() if "charge-card" in worker.handlers]
            assert (mine.definitions, "job" in mine.handlers) == ((), False)
            assert "hark.graphs" not in mine.queues
            assert await job.result(timeout=60) == {"charge": "charged"}


async def test_x6_a_worker_serves_the_queues_of_registered_jobs_and_why_names_one_that_is_not_served(
    store: Store,
) -> None:
    dag = Dag("rendering", queue="gpu")
    dag.task("draw", "draw")
    dag.task("send", "draw", queue="mail", after=["draw"])
    app = Hark(store.url, **store.options)
    app.register(dag)

    @app.handler("draw")
    async def draw(task: Any) -> str:
        return "drawn"

    async with app:
        async with app.worker({"default": 1}):
            job = await app.start(dag)

            async def has_a_task() -> bool:
                return bool(await app.list(kind="task"))

            await until(has_a_task, "the first task")
            [blocker] = (await app.why(f"{job.id}.0")).blockers
            assert "queue 'gpu', which no worker with its code serves" in blocker.text
        async with app.worker():
            assert {"default", "gpu", "mail"} <= (await app.workers())[0].queues.keys()
            assert await job.result(timeout=60) == {"draw": "drawn", "send": "drawn"}
