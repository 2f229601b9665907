"""The part of FEEL that counts, as the shared examples have it (B8)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hark.programs.expressions.sources import evaluate

_SHARED = Path(os.environ.get("HARK_CONFORMANCE", Path(__file__).parents[2] / "../shared/conformance"))
_FILE = _SHARED / "feel.json"
CASES: list[dict[str, Any]] = json.loads(_FILE.read_text())["cases"] if _FILE.is_file() else []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["expression"])
def test_b8_feel_gives_the_value_of_the_shared_example(case: dict[str, Any]) -> None:
    value = evaluate(f"={case['expression']}", case.get("vars", {}))
    assert value == pytest.approx(case["value"], rel=1e-9) if type(value) is float else value == case["value"]
