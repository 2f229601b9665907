"""B2–B6, B8, B10: the conformance cases, ours and those of other engines' suites.

Ours are in `cases/`, one file for each kind of element. The others are read from `shared/conformance/bpmn` beside the
repository, or from the folder that HARK_BPMN_CASES names; without it they are left out. All cases run in memory. A
sample runs on both databases, because the interpreter does not see which one it is; HARK_BPMN_ALL=1 makes that all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hark.testing import Harness
from tests.bpmn.conformance.language import Case, run_case
from tests.support.stores import Store

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_OTHERS = Path(os.environ.get("HARK_BPMN_CASES") or _ROOT.parent / "shared" / "conformance" / "bpmn")
_EACH = 1 if os.environ.get("HARK_BPMN_ALL") else 4


def _cases() -> Iterator[Case]:
    for path in sorted((_HERE / "cases").glob("*.json")):
        for data in json.loads(path.read_text("utf-8")):
            yield Case(_HERE / "files", data)
    others = _OTHERS / "cases.json"
    if others.exists():
        for data in json.loads(others.read_text("utf-8"))["cases"]:
            yield Case(_OTHERS, data)


CASES = list(_cases())
_SAMPLE = CASES[::_EACH]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_case_does_what_it_says(case: Case) -> None:
    async with Harness() as app:
        await run_case(app, case)


@pytest.mark.parametrize("case", _SAMPLE, ids=[case.id for case in _SAMPLE])
async def test_a_case_does_the_same_on_each_database(store: Store, case: Case) -> None:
    async with Harness(url=store.url, **store.options) as app:
        await run_case(app, case)


def test_no_two_cases_have_one_id() -> None:
    ids = [case.id for case in CASES]
    assert sorted({*ids}) == sorted(ids)


def test_every_file_of_ours_is_in_a_case() -> None:
    used = {name for case in CASES if case.folder == _HERE / "files" for name in case.data["files"]}
    assert used == {path.name for path in (_HERE / "files").iterdir()}
