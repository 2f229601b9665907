"""D4: `hark init` writes a project that runs as it says, and `hark demo` runs it before one's eyes."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doors.support_cli import HARK, call, shell
from tests.doors.test_cli_server import serving


def test_d4_init_writes_a_project_whose_next_lines_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = call("init", str(tmp_path / "my shop")).out
    enter, serve, *lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert shlex.split(enter) == ["cd", str(tmp_path / "my shop")]
    folder = Path(shlex.split(enter)[1])
    monkeypatch.chdir(folder)
    with serving(*shlex.split(serve)[2:], cwd=folder):
        for line in lines:
            done = subprocess.run([HARK, *shlex.split(line)[1:]], capture_output=True, text=True, check=True)
            assert done.stdout
    assert "request-1" in call("instance", "list").out


def test_d4_the_tests_it_writes_pass(tmp_path: Path) -> None:
    assert "pip install pytest pytest-asyncio" in call("init", str(tmp_path)).out
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_d4_init_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text("precious")
    assert "is not empty" in call("init", str(tmp_path)).line(2)
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]
    assert (tmp_path / "app.py").read_text() == "precious"
    assert "cannot be written" in call("init", str(tmp_path / "app.py")).line(2)
    assert "cannot be written" in call("init", "/proc/nowhere").line(2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").unlink()
    made = call("init", "--json").json
    assert made["next"][0] == "hark serve --app app:app"
    assert sorted(path.name for path in tmp_path.iterdir()) == made["files"]


def test_d4_the_demo_shows_a_whole_life_and_leaves_nothing(tmp_path: Path) -> None:
    said = shell("demo", cwd=tmp_path, env={"TMPDIR": str(tmp_path), "HARK_DB": "sqlite:////nowhere/x.db"})
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("$ hark start approval --id request-1")
    assert "It waits for an answer to prom_1" in said.out
    assert "Deploy v1: yes. Go." in said.out
    assert list(tmp_path.iterdir()) == []
