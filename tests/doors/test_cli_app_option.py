"""D4: `--app`: an app that cannot be loaded is one line that says what to correct, and where."""

import importlib
import os
import sys
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.doors.support_cli import run_cli, run_process

HINT = "Write it as module:app, and run the command in the folder of the module."
HARK_APP = "from hark import Hark\n\nmain = Hark()\n"


def refusal(folder: Path, given: str, **files: str) -> str:
    """What `--app` with this value says in a folder with these modules, without what all refusals begin with."""
    for name, source in files.items():
        (folder / f"{name}.py").write_text(source)
    importlib.invalidate_caches()
    with chdir(folder), patch.object(sys, "path", [*sys.path]):
        line = run_cli("worker", "--app", given, "--db", "sqlite://").error_line(2)
    for name in files:
        sys.modules.pop(name, None)
    return line.removeprefix(f"hark: --app {given} cannot be loaded: ")


@pytest.mark.parametrize("given", ["shop:app", "shop.web:app", "shop.py:app"])
def test_d4_a_module_that_is_not_found_says_how_to_name_it(tmp_path: Path, given: str) -> None:
    said = refusal(tmp_path, given)
    assert said.startswith("No module named 'shop'")
    assert said.endswith(HINT)
    assert refusal(tmp_path, ":app") == f"ValueError: Empty module name. {HINT}"


def test_d4_a_syntax_error_names_its_line_in_the_file_that_has_it(tmp_path: Path) -> None:
    files = {"shop": "import prices\n", "prices": "price = 1\n\nprices = (\n"}
    assert refusal(tmp_path, "shop:app", **files) == "SyntaxError: '(' was never closed. Correct line 3 of prices.py."


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import json\njson.loads('x')\n", "(char 0). Correct line 2 of shop.py."),  # not a line of the library
        ("\nraise RuntimeError\n", "RuntimeError. Correct line 2 of shop.py."),
        ("\nimport requets\n", "No module named 'requets'. Install it, or correct line 2 of shop.py."),
        ("from hark import Nothing\n", ". Correct line 1 of shop.py."),
        ("from hark import Hark\napp = Hark('mysql://x')\n", ". It comes from line 2 of shop.py."),
        ("def __getattr__(name):\n    return 1 / 0\n", "division by zero. Correct line 2 of shop.py."),
    ],
)
def test_d4_an_error_in_the_module_names_its_line(tmp_path: Path, source: str, says: str) -> None:
    said = refusal(tmp_path, "shop:app", shop=source)
    assert said.endswith(says)
    assert HINT not in said


def test_d4_an_installed_module_is_named_with_its_path(tmp_path: Path) -> None:
    installed, here = tmp_path / "site-packages", tmp_path / "here"
    installed.mkdir()
    here.mkdir()
    (installed / "shop.py").write_text("1 / 0\n")
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    result = run_process("worker", "--app", "shop:app", cwd=here, env={"PYTHONPATH": path})
    assert result.error_line(2).endswith(f"Correct line 1 of {installed}/shop.py.")


def test_d4_a_missing_variable_says_what_to_write(tmp_path: Path) -> None:
    assert refusal(tmp_path, "shop:nope", shop=HARK_APP) == (
        "the module shop has no variable 'nope'. Write --app shop:main."
    )
    assert refusal(tmp_path, "shop", shop=HARK_APP) == "the module shop has no variable 'app'. Write --app shop:main."
    assert refusal(tmp_path, "shop", shop=f"{HARK_APP}other = Hark()\n").endswith(
        "Write --app shop:main or --app shop:other."
    )
    assert "has no variable 'app'. Write app = Hark(…) in it, or " in refusal(
        tmp_path, "shop", shop="from hark import Hark"
    )
