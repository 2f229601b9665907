"""The part of FEEL that counts, as the shared examples have it, where they lie beside the repository (B8)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hark.programs.expressions.sources import evaluate

_SHARED = Path(os.environ.get("HARK_CONFORMANCE", Path(__file__).parents[3] / "../shared/conformance"))
_FILE = _SHARED / "feel.json"


def test_b8_feel_gives_the_values_of_the_shared_examples() -> None:
    cases: list[dict[str, Any]] = json.loads(_FILE.read_text())["cases"] if _FILE.is_file() else []
    for case in cases:
        value, expected = evaluate(f"={case['expression']}", case.get("vars", {})), case["value"]
        same = value == pytest.approx(expected, rel=1e-9) if type(value) is float else value == expected
        assert same and type(value) in (type(expected), int, float), (case["expression"], value, expected)  # noqa: PT018
