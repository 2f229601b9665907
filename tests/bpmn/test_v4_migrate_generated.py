"""V4: random block-structured processes that move to changed versions now and then do what a small model says, which
knows nothing of versions."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark.testing import Harness
from tests.bpmn.block_model import Model
from tests.bpmn.block_xml import as_bpmn
from tests.bpmn.blocks import VARIABLES, Block, blocks
from tests.bpmn.changed_bpmn import NEVER, changed, original

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a failure is shrunk before it is shown

_ROUNDS = 5
_names = count()
_answers = st.dictionaries(st.sampled_from(VARIABLES), st.booleans())
_NOT_RESET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


class _Process:
    """A process that moves, beside its model."""

    def __init__(self, app: Harness, block: Block, variables: dict[str, bool]) -> None:
        self.app = app
        self.name = f"random{next(_names)}"
        self.model = Model(block, variables)
        self.text = as_bpmn(self.name, block)
        self.version = 1
        self.started: Any = None

    async def start(self, variables: dict[str, bool]) -> None:
        await self.app.deploy(self.text)
        self.started = await self.app.start(self.name, variables)
        await self.app.drain()

    async def move(self, chance: random.Random) -> None:
        """Move to a changed version, without anything in between or with everything that has come."""
        self.version += 1
        self.text, elements = changed(self.text, self.version, chance)
        await self.app.deploy(self.text)
        bulk = await self.app.migrate(self.started, to_version=self.version, elements=elements)
        await self.app.drain()
        assert (await bulk.get()).result == {"done": 1, "skipped": 0, "failed": 0}

    async def open(self) -> dict[str, list[str]]:
        """The ids of the open tasks, by the id that the element had first."""
        found: dict[str, list[str]] = {}
        for one in sorted(await self.app.awakeables(status="PENDING", limit=1000), key=lambda one: one.entry_index):
            found.setdefault(original(str(one.task)), []).append(one.id)
        return found

    async def send(self, event: str, given: dict[str, bool]) -> None:
        if event.endswith("_signal"):
            await self.app.broadcast(event)
            self.model.fire(event)
        elif ids := (await self.open()).get(event):
            await self.app.resolve(ids[0], given)
            self.model.complete(event, given)

    async def compare(self) -> None:
        instance = await self.started.get()
        open = Counter({name: len(ids) for name, ids in (await self.open()).items()})
        assert sorted(open.elements()) == self.model.open()
        waits = [str(wait.name) for wait in await self.app.waits(kind="broadcast") if wait.name != NEVER]
        assert sorted(waits) == self.model.signals()
        assert (instance.status == "done") == self.model.ended, (instance.status, instance.error)
        assert {name: instance.state["variables"][name] for name in VARIABLES} == self.model.variables


@settings(max_examples=50, deadline=None, suppress_health_check=_NOT_RESET)
@given(blocks(), st.data())
async def test_v4_a_random_process_that_moves_now_and_then_does_what_the_model_says(
    app: Harness, block: Block, data: st.DataObject
) -> None:
    variables = {name: data.draw(st.booleans(), label=name) for name in VARIABLES}
    process = _Process(app, block, variables)
    model = process.model
    await process.start(variables)
    try:
        for _ in range(_ROUNDS):
            await process.compare()
            if model.ended:
                return
            events = st.lists(st.sampled_from([*set(model.open()), *set(model.signals())]), min_size=1, max_size=2)
            for event in data.draw(events, label="events"):
                await process.send(event, data.draw(_answers, label=event))
            await app.drain()
            if not model.ended and data.draw(st.integers(0, 2), label="move"):
                await process.move(random.Random(data.draw(st.integers(0, 2**32), label="chance")))
        while not model.ended:
            await process.compare()
            await process.send(model.open()[0], dict.fromkeys(VARIABLES, False))
            await app.drain()
        await process.compare()
    finally:
        if not (await process.started.get()).finished_at:
            await app.cancel(process.started)
            await app.drain()
