"""D4: `hark init` writes a project that runs, and `hark demo` runs it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hark import Handle, Instance, Reply
from tests.doors.support_cli import HARK, run_cli, run_process
from tests.doors.test_cli_server import serving


@pytest.mark.slow
def test_d4_init_writes_a_project_and_prints_commands_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_cli("init", str(tmp_path / "my shop")).out
    enter, serve, *lines = [line.strip() for line in result.splitlines() if line.startswith("  ")]
    assert shlex.split(enter) == ["cd", str(tmp_path / "my shop")]
    folder = Path(shlex.split(enter)[1])
    monkeypatch.chdir(folder)
    with serving(*shlex.split(serve)[2:], cwd=folder):
        for line in lines:
            done = subprocess.run([HARK, *shlex.split(line)[1:]], capture_output=True, text=True, check=True)
            assert done.stdout
    assert "request-1" in run_cli("instance", "list").out


@pytest.mark.slow
def test_d4_the_tests_it_writes_pass(tmp_path: Path) -> None:
    said = run_cli("init", str(tmp_path)).out
    assert "pip install pytest pytest-asyncio" in said
    assert "change app.py and restart `hark serve`" in said
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()
    assert "asyncio_default_fixture_loop_scope = function\n" in (tmp_path / "pytest.ini").read_text()


def test_d4_init_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text("precious")
    assert "is not empty" in run_cli("init", str(tmp_path)).error_line(2)
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]
    assert (tmp_path / "app.py").read_text() == "precious"
    assert "cannot be written" in run_cli("init", str(tmp_path / "app.py")).error_line(2)
    assert "cannot be written" in run_cli("init", "/proc/nowhere").error_line(2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").unlink()
    made = run_cli("init", "--json").json
    assert made["next"][0] == "hark serve --app app:app"
    assert sorted(path.name for path in tmp_path.iterdir()) == made["files"]


def test_d4_the_demo_runs_an_instance_to_its_end_and_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    folder = tmp_path / "link"  # as on macOS, where the folder for temporary files is behind a symbolic link
    folder.symlink_to(tmp_path / "real")
    elsewhere = {"HARK_DB": "sqlite:////nowhere/x.db", "HARK_SERVER": "http://127.0.0.1:1"}
    result = run_process("demo", cwd=tmp_path, env={"TMPDIR": str(folder), **elsewhere})
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("$ hark start approval --id request-1")
    assert "It waits for an answer to prom_1" in result.out
    assert "Deploy v1: yes. Go." in result.out
    assert list(folder.iterdir()) == []


def test_d4_a_demo_that_takes_too_long_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_for(self: Handle[str], status: str, timeout: float) -> Reply[Instance]:
        raise TimeoutError

    monkeypatch.setattr(Handle, "wait_for", wait_for)
    result = run_cli("demo")
    assert result.code == 1
    assert "waited 60 s for awaiting_signal and gave up. Run it again" in result.err
