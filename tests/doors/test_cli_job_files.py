"""`hark job check|graph|schema`: exit codes, problems with their places, drawings."""

import asyncio
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from hark import Hark
from tests.doors.support_cli import run_cli, run_process, store_options
from tests.support.http import serving
from tests.support.stores import Store

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


NEEDS = """\
name: needy
tasks:
  - {name: a, handler: charge, gate: size-limit, undo: refund}
  - {name: b, agent: opencode, run: hi}
  - {name: c, run: x, gate: "{{ output }}"}
  - {name: d, run: x, gate: {user_approval: {title: Ok?}}}
"""


@pytest.fixture
def needy(tmp_path: Path) -> str:
    path = tmp_path / "needy.yaml"
    path.write_text(NEEDS, "utf-8")
    return str(path)


def test_j4_a_check_that_cannot_look_for_gates_says_so(needy: str) -> None:
    found = run_cli("job", "check", needy)
    assert (found.code, found.out) == (0, "ok: needy, 4 tasks.\n")
    assert found.err == (
        f"{needy}: warning: not checked whether there is the gate 'size-limit', the handler 'charge', the handler "
        "'refund', the agent 'opencode': give --app, --db or --server.\n"
    )
    assert run_cli("job", "check", needy, "--json").json["warnings"] == [found.err.split("warning: ")[1].strip()]


async def test_j4_a_check_with_a_store_or_a_server_asks_the_live_workers(needy: str, store: Store) -> None:
    app = Hark(store.url, **store.options)
    app.gate("size-limit")(lambda output, inputs: True)
    app.handler("charge")(lambda task: 1)
    where = store_options(store)
    async with serving(app, worker=False) as client:
        for options in (where, ["--server", str(client.base_url)]):
            bad = await asyncio.to_thread(run_cli, "job", "check", needy, *options)
            assert (bad.code, bad.out) == (1, f"{needy}:3: a: the gate 'size-limit' is not registered\n")
    async with serving(app) as client:
        for options in (where, ["--server", str(client.base_url)]):
            found = await asyncio.to_thread(run_cli, "job", "check", needy, *options)
            assert (found.code, found.out) == (0, "ok: needy, 4 tasks.\n"), found
            assert [line.partition("warning: ")[2] for line in found.err.splitlines()] == [
                "a: the handler 'refund' is not registered in a live worker; the task waits until a worker has it.",
                "b: the agent 'opencode' is not registered in a live worker; the task waits until a worker has it.",
            ]


def test_j4_a_check_with_an_app_knows_its_agents_too(
    needy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HARK_AGENTS", '{"opencode": ["cat"]}')
    (tmp_path / "needed.py").write_text(
        "from hark import Hark\napp = Hark('sqlite://')\napp.gate('size-limit')(lambda output, inputs: True)\n"
    )
    found = run_cli("job", "check", needy, "--app", "needed:app", "--json").json
    assert found["warnings"] == [
        f"a: the handler {name!r} is not registered in the app; the task waits until a worker has it."
        for name in ("charge", "refund")
    ]


def test_j4_a_store_of_the_environment_that_is_not_there_is_a_warning(
    needy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARK_DB", f"sqlite:///{tmp_path}/nowhere.db")
    found = run_cli("job", "check", needy)
    assert (found.code, found.out) == (0, "ok: needy, 4 tasks.\n")
    assert "not checked whether there is the gate 'size-limit'" in found.err
    assert "nowhere.db" in found.err


def test_j4_a_check_on_a_store_that_does_not_exist_cannot_look(needy: str, tmp_path: Path) -> None:
    assert "nowhere.db" in run_cli("job", "check", needy, "--db", f"sqlite:///{tmp_path}/nowhere.db").error_line(2)
