"""The tables of docs/deploys.md are those of the tests: each line is a test, with the effect that the page says."""

import re

import pytest

from tests.docs.test_code_blocks import ROOT
from tests.promises.test_v3_changes import FUNCTIONS, MACHINES
from tests.promises.test_v3_changes_of_files import HANDLERS, JOBS, PROCESSES, SCHEDULES

PAGE = (ROOT / "docs" / "deploys.md").read_text("utf-8")
OF_FILES = {"Jobs": JOBS, "Processes": PROCESSES, "Handlers and gates": HANDLERS, "Schedules": SCHEDULES}
TESTED = {
    "Functions": {text: change.effect for text, change in FUNCTIONS.items()},
    "Machines": {text: change.effect for text, change in MACHINES.items()},
    **{heading: {text: effect for text, (effect, _) in table.items()} for heading, table in OF_FILES.items()},
}
HEADINGS = re.compile(r"^## Which changes are safe\n(.*?)^## ", re.MULTILINE | re.DOTALL)


def tables() -> dict[str, dict[str, str]]:
    """The tables of the page by heading: the changes with their effects."""
    [part] = HEADINGS.findall(PAGE)
    found = {}
    for section in part.split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        assert lines.pop(0) == ["change", "a live instance"]
        found[heading] = {change: effect.partition(":")[0] for change, effect in lines}
    return found


def test_v3_every_table_of_changes_has_tests() -> None:
    assert [*tables()] == [*TESTED]


@pytest.mark.parametrize("heading", TESTED)
def test_v3_every_line_of_a_table_of_changes_is_a_test_with_its_effect(heading: str) -> None:
    assert [*tables()[heading].items()] == [*TESTED[heading].items()]
