"""J11: workers in any language fetch tasks over HTTP, with the leases of Hark's own workers (fault 87)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hark import Dag, Hark, StoreUnavailable
from hark.app.door_access import DoorAccess
from tests.support.http import serving
from tests.support.inspect import query, until
from tests.support.stores import Store


class OutsideWorker:
    """A worker that speaks HTTP and nothing else."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def fetch(self, *handlers: str, most: int = 1, lease: float = 60, wait: float = 25) -> list[dict[str, Any]]:
        body = {"worker": "node-1", "handlers": handlers or ("resize",), "max": most, "lease": lease, "wait": wait}
        response = await self.client.post("/tasks/fetch", json=body, timeout=60)
        assert response.status_code == 200, response.text
        return list(response.json())

    async def fetch_one(self, *handlers: str, **options: Any) -> dict[str, Any]:
        [task] = await self.fetch(*handlers, **options)
        return task

    async def report(self, task: dict[str, Any], verb: str, **body: Any) -> httpx.Response:
        return await self.client.post(f"/tasks/{task['id']}/{verb}", json={"token": task["token"], **body})


@asynccontextmanager
async def outside(store: Store, **options: Any) -> AsyncIterator[tuple[Hark, OutsideWorker]]:
    """An app that runs the jobs and has no handlers, and a worker outside."""
    app = Hark(store.url, **store.options, **options)
    async with app, serving(app) as client:
        yield app, OutsideWorker(client)


def thumbnails(**options: Any) -> Dag:
    dag = Dag("thumbnails", inputs={"url": "a.png"})
    dag.task("resize", "resize", **options)
    return dag


async def status(store: Store, id: str) -> str:
    [[found]] = await query(store, f"SELECT status FROM instances WHERE id = '{id}'")
    return str(found)


async def leases(store: Store) -> int:
    [[count]] = await query(store, "SELECT count(*) FROM workers WHERE id LIKE 'outside:%'")
    return int(count)


async def asked(app: Hark, job: str) -> bool:
    return bool(await app.awakeables(job=job))


async def _has_task(app: Hark, job: str) -> bool:
    return (await app.get(job)).status == "awaiting_children"


async def test_j11_a_worker_outside_runs_a_job(store: Store) -> None:
    dag = thumbnails()
    dag.task("publish", "publish", after=["resize"], queue="slow")
    async with outside(store) as (app, worker):
        waiting = asyncio.create_task(worker.fetch_one("publish", "resize"))  # before there is a task
        job = await app.start(dag, {"url": "b.png"})
        task = await waiting
        assert task == {
            "id": f"{job.id}.0", "token": task["token"], "handler": "resize", "run_id": job.id, "name": "resize",
            "input": {"url": "b.png"}, "inputs": {"url": "b.png"}, "attempt": 1, "iteration": 0, "checkpoint": None,
        }  # fmt: skip
        assert await status(store, task["id"]) == "executing"
        assert await worker.fetch("resize", wait=0) == []
        done = await worker.report(task, "complete", output={"width": 100})
        assert (done.status_code, done.json()) == (200, {"success": True})
        following = await worker.fetch_one("publish")  # in another queue
        assert (following["name"], following["input"]) == ("publish", {"width": 100})
        await worker.report(following, "complete")
        assert await job.result(timeout=30) == {"resize": {"width": 100}, "publish": None}
        assert await leases(store) == 0


async def test_j11_a_heartbeat_keeps_the_lease_and_stores_what_the_next_attempt_needs(store: Store) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails(retry={"limit": 2, "delay": 0}))
        task = await worker.fetch_one(lease=3600)
        [[before]] = await query(store, "SELECT until FROM workers WHERE id LIKE 'outside:%'")
        beat = await worker.report(task, "heartbeat", checkpoint={"page": 3}, stream="half", details={"percent": 50})
        assert beat.status_code == 200
        assert beat.json()["cancelled"] is False
        assert beat.json()["until"].endswith("Z")
        [[after]] = await query(store, "SELECT until FROM workers WHERE id LIKE 'outside:%'")
        assert after > before
        assert (await app.get(task["id"])).progress == {"percent": 50}
        chunks = [event.data for event in await app.events(task["id"]) if event.type == "stream"]
        assert chunks == [{"task": "resize", "chunk": "half"}]
        failed = await worker.report(task, "fail", error="out of memory")
        assert failed.status_code == 200
        again = await worker.fetch_one()
        assert (again["id"], again["attempt"], again["checkpoint"]) == (task["id"], 2, {"page": 3})
        assert again["token"] != task["token"]
        await worker.report(again, "complete", output=1)
        assert await job.result(timeout=30) == {"resize": 1}


