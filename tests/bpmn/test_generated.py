"""B3–B6: random block-structured processes do what a small model over their blocks says.

Each round answers some of the open tasks and sends some of the signals, then lets the engine run: so an activation
finds several events in its inbox, and some of them are stale by the time it gets there.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark.testing import Harness
from tests.bpmn.block_model import Model
from tests.bpmn.block_xml import as_bpmn
from tests.bpmn.blocks import VARIABLES, Block, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a failure is shrunk before it is shown

_ROUNDS = 6
_answers = st.dictionaries(st.sampled_from(VARIABLES), st.booleans())


async def _open(app: Harness) -> dict[str, list[str]]:
    """The ids of the open tasks, by element."""
    found: dict[str, list[str]] = {}
    for one in sorted(await app.awakeables(status="PENDING", limit=1000), key=lambda one: one.entry_index):
        found.setdefault(str(one.task), []).append(one.id)
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(blocks(), st.data())
async def test_b6_a_random_process_does_what_the_small_model_says(block: Block, data: st.DataObject) -> None:
    variables = {name: data.draw(st.booleans(), label=name) for name in VARIABLES}
    model = Model(block, variables)
    async with Harness() as app:
        await app.deploy(as_bpmn("random", block))
        started = await app.start("random", variables)
        await app.drain()
        for _ in range(_ROUNDS):
            await _compare(app, started, model)
            if model.ended:
                return
            events = st.lists(st.sampled_from([*set(model.open()), *set(model.signals())]), min_size=1, max_size=3)
            for event in data.draw(events, label="events"):
                await _send(app, model, event, data)
            await app.drain()
        while not model.ended:  # then to the end, one task at a time
            await _compare(app, started, model)
            await _send(app, model, model.open()[0], data, dict.fromkeys(VARIABLES, False))
            await app.drain()
        await _compare(app, started, model)


async def _send(
    app: Harness, model: Model, event: str, data: st.DataObject, answer: dict[str, bool] | None = None
) -> None:
    if event.endswith("_signal"):
        await app.broadcast(event)
        model.fire(event)
    elif ids := (await _open(app)).get(event):  # none: the answer before this one was the last
        given = data.draw(_answers, label=event) if answer is None else answer
        await app.resolve(ids[0], given)
        model.complete(event, given)


async def _compare(app: Harness, started: Any, model: Model) -> None:
    instance = await started.get()
    tasks = await _open(app)
    assert sorted(name for name, ids in tasks.items() for _ in ids) == model.open()
    assert sorted(str(wait.name) for wait in await app.waits(kind="broadcast")) == model.signals()
    assert (instance.status == "done") == model.ended, (instance.status, instance.error)
    assert {name: instance.state["variables"][name] for name in VARIABLES} == model.variables
