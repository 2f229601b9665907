"""Pages name their subject: the instance, the worker, the caller (decision 9)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
UNNAMED = re.compile(r"\b(?:whom|whoever|nobody|somebody|everybody|anybody|mend(?:ed|s)?)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_names_its_subjects(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", page.read_text("utf-8"))
    found = [f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in UNNAMED.finditer(text)]
    assert found == []
