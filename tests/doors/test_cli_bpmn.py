"""`hark bpmn deploy|undeploy|list|check|render` and `hark instance variables`, on a store and through a server."""

import json
from pathlib import Path

import pytest

from tests.doors.support_cli import Cli, run_cli, run_process
from tests.doors.test_cli_server import serving
from tests.support.bpmn_files import BY_SIGNAL, LISTENED, ORDER

BROKEN = ORDER.replace('targetRef="end"', 'targetRef="ende"')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files, in which commands run."""
    files = {"order.bpmn": ORDER, "alarm.bpmn": BY_SIGNAL, "broken.bpmn": BROKEN, "listened.bpmn": LISTENED}
    for name, text in {**files, "text.bpmn": "hello"}.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_b2_check_agrees_with_deploy_and_prints_where_the_problems_are(cli: Cli, folder: Path) -> None:
    assert run_cli("bpmn", "check", "order.bpmn").out == "ok: order.bpmn: order\n"
    found = run_cli("bpmn", "check", "order.bpmn", "broken.bpmn", "text.bpmn")
    assert (found.code, found.err) == (1, "")
    good, broken, *text = found.out.splitlines()
    assert good == "ok: order.bpmn: order"
    line = next(n for n, one in enumerate(BROKEN.splitlines(), 1) if "ende" in one)
    assert broken.startswith(f"broken.bpmn:{line}: f2: ")
    assert all(one.startswith("text.bpmn:") for one in text)
    assert text
    for name, code in (("broken.bpmn", 2), ("text.bpmn", 2), ("listened.bpmn", 2), ("order.bpmn", 0)):
        assert cli("bpmn", "deploy", name).code == code
        assert run_cli("bpmn", "check", name).code == (1 if code else 0)
    as_json = json.loads(run_cli("bpmn", "check", "broken.bpmn", "order.bpmn", "--json").out)
    assert [(one["file"], one["ok"], one["processes"]) for one in as_json] == [
        ("broken.bpmn", False, []), ("order.bpmn", True, ["order"]),
    ]  # fmt: skip
    assert as_json[0]["problems"][0]["element"] == "f2"
    assert run_process("bpmn", "check", "-", input=ORDER.encode()).out == "ok: -: order\n"
    for missing in ("missing.bpmn", "."):
        assert missing in run_cli("bpmn", "check", missing).error_line(2)


def test_b2_check_lists_what_is_ignored(cli: Cli, folder: Path) -> None:
    assert run_cli("bpmn", "check", "listened.bpmn").code == 1
    found = run_cli("bpmn", "check", "listened.bpmn", "--ignore-extensions")
    assert found.code == 0
    first, ignored = found.out.splitlines()
    assert first == "ok: listened.bpmn: order"
    assert ignored.startswith("  ignored: line ")
    assert "approve" in ignored
    assert cli("bpmn", "deploy", "listened.bpmn", "--ignore-extensions").out == "order version 1\n"


def test_b2_a_file_with_nothing_to_deploy_is_refused_by_deploy_and_check(cli: Cli, folder: Path) -> None:
    (folder / "picture.bpmn").write_text(ORDER.replace('isExecutable="true"', 'isExecutable="false"'), "utf-8")
    deployed, checked = cli("bpmn", "deploy", "picture.bpmn"), cli("bpmn", "check", "picture.bpmn")
    assert (deployed.code, deployed.out, checked.code) == (2, "", 1)
    assert deployed.err.splitlines()[0] == checked.out.splitlines()[0]
    assert deployed.err.startswith("picture.bpmn:4: order: The process cannot be deployed, nor any other of the file: ")
    assert 'isExecutable="false"' in deployed.err


def test_b2_deploy_puts_all_files_into_the_store_or_none(cli: Cli, folder: Path) -> None:
    refused = cli("bpmn", "deploy", "order.bpmn", "broken.bpmn")
    assert (refused.code, refused.out) == (2, "")
    problem, error = refused.err.splitlines()
    assert problem.startswith("broken.bpmn:")
    assert error.startswith("hark: Nothing was deployed")
    assert "There is no definition 'order'" in cli("start", "order").error_line(3)
    assert cli("bpmn", "deploy", "order.bpmn", "alarm.bpmn").out == "order version 1\ntriggered version 1\n"
    assert cli("bpmn", "deploy", "order.bpmn", "--json").json == [{"name": "order", "version": 1}]
    assert cli("start", "order", "--input", '{"total": 3}', "--key", "order-42").code == 0
    assert cli("broadcast", "alarm", "--json").json == {"count": 1}
    shown = cli("instance", "show", "order-42", "--json").json
    assert (shown["kind"], shown["state"]) == (
        "bpmn", {"variables": {"total": 3}, "tokens": [], "incidents": []},
    )  # fmt: skip
    assert [line.split() for line in cli("bpmn", "list").out.splitlines()] == [
        ["PROCESS", "VERSION"], ["order", "1"], ["triggered", "1"],
    ]  # fmt: skip
    assert cli("bpmn", "undeploy", "order").out == "order is undeployed.\n"
    assert cli("bpmn", "list", "--json").json == [{"name": "triggered", "version": 1}]
    assert "undeployed" in cli("start", "order").error_line(3)
    cli("bpmn", "undeploy", "nothing").error_line(3)


def test_b10_variables_are_shown_and_set(cli: Cli, folder: Path) -> None:
    assert cli("bpmn", "deploy", "order.bpmn").code == 0
    assert cli("start", "order", "--input", '{"total": 3}', "--key", "order-42").code == 0
    assert cli("instance", "variables", "order-42").out.split() == ["total", "3"]
    assert cli("instance", "variables", "order-42", "total=4", "to=Bern").out.endswith(": total, to set.\n")
    instance = cli("instance", "variables", "order-42", 'list=["a"]', "--json").json
    assert instance["state"]["variables"] == {"total": 4, "to": "Bern", "list": ["a"]}
    assert cli("instance", "variables", "order-42", "--json").json == instance["state"]["variables"]
    wrong = cli("instance", "variables", "order-42", "total").error_line(2)
    assert wrong == "hark: total: write a name and a value, for example service=api."
    cli("instance", "variables", "nothing").error_line(3)


def test_b9_an_instance_is_drawn(cli: Cli, folder: Path) -> None:
    assert cli("bpmn", "deploy", "order.bpmn").code == 0
    assert cli("start", "order", "--key", "order-42").code == 0
    drawn = cli("instance", "diagram", "order-42").out
    assert drawn.startswith("<svg ")
    assert drawn.endswith("</svg>\n")
    assert cli("instance", "diagram", "order-42", "--json").json == {"svg": drawn}
    assert cli("instance", "diagram", "order-42", "-o", "order.svg").out == ""
    assert (folder / "order.svg").read_text("utf-8") == drawn
    assert "cannot be written" in cli("instance", "diagram", "order-42", "-o", "none/order.svg").error_line(2)
    cli("instance", "diagram", "nothing").error_line(3)


def test_b7_the_same_commands_work_through_a_server(folder: Path) -> None:
    with serving("--no-worker", cwd=folder) as server:

        def remote(*words: str) -> str:
            done = run_cli(*words, "--server", server)
            assert done.code == 0, done.err
            return done.out

        assert remote("bpmn", "deploy", "order.bpmn", "alarm.bpmn") == "order version 1\ntriggered version 1\n"
        assert run_cli("bpmn", "deploy", "broken.bpmn", "--server", server).code == 2
        assert remote("bpmn", "deploy", "listened.bpmn", "--ignore-extensions") == "order version 2\n"
        assert remote("bpmn", "list").split() == ["PROCESS", "VERSION", "order", "2", "triggered", "1"]
        remote("start", "order", "--input", '{"total": 3}', "--key", "order-42")
        assert remote("instance", "variables", "order-42", "total=4").endswith(": total set.\n")
        assert remote("instance", "variables", "order-42").split() == ["total", "4"]
        assert "bpmn" in remote("instance", "show", "order-42")
        assert remote("instance", "diagram", "order-42").startswith("<svg ")
        run_cli("instance", "diagram", "nothing", "--server", server).error_line(3)
        assert remote("bpmn", "undeploy", "order") == "order is undeployed.\n"
        run_cli("bpmn", "undeploy", "nothing", "--server", server).error_line(3)
