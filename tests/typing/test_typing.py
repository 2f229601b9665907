"""The types a user sees: mypy --strict and pyright accept correct code, and report each mistake.

pyright is basedpyright here, in its standard mode, which behaves as pyright does: it installs by pip alone, with the
JavaScript runtime it needs.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hark

HERE = Path(__file__).parent
CORRECT, MISTAKES = HERE / "correct.py", HERE / "mistakes.py"
SOURCE = Path(hark.__file__).parents[1]
CACHE = HERE.parents[1] / ".mypy_cache" / "typing"

Reported = dict[str, dict[int, str]]


def mypy() -> Reported:
    """What mypy reports, by file and line."""
    command = [
        sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}", "--follow-imports=silent",
        "--no-error-summary", "--no-pretty", str(CORRECT), str(MISTAKES),
    ]  # fmt: skip
    environment = {**os.environ, "MYPYPATH": str(SOURCE)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE, timeout=110, check=False)
    assert done.stderr == ""
    reported: Reported = {}
    for line in done.stdout.splitlines():
        match = re.match(r"(?:.*/)?(\w+\.py):(\d+): error: (.*)", line)
        if match:
            reported.setdefault(match[1], {})[int(match[2])] = match[3]
    return reported


def pyright(folder: Path) -> Reported:
    """What pyright reports, by file and line."""
    config = folder / "pyrightconfig.json"
    settings = {"typeCheckingMode": "standard", "include": [str(HERE)], "extraPaths": [str(SOURCE)]}
    config.write_text(json.dumps(settings))
    command = [
        sys.executable, "-m", "basedpyright", "--project", str(config), "--pythonpath", sys.executable, "--outputjson",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    reported: Reported = {}
    for found in json.loads(done.stdout)["generalDiagnostics"]:
        if found["severity"] == "error":
            line = found["range"]["start"]["line"] + 1
            reported.setdefault(Path(found["file"]).name, {})[line] = found["message"]
    return reported


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def reported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return mypy() if request.param == "mypy" else pyright(tmp_path_factory.mktemp("pyright"))


def test_correct_code_is_accepted(reported: Reported) -> None:
    assert reported.get(CORRECT.name, {}) == {}


def test_every_mistake_is_reported_and_nothing_else(reported: Reported) -> None:
    lines = MISTAKES.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    found = reported.get(MISTAKES.name, {})
    assert {number: lines[number - 1].strip() for number in wrong - found.keys()} == {}
    assert {number: found[number] for number in found.keys() - wrong} == {}
