"""`hark job run|status|list|cancel|retry|logs`: exit codes, what is shown, the flow of an approval (J5)."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hark.engine.turns.clerk import Clerk
from tests.doors.support_cli import HARK, Cli, CliResult, run_cli, run_process, store_options
from tests.doors.test_cli_process import on_a_terminal
from tests.support.stores import Store

APPROVAL = """\
name: approval
inputs: {version: v1, size: 1}
tasks:
  - {name: build, run: "echo building >&2; echo app-{{ inputs.version }}", var: image}
  - {name: verify, run: "echo checked", needs: [build], gate: user_approval}
  - {name: deploy, run: "echo deployed {{ tasks.build.output }}", needs: [verify]}
"""
QUICK = 'name: quick\ntasks:\n  - {name: a, run: "echo 1"}\n  - {name: b, type: sleep, seconds: 0.1, needs: [a]}\n'
FAILS = 'name: fails\ntasks:\n  - {name: a, run: "echo no >&2; exit 3"}\n  - {name: b, run: "true", needs: [a]}\n'


class Jobs:
    """The command line on a store, with job files in a folder."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.cli = cli
        self.folder = folder

    def file(self, text: str) -> str:
        path = self.folder / f"{re.match('name: (.*)', text)[1]}.yaml"  # type: ignore[index]
        path.write_text(text, "utf-8")
        return str(path)

    def __call__(self, *words: str) -> CliResult:
        return self.cli("job", *words)

    def until(self, job: str, status: str) -> Any:
        end = time.monotonic() + 60
        while True:
            found = self.cli("instance", "show", job, "--json").json
            if found["status"] == status:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.05)


@pytest.fixture
def jobs(cli: Cli, tmp_path: Path) -> Jobs:
    return Jobs(cli, tmp_path)


