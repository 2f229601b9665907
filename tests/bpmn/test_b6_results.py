"""B6: the result of a service task gets to its process, however large it is."""

import json
from typing import Any

import pytest

from hark import TaskContext
from hark.testing import Harness
from tests.support.inspect import query
from tests.support.stores import Store

FILE = """
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" targetNamespace="tests"
             xmlns:camunda="http://camunda.org/schema/1.0/bpmn">
  <process id="p" isExecutable="true">
    <startEvent id="start"/>
    <sequenceFlow id="f1" sourceRef="start" targetRef="task"/>
    <serviceTask id="task" camunda:type="external" camunda:topic="work" camunda:resultVariable="result"/>
    <sequenceFlow id="f2" sourceRef="task" targetRef="end"/>
    <endEvent id="end"/>
  </process>
</definitions>
"""


@pytest.mark.parametrize("result", [None, False, "", {"a": [1, {"b": None}]}, "x" * 4094, "x" * 4095, ["y" * 20_000]])
async def test_b6_a_short_result_of_a_service_task_comes_with_its_end_and_a_long_one_is_read(
    store: Store, result: Any
) -> None:
    async with Harness(url=store.url, **store.options) as app:

        @app.handler("work")
        async def work(task: TaskContext) -> Any:
            return result

        await app.deploy(FILE)
        instance = await app.start("p")
        await app.drain()
        assert (await instance.get()).state["variables"] == {"result": result}
    [[posted]] = await query(store, "SELECT payload FROM inbox WHERE kind = 'children'")
    is_short = len(json.dumps(result, separators=(",", ":"))) <= 4096
    assert json.loads(posted) == {"status": "done", **({"result": result} if is_short else {})}


MANY = """
<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" targetNamespace="tests">
  <process id="many" isExecutable="true">
    <startEvent id="start"/>
    <sequenceFlow id="f1" sourceRef="start" targetRef="ask"/>
    <userTask id="ask">
      <multiInstanceLoopCharacteristics><loopCardinality>${n}</loopCardinality></multiInstanceLoopCharacteristics>
    </userTask>
  </process>
</definitions>
"""


async def test_b6_answers_that_come_while_the_process_handles_others_count_each_once(app: Harness) -> None:
    await app.deploy(MANY)
    instance = await app.start("many", {"n": 40})
    await app.drain()
    asked = [task.id for task in await app.awakeables(status="PENDING")]
    async with app.worker():
        for replies in [[app.resolve(id, {id: True}) for id in asked[first::3]] for first in range(3)]:
            for reply in replies:
                await reply
        assert await instance.result(timeout=60) == {"n": 40, **dict.fromkeys(asked, True)}
    assert {task.status for task in await app.awakeables()} == {"RESOLVED"}