@pytest.mark.parametrize("verb", ["fail", "error"])
async def test_j11_a_failure_without_retry_is_final(store: Store, verb: str) -> None:
    body: dict[str, Any] = {"error": "no such image", "retry": False} if verb == "fail" else {"code": "no such image"}
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails(retry={"limit": 3, "delay": 0}))
        assert (await worker.report(await worker.fetch_one(), verb, **body)).status_code == 200
        ended = await job.wait_for("failed", timeout=30)
        assert ended.error is not None
        assert "no such image" in ended.error


async def test_j11_a_loop_goes_on_until_its_worker_completes_it_or_it_reaches_its_bound(store: Store) -> None:
    dag = Dag("loops")
    dag.loop("poll", "resize", max_iterations=3)
    async with outside(store) as (app, worker):
        job = await app.start(dag)
        first = await worker.fetch_one()
        assert (first["iteration"], "previous" in first) == (0, False)
        assert (await worker.report(first, "continue", output={"page": 1})).status_code == 200
        assert (await worker.report(first, "continue", output={"page": 1})).status_code == 409
        second = await worker.fetch_one()
        assert (second["iteration"], second["attempt"], second["previous"]) == (1, 1, {"page": 1})
        await worker.report(second, "complete", output="found")
        assert await job.result(timeout=30) == {"poll": "found"}
        endless = await app.start(dag)
        for _ in range(3):
            await worker.report(await worker.fetch_one(), "continue")
        assert "max_iterations" in ((await endless.wait_for("failed", timeout=30)).error or "")


async def test_j11_a_loop_that_has_taken_too_long_is_not_given_to_a_worker(store: Store) -> None:
    dag = Dag("loops")
    dag.loop("poll", "resize", max_duration=3600)
    async with outside(store) as (app, worker):
        job = await app.start(dag)
        await worker.report(await worker.fetch_one(), "continue", output=1)
        begun = """replace(state, '"since":', '"since":-')"""
        assert await query(store, f"UPDATE instances SET state = {begun} WHERE kind = 'task' RETURNING id")
        assert await worker.fetch(wait=0) == []
        assert "max_duration" in ((await job.wait_for("failed", timeout=30)).error or "")


async def test_j11_a_task_whose_input_cannot_be_read_now_is_not_a_failed_attempt(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails())
        await until(lambda: _has_task(app, job.id), "the task")
        graph, refused = app._services.job_graph, []

        async def unavailable(*args: Any) -> Any:
            if refused:
                return await graph(*args)
            refused.append(args)
            raise StoreUnavailable("no connection")

        monkeypatch.setattr(app._services, "job_graph", unavailable)
        task = await worker.fetch_one()
        assert (task["attempt"], len(refused)) == (1, 1)


async def test_j11_a_failed_attempt_may_say_when_the_next_one_begins(store: Store) -> None:
    async with outside(store) as (app, worker):
        await app.start(thumbnails(retry={"limit": 3, "delay": 3600}))
        task = await worker.fetch_one()
        for wrong in (-1, "1", 1e12):
            assert (await worker.report(task, "fail", error="busy", delay=wrong)).status_code == 422
        assert (await worker.report(task, "fail", error="busy", delay=0)).status_code == 200
        again = await worker.fetch_one()
        assert again["attempt"] == 2
        await worker.report(again, "fail", error="busy", delay=7200)
        [[waits]] = await query(store, f"SELECT due_at - updated_at FROM instances WHERE id = '{task['id']}'")
        assert waits == 7200 * 1_000_000


async def test_j11_an_error_has_a_code_and_its_variables_are_in_the_history(store: Store) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails(retry={"limit": 3, "delay": 0}))
        task = await worker.fetch_one()
        for wrong in ({"code": ""}, {"code": "x" * 300}, {"code": "x", "variables": [1]}):
            assert (await worker.report(task, "error", **wrong)).status_code == 422
        await worker.report(task, "error", code="NO_MONEY", variables={"amount": 5})
        await job.wait_for("failed", timeout=30)
        [thrown] = [event.data for event in await app.events(task["id"]) if event.type == "thrown"]
        assert thrown == {"code": "NO_MONEY", "variables": {"amount": 5}}


async def test_j11_the_error_of_a_worker_outside_is_kept_as_short_as_any(store: Store) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails())
        link = "https://shop.example/a/q-1?t=secret"
        task = await worker.fetch_one()
        await worker.report(task, "fail", error=f"{link} {'x' * 100_000}")
        await job.wait_for("failed", timeout=30)
        error = (await app.get(task["id"])).error or ""
        assert "secret" not in error
        assert len(error) < 20_000