@contextmanager
def worker(store: Store) -> Iterator[None]:
    """`hark worker` without an app."""
    with subprocess.Popen([HARK, "worker", *store_options(store)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "working" in process.stdout.readline()
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(100) == 0


def test_j5_a_job_that_ends_exits_with_0_and_prints_its_results(jobs: Jobs) -> None:
    done = jobs("run", jobs.file(QUICK), "--id", "q-1")
    assert done.code == 0, done
    assert "✓ a [completed]" in done.out
    assert "✓ b [completed]" in done.out
    assert "quick q-1 is done.\n" in done.out
    final = jobs("run", jobs.file(QUICK), "--json").json
    assert (final["status"], final["result"]["a"]) == ("done", "1")
    assert final["state"]["tasks"]["a"]["status"] == "completed"


def test_j5_a_run_opens_its_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_store = Clerk.open

    def counting(clerk: Clerk) -> Any:
        opened.append(clerk.access)
        return open_store(clerk)

    monkeypatch.setattr(Clerk, "open", counting)
    (tmp_path / "quick.yaml").write_text(QUICK, "utf-8")
    run = ("job", "run", str(tmp_path / "quick.yaml"), "--detach", "--db", f"sqlite:///{tmp_path}/new.db")
    assert run_cli(*run).code == 0
    assert opened == ["migrate"]  # there was no file
    assert run_cli(*run).code == 0
    assert opened == ["migrate", "write"]
    with closing(sqlite3.connect(tmp_path / "empty.db")) as db:
        db.execute("VACUUM")
    assert run_cli(*run[:-1], f"sqlite:///{tmp_path}/empty.db").code == 0
    assert opened[2:] == ["write", "migrate"]  # a file without tables


def test_j5_the_approval_flow_of_the_first_design_works_to_the_letter(jobs: Jobs, store: Store) -> None:
    run = jobs("run", jobs.file(APPROVAL), "--id", "test-job-1", "--input", "version=v2")
    assert run.code == 75, run
    assert "✓ verify [suspended] [gate: user_approval]" in run.out
    status = jobs("status", "test-job-1")
    assert status.code == 0
    assert re.search(r"^✓ verify \[suspended\] \[gate: user_approval\]", status.out, re.M)
    [command] = re.findall(r"^ +(hark awakeable resolve prom_1\S+ --payload .*)$", status.out, re.M)
    listed = jobs.cli("awakeable", "list", "--job", "test-job-1").out.splitlines()
    assert re.fullmatch(r"\[·\] prom_1\S+", listed[0])
    assert [line.strip() for line in listed[1:4]] == ["Job: test-job-1", "Task: verify", "Status: PENDING"]
    assert listed[0].split()[1] in command
    assert jobs.cli("awakeable", "resolve", listed[0].split()[1], "--payload", '{"action":"approve"}').code == 0
    with worker(store):
        done = jobs.until("test-job-1", "done")
    assert done["result"] == {"image": "app-v2", "verify": "checked", "deploy": "deployed app-v2"}
    assert re.search(r"^✓ verify \[completed\]", jobs("status", "test-job-1").out, re.M)
    types = [event["type"] for event in jobs.cli("events", "--job", "test-job-1", "--json").json]
    assert "stream" in types  # the events of its tasks are among them
    assert "build | building\n" in jobs("logs", "test-job-1").out
    assert jobs("logs", "test-job-1", "--task", "deploy").out == ""
    assert "Did you mean 'deploy'?" in jobs("logs", "test-job-1", "--task", "deplyo").error_line(2)
    assert jobs("logs", "test-job-1", "-f").out == jobs("logs", "test-job-1").out  # it has ended


def test_j5_a_failed_job_exits_with_1_and_is_retried(jobs: Jobs, store: Store) -> None:
    done = jobs("run", jobs.file(FAILS), "--id", "f-1")
    assert done.code == 1, done
    assert "✗ a [failed]" in done.out
    assert "- b [skipped]" in done.out
    assert "Task 'a' failed" in done.err
    assert done.err.count("\n") == 1
    again = jobs("retry", "f-1")
    assert (again.code, "f-1 is" in again.out) == (0, True)
    assert jobs("retry", "f-1").code == 4  # it runs, or will
    assert jobs("cancel", "f-1", "--reason", "enough").code == 0
    assert jobs("cancel", "f-1").code == 4
    assert jobs("status", "f-1", "--json").json["job"]["status"] == "cancelled"


def test_j5_detach_starts_the_job_and_wait_stays_until_it_is_answered(jobs: Jobs, store: Store) -> None:
    assert jobs("run", jobs.file(QUICK), "--detach", "--id", "d-1").out == "d-1\n"
    assert "d-1" in jobs("list").out
    assert jobs("status", "d-1").out.count("[pending]") == 2
    where = store_options(store)
    with subprocess.Popen(
        [HARK, "job", "run", jobs.file(APPROVAL), "--wait", "--id", "w-1", *where], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search("hark awakeable resolve (prom_1\\S+)", line):
                break
        jobs.until("d-1", "done")  # the worker of this run did it
        assert jobs.cli("awakeable", "resolve", found[1], "--payload", '{"action":"approve"}').code == 0  # type: ignore[index]
        assert "✓ deploy [completed]" in process.stdout.read()
        assert process.wait(100) == 0
    listed = jobs("list", "--json").json
    assert {(one["id"], one["status"]) for one in listed} == {("d-1", "done"), ("w-1", "done")}
    assert "3/3" in jobs("list", "--name", "approval").out


def test_j5_a_rejected_gate_fails_the_job(jobs: Jobs, store: Store) -> None:
    assert jobs("run", jobs.file(APPROVAL), "--id", "r-1").code == 75
    [question] = jobs.cli("awakeable", "list", "--job", "r-1", "--json").json
    answer = json.dumps({"action": "reject", "reason": "too early"})
    assert jobs.cli("awakeable", "resolve", question["id"], "--payload", answer).code == 0
    with worker(store):
        jobs.until("r-1", "failed")
    out = jobs("status", "r-1").out
    assert "✗ verify [failed]" in out
    assert "too early" in out


def test_usage_errors_exit_with_2_and_what_does_not_exist_with_3(jobs: Jobs) -> None:
    good, bad = jobs.file(QUICK), jobs.file("name: bad\ntasks: []\n")
    assert "tasks is empty" in jobs("run", bad).error_line(2)
    assert "cannot be read" in jobs("run", str(jobs.folder / "missing.yaml")).error_line(2)
    assert "--input x" in jobs("run", good, "--input", "x").error_line(2)
    assert "given twice" in jobs("run", good, "--input", "x=1", "--input", "x=2").error_line(2)
    assert "no input 'nothing'" in jobs("run", jobs.file(APPROVAL), "--input", "nothing=1").error_line(2)
    assert "nope" in jobs("status", "nope").error_line(3)
    chosen = "0123abcd-0000-7000-8000-000000000000"
    assert jobs("run", good, "--id", chosen).code == 0
    assert chosen in jobs("status", chosen[:13]).out  # its tasks, whose ids begin with it too, are not meant
    assert jobs("run", good, "--detach", "--id", "twice").code == 0
    assert "twice" in jobs("run", good, "--detach", "--id", "twice").error_line(4)


def test_a_handler_or_agent_that_no_worker_has_is_named(jobs: Jobs) -> None:
    text = (
        "name: lost\ntasks:\n  - {name: a, handler: charge-card}\n  - {name: b, type: map, over: [1], handler: lost}\n"
        "  - {name: c, agent: opencode, run: hello}\n"
    )
    run = jobs("run", jobs.file(text), "--id", "l-1")
    assert run.code == 75
    assert "No worker has the handler 'charge-card'." in run.out
    assert "No worker has the handler 'lost'." in run.out
    assert "No worker has the agent 'opencode'." in run.out
    assert "No worker has the handler 'charge-card'." in jobs("status", "l-1").out
    why = " ".join(jobs.cli("instance", "why", "l-1").out.split())
    assert "these have not ended: l-1.0 (runnable at a), " in why
    assert "No Hark worker is running: start one with `hark worker" in why


def test_a_job_with_finally_tasks_says_that_they_run_before_it_is_cancelled(jobs: Jobs) -> None:
    text = "name: closing\ntasks:\n  - {name: a, type: approval, title: Go?}\nfinally:\n  - {name: b, run: echo bye}\n"
    assert jobs("run", jobs.file(text), "--id", "f-1").code == 75
    assert "its `finally` tasks and undos run first" in jobs("cancel", "f-1").out


def test_a_live_table_is_drawn_on_a_terminal(sqlite_store: Store, tmp_path: Path) -> None:
    file = Jobs(Cli(sqlite_store), tmp_path).file(QUICK)
    out = on_a_terminal("job", "run", file, *store_options(sqlite_store))
    assert "TASK" in out
    assert "ATTEMPT" in out
    assert "\x1b[" in out


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_leave_the_job_to_other_workers(
    sqlite_store: Store, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    jobs = Jobs(Cli(sqlite_store), tmp_path)
    file = jobs.file(APPROVAL)
    where = store_options(sqlite_store)
    with subprocess.Popen(
        [HARK, "job", "run", file, "--wait", "--id", "c-1", *where],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if "[suspended]" in line:
                break
        process.send_signal(how)
        assert process.wait(100) == code
        said = process.stderr.read()
        assert "hark worker" in said
        assert "`hark job status c-1" in said
    assert run_cli("workers", "--json", *where).json == []  # it has given up its lease
    assert "[suspended]" in run_cli("job", "status", "c-1", *where).out


def test_a_job_runs_on_a_server(sqlite_store: Store, tmp_path: Path) -> None:
    jobs = Jobs(Cli(sqlite_store), tmp_path)
    with subprocess.Popen(
        [HARK, "serve", "--port", "0", *store_options(sqlite_store)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            remote = ["--server", server.stdout.readline().split()[2].rstrip(";")]
            done = run_process("job", "run", jobs.file(QUICK), *remote)
            assert done.code == 0, done
            assert "✓ b [completed]" in done.out
            waits = run_cli("job", "run", jobs.file(APPROVAL), "--id", "s-1", "--json", *remote)
            assert waits.code == 75, waits
            assert json.loads(waits.out)["state"]["tasks"]["verify"]["status"] == "suspended"
            assert "✓ verify [suspended] [gate: user_approval]" in run_cli("job", "status", "s-1", *remote).out
            assert "build | building" in run_cli("job", "logs", "s-1", *remote).out
            assert run_cli("job", "run", jobs.file("name: bad\ntasks: []\n"), *remote).code == 2
            assert len(run_cli("job", "list", "--json", *remote).json) == 2
            assert run_cli("job", "cancel", "s-1", *remote).code == 0
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(100)


def test_j5_a_job_whose_handlers_only_wait_is_suspended_at_once(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tasks would keep their slots for an hour, and the command runs a worker only for this job."""
    (tmp_path / "waiting_shop.py").write_text(
        "from hark import Hark\n\napp = Hark(linger=3600)\n\n\n@app.handler('ask')\nasync def ask(task):\n"
        "    return await task.wait_for_signal('said', 600)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "waiting_shop", raising=False)
    run = jobs("run", jobs.file("name: asking\ntasks:\n  - {name: a, handler: ask}\n"), "--app", "waiting_shop:app")
    assert run.code == 75, run
    assert "a [suspended]" in run.out
