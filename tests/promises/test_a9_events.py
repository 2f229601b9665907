"""A9: every operation on an awakeable is an event of the instance that asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hark import Dag, FunctionContext, Hark, workflow
from hark.testing import Harness
from tests.promises.support_jobs import one_task, ran
from tests.promises.test_j7_waiting import is_armed, lingering
from tests.support.bpmn_text import bpmn
from tests.support.harness import drained, harness
from tests.support.inspect import rows_read, until
from tests.support.stores import Store


async def told(app: Hark, target: Any, id: str) -> list[str]:
    """What the events say about an awakeable, in order: the statuses it got, and where the code waits for it."""
    found = []
    for event in await app.events(target, limit=1000):
        if event.type == "awakeable" and event.data["awakeable"] == id:
            found.append(event.data["status"] + (" awaited" if event.data.get("awaited") else ""))
        elif event.type in ("claimed", "unclaimed", "awaited") and event.data["awakeable"] == id:
            found.append(event.type)
        elif event.type in ("await", "spawn"):
            for wait in event.data["waits"]:
                if wait.get("name") == id:
                    found.append("await" if wait.get("awaited", True) else "open")
    return found


async def only(app: Hark, job: Any, **filters: Any) -> str:
    [asked] = await app.awakeables(job=job, **filters)
    return asked.id


# -- functions -------------------------------------------------------------------------------------------


@workflow
async def ask(ctx: FunctionContext, timeout: float | None = None) -> Any:
    return await (await ctx.awakeable(timeout=timeout, title="May I?"))


async def test_a9_a_question_is_created_awaited_claimed_and_settled(store: Store) -> None:
    async with harness(store, ask) as app:
        it = await drained(app, app.start(ask))
        id = await only(app, it)
        [created] = [event for event in await app.events(it) if event.type == "awakeable"]
        assert created.data == {"awakeable": id, "status": "PENDING", "awaited": True}
        await app.claim(id, by="ann")
        await app.unclaim(id)
        await drained(app, app.resolve(id, 1, by="ann"))
        assert await it.result() == 1
        assert await told(app, it, id) == ["PENDING awaited", "await", "claimed", "unclaimed", "RESOLVED"]
        assert [event.type for event in await app.events(it)][-2:] == ["awakeable", "done"]


async def test_a9_a_question_that_is_not_awaited_yet_is_told_apart(store: Store) -> None:
    @workflow
    async def later(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.sleep(10)
        await ctx.run(asyncio.sleep, 0)
        return await question

    for resident in (2000, 0):  # in memory, and replayed
        async with harness(store, later, resident_functions=resident) as app:
            it = await drained(app, app.start(later))
            id = await only(app, it)
            assert await told(app, it, id) == ["PENDING", "open"]
            await drained(app, app.advance(10))
            assert await told(app, it, id) == ["PENDING", "open", "await"]
            await drained(app, app.reject(id, "no"))
            assert await told(app, it, id) == ["PENDING", "open", "await", "REJECTED"]


@pytest.mark.parametrize("resident", [2000, 0], ids=["in memory", "replayed"])
async def test_a9_a_question_that_is_awaited_beside_a_run_is_told_once(store: Store, resident: int) -> None:
    go = asyncio.Event()

    @workflow
    async def beside(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.wait_for_signal("begin")
        found = await ctx.gather(question, ctx.run(go.wait, name="slow"))
        await ctx.run(asyncio.sleep, 0)
        return found

    async with Hark(store.url, **store.options, resident_functions=resident) as app, app.worker():
        app.register(beside)
        it = await app.start(beside)
        await it.wait_for("awaiting_signal", timeout=60)
        await it.signal("begin")
        id = await only(app, it)

        async def awaited() -> bool:
            return "awaited" in await told(app, it, id)

        await until(awaited, "the function to await it")
        await app.resolve(id, 1)
        go.set()
        assert await it.result(timeout=60) == [1, True]
        assert await told(app, it, id) == ["PENDING", "open", "awaited", "RESOLVED"]


async def test_a9_a_timeout_is_an_event(store: Store) -> None:
    async with harness(store, ask) as app:
        it = await drained(app, app.start(ask, {"timeout": 5}))
        id = await only(app, it)
        await drained(app, app.advance(5))
        assert await told(app, it, id) == ["PENDING awaited", "await", "TIMEOUT"]


async def test_a9_a_question_that_first_withdraws_is_cancelled(store: Store) -> None:
    @workflow
    async def fastest(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        return await ctx.first(question, ctx.sleep(5))

    async with harness(store, fastest) as app:
        it = await drained(app, app.start(fastest))
        id = await only(app, it)
        await drained(app, app.advance(5))
        assert await it.result() == [1, None]
        assert await told(app, it, id) == ["PENDING awaited", "await", "CANCELLED"]


async def test_a9_the_end_of_an_instance_cancels_its_open_questions_and_no_others(store: Store) -> None:
    @workflow
    async def careless(ctx: FunctionContext, how: str) -> Any:
        left, answered, taken = [await ctx.awakeable(title=title) for title in ("left", "answered", "taken")]
        await taken
        await ctx.run(asyncio.sleep, 0)
        if how == "fail":
            raise ValueError(left.id + answered.id)
        if how == "again":
            return ctx.continue_as_new({"how": "stop"})
        if how == "cancel":
            await ctx.sleep(60)
        return None

    async with harness(store, careless) as app:
        for how in ("done", "fail", "cancel", "again"):
            it = await drained(app, app.start(careless, {"how": how}))
            ids = {asked.title: asked.id for asked in await app.awakeables(job=it)}
            await app.resolve(ids["answered"], 1)
            await drained(app, app.resolve(ids["taken"], 1))
            if how == "cancel":
                await drained(app, it.cancel())
            for title, settled in (("left", "CANCELLED"), ("answered", "RESOLVED"), ("taken", "RESOLVED")):
                found = [one for one in await told(app, it, ids[title]) if one not in ("await", "open")]
                assert [one.partition(" ")[0] for one in found] == ["PENDING", settled], (how, title)


async def test_a9_the_end_of_a_function_that_has_its_answers_asks_the_store_for_no_open_questions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement that returns them would be a round trip of its own; the other goes with the next one."""

    @workflow
    async def two(ctx: FunctionContext, both: bool) -> Any:
        first, second = await ctx.awakeable(), await ctx.awakeable()
        return [await first, await second] if both else await first

    async with harness(store, two, one_call_turns=False) as app:
        for both, reads in ((True, []), (False, [1])):
            it = await drained(app, app.start(two, {"both": both}))
            first, second = sorted(one.id for one in await app.awakeables(job=it))
            with rows_read(store, monkeypatch, "cancel_awakeables") as counts:
                if both:
                    await app.resolve(second, 2)
                await drained(app, app.resolve(first, 1))
            assert counts == reads
            assert await it.result() == ([1, 2] if both else 1)


