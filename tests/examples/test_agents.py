"""The example with agents runs to its end, and waits for its approval across a restart (J2)."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RUN = Path(__file__).resolve().parents[2] / "examples" / "agents" / "run.py"


def test_two_agents_a_person_and_a_command_work_on_an_article(tmp_path: Path) -> None:
    command = [sys.executable, "-u", str(RUN)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        lines = [first.stdout.readline() for _ in range(3)]
        assert lines[1] == "Publish Durable agents? Answer with:\n"
        first.send_signal(signal.SIGINT)
        assert "run it again" in first.communicate(timeout=100)[0]
    done = subprocess.run([*command, "--yes"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "goes on" in done.stdout
    assert "Nothing is lost: that is the point of durable agents." in done.stdout
    assert (tmp_path / "article.txt").read_text() == "Nothing is lost: that is the point of durable agents.\n"
