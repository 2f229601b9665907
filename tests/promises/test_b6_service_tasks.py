"""B6, B4, B10: service tasks of a process, run by the same handlers and workers as the tasks of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hark import BpmnError, Handle, Hark, TaskContext, TaskLost
from hark.engine.tasks import definition_sources
from hark.testing import Harness
from tests.promises.support_jobs import handlers
from tests.promises.support_machines import harness
from tests.promises.test_j11_task_workers import outside, thumbnails
from tests.support.bpmn_text import boundary, bpmn, line, service
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store

ERROR = '<error id="declined" errorCode="declined"/>'
LATE = '<escalation id="late" escalationCode="late"/>'
ON_ERROR = '<errorEventDefinition errorRef="declined"/>'
ON_LATE = '<escalationEventDefinition escalationRef="late"/>'
CHARGE = service("charge", "charge-card", headers={"currency": "EUR"})


@asynccontextmanager
async def ordered(
    store: Store, process: str, input: dict[str, Any], charge: Any, **start: Any
) -> AsyncIterator[tuple[Harness, Handle]]:
    """An order whose card this handler charges, after it has run until nothing can run."""
    async with harness(store) as app:
        handlers(app, charge_card=charge)
        await app.deploy(process)
        yield app, await drained(app, app.start("order", input, **start))


async def variables(app: Hark, process: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await app.get(process)).state["variables"]
    return found


async def tokens(app: Hark, process: Any) -> list[str]:
    found: list[str] = (await app.get(process)).state["tokens"]
    return found


async def test_b6_a_handler_runs_a_service_task_and_its_result_is_merged(store: Store) -> None:
    seen: list[Any] = []

    def charge(task: TaskContext) -> Any:
        seen.append([task.name, task.run_id, task.attempt, task.headers, task.outputs, task.inputs])
        return {"charged": task.input["total"]}

    async with ordered(store, bpmn(line(CHARGE)), {"total": 120}, charge) as (_, order):
        assert await order.result(timeout=10) == {"total": 120, "charged": 120}
        assert seen == [["charge", order.id, 1, {"currency": "EUR"}, {}, {"total": 120}]]


async def test_b10_a_task_is_retried_as_its_element_says_and_then_an_incident(store: Store) -> None:
    attempts: list[Any] = []

    def charge(task: TaskContext) -> None:
        attempts.append((task.attempt, task.input["total"]))
        if task.input["total"] > 100:
            raise ValueError("too much")

    twice = bpmn(line(service("charge", "charge-card", retries=2)))
    async with ordered(store, twice, {"total": 120}, charge) as (app, order):
        assert attempts == [(1, 120)]
        await drained(app, app.advance(1))
        assert attempts == [(1, 120), (2, 120)]
        failed = await app.get(order)
        assert failed.status == "failed"
        [incident] = failed.state["incidents"]
        assert (incident["element"], incident["error"]) == ("charge", "ValueError: too much")
        await app.set_variables(order, {"total": 80})
        await drained(app, app.retry(order))
        assert attempts[2:] == [(1, 80)], "from its first attempt on, with the variables of now"
        assert (await app.get(order)).status == "done"


async def test_b10_a_retried_task_has_its_checkpoint_and_asks_anew(store: Store) -> None:
    seen: list[Any] = []

    async def charge(task: TaskContext) -> Any:
        kept = await task.load_checkpoint()
        answer = await (await task.awakeable(title="Charge?"))
        seen.append([kept, answer])
        await task.checkpoint(answer)
        if answer != "yes":
            raise ValueError("no")
        return {"answer": answer}

    wait = '<receiveTask id="wait" messageRef="never"/>'
    body = line('<parallelGateway id="split"/>', service("charge", "charge-card", retries=1)) + (
        f'{wait}<sequenceFlow id="a" sourceRef="split" targetRef="wait"/>'
    )
    process = bpmn(body, around='<message id="never" name="never"/>')
    async with ordered(store, process, {}, charge, correlation_key="o-1") as (app, order):
        for answer in ("no", "yes"):
            [question] = await app.awakeables(job=order.id, status="PENDING")
            await drained(app, app.resolve(question.id, answer))
            if answer == "no":
                await drained(app, app.retry(order))  # it lives: another token waits for the message
        assert seen == [[None, "no"], ["no", "yes"]]
        assert (await app.get(order)).state == {"variables": {"answer": "yes"}, "tokens": ["wait"], "incidents": []}


async def test_b4_a_bpmn_error_is_caught_by_its_code_without_another_attempt(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    def charge(task: TaskContext) -> Any:
        attempts.append(task.attempt)
        raise BpmnError(task.input["code"], "no money", {"left": 3})

    process = bpmn(line(CHARGE) + boundary("refused", "charge", ON_ERROR), around=ERROR)
    async with ordered(store, process, {"code": "declined"}, charge) as (app, caught):
        other = await drained(app, app.start("order", {"code": "lost"}))
        assert await caught.result(timeout=10) == {"code": "declined", "left": 3}
        of_caught = [record for record in caplog.records if str(vars(record).get("instance", "")).startswith(caught.id)]
        assert [record.levelname for record in of_caught] == ["WARNING"], "the model knows this outcome"
        assert "BpmnError: declined: no money" in of_caught[0].getMessage()
        stuck = await app.get(other)
        assert [one["element"] for one in stuck.state["incidents"]] == ["charge"]
        assert "'lost'" in stuck.state["incidents"][0]["error"]
        assert "no money" in stuck.state["incidents"][0]["error"]
        assert attempts == [1, 1]


@pytest.mark.parametrize("interrupting", [False, True])
async def test_b4_a_handler_escalates_while_it_runs(store: Store, interrupting: bool) -> None:
    async with Hark(store.url, **store.options) as app:
        ended = asyncio.Event()
        go_on = asyncio.Event()

        @app.handler("charge-card")
        async def charge(task: TaskContext) -> Any:
            try:
                await task.escalate("late", {"days": 3})
                await go_on.wait()
                return {"charged": True}
            finally:
                ended.set()

        body = line(CHARGE) + boundary("slow", "charge", ON_LATE, interrupting=interrupting)
        await app.deploy(bpmn(body, around=LATE))
        async with app.worker():
            order = await app.start("order", {})

            async def caught() -> bool:
                return "days" in await variables(app, order)

            await until(caught, "the escalation to be caught")
            if interrupting:
                assert await order.result(timeout=30) == {"days": 3}
                await asyncio.wait_for(ended.wait(), 30)  # its handler was cancelled
            else:
                assert await tokens(app, order) == ["charge"]
                go_on.set()
                assert await order.result(timeout=30) == {"days": 3, "charged": True}


async def test_b5_a_task_that_a_boundary_event_interrupts_is_cancelled_and_its_late_result_refused(
    store: Store,
) -> None:
    stop = '<signal id="stop" name="stop"/>'
    async with outside(store) as (app, worker):
        event = boundary("stopped", "charge", '<signalEventDefinition signalRef="stop"/>')
        await app.deploy(bpmn(line(CHARGE) + event, around=stop))
        order = await app.start("order", {})
        task = await worker.fetch_one("charge-card")
        assert (task["name"], task["headers"], task["run_id"]) == ("charge", {"currency": "EUR"}, order.id)
        await app.broadcast("stop")
        assert await order.result(timeout=30) == {}
        late = await worker.report(task, "complete", output={"charged": True})
        assert (late.status_code, late.json()["type"]) == (409, "TaskLost")
        assert (await worker.report(task, "heartbeat")).json()["cancelled"]
        assert await variables(app, order) == {}


async def test_j11_a_worker_outside_completes_fails_throws_and_escalates(store: Store) -> None:
    events = boundary("refused", "charge", ON_ERROR) + boundary("slow", "charge", ON_LATE, interrupting=False)
    charge = service("charge", "charge-card", retries=1)
    async with outside(store) as (app, worker):
        await app.deploy(bpmn(line(charge) + events, around=ERROR + LATE))
        done, failed, thrown = [await app.start("order", {"n": n}, id=f"o{n}") for n in range(3)]
        tasks = {task["run_id"]: task for _ in range(3) for task in await worker.fetch("charge-card")}
        assert [tasks[f"o{n}"]["input"] for n in range(3)] == [{"n": n} for n in range(3)]
        assert (await worker.report(tasks["o0"], "escalate", code="late", variables={"d": 1})).status_code == 200
        assert (await worker.report(tasks["o0"], "complete", output={"charged": 1})).status_code == 200
        assert (await worker.report(tasks["o1"], "fail", error="no route")).status_code == 200
        error = {"code": "declined", "message": "no money", "variables": {"left": 3}}
        assert (await worker.report(tasks["o2"], "error", **error)).status_code == 200
        assert await done.result(timeout=30) == {"n": 0, "d": 1, "charged": 1}
        assert (await failed.wait_for("failed", timeout=30)).state["incidents"][0]["error"] == "no route"
        assert await thrown.result(timeout=30) == {"n": 2, "left": 3}
        await app.start(thumbnails())
        refused = await worker.report(await worker.fetch_one("resize"), "escalate", code="late")  # of a job
        assert (refused.status_code, refused.json()["type"]) == (422, "InvalidInput")


async def test_j6_a_handler_of_a_process_receives_the_signals_of_the_process(store: Store) -> None:
    async def charge(task: TaskContext) -> Any:
        first = await task.wait_for_signal("paid", timeout=600)
        await task.put_stream("half")
        return {"paid": [first, await task.wait_for_signal("paid", timeout=600)]}

    async with ordered(store, bpmn(line(CHARGE)), {}, charge, correlation_key="o-1") as (app, order):
        await drained(app, app.signal("o-1", "paid", 1))
        await drained(app, order.signal("paid", 2))
        assert await order.result(timeout=10) == {"paid": [1, 2]}
        chunks = [event.data["chunk"] for event in await app.events(order, limit=1000) if event.type == "stream"]
        assert "half" in chunks, "the history of a run has the streams of its tasks"


async def test_a3_a_handler_of_a_process_asks_under_the_id_of_the_process(store: Store) -> None:
    async def charge(task: TaskContext) -> Any:
        question = await task.awakeable(title="Charge?")
        return {"answer": await question}

    body = line('<parallelGateway id="split"/>', CHARGE) + (
        '<userTask id="check" name="Check it"/><endEvent id="checked"/>'
        '<sequenceFlow id="a" sourceRef="split" targetRef="check"/>'
        '<sequenceFlow id="b" sourceRef="check" targetRef="checked"/>'
    )
    async with ordered(store, bpmn(body), {}, charge) as (app, order):
        asked = {one.title: one for one in await app.awakeables(job=order.id)}
        assert {one.task for one in asked.values()} == {"charge", "check"}
        await app.resolve(asked["Charge?"].id, 1)
        await drained(app, app.resolve(asked["Check it"].id, {"checked": True}))
        assert await order.result(timeout=10) == {"answer": 1, "checked": True}


async def test_b6_large_variables_are_decoded_once_for_all_tasks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    decode = definition_sources._decode
    monkeypatch.setattr(definition_sources, "_decode", lambda text: decoded.append(text) or decode(text))
    loop = (
        '<multiInstanceLoopCharacteristics><extensionElements><zeebe:loopCharacteristics inputCollection="=items" '
        'inputElement="item"/></extensionElements></multiInstanceLoopCharacteristics>'
    )
    seen: set[int] = set()

    def charge(task: TaskContext) -> None:
        assert len(task.input["text"]) == 5000
        seen.add(task.input["item"])

    for_each = bpmn(line(service("charge", "charge-card", more=loop)))
    async with ordered(store, for_each, {"items": list(range(20)), "text": "x" * 5000}, charge) as (app, order):
        assert (await app.get(order)).status == "done"
        assert seen == set(range(20))
        assert len(decoded) == 1


async def test_b6_a_service_task_without_a_handler_waits_and_this_is_visible(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(bpmn(line('<serviceTask id="ship" name="Ship, then bill: 100%"/>')))
        order = await drained(app, app.start("order", {}))
        assert await tokens(app, order) == ["ship"]
        [task] = await app.list(kind="task")
        assert "Ship, then bill: 100%" in str(await app.why(task))
        app.handler("Ship, then bill: 100%")(lambda task: {"shipped": True})
        await app.drain()
        assert await order.result(timeout=10) == {"shipped": True}


async def test_b6_a_cancelled_process_cancels_its_running_tasks(store: Store) -> None:
    async with Hark(store.url, **store.options) as app:
        began, lost = asyncio.Event(), asyncio.Event()

        @app.handler("charge-card")
        async def charge(task: TaskContext) -> Any:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                with pytest.raises(TaskLost):
                    await task.heartbeat()
                lost.set()

        await app.deploy(bpmn(line(CHARGE)))
        async with app.worker():
            order = await app.start("order", {})
            await asyncio.wait_for(began.wait(), 30)
            await order.cancel()
            await asyncio.wait_for(lost.wait(), 30)
            assert [task.status for task in (await app.list(kind="task"))] == ["cancelled"]


async def test_b6_large_variables_are_never_those_of_an_earlier_process_with_the_same_id(store: Store) -> None:
    seen: list[str] = []
    async with harness(store) as app:
        handlers(app, charge_card=lambda task: seen.append(task.input["text"][0]))
        await app.deploy(bpmn(line(CHARGE, service("again", "charge-card"))))
        for letter in "xy":
            await drained(app, app.start("order", {"text": letter * 1000}, id="o-1"))
            await app.advance(1)
            assert "o-1" in await app.forget(before=datetime.now(UTC) + timedelta(days=1))
        assert seen == ["x", "x", "y", "y"]
