"""`make quick` leaves out what takes long: directories have their marker without being asked for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import WITHOUT_TABLES

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("marker", ["crash", "browser"])
def test_every_test_of_the_directory_has_its_marker(marker: str) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", f"not {marker}",
         f"tests/{marker}"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert listed.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, listed.stdout + listed.stderr
    assert "deselected" in listed.stdout


@pytest.mark.parametrize("pattern", WITHOUT_TABLES)
def test_what_opens_a_store_that_does_not_exist_is_still_where_it_was(pattern: str) -> None:
    """Otherwise its tests open stores that exist, and pass."""
    assert [*(ROOT / "tests").glob(pattern)]
