"""B6: a process without an end stops with an error: one that calls itself, and one that does not come to rest."""

import pytest

from hark.programs.bpmn.interpreter import bpmn_children, bpmn_interpreter
from hark.testing import Harness
from tests.bpmn.small_files import bpmn_file, chain


async def test_b6_a_process_that_calls_itself_without_an_end_fails_at_a_depth(
    app: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpmn_children, "MAX_CALLS", 4)
    await app.deploy(bpmn_file(chain('<callActivity id="again" calledElement="p"/>')))
    first = await app.start("p")
    await app.drain()
    found = await app.list()
    assert [one.status for one in found] == ["failed"] * 5
    assert "4 levels deep" in str((await first.get()).error)


async def test_b6_a_loop_without_a_wait_fails_and_names_an_element_of_it(
    app: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bpmn_interpreter, "MAX_ACTIONS", 1_000)
    content = (
        '<startEvent id="s"/><task id="round"/><sequenceFlow id="f" sourceRef="s" targetRef="round"/>'
        '<sequenceFlow id="again" sourceRef="round" targetRef="round"/>'
    )
    await app.deploy(bpmn_file(content))
    one = await app.start("p")
    await app.drain()
    found = await one.get()
    assert found.status == "failed"
    assert "endless loop. It came to 'round' last. Correct" in str(found.error)
