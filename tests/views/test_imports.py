"""Each view can be imported before all others: `app.why` imports its module when it is first called."""

import subprocess
import sys
from pathlib import Path

import pytest

import hark.views

VIEWS = sorted(path.stem for path in Path(hark.views.__file__).parent.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_needs_no_other_one_to_be_imported_before(view: str) -> None:
    subprocess.run([sys.executable, "-c", f"import hark.views.{view}"], check=True)
