"""B2: files as modelers write them: Camunda Modeler for 7 and 8, Flowable, Signavio, and one without extensions."""

from pathlib import Path

import pytest

from hark.programs.bpmn.bpmn_spec import CallSpec, EventSpec, NodeSpec
from hark.programs.bpmn.file import BpmnFile, read_bpmn

FOLDER = Path(__file__).parent / "exports"
FILES = sorted(path.name for path in FOLDER.iterdir())


def export(name: str) -> tuple[BpmnFile, dict[str, NodeSpec]]:
    found = read_bpmn((FOLDER / name).read_bytes())
    [spec] = found.processes
    return found, {node.id: node for node in spec.nodes}


def ignored(file: BpmnFile) -> list[str]:
    return [item.message.split()[0] for item in file.ignored]


@pytest.mark.parametrize("name", FILES)
def test_b2_an_export_is_read_as_it_is_in_every_encoding(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    assert read_bpmn(data).processes == read_bpmn(data.decode().encode("utf-16")).processes
    assert read_bpmn(data.replace(b"\n", b"\r\n")).processes == read_bpmn(data).processes


def test_b2_camunda_modeler_for_camunda_7() -> None:
    file, nodes = export("camunda7.bpmn")
    assert nodes["Activity_assign"].handler == "Assign approver group"
    assert (nodes["Activity_assign"].retries, nodes["Activity_assign"].retry_delay) == (4, 10.0)
    assert (nodes["Activity_pay"].handler, nodes["Activity_remind"].handler) == ("payments", "mailer")
    call = nodes["Activity_review"].call
    assert isinstance(call, CallSpec)
    assert [item.target for item in (*call.inputs, *call.outputs)] == ["creditor", "clarified"]
    assert ignored(file) == [
        "camunda:historyTimeToLive", "camunda:versionTag", "camunda:initiator", "Its", "camunda:asyncBefore",
        "camunda:mapDecisionResult", "camunda:formKey", "camunda:priority", "The",
    ]  # fmt: skip


def test_b2_camunda_modeler_for_camunda_8() -> None:
    file, nodes = export("camunda8.bpmn")
    check = nodes["Activity_check"]
    assert (check.handler, check.retries, check.headers) == ("check-stock", 5, {"warehouse": "north"})
    assert check.loop is not None
    assert (check.loop.kind, check.loop.collection, check.loop.output) == ("sequential", "=order.items", "=stock")
    assert nodes["Event_paid"].event == EventSpec("message", name="payment", key="=order.id")
    user = nodes["Activity_decide"].user
    assert user is not None
    assert user.schema is not None
    assert list(user.schema["properties"]) == ["reason", "decision"]
    assert (nodes["Event_refused"].kind, nodes["Event_refused"].handler) == ("service", "send-mail")
    assert "zeebe:modelerTemplate" in ignored(file)


def test_b2_flowable_design() -> None:
    file, nodes = export("flowable.bpmn20.xml")
    call = nodes["externalSystemCall"]
    assert (call.handler, call.retries) == ("com.example.CallExternalSystemDelegate", 2)
    assert call.headers == {"url": "https://example.com"}
    assert nodes["onSignal"].event_subprocess
    user = nodes["approveTask"].user
    assert user is not None
    assert user.schema is not None
    assert user.schema["required"] == ["approved"]
    assert [item for item in ignored(file) if item.startswith("flowable:")] == [
        "flowable:candidateStarterGroups", "flowable:initiator", "flowable:formFieldValidation", "flowable:formKey",
        "flowable:async",
    ]  # fmt: skip
    assert file.processes[0].variables == {"limit": 10}


def test_b2_signavio() -> None:
    file, nodes = export("signavio.bpmn")
    assert nodes["sid-READ"].name == "Read the\napplication"
    assert file.processes[0].flows[2].condition == "=good = true"
    assert ignored(file) == ["signavio:signavioMetaData", "signavio:signavioLabel"]


def test_b2_a_file_with_nothing_but_the_standard() -> None:
    file, nodes = export("standard.bpmn")
    assert nodes["_ask"].user is not None
    assert nodes["_ask"].user.groups == "bosses"
    assert nodes["_end"].event == EventSpec("signal", name="vacation decided")
    assert ignored(file) == ["tool:logo"]
