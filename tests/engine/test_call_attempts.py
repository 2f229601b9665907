"""Calls that were of no use are spaced: after each, more turns are executed in full at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hark import Await, Context, Done, Hark, Machine, step
from hark.engine.turns import call_attempts
from hark.engine.turns.call_attempts import CallAttempts
from hark.kernel.execution import CallTurn, choose_execution
from hark.kernel.requests import Cancel, Capacity, Deliver, Request
from hark.model.activation import Traits
from hark.store.protocol import Lost, Refused
from tests.support.inspect import counted, until
from tests.support.stores import Store

SIGNAL = Deliver(target="x", name="go")
WORKER = Capacity("me", {"default": 1}, {"m@1": Traits()}, backlog=False)


class FakeTx:
    rolled_back = False

    async def rollback(self) -> None:
        self.rolled_back = True


class FakeStore:
    """Counts the transactions that were begun for a call."""

    def __init__(self, has_call_turns: bool = True) -> None:
        self.has_call_turns = has_call_turns
        self.begun: list[FakeTx] = []

    async def begin(self, *, call_turn: bool = False) -> FakeTx:
        assert call_turn
        self.begun.append(FakeTx())
        return self.begun[-1]


class Calls:
    """A `CallAttempts` whose calls bring what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, enabled: bool = True, has_call_turns: bool = True) -> None:
        self.store: Any = FakeStore(has_call_turns)
        self.calls = CallAttempts(enabled)
        self.result: Any = None
        monkeypatch.setattr(call_attempts, "run_call_turn", self._call)

    async def _call(self, tx: Any, requests: Any, capacity: Any, values: Any) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def turn(self, result: Any = None, requests: Sequence[Request] = (SIGNAL,)) -> bool:
        """A turn, in which a call would bring this. Returns whether a call was made."""
        self.result = result
        before = len(self.store.begun)
        execution = choose_execution(requests, WORKER, calls=self.calls.possible(self.store))
        if not isinstance(execution, CallTurn):
            return False
        found = await self.calls.run(self.store, requests, WORKER, execution)
        tried = len(self.store.begun) > before
        assert found == ((self.store.begun[-1], result) if tried and result is not None else None)
        if tried:
            assert self.store.begun[-1].rolled_back == (result is None)
        return tried

    async def skipped(self) -> int:
        """Count the turns that are not tried before the next call, which is of no use either."""
        count = 0
        while not await self.turn():
            count += 1
        return count


async def test_after_each_call_in_vain_more_turns_are_not_tried_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    assert await calls.turn()
    assert [await calls.skipped() for _ in range(9)] == [1, 3, 7, 15, 31, 63, 64, 64, 64]


async def test_after_a_call_that_carried_out_its_turn_every_turn_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    for _ in range(3):
        while not await calls.turn():
            pass
    while not await calls.turn("done"):
        pass
    assert [await calls.turn("done") for _ in range(5)] == [True] * 5
    assert await calls.turn()
    assert await calls.skipped() == 1, "the spacing begins anew"


async def test_turns_of_another_kind_are_not_tried_and_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    assert await calls.turn()
    for _ in range(5):
        assert not await calls.turn("done", [Cancel(target="x")])
    assert await calls.skipped() == 1


@pytest.mark.parametrize("off", ["enabled", "has_call_turns"])
async def test_nothing_is_tried_if_it_is_turned_off_or_the_store_has_no_calls(
    monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    calls = Calls(monkeypatch, **{off: False})
    assert [await calls.turn("done") for _ in range(3)] == [False] * 3


async def test_a_call_that_raises_is_rolled_back_and_does_not_count_as_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    with pytest.raises(Lost):
        await calls.turn(Lost("cut"))
    assert calls.store.begun[-1].rolled_back
    assert await calls.turn("done")


async def test_a_call_that_the_database_refuses_is_left_to_the_ordinary_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    calls.result = Refused("permission denied for function call_turn")
    assert not await calls.calls.run(calls.store, [SIGNAL], WORKER, CallTurn({}))
    assert calls.store.begun[-1].rolled_back
    assert await calls.skipped() == 1


class Listener(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(len(ctx.awaited))


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_switch_of_an_app_decides_whether_its_turns_are_calls(
    store: Store, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    options = {} if enabled else {"one_call_turns": False}  # on is the default
    async with Hark(store.url, **store.options, **options) as app:
        with counted(store, monkeypatch) as sent:
            async with app.worker():
                for _ in range(10):  # a call of no use lets some turns pass
                    it = await app.start(Listener)

                    async def parked(id: str = it.id) -> bool:
                        return (await app.get(id)).status == "awaiting_signal"

                    await until(parked, "the instance to wait")
                    assert (await app.signal(it, "go")).status == "woke"
                    assert await it.result(timeout=30) == 1
        assert ("call_turn" in sent) == (enabled and store.name == "postgres")
