"""Every example runs to its end and prints what it promises."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
BIN = Path(sys.executable).parent


def test_01_checkout_is_killed_while_parked_and_finishes_in_a_new_process() -> None:
    example = EXAMPLES / "01_checkout.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "result: {'order': 42, 'paid': 100}" in done.stdout


@contextmanager
def demo(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the demo in a folder; yields its process and its output up to the last way to answer."""
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "02_deploy.py"), "--port", "0"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if "hark awakeable resolve" in line:
                break
        assert "hark awakeable resolve" in output, output
        yield process, output
    finally:
        process.kill()
        process.communicate()


def command_in(output: str, begin: str) -> str:
    """The printed line that starts with `begin`."""
    found = re.search(rf"^    ({begin}.*)$", output, re.MULTILINE)
    assert found, output
    return found.group(1)


@pytest.mark.parametrize("begin", ["curl", "hark"])
def test_02_deploy_still_waits_after_ctrl_c_and_each_printed_command_answers_it(tmp_path: Path, begin: str) -> None:
    with demo(tmp_path) as (process, output):
        assert "building v1" in output
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=100)[0]
        assert process.returncode == 0, rest
        assert "run it again" in rest
        assert "Traceback" not in rest
    with demo(tmp_path) as (process, output):
        assert "building" not in output
        assert "still waits" in output
        path = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            command_in(output, begin),
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=path,
        )
        assert done.returncode == 0, done.stderr
        rest = process.communicate(timeout=100)[0]
        assert process.returncode == 0, rest
        assert "result: registry/app:v1 is live" in rest


def test_02_deploy_reports_a_port_in_use_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, str(EXAMPLES / "02_deploy.py"), "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Choose another --host or --port." in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_03_feedback_agent_still_waits_after_ctrl_c_and_each_feedback_reaches_it(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "03_feedback_agent.py"), "--linger", "600"]
    path = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=path
    ) as process:  # fmt: skip
        assert process.stdout is not None
        output = ""
        while "agent: Draft 1. Waiting for user feedback" not in output:
            line = process.stdout.readline()
            assert line, f"it ended by itself: {output}"
            output += line
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=100)[0]
    assert (process.returncode, "run it again" in rest, "Traceback" in rest) == (0, True, False), rest
    send = command_in(output, "hark signal")
    done = subprocess.run(
        send, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=100, env=path, check=False
    )
    assert done.returncode == 0, done.stderr
    last = subprocess.run(
        [*command, "--feedback", "ok"], cwd=tmp_path, capture_output=True, text=True, timeout=200, env=path, check=False
    )
    assert last.returncode == 0, last.stderr
    assert "continues" in last.stdout
    assert last.stdout.count("Draft 1.") == 2, f"the handler ran again from its checkpoint: {last.stdout}"
    assert "result: Draft 3, shorter, with more examples, ok" in last.stdout


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"01_checkout.py", "02_deploy.py", "03_feedback_agent.py"}
