"""J2: agents are configured without Python: `--agent`, and `HARK_AGENTS`. The job file of the first design runs as it
is."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hark import Hark, InvalidInput, load_job
from tests.doors.support_cli import HARK, Cli, run_cli, store_options
from tests.support.stores import Store

SEED = """\
tasks:
  - name: deploy
    agent:
      type: opencode
      model: claude-opus-4
    run: deploy
    gate: user_approval  # Creates awakeable and suspends task
"""
SHOW = "import sys; print(sys.argv[1:], sys.stdin.read())"


def agent(name: str, *words: str) -> list[str]:
    """The option for an agent that prints its arguments and its prompt."""
    return ["--agent", f"{name}={shlex.join([sys.executable, '-c', SHOW, *words])}"]


@contextmanager
def running(cli: Cli, *words: str) -> Iterator[None]:
    """`hark worker` or `hark serve` with these options."""
    command = [HARK, *words, *store_options(cli.store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def result_of(cli: Cli, job: str) -> Any:
    """The job, once it is done."""
    end = time.monotonic() + 60
    while (found := cli("instance", "show", job, "--json").json)["status"] != "done":
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


@pytest.fixture
def seed(tmp_path: Path) -> str:
    path = tmp_path / "release.yaml"
    path.write_text(SEED, "utf-8")
    return str(path)


def test_j2_the_job_file_of_the_first_design_runs_with_the_command_line_alone(cli: Cli, seed: str) -> None:
    run = cli("job", "run", seed, "--id", "s-1", *agent("opencode", "{model}", "two words"))
    assert run.code == 75
    assert "✓ deploy [suspended] [gate: user_approval]" in run.out
    [asked] = cli("awakeable", "list", "--job", "s-1", "--json").json
    assert cli("awakeable", "resolve", asked["id"], "--payload", '{"action":"approve"}').code == 0
    assert cli("job", "status", "s-1").out.splitlines()[1] == "✓ deploy [pending] [gate: user_approval]"
    with running(cli, "worker"):
        ended = result_of(cli, "s-1")
    assert ended["definition"] == "release", "the name of the file"
    assert ended["result"] == {"deploy": "['claude-opus-4', 'two words'] deploy"}


def test_j2_an_option_replaces_the_environment_and_that_the_agents_of_the_app(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "agency.py").write_text(
        f"from hark import Hark\nshow = {[sys.executable, '-c', SHOW]!r}\n"
        'app = Hark("sqlite:///unused.db", agents={one: [*show, "app"] for one in ("a", "b", "c")})\n',
        "utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    of_environment = {one: [sys.executable, "-c", SHOW, "environment"] for one in ("b", "c")}
    monkeypatch.setenv("HARK_AGENTS", json.dumps(of_environment))
    tasks = "".join(f"  - {{name: {one}, agent: {one}, run: go}}\n" for one in "abc")
    (tmp_path / "three.yaml").write_text(f"tasks:\n{tasks}", "utf-8")
    try:
        run = run_cli(
            "job", "run", str(tmp_path / "three.yaml"), "--json", "--app", "agency:app", *agent("c", "option"),
            *store_options(store),
        )  # fmt: skip
    finally:
        sys.modules.pop("agency", None)
    assert run.json["result"] == {"a": "['app'] go", "b": "['environment'] go", "c": "['option'] go"}


@pytest.mark.parametrize("door", ["worker", "serve"])
def test_j2_a_worker_and_a_server_have_the_agents_of_their_options(cli: Cli, seed: str, door: str) -> None:
    text = "tasks:\n  - {name: ask, agent: opencode, run: hi}\n"
    Path(seed).write_text(text, "utf-8")
    assert cli("job", "run", seed, "--detach", "--id", "w-1").code == 0
    more = ["--port", "0"] if door == "serve" else []
    with running(cli, door, *more, *agent("opencode", "x")):
        assert result_of(cli, "w-1")["result"] == {"ask": "['x'] hi"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["opencode"], "--agent opencode: write a name and a command, for example --agent opencode='opencode run'."),
        (["=cat"], "--agent =cat: write a name and a command"),
        (["a="], "--agent a=: the command is empty"),
        (["a=sh -c 'x"], "--agent a=sh -c 'x: No closing quotation. Close the quotes in the command."),
        (["a=cat", "a=dog"], "--agent a is given twice."),
        (["a:b=cat"], "--agent: agents: The agent 'a:b' contains '@', ':' or ','; use another name."),
        (["shell=cat"], "--agent: agents: The agent cannot be called 'shell'"),
    ],
)
def test_j2_an_agent_that_cannot_be_one_is_refused(seed: str, given: list[str], problem: str) -> None:
    words = [word for one in given for word in ("--agent", one)]
    for command in (["job", "run", seed], ["worker"], ["serve", "--port", "0"]):
        assert problem in run_cli(*command, *words, "--db", "sqlite://").error_line(2)


@pytest.mark.parametrize("command", ["no-such-agent", "./no-such-agent"])
def test_j2_an_agent_whose_command_is_not_there_fails_its_task_with_its_name(cli: Cli, seed: str, command: str) -> None:
    assert cli("job", "run", seed, "--id", "n-1", "--agent", f"opencode={command} run").code == 1
    task = cli("instance", "show", "n-1", "--json").json["state"]["tasks"]["deploy"]
    assert task["error"] == (
        f"the agent could not be run: the worker has no command {command!r} (in its PATH, or at this path)"
    )


def test_j2_an_agent_is_refused_where_no_worker_runs(seed: str) -> None:
    assert "--detach runs no worker" in run_cli("job", "run", seed, "--detach", "--agent", "a=cat").error_line(2)
    remote = run_cli("job", "run", seed, "--server", "http://127.0.0.1:9", "--agent", "a=cat")
    assert "with --server, this process runs no worker" in remote.error_line(2)
    assert "--no-worker runs no tasks" in run_cli("serve", "--no-worker", "--agent", "a=cat").error_line(2)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": "cat"}', '{"a": []}', '{"a:b": ["x"]}', "3"])
def test_j2_a_malformed_environment_is_refused_with_its_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARK_AGENTS", text)
    with pytest.raises(
        InvalidInput, match=r'^HARK_AGENTS: .*[^.]\. It is JSON .*\{"opencode": \["opencode", "run"\]\}\.'
    ):
        Hark("sqlite://")


def test_j2_what_is_missing_names_the_agent_and_how_to_configure_it(cli: Cli, seed: str) -> None:
    command = "hark worker --agent opencode='COMMAND …'"
    assert cli("job", "run", seed, "--id", "m-1").code == 75
    where = "".join(f" {word}" for word in store_options(cli.store))
    for shown in (
        cli("job", "status", "m-1"), cli("instance", "why", "m-1"), cli("instance", "why", "m-1.0"), cli("doctor"),
    ):  # fmt: skip
        text = " ".join(shown.out.split())
        assert "has the agent 'opencode'" in text or "the agent 'opencode' (1 instance)" in text
        assert f"`{command}{where}`" in text, shown.out


def test_j1_a_job_file_without_a_name_has_the_name_of_its_file(cli: Cli, seed: str) -> None:
    assert load_job(seed).name == "release"
    assert cli("job", "check", seed).out == "ok: release, 1 task.\n"
    assert cli("job", "graph", seed).out.splitlines()[0] == "release"
