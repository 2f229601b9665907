"""B2: exports of modelers run as they are."""

from pathlib import Path
from typing import Any

from hark import BpmnError, TaskContext
from hark.testing import Harness
from tests.bpmn.small_files import definitions

FOLDER = Path(__file__).parent / "exports"


async def answer(app: Harness, *answers: Any) -> None:
    """Answer the open user tasks, in any order."""
    open_tasks = list(await app.awakeables(status="PENDING"))
    for task, given in zip(open_tasks, answers, strict=False):
        await app.resolve(task.id, given)
        await app.drain()


async def test_b2_a_process_of_camunda_7_runs(app: Harness) -> None:
    @app.handler("Assign approver group")
    async def assign(task: TaskContext) -> list[str]:
        assert task.headers == {"decisionRef": "invoice-assign-approver"}
        return ["sales", "legal"]

    @app.handler("payments")
    async def pay(task: TaskContext) -> None:
        raise BpmnError("refused", "no money")

    @app.handler("mailer")
    async def mail(task: TaskContext) -> dict[str, str]:
        return {"mailed": task.input["code"]}

    await app.deploy(FOLDER / "camunda7.bpmn")
    invoice = await app.start("invoice", {"amount": 10, "due": "P1D", "creditor": "me"})
    await app.drain()
    [task] = await app.awakeables(status="PENDING")
    assert (task.title, task.groups) == ("Approve invoice", ("sales", "legal"))
    await answer(app, {"approved": True})
    found = await invoice.get()
    assert found.status == "done"
    assert found.state["variables"] == {
        "amount": 10, "due": "P1D", "creditor": "me", "approved": True, "groups": ["sales", "legal"],
        "code": "refused", "message": "no money", "mailed": "refused",
    }  # fmt: skip


async def test_b2_a_process_of_camunda_8_runs(app: Harness) -> None:
    @app.handler("check-stock")
    async def check(task: TaskContext) -> dict[str, Any]:
        assert task.headers == {"warehouse": "north"}
        assert task.input["items"] == [1, 2]
        return {"stock": {"missing": task.input["item"]}}

    await app.deploy(FOLDER / "camunda8.bpmn")
    await app.deploy(definitions('<process id="shipping"><startEvent id="s"/></process>'))
    order = await app.start("orders", {"order": {"id": "o-1", "items": [1, 2]}, "owner": "ann", "patience": "PT1H"})
    await app.drain()
    [task] = await app.awakeables(status="PENDING")
    assert (task.title, task.assignees, task.groups) == ("Decide", ("ann",), ("sales", "managers"))
    await answer(app, {"reason": "good", "decision": "ship"})
    await app.message("payment", "o-1", {"amount": 3})
    await app.drain()
    found = await order.get()
    assert found.status == "done"
    assert found.state["variables"] == {
        "order": {"id": "o-1", "items": [1, 2], "missing": 2}, "owner": "ann", "patience": "PT1H",
        "results": [{"missing": 1}, {"missing": 2}], "reason": "good", "decision": "ship", "amount": 3,
    }  # fmt: skip


async def test_b2_a_process_of_flowable_runs(app: Harness) -> None:
    @app.handler("com.example.CallExternalSystemDelegate")
    async def call(task: TaskContext) -> dict[str, Any]:
        return {}

    await app.deploy(FOLDER / "flowable.bpmn20.xml")
    request = await app.start("holidayRequest", {"dueDate": "2030-01-01", "team": ["a", "b", "c"]})
    await app.drain()
    await answer(app, {"approved": "yes"})
    tasks = await app.awakeables(status="PENDING")
    assert sorted((task.title, task.assignees) for task in tasks) == [
        ("Tell a", ("a",)), ("Tell b", ("b",)), ("Tell c", ("c",)),
    ]  # fmt: skip
    await answer(app, {}, {})
    assert (await request.get()).status == "done"


async def test_b2_a_process_of_signavio_and_one_with_nothing_but_the_standard_run(app: Harness) -> None:
    await app.deploy(FOLDER / "signavio.bpmn")
    await app.deploy(FOLDER / "standard.bpmn")
    hiring = await app.start("sid-hiring", {"good": True})
    refused = await app.start("sid-hiring", {"good": False})
    vacation = await app.start("Vacation")
    await app.drain()
    assert (await hiring.get()).state["tokens"] == ["sid-TALK"]
    assert (await refused.get()).status == "done"
    await answer(app, {}, {})
    assert [(await one.get()).status for one in (hiring, vacation)] == ["done", "done"]
