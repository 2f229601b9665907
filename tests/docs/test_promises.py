"""Every id that code, tests and docs cite is listed, and every promise and fault is proved by the tests it links.

Ids and where they are listed: promises (M1, X8) in docs/promises.md, faults in docs/faults.md, invariants in
docs/contributing/invariants.md, findings in FINDINGS.md, decisions (0007) in docs/decisions.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".py", ".sql", ".toml", ".yml", ".yaml"}
KINDS = ("promise", "fault", "invariant", "finding", "decision")

# "invariants 3, 4 and 5"; "test_fault_1_and_3_a_park…"
NUMBERS = r"(\d+(?:(?:, | and |_and_|, and )\d+)*)"
IN_TEXT = {
    # Not after `%`, `\` or a word character: "%A0" is a byte, "0xA1" a number.
    "promise": re.compile(r"(?<![\w%\\#-])([MSABDXJTV][1-9]\d?)(?!\w)"),
    "fault": re.compile(rf"(?<![a-z])faults?[ _]{NUMBERS}", re.IGNORECASE),
    "invariant": re.compile(rf"\binvariants? {NUMBERS}", re.IGNORECASE),
    "finding": re.compile(rf"\bfindings? {NUMBERS}", re.IGNORECASE),
    "decision": re.compile(r"\bdecisions? (\d{4}(?:(?:, | and )\d{4})*)", re.IGNORECASE),
}
TEST_NAME = re.compile(r"\bdef (test_\w+)")
PROMISE_IN_NAME = re.compile(r"_([msabdxjtv][1-9]\d?)(?=_)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def files() -> Iterator[Path]:
    """What is written by hand: all of src, tests, docs, bench and examples, and the pages in the root."""
    for folder in ("src", "tests", "docs", "bench", "examples", ".github"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and not {"__pycache__", ".venvs"} & set(path.parts):
                yield path
    yield from sorted(path for path in ROOT.iterdir() if path.suffix in SUFFIXES)


@cache
def cited(path: Path) -> frozenset[tuple[str, str]]:
    """The ids in a file, as (kind, id)."""
    text = path.read_text("utf-8")
    found: set[tuple[str, str]] = set()
    for kind, pattern in IN_TEXT.items():
        for match in pattern.findall(text):
            found |= {(kind, one) for one in re.findall(r"[A-Z]?\d+", match)}
    return frozenset(found) | {
        ("promise", one) for name in (path.name, *TEST_NAME.findall(text)) for one in promises_of(name)
    }


def promises_of(name: str) -> set[str]:
    return {id.upper() for id in PROMISE_IN_NAME.findall(name)}


def faults_of(name: str) -> set[str]:
    return {id for numbers in IN_TEXT["fault"].findall(name) for id in re.findall(r"\d+", numbers)}


def entries(kind: str) -> dict[str, str]:
    """What the page of this kind lists: the text of each entry by its id."""
    match kind:
        case "promise":
            text = (ROOT / "docs/promises.md").read_text("utf-8")
            pairs = re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
        case "fault":
            pairs = re.findall(r"^\| (\d+) \|(.*)$", (ROOT / "docs/faults.md").read_text("utf-8"), re.MULTILINE)
        case "invariant":
            text = (ROOT / "docs/contributing/invariants.md").read_text("utf-8")
            pairs = re.findall(r"^### (\d+)\. (.*?)(?=^###|\Z)", text, re.MULTILINE | re.DOTALL)
        case "finding":
            pairs = re.findall(r"^\| (\d+) \|(.*)$", (ROOT / "FINDINGS.md").read_text("utf-8"), re.MULTILINE)
        case _:
            pages = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
            pairs = [(page.name[:4], page.read_text("utf-8")) for page in pages]
    ids = [id for id, _ in pairs]
    assert ids, f"no {kind} is listed"
    assert len(ids) == len(set(ids)), f"a {kind} is listed twice"
    return dict(pairs)


def linked_tests(entry: str) -> set[str]:
    links = {(ROOT / "docs" / link).resolve() for link in LINK.findall(entry) if not link.startswith(("#", "http"))}
    return {str(link.relative_to(ROOT)) for link in links if link.name.startswith("test_")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_cited_id_is_listed(kind: str) -> None:
    listed = entries(kind)
    unknown = {
        f"{path.relative_to(ROOT)} cites {kind} {id}"
        for path in files()
        for its_kind, id in cited(path)
        if its_kind == kind and id not in listed
    }
    assert not unknown


@pytest.mark.parametrize("kind", ["promise", "fault"])
def test_every_entry_links_tests_that_cite_it(kind: str) -> None:
    for id, entry in entries(kind).items():
        tests = linked_tests(entry)
        assert tests, f"{kind} {id} links no test"
        for test in tests:
            assert (ROOT / test).exists(), f"{kind} {id} links {test}, which does not exist"
            assert (kind, id) in cited(ROOT / test), f"{kind} {id} links {test}, which does not cite it"


def test_every_invariant_names_files_and_tests() -> None:
    """test_named_files.py finds them."""
    for id, entry in entries("invariant").items():
        kept, _, tests = entry.partition("- Tests:")
        assert "- Kept by `" in kept, id
        assert re.search(r"`tests/[\w/]+\.py:test_\w+`", tests), id


@pytest.mark.parametrize("kind", ["promise", "fault"])
def test_every_test_that_names_an_id_is_linked(kind: str) -> None:
    named: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name in TEST_NAME.findall(path.read_text("utf-8")):
            for id in promises_of(name) if kind == "promise" else faults_of(name):
                named[id].add(str(path.relative_to(ROOT)))
    listed = entries(kind)
    missing = [
        f"{kind} {id}: add [{test.removeprefix('tests/')}](../{test})"
        for id, tests in sorted(named.items())
        for test in sorted(tests - linked_tests(listed.get(id, "")))
    ]
    assert not missing


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: page.name
)
def test_every_link_of_the_page_resolves(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in LINK.findall(prose):
        target, _, anchor = link.partition("#")
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.is_relative_to(ROOT), f"{page.name} links {link}, outside the repository"
        assert found.exists(), f"{page.name} links {link}, which does not exist"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name} links {link}: no such heading"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings: lower case, spaces as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
