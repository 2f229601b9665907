"""`make quick` leaves out what takes long: directories have their marker without being asked for it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import WITHOUT_TABLES, pytest_collection_modifyitems

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("folder", ["crash", "browser", "kernel"])
def test_every_test_of_a_marked_directory_has_its_marker(pytestconfig: pytest.Config, folder: str) -> None:
    markers: list[str] = []
    item: Any = SimpleNamespace(path=ROOT / f"tests/{folder}/test_it.py", add_marker=markers.append)
    pytest_collection_modifyitems(pytestconfig, [item])
    assert {"crash", "browser"} & {*markers} == {folder} - {"kernel"}


@pytest.mark.slow
def test_a_marker_of_a_directory_counts_for_what_is_selected() -> None:
    files = [str(next((ROOT / "tests" / folder).glob("test_*.py"))) for folder in ("crash", "browser")]
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider",
         "-m", "not crash and not browser", *files],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert listed.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, listed.stdout + listed.stderr
    assert "deselected" in listed.stdout


@pytest.mark.parametrize("pattern", WITHOUT_TABLES)
def test_what_opens_a_store_that_does_not_exist_is_still_where_it_was(pattern: str) -> None:
    """Otherwise its tests open stores that exist, and pass."""
    assert [*(ROOT / "tests").glob(pattern)]