async def test_j11_a_call_under_a_lost_lease_gets_409_and_changes_nothing(store: Store) -> None:
    async with outside(store, lease=1.5) as (app, worker):
        job = await app.start(thumbnails())
        lost = await worker.fetch_one(lease=1)
        task = await worker.fetch_one(lease=3600)  # waits until the lease is over: no heartbeat came
        assert (task["id"], task["attempt"]) == (lost["id"], 1)  # a lost lease is not an attempt
        before = await query(store, f"SELECT state, epoch FROM instances WHERE id = '{task['id']}'")
        for verb, body in {
            "heartbeat": {"checkpoint": 1, "stream": 2, "details": 3},
            "complete": {"output": "zombie"},
            "continue": {"output": "zombie"},
            "fail": {"error": "zombie"},
            "error": {"code": "zombie"},
        }.items():
            response = await worker.report(lost, verb, **body)
            assert response.status_code == 409, verb
            assert response.json()["type"] == "TaskLost"
            assert response.json()["status"] == "executing"
        assert await query(store, f"SELECT state, epoch FROM instances WHERE id = '{task['id']}'") == before
        assert {event.type for event in await app.events(task["id"])}.isdisjoint({"stream", "checkpoint", "heartbeat"})
        await worker.report(task, "complete", output="mine")
        assert await job.result(timeout=30) == {"resize": "mine"}


REPORTS: dict[str, dict[str, Any]] = {
    "heartbeat": {"checkpoint": 1, "stream": 2, "details": 3},
    "complete": {"output": "forged"},
    "continue": {"output": "forged"},
    "fail": {"error": "forged", "retry": False},
    "error": {"code": "forged"},
    "escalate": {"code": "forged"},
}


async def test_j11_a_worker_cannot_report_on_a_task_whose_token_it_does_not_have(store: Store) -> None:
    """The scope `work` is not enough: `mail` must not complete a `fraud-check`. What can be known of a task without its
    token is no help: its id, its epoch, its lease, the token of its claim before and of another task of that fetch."""
    dag = Dag("orders")
    for handler in ("mail", "fraud-check"):
        dag.task(handler, handler, retry={"limit": 3, "delay": 0})
    async with outside(store) as (app, worker):
        job = await app.start(dag)
        await until(lambda: _has_task(app, job.id), "both tasks")
        before = {task["handler"]: task for task in await worker.fetch("mail", "fraud-check", most=2)}
        assert set(before) == {"mail", "fraud-check"}
        check = before["fraud-check"]
        assert (await worker.report(check, "fail", error="again", delay=0)).status_code == 200
        check = await worker.fetch_one("fraud-check")
        columns = f"status, state, epoch, lease_owner FROM instances WHERE id = '{check['id']}'"
        [row] = await query(store, f"SELECT {columns}")
        assert row[3].startswith("outside:")
        forged = {
            "", "1", "x.y", f"{row[2]}.{check['id']}", f"{row[2]}", row[3], row[3].removeprefix("outside:"),
            f"²{check['token']}", check["token"][:-1], before["fraud-check"]["token"], before["mail"]["token"],
        }  # fmt: skip
        assert check["token"] not in forged
        for token in forged:
            for verb, body in REPORTS.items():
                response = await worker.report({**check, "token": token}, verb, **body)
                assert (response.status_code, response.json()["type"]) == (409, "TaskLost"), (token, verb)
        assert await query(store, f"SELECT {columns}") == [row]
        events = await app.events(check["id"])
        assert {event.type for event in events}.isdisjoint({"stream", "checkpoint", "heartbeat", "escalated"})
        assert (await worker.report(check, "complete", output="mine")).status_code == 200


async def test_j11_the_store_does_not_have_the_token_of_a_task(store: Store) -> None:
    async with outside(store) as (app, worker):
        await app.start(thumbnails())
        task = await worker.fetch_one()
        for table in ("instances", "workers", "events"):
            assert task["token"] not in str(await query(store, f"SELECT * FROM {table}"))


async def test_j11_a_cancelled_task_is_reported_to_its_worker(store: Store) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails())
        task = await worker.fetch_one()
        await app.cancel(job.id)
        beat = await worker.report(task, "heartbeat", checkpoint=1)
        assert (beat.status_code, beat.json()) == (200, {"cancelled": True, "until": None})
        assert (await worker.report(task, "complete", output=1)).status_code == 409
        assert await status(store, job.id) == "cancelled"


async def test_j11_a_gate_decides_on_the_output_of_a_worker_outside(store: Store) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails(gate="user_approval"))
        await worker.report(await worker.fetch_one(), "complete", output="draft")
        await until(lambda: asked(app, job.id), "the gate to ask")
        [question] = await app.awakeables(job=job.id)
        await app.resolve(question.id, {"action": "approve"})
        assert await job.result(timeout=30) == {"resize": "draft"}


