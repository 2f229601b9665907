"""`hark job check|graph|schema`: exit codes, problems with their places, drawings."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.doors.support_cli import run_cli, run_process

GOOD = "name: release\ntasks:\n  - {name: build, run: make}\n  - {name: ship, handler: ship, needs: [build]}\n"


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "release.yaml"
    path.write_text(GOOD, "utf-8")
    return str(path)


def test_j1_check_exits_0_for_a_job_1_for_problems_and_2_for_a_file_that_cannot_be_read(
    good: str, tmp_path: Path
) -> None:
    assert (run_cli("job", "check", good).code, run_cli("job", "check", good).out) == (0, "ok: release, 2 tasks.\n")
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("needs: [build]", "needs: [biuld]") + "on: push\n", "utf-8")
    found = run_cli("job", "check", str(bad))
    assert (found.code, found.err) == (1, "")
    first, second = found.out.splitlines()
    assert first == f"{bad}:4: ship: It needs 'biuld', which is not a task. Did you mean 'build'?"
    assert second.startswith(f"{bad}:5: The job has no key 'on'.")
    problems = json.loads(run_cli("job", "check", str(bad), "--json").out)["problems"]
    assert [(one["line"], one["element"]) for one in problems] == [(4, "ship"), (5, None)]
    for missing in (tmp_path / "missing.yaml", tmp_path):
        assert str(missing) in run_cli("job", "check", str(missing)).error_line(2)


def test_check_reads_standard_input() -> None:
    assert run_process("job", "check", "-", input=GOOD.encode()).out.startswith("ok: release")
    assert run_process("job", "check", "-", input=b"name: x").code == 1


def test_graph_prints_a_tree_or_a_drawing(good: str) -> None:
    assert run_cli("job", "graph", good).out.splitlines() == [
        "release", "└─ build  $ make", "   └─ ship  handler ship"
    ]  # fmt: skip
    drawing = ET.fromstring(run_cli("job", "graph", good, "--svg").out)
    texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["release", "build", "$ make", "ship", "handler ship"]
    assert run_cli("job", "graph", good, "--json").json[1]["needs"] == ["build"]


def test_the_shipped_schema_is_the_generated_one() -> None:
    """Write it anew with: hark job schema > src/hark/programs/jobs/file/job.schema.json"""
    shipped = Path(__file__).parents[2] / "src/hark/programs/jobs/file/job.schema.json"
    assert run_cli("job", "schema").out == shipped.read_text("utf-8")


def test_with_an_app_its_gates_must_be_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gate_shop.py").write_text(
        "from hark import Hark\napp = Hark('sqlite://')\n@app.gate('good')\ndef good(output, inputs): return True\n"
    )
    job = "name: j\ntasks:\n  - {name: a, run: x, gate: good}\n  - {name: b, run: x, gate: user_approval}\n"
    (tmp_path / "good.yaml").write_text(job)
    (tmp_path / "bad.yaml").write_text(job.replace("gate: good", "gate: godo"))
    assert run_cli("job", "check", "good.yaml", "--app", "gate_shop:app").code == 0
    assert run_cli("job", "check", "bad.yaml").code == 0  # which gates there are is known only with an app
    bad = run_cli("job", "check", "bad.yaml", "--app", "gate_shop:app")
    assert (bad.code, "bad.yaml:3: a: the gate 'godo' is not registered" in bad.out) == (1, True)
