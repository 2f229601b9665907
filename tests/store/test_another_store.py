"""`pytest --store module:name` runs the suite on a store that Hark does not know (docs/stores.md)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.wrapped import WRAPPED_PACKAGE
from tests.support.stores import database_at

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join(map(str, filter(None, (WRAPPED_PACKAGE, ROOT, os.environ.get("PYTHONPATH")))))
SELECTION = [
    "tests/api/test_targets.py",
    "tests/promises/test_m1_steps.py",
    "tests/promises/test_m5_exit.py",
    "tests/promises/test_s3_never_lost.py",
    "tests/promises/test_x2_fencing.py",
    "tests/plans/test_statement_counts.py",
]


def suite(store: str, *tests: str) -> tuple[int, str]:
    """The exit code and the output of a run of some tests on one store."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "--store", store, *tests],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": PATH, "COLUMNS": "200"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(400)
def test_the_suite_passes_on_a_store_that_only_has_the_protocol() -> None:
    code, output = suite("tests.store.wrapped:DATABASE", *SELECTION, "tests/store/test_sql.py")
    assert code == 0, output
    passed = re.findall(r"^PASSED (\S+)", output, re.M)
    assert len(passed) > 80
    assert {test for test in passed if "[wrapped" not in test} == set()
    assert {test.partition("::")[0] for test in passed} == {*SELECTION, "tests/store/test_sql.py"}
    assert re.search(r"\d+ deselected", output)  # the tests of test_sql.py that take no store


@pytest.mark.timeout(400)
def test_the_suite_fails_on_a_store_with_a_bug() -> None:
    code, output = suite("tests.store.wrapped:LOSSY", "--exitfirst", "tests/api/test_listing.py")
    assert code == 1, output
    assert re.search(r"\d+ failed", output)


def test_what_is_not_a_database_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a tests\.support\.stores\.Database"):
        database_at("tests.store.wrapped:WrappedStore")
