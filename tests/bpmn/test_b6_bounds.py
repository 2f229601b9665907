"""B6: a process that calls itself without an end stops with an error."""

import pytest

from hark.programs.processes import children
from hark.testing import Harness
from tests.bpmn.small_files import chain, process_file
from tests.support.stores import Store


async def test_b6_a_process_that_calls_itself_without_an_end_fails_at_a_depth(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "MAX_CALLS", 4)
    async with Harness(url=store.url, **store.options) as app:
        await app.deploy(process_file(chain('<callActivity id="again" calledElement="p"/>')))
        first = await app.start("p")
        await app.drain()
        found = await app.list()
        assert [one.status for one in found] == ["failed"] * 5
        assert "4 levels deep" in str((await first.get()).error)
