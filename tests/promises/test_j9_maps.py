"""J9: the items of a map, when some of them cannot start, and when the list or the job changes meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from hark import Dag
from hark.programs.jobs.tasks import map_tasks
from hark.testing import Harness
from tests.promises.support_jobs import handlers, ran, statuses
from tests.support.harness import drained
from tests.support.stores import Store


def _mapping(**options: Any) -> Dag:
    regions = [{"region": "eu"}, {"name": "us"}, {"region": "asia"}]
    dag = Dag("limited", inputs={"list": regions}, **options)
    dag.map("each", "each", "{{ inputs.list }}", concurrency=2, concurrency_key="deploy:{{ item.region }}")
    return dag


async def test_j9_an_item_whose_limit_cannot_be_computed_fails_after_the_others_have_ended(store: Store) -> None:
    dag = _mapping()

    async def each(task: Any) -> Any:
        return await task.wait_for_signal("go") if task.input["region"] == "eu" else 2

    async with ran(store, dag, each=each) as (app, job):
        assert statuses(await job.get()) == {"each": "running"}, "an item still runs"
        await drained(app, app.signal(job, "go", 1))
        ended = await job.get()
        assert ended.status == "failed"
        assert "Item 1 failed: There is no key 'region'" in str(ended.error)
        assert await app.waits() == []
        items = {one.id: one.status for one in await app.list(kind="task") if one.parent_id == f"{job.id}.0"}
        assert items == {f"{job.id}.0.0": "done", f"{job.id}.0.2": "done"}


async def test_j9_with_fail_fast_an_item_whose_limit_cannot_be_computed_ends_the_others() -> None:
    async def each(task: Any) -> Any:
        return 1 if task.input["region"] == "eu" else await task.wait_for_signal("go")

    regions = [{"region": "eu"}, {"region": "us"}, {"name": "asia"}, {"region": "mars"}]
    async with ran(None, _mapping(fail_fast=True), {"list": regions}, each=each) as (app, job):
        ended = await job.get()
        assert (ended.status, statuses(ended)) == ("failed", {"each": "failed"})
        assert "Item 2 failed: There is no key 'region'" in str(ended.error)
        assert await app.waits() == []


async def test_j9_a_map_uses_its_own_list_although_another_store_has_a_map_with_the_same_id() -> None:
    dag = Dag("lists", inputs={"list": []})
    dag.map("each", "each", "{{ inputs.list }}", concurrency=1)
    async with Harness(dag) as first, Harness(dag) as second:
        handlers(second, each=lambda task: task.input)

        @first.handler("each")
        async def each(task: Any) -> Any:
            return await task.wait_for_signal("go")

        await drained(first, first.start(dag, {"list": [1, 2]}, id="job"))
        job = await drained(second, second.start(dag, {"list": [3, 4, 5]}, id="job"))
        assert (await job.get()).result == {"each": [3, 4, 5]}


@pytest.mark.parametrize("sizes", [(3, 1), (1, 3), (2, 0)])
async def test_j9_a_regression_runs_a_map_again_over_its_new_list(store: Store, sizes: tuple[int, int]) -> None:
    dag = Dag("regressing")
    dag.task("list", "list")
    dag.map("each", "each", "{{ tasks.list.output }}", after=["list"], concurrency=1)
    dag.task("beside", "beside", after=["list"], on_fail={"regress_to": "list", "limit": 1})
    lists = [list(range(size)) for size in sizes]

    async def each(task: Any) -> Any:
        return await task.wait_for_signal("go") if lists else task.input

    def beside(task: Any) -> None:
        if lists:
            raise ValueError("again")

    async with ran(store, dag, each=each, list=lambda task: lists.pop(0), beside=beside) as (app, job):
        assert (await job.get()).result["each"] == list(range(sizes[1]))
        assert await app.waits() == []


async def test_j9_a_map_whose_limits_take_long_to_compute_starts_its_items_in_several_activations(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_tasks, "_MAX_STEPS", 100)
    monkeypatch.setattr(map_tasks, "_PAUSE_AFTER", 10)
    dag = Dag("costly", inputs={"list": [{"region": f"r{number}", "all": [1] * 20} for number in range(30)]})
    dag.map("each", "each", "{{ inputs.list }}", concurrency_key="deploy:{{ item.region }}-{{ sum(item.all) }}")

    async def each(task: Any) -> Any:
        return task.input["region"]

    async with ran(store, dag, each=each) as (app, job):
        ended = await job.get()
        assert ended.status == "done"
        assert ended.result["each"] == [f"r{number}" for number in range(30)]
        types = [event.type for event in await app.events(f"{job.id}.0")]
        assert types.count("spawn") > 5


async def test_j9_a_map_whose_items_all_have_costly_limits_that_fail_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_tasks, "_MAX_STEPS", 10)
    dag = Dag("failing", inputs={"list": [{"all": [1] * 20}] * 10})
    dag.map("each", "each", "{{ inputs.list }}", concurrency_key="deploy:{{ sum(item.all) + item.region }}")
    async with ran(None, dag, each=lambda task: 1) as (_, job):
        ended = await job.get()
        assert ended.status == "failed"
        assert "10 items failed" in str(ended.error) or "(10 of 10" in str(ended.error)
