"""Every file that a page names or links to exists, and so does every name that contributors' pages promise in it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
FINDINGS = ROOT / "FINDINGS.md"
CONTRIBUTING = [*sorted((ROOT / "docs" / "contributing").rglob("*.md")), ARCHITECTURE]
FILE = re.compile(r"[\w./-]+\.(?:py|sql|md|toml|html)\b|(?<=`)[\w./-]+/(?=`)")
PATH = re.compile(r"(?<![\w/.{}-])(?:[\w-]+/)+[\w.-]+\.(?:py|sql|md)\b")
NAME = re.compile(r"`([\w./-]+\.(?:py|sql)):([\w.-]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TERM = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def found(name: str) -> Path:
    """Paths are relative to the root of the repository or to src/hark/."""
    return ROOT / name if (ROOT / name).exists() else ROOT / "src" / "hark" / name


def exists(name: str) -> bool:
    return found(name).exists()


def named_files(page: Path) -> list[str]:
    return FILE.findall(re.sub(r"\]\([^)]*\)", "]", page.read_text("utf-8")))


@cache
def names_in(file: Path) -> frozenset[str]:
    """The names that `FILE:NAME` may use: a class, function, method, field, constant, or key of a table."""
    if file.suffix == ".sql":
        return frozenset(re.findall(r"[\w.-]+", file.read_text("utf-8")))
    return frozenset(_names(ast.parse(file.read_text("utf-8")).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name
            case ast.ClassDef(name=name, body=inner):
                yield prefix + name
                yield from _names(inner, f"{prefix}{name}.")
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from (prefix + one.id for one in ast.walk(target) if isinstance(one, ast.Name))
                yield from _keys(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield prefix + name
                yield from _keys(value)
            case ast.If(body=inner):
                yield from _names(inner, prefix)


def _keys(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.Dict):
        yield from (key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


@pytest.mark.parametrize("page", [GLOSSARY, FINDINGS, *CONTRIBUTING], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_the_page_names_exists(page: Path) -> None:
    files = named_files(page)
    assert files
    assert [file for file in files if not exists(file)] == []


def test_every_path_that_the_code_names_exists() -> None:
    """Relative to the root, to src/hark/, or to a folder around the file."""
    source = ROOT / "src" / "hark"
    named = [
        (path, name)
        for path in sorted([*source.rglob("*.py"), *source.rglob("*.sql")])
        for name in PATH.findall(path.read_text("utf-8"))
    ]
    assert len(named) > 50
    lost = [
        f"{path.relative_to(source)}: {name}"
        for path, name in named
        if not any((folder / name).exists() for folder in (ROOT, source, path.parent, path.parent.parent))
    ]
    assert lost == []


@pytest.mark.parametrize("page", CONTRIBUTING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_that_the_page_names_is_in_its_file(page: Path) -> None:
    named = NAME.findall(page.read_text("utf-8"))
    assert [f"{file}:{name}" for file, name in named if name not in names_in(found(file))] == []


def test_a_name_that_is_not_in_its_file_is_found() -> None:
    names = names_in(found("kernel/inbox.py"))
    assert {"Inbox", "Inbox.post", "NO_SIGNALS", "load_waits"} <= names
    assert {"Inbox.missing", "post", "self"}.isdisjoint(names)
    assert "retry" in names_in(found("programs/jobs/file/keys.py"))
    assert NAME.findall("`kernel/inbox.py:Inbox.post`") == [("kernel/inbox.py", "Inbox.post")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_the_page_leads_to_a_file(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_front_page_or_the_page_for_contributors_lists_every_page() -> None:
    linked = {
        (page.parent / link).resolve()
        for page in (ROOT / "README.md", ROOT / "docs/contributing/README.md")
        for link in LINK.findall(page.read_text("utf-8"))
    }
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page not in linked] == []


def test_the_pages_for_contributors_link_each_other() -> None:
    pages = [page for page in CONTRIBUTING if page != ARCHITECTURE]
    linked = {(page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text("utf-8"))}
    assert [str(page) for page in pages if page not in linked and page.parent.name != "contributing"] == []


def test_the_glossary_is_in_alphabetical_order_and_names_a_file_for_each_term() -> None:
    terms = TERM.findall(GLOSSARY.read_text("utf-8"))[1:]
    names = [term.lower() for term, _, _ in terms]
    assert names == sorted(names)
    assert len(names) == len(set(names)) > 50
    for term, meaning, file in terms:
        assert FILE.findall(file), term
        assert meaning.endswith("."), term
