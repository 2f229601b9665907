"""Commands and pages that CONTRIBUTING.md and the templates name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    ROOT / ".github/pull_request_template.md",
    *sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir()),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text("utf-8"), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    paths = re.findall(r"(?<![\w/.])((?:src|tests|docs|bench|examples)/[\w./-]*\w)", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []
