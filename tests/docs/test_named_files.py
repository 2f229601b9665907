"""Every file that a page names or links to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
FINDINGS = ROOT / "FINDINGS.md"
FILE = re.compile(r"[\w./-]+\.(?:py|sql|md|toml|html)\b|(?<=`)[\w./-]+/(?=`)")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TERM = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def exists(name: str) -> bool:
    """Paths are relative to the root of the repository or to src/hark/."""
    return (ROOT / name).exists() or (ROOT / "src" / "hark" / name).exists()


def named_files(page: Path) -> list[str]:
    return FILE.findall(page.read_text("utf-8"))


@pytest.mark.parametrize("page", [GLOSSARY, ARCHITECTURE, FINDINGS], ids=lambda page: page.name)
def test_every_file_that_the_page_names_exists(page: Path) -> None:
    files = named_files(page)
    assert files
    assert [file for file in files if not exists(file)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_the_page_leads_to_a_file(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_map_on_the_front_page_lists_every_guide() -> None:
    links = LINK.findall((ROOT / "README.md").read_text("utf-8"))
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in links] == []


def test_the_glossary_is_in_alphabetical_order_and_names_a_file_for_each_term() -> None:
    terms = TERM.findall(GLOSSARY.read_text("utf-8"))[1:]
    names = [term.lower() for term, _, _ in terms]
    assert names == sorted(names)
    assert len(names) == len(set(names)) > 50
    for term, meaning, file in terms:
        assert FILE.findall(file), term
        assert meaning.endswith("."), term
