"""B6: the ids of user tasks and called processes, and who has answered, in variables that the file names."""

from __future__ import annotations

from hark.testing import Harness
from tests.bpmn.small_files import chain, definitions

_FILE = definitions(
    '<process id="called" isExecutable="true">'
    + chain(
        '<userTask id="ask" flowable:taskIdVariableName="${kind}Id" flowable:taskCompleterVariableName="answeredBy"/>'
    )
    + '</process><process id="caller" isExecutable="true">'
    + chain('<callActivity id="call" calledElement="called" flowable:idVariableName="calledId"/>')
    + "</process>"
)


async def test_b6_the_ids_of_a_user_task_and_of_a_called_process_are_in_variables_while_they_run(app: Harness) -> None:
    await app.deploy(_FILE)
    caller = await app.start("caller", {"kind": "task"})
    await app.drain()
    [called] = [one for one in await app.list() if one.parent_id == caller.id]
    [question] = await app.awakeables(status="PENDING")
    assert (await caller.get()).state["variables"] == {"kind": "task", "calledId": called.id}
    assert called.state["variables"] == {"kind": "task", "taskId": question.id}


async def test_b6_who_has_answered_a_user_task_is_in_a_variable_and_null_if_that_is_not_known(app: Harness) -> None:
    await app.deploy(_FILE)
    first, second = await app.start("called", {"kind": "task"}), await app.start("called", {"kind": "other"})
    await app.drain()
    for started, by in ((first, "ann"), (second, None)):
        [question] = [one for one in await app.awakeables(status="PENDING") if one.instance_id == started.id]
        await app.resolve(question.id, {"ok": 1}, by=by)
    await app.drain()
    answers = [await first.result(), await second.result()]
    assert [(each["ok"], each["answeredBy"]) for each in answers] == [(1, "ann"), (1, None)]
