"""A8: an answer that takes long to validate holds up neither a turn nor another answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hark import AlreadySettled, Context, Done, InvalidAnswer, Machine, step
from hark.model import validation
from tests.promises.support_signals import harness
from tests.support.harness import drained
from tests.support.questions import Asker, ask
from tests.support.stores import Store

NUMBERS = {"type": "array", "items": {"type": "integer"}}
MANY = list(range(20_000))
WRONG = ["x"] * 20_000


class Gate:
    """Stops every validation beside the turns until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.threads: set[str] = set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate, original = Gate(), validation.problems

    def wait(text: str, payload: str) -> list[str]:
        gate.threads.add(threading.current_thread().name)
        gate.reached.set()
        assert gate.open.wait(60)
        return original(text, payload)

    monkeypatch.setattr(validation, "problems", wait)
    yield gate
    gate.open.set()


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, 60)


async def test_a8_turns_go_on_while_a_large_answer_is_validated(store: Store, gate: Gate) -> None:
    async with harness(store, Asker) as app:
        first = await ask(app, store, "first", schema=NUMBERS)
        second = await ask(app, store, "second", schema=NUMBERS)
        slow = app.resolve(first, MANY)
        await reached(gate)
        assert (await app.resolve(second, [1, 2])).status == "RESOLVED"
        assert (await app.awakeable(first)).status == "PENDING"
        gate.open.set()
        assert (await slow).payload == MANY
        assert [name.startswith("hark-answers") for name in gate.threads] == [True]


@pytest.mark.parametrize("payload", [MANY, WRONG])
async def test_a8_an_answer_that_settles_meanwhile_wins(store: Store, gate: Gate, payload: Any) -> None:
    async with harness(store, Asker) as app:
        id = await ask(app, store, schema=NUMBERS)
        slow = app.resolve(id, payload)
        await reached(gate)
        await app.resolve(id, [1], by="ann")
        gate.open.set()
        with pytest.raises(AlreadySettled) as late:
            await slow
        assert late.value.by == "ann"


async def test_a8_a_large_wrong_answer_is_refused_with_its_first_problems(store: Store) -> None:
    async with harness(store, Asker) as app:
        id = await ask(app, store, schema=NUMBERS)
        with pytest.raises(InvalidAnswer) as refused:
            await app.resolve(id, WRONG)
        assert len(refused.value.problems) == 20
        assert refused.value.problems[0] == '[0]: "x" is not of type "integer"'
        assert (await app.awakeable(id)).status == "PENDING"


async def test_a8_closing_the_app_answers_a_caller_whose_answer_is_being_validated(store: Store, gate: Gate) -> None:
    async with harness(store, Asker) as app:
        id = await ask(app, store, schema=NUMBERS)
        slow = app.resolve(id, MANY)
        await reached(gate)
        closing = app._clerk.close()
        while app._clerk.loop.running is not None:  # until the clerk takes no more turns
            await asyncio.sleep(0.01)
        gate.open.set()
        await closing
        with pytest.raises(Exception, match="closed before this was done"):
            await slow


async def test_a8_a_caller_is_told_when_the_validation_itself_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        pass

    def fail(text: str, payload: str) -> list[str]:
        raise Panic("out of range")

    async with harness(store, Asker) as app:
        id = await ask(app, store, schema=NUMBERS)
        with monkeypatch.context() as broken:
            broken.setattr(validation, "problems", fail)
            with pytest.raises(Panic):
                await asyncio.wait_for(app.resolve(id, MANY), 60)
        assert (await app.resolve(id, MANY)).status == "RESOLVED"


async def test_a8_a_large_answer_from_a_step_commits_with_its_outcome(store: Store) -> None:
    class Settler(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            ctx.resolve(ctx.state["id"], ctx.state["answer"])
            return Done()

    async with harness(store, Asker, Settler) as app:
        id = await ask(app, store, schema=NUMBERS)
        await drained(app, app.start(Settler, {"id": id, "answer": WRONG}, id="wrong"))
        [refused] = [event.data for event in await app.events("wrong") if event.type == "unsettled"]
        assert '[0]: "x" is not of type "integer"' in refused["error"]
        await drained(app, app.start(Settler, {"id": id, "answer": MANY}))
        assert (await app.awakeable(id)).payload == MANY
