"""README keeps what it promises: its first example survives kill -9 anywhere, and its test runs as it is pasted."""

import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest

from tests.docs.test_code_blocks import ROOT, blocks

README = ROOT / "README.md"
# Kills the process in place of its COMMIT number KILL_AT, which is also the moment after the one before.
KILLED = """
import os, signal
from hark.store.sqlite import SqliteTx

left, commit = int(os.environ["KILL_AT"]), SqliteTx.commit


async def killed(self):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    await commit(self)


SqliteTx.commit = killed
"""

# In another module: the code of the example is the same in both runs.
RUN = "import runpy; runpy.run_path('example.py', run_name='__main__')"


def block(containing: str) -> str:
    """The first Python block of README that contains a text."""
    return next(code for language, code in blocks(README) if language == "python" and containing in code)


def run(folder: Path, code: str, *how: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "example.py").write_text(code, "utf-8")
    command = [sys.executable, *(how or ("example.py",))]
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, env=env, check=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_first_example_ends_well_wherever_it_was_killed(tmp_path: Path) -> None:
    example = block("async def main()").replace("lease=5", "lease=1")  # only to save time: it is what README recommends
    assert "lease=1" in example
    for number in range(1, 100):
        folder = tmp_path / str(number)
        folder.mkdir()
        first = run(folder, example, "-c", KILLED + RUN, KILL_AT=str(number))
        if first.returncode == 0:  # it has no COMMIT of this number
            break
        assert first.returncode == -9, first.stderr
        again = run(folder, example)
        assert (again.returncode, again.stderr) == (0, ""), f"killed at COMMIT {number}"
        assert again.stdout.splitlines()[-1] == "image:v1 is live"
    assert number > 4


def test_the_first_example_prints_no_link_that_does_not_work(tmp_path: Path) -> None:
    done = run(tmp_path, block("async def main()"))
    assert (done.returncode, done.stderr) == (0, "")
    asked, result = done.stdout.splitlines()
    assert asked.startswith("Deploy v1? Waiting for an answer to prom_1")
    assert result == "image:v1 is live"
    again = run(tmp_path, block("async def main()")).stdout.splitlines()
    assert (again[0] != asked, again[1]) == (True, result)  # README says so: the key is free, and a new deploy starts


def test_readme_lists_the_extras_for_users() -> None:
    [listed] = re.findall(r"The extras are (.+?);", README.read_text("utf-8"), re.DOTALL)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"all", "dev", *re.findall(r"`(\w+)`", listed)} == {*project["optional-dependencies"]}


@pytest.mark.slow
def test_a_person_can_answer_the_first_example_as_readme_says(tmp_path: Path) -> None:
    code = block("async def main()").replace("async with app, app.worker():", "async with app:")
    start, answers, end = code.partition("        with suppress(Conflict):")
    assert len(answers.splitlines() + end.partition("\n\n\n")[0].splitlines()[1:]) == 4  # "the last four lines"
    code = f"{start}        await app.serve(port=0)\n\n\nasyncio.run(main())\n".replace("approval.id", "approval.url")
    (tmp_path / "example.py").write_text(code, "utf-8")
    command = [sys.executable, "-u", "example.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            [link] = next(found for line in server.stdout if (found := re.findall(r"http\S+/a/\S+", line)))
            with urllib.request.urlopen(link, timeout=30) as page:
                assert "Deploy v1?" in page.read().decode()
        finally:
            server.terminate()
        assert server.wait(100) == 0


def test_readme_says_when_the_work_of_a_killed_process_continues() -> None:
    text = " ".join(README.read_text("utf-8").split())
    assert re.search(r"lease of the dead process ends: 30 seconds by default", text)
    assert "hark init shop" in text


@pytest.mark.slow
def test_the_pytest_block_runs_as_it_is_pasted(tmp_path: Path) -> None:
    (tmp_path / "test_reminder.py").write_text(block("@pytest.mark.asyncio"), "utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, env=clean, check=False,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "warning" not in done.stdout
