"""The pytest plugin: the fixture `hark_app`.

pytest imports this module at every start, also for projects that never use it: it imports nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hark.testing import Harness


@pytest.fixture
def hark_app() -> Iterator[Harness]:
    """An empty Harness, open: `hark_app.register(Checkout)`, `await hark_app.start(Checkout, …)`."""
    from hark.testing import Harness

    # Opened synchronously: an async fixture would need a plugin that runs it, in a mode that does.
    with Harness() as app:
        yield app
