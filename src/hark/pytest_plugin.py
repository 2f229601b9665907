"""The pytest plugin: the fixture `hark_app`, and the option `--hark-coverage`.

pytest imports this module at every start, also for projects that never use it: it imports nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hark.testing import Harness
    from hark.views.bpmn_coverage import PathCoverage


@pytest.fixture
def hark_app() -> Iterator[Harness]:
    """An empty Harness, open: `hark_app.register(Checkout)`, `await hark_app.start(Checkout, …)`."""
    from hark.testing import Harness

    # Opened synchronously: an async fixture would need a plugin that runs it, in a mode that does.
    with Harness() as app:
        yield app


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("hark").addoption(
        "--hark-coverage", action="store_true", help="print which sequence flows of BPMN processes the tests took"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the coverage of every closed Harness, if the option is given."""
    if config.getoption("--hark-coverage"):
        config.pluginmanager.register(CoverageReport(config), "hark-coverage")


class CoverageReport:
    """Adds up the coverage of all tests, also of those that other processes of pytest-xdist run, and prints it."""

    def __init__(self, config: pytest.Config) -> None:
        from hark.testing import Harness

        self._found: list[PathCoverage] = []
        self._config = config
        Harness._on_close = self._found.extend

    def pytest_sessionfinish(self) -> None:
        """Pass the coverage of a pytest-xdist process to the process that prints it."""
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            from hark.views.bpmn_coverage import added

            output["hark-coverage"] = [
                (one.process, one.version, [(flow.id, flow.text, flow.count) for flow in one.flows])
                for one in added(self._found)
            ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the coverage that a process of pytest-xdist has found."""
        from hark.views.bpmn_coverage import CoveredFlow, PathCoverage

        for process, version, flows in getattr(node, "workeroutput", {}).get("hark-coverage", ()):
            found = tuple(CoveredFlow(*flow) for flow in flows)
            self._found.append(PathCoverage(process, version, found))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from hark.views.bpmn_coverage import added

        terminalreporter.section("coverage of BPMN processes")
        lines = [str(one) for one in added(self._found)] or ["no process was deployed in a Harness"]
        for line in lines:
            terminalreporter.write_line(line)