async def test_a9_a_retry_asks_again_what_the_failure_cancelled(store: Store) -> None:
    attempts = []

    async def fragile() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("not yet")

    @workflow
    async def fails_once(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.wait_for_signal("go")
        await ctx.run(fragile)
        return await question

    async with harness(store, fails_once) as app:
        it = await drained(app, app.start(fails_once))
        id = await only(app, it)
        await drained(app, it.signal("go"))
        assert (await it.get()).status == "failed"
        assert await told(app, it, id) == ["PENDING", "open", "CANCELLED"]
        await drained(app, app.retry(it))
        await drained(app, app.resolve(id, 1))
        assert await told(app, it, id) == ["PENDING", "open", "CANCELLED", "PENDING", "await", "RESOLVED"]


# -- tasks, gates, approvals, user tasks -----------------------------------------------------------------


async def test_a9_the_questions_of_a_task_are_in_the_events_of_its_job(store: Store) -> None:
    async def work(task: Any) -> Any:
        return await (await task.awakeable(title="May I?"))

    async with ran(store, one_task(), work=work) as (app, job):
        id = await only(app, job)
        assert (await told(app, job, id))[:2] == ["PENDING", "await"]
        await drained(app, app.resolve(id, 1))
        found = await told(app, job, id)
        assert (found[0], found[-1], set(found[1:-1])) == ("PENDING", "RESOLVED", {"await"})
        assert await told(app, f"{job.id}.0", id) == found


async def test_a9_a_task_that_waits_in_its_slot_says_so_once(store: Store) -> None:
    async def work(task: Any) -> Any:
        question = await task.awakeable()
        await task.put_stream("asked")
        return await question

    async with lingering(store, work) as (app, job):
        question = await app.wait_for_awakeable(job=job, timeout=60)
        await until(lambda: is_armed(store, question.id), "the handler to wait")
        await app.resolve(question.id, 1)
        assert await job.result(timeout=60) == {"work": 1}
        assert await told(app, job, question.id) == ["PENDING", "await", "RESOLVED"]


async def test_a9_a_failed_attempt_cancels_its_questions(store: Store) -> None:
    async def work(task: Any) -> Any:
        await task.awakeable()
        raise ValueError("no")

    async with ran(store, one_task(retry={"limit": 2, "delay": 5}), work=work) as (app, job):
        assert await told(app, job, await only(app, job)) == ["PENDING", "CANCELLED"]
        await drained(app, app.advance(5))
        asked = await app.awakeables(job=job)
        assert [await told(app, job, one.id) for one in asked] == [["PENDING", "CANCELLED"]] * 2


@pytest.mark.parametrize("end", ["answer", "cancel"])
@pytest.mark.parametrize("kind", ["gate", "approval"])
async def test_a9_a_gate_and_an_approval_are_told_like_any_question(store: Store, kind: str, end: str) -> None:
    if kind == "gate":
        dag = one_task(gate="user_approval")
    else:
        dag = Dag("job")
        dag.approval("work", title="May I?")
    async with ran(store, dag, work=lambda task: 1) as (app, job):
        id = await only(app, job)
        assert await told(app, job, id) == ["PENDING", "await"]
        await drained(app, app.resolve(id, {"action": "approve"}) if end == "answer" else job.cancel())
        assert await told(app, job, id) == ["PENDING", "await", "RESOLVED" if end == "answer" else "CANCELLED"]


USER_TASK = """
    <startEvent id="s"/><sequenceFlow id="f1" sourceRef="s" targetRef="review"/>
    <userTask id="review"/><sequenceFlow id="f2" sourceRef="review" targetRef="e"/><endEvent id="e"/>
    <boundaryEvent id="late" attachedToRef="review"><timerEventDefinition>
    <timeDuration>PT10S</timeDuration></timerEventDefinition></boundaryEvent>
    <sequenceFlow id="f3" sourceRef="late" targetRef="e2"/><endEvent id="e2"/>
"""


@pytest.mark.parametrize("end", ["answer", "boundary", "cancel"])
async def test_a9_a_user_task_is_told_like_any_question(store: Store, end: str) -> None:
    async with Harness(url=store.url, **store.options) as app:
        await app.deploy(bpmn(USER_TASK))
        it = await drained(app, app.start("order"))
        id = await only(app, it)
        assert await told(app, it, id) == ["PENDING", "await"]
        match end:
            case "answer":
                await drained(app, app.resolve(id, {}))
            case "boundary":
                await drained(app, app.advance(10))
            case _:
                await drained(app, it.cancel())
        assert await told(app, it, id) == ["PENDING", "await", "RESOLVED" if end == "answer" else "CANCELLED"]