async def test_j11_tasks_are_shared_between_workers_and_each_is_fetched_once(store: Store) -> None:
    dag = Dag("many")
    for n in range(12):
        dag.task(f"t{n}", "resize")
    async with outside(store) as (app, worker):
        waiting = [asyncio.create_task(worker.fetch("resize", most=2)) for _ in range(6)]
        job = await app.start(dag)
        fetched = [task for tasks in await asyncio.gather(*waiting) for task in tasks]
        while len(fetched) < 12:  # a fetch returns as soon as it has one
            fetched += await worker.fetch("resize", most=12)
        assert len({task["id"] for task in fetched}) == 12
        reports = await asyncio.gather(*(worker.report(task, "complete", output=task["name"]) for task in fetched))
        assert {report.status_code for report in reports} == {200}
        assert await job.result(timeout=30) == {f"t{n}": f"t{n}" for n in range(12)}


async def test_j11_no_worker_is_missed_while_one_outside_waits_for_the_task(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    dag = thumbnails()
    dag.task("publish", "publish")
    async with outside(store) as (app, worker):
        waiting = asyncio.create_task(worker.fetch())
        await until(lambda: app._clerk.arrivals._waiting, "the fetch to wait")
        await app.start(dag)
        await waiting
        await until(lambda: "the handler 'publish'" in caplog.text, "the warning")
        assert "the handler 'resize'" not in caplog.text


async def test_j11_a_client_that_disconnects_gets_no_task(store: Store) -> None:
    async with outside(store) as (app, worker):
        waiting = asyncio.create_task(worker.fetch())
        listening = app._clerk.arrivals._waiting
        await until(lambda: listening, "the fetch to wait")
        waiting.cancel()
        await until(lambda: not listening, "the server to notice that the client is gone")
        await app.start(thumbnails())
        assert (await worker.fetch_one())["attempt"] == 1


async def test_j11_a_client_that_is_gone_before_it_gets_its_task_does_not_keep_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails())
        await until(lambda: _has_task(app, job.id), "the task")
        gone, graph = asyncio.get_running_loop().create_future(), app._services.job_graph

        async def disconnect(*args: Any) -> Any:
            if not gone.done():
                gone.set_result(None)
            return await graph(*args)

        monkeypatch.setattr(app._services, "job_graph", disconnect)
        found = DoorAccess(app).fetch_tasks("node-1", ["resize"], most=1, lease=3600, wait=25, gone=gone)
        assert await found == []
        assert await leases(store) == 0
        assert (await worker.fetch_one(wait=0))["attempt"] == 1


async def test_j11_a_server_that_stops_answers_the_fetches_that_wait(store: Store) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        async with outside(store) as (app, worker):
            client.base_url = worker.client.base_url
            waiting = asyncio.create_task(OutsideWorker(client).fetch(wait=60))
            await until(lambda: app._clerk.arrivals._waiting, "the fetch to wait")
        assert await waiting == []


async def test_j11_timeout_sec_ends_the_attempt_of_a_worker_outside(store: Store) -> None:
    async with outside(store) as (app, worker):
        job = await app.start(thumbnails(timeout_sec=0.001))
        task = await worker.fetch_one()
        await asyncio.sleep(0.01)
        late = await worker.report(task, "complete", output=1)
        assert late.status_code == 409
        ended = await job.wait_for("failed", timeout=30)
        assert "timeout_sec" in (ended.error or "")


async def test_j11_tasks_need_the_scope_work_and_sound_arguments(store: Store) -> None:
    async with outside(store) as (app, worker):
        allowed = await app.create_token(scopes=["work"])
        other = await app.create_token(scopes=["read", "operate"])
        codes = {}
        for name, token in (("work", allowed), ("other", other)):
            headers = {"Authorization": f"Bearer {token.secret}"}
            body = {"worker": "w", "handlers": ["resize"], "wait": 0}
            codes[name] = (await worker.client.post("/tasks/fetch", json=body, headers=headers)).status_code
        assert codes == {"work": 200, "other": 403}
        for wrong in (
            {"handlers": []}, {"handlers": ["shell"]}, {"handlers": [""]}, {"max": 0}, {"max": 101}, {"lease": 0.5},
            {"lease": 4000}, {"wait": 61}, {"wait": -1}, {"worker": ""}, {"surprise": 1},
        ):  # fmt: skip
            body = {"worker": "w", "handlers": ["resize"], "wait": 0, **wrong}
            headers = {"Authorization": f"Bearer {allowed.secret}"}
            response = await worker.client.post("/tasks/fetch", json=body, headers=headers)
            assert response.status_code == 422, wrong
