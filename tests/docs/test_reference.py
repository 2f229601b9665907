"""docs/reference.md is what the docstrings say, and the docstrings explain every public name, method and parameter."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

import hark
from docs import make_reference
from hark.model.outcomes import Outcome

ROOT = Path(__file__).parents[2]


def test_every_public_name_method_and_parameter_is_documented() -> None:
    assert list(make_reference.undocumented()) == []


def test_the_page_is_up_to_date() -> None:
    assert make_reference.PAGE.read_text("utf-8") == make_reference.page(), "run `make reference`"


def test_every_public_name_is_on_the_page() -> None:
    page = make_reference.page()
    for name in [*hark.__all__, "Harness"]:
        assert f"### {name}\n" in page or f"| `{name}` |" in page, name


def test_the_main_verbs_have_an_example() -> None:
    for verb in (
        "start", "start_many", "signal", "signal_with_start", "broadcast", "resolve", "wait_for_awakeable", "get",
        "list", "result", "why", "cancel", "create_token", "register", "worker", "serve",
    ):  # fmt: skip
        assert "Example" in make_reference.doc_of(getattr(hark.Hark, verb)).sections, verb


def test_every_list_of_the_outcomes_is_complete() -> None:
    names = {outcome.__name__ for outcome in get_args(Outcome)}
    lists = {}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "docs/make_reference.py"]:
        for match in re.finditer(r"Next`?,\s+`?Retry`?,\s+`?Await.*?Stop", path.read_text("utf-8"), re.DOTALL):
            lists[f"{path.relative_to(ROOT)}: {match[0]}"] = set(re.findall(r"\w+", match[0]))
    rows = re.findall(r"^\| `(\w+)\(", (ROOT / "docs/machines.md").read_text("utf-8"), re.MULTILINE)
    lists["the table of docs/machines.md"] = set(rows)
    assert len(lists) > 5
    assert {where: names - listed for where, listed in lists.items() if names - listed} == {}


def undocumented_verb(self: Any) -> None: ...


def undocumented_parameter(self: Any, target: str) -> None:
    """Do something."""


@pytest.mark.parametrize(
    ("verb", "reported"),
    [
        (undocumented_verb, "Hark.verb has no docstring"),
        (undocumented_parameter, "Hark.verb: parameter target"),
    ],
)
def test_a_verb_without_documentation_is_found(monkeypatch: pytest.MonkeyPatch, verb: Any, reported: str) -> None:
    monkeypatch.setattr(hark.Hark, "verb", verb, raising=False)
    assert list(make_reference.undocumented()) == [reported]


def test_a_public_name_without_documentation_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Undocumented:
        __module__ = "hark.app"

        def verb(self) -> None: ...

    monkeypatch.setattr(hark, "Undocumented", Undocumented, raising=False)
    monkeypatch.setattr(hark, "__all__", [*hark.__all__, "Undocumented"])
    assert list(make_reference.undocumented()) == [
        "Undocumented is in no section of make_reference.py",
        "Undocumented has no docstring",
        "Undocumented.verb has no docstring",
    ]
