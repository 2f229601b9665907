"""Run-ahead: one rule says which outcomes continue on their claim, and every other one is claimed again (M10)."""

from typing import Any

import pytest

from hark import Context, Done, Hark, Machine, Next, Rate, step
from hark.engine.observe.metrics import ProcessCounters
from hark.model.decisions import Advance, Arm, Decision, Finish, JournalLine, Move, Park, Proceed, Redo, SendBroadcast


class Limited(Machine):
    @step
    async def start(self, ctx: Context) -> Next:
        return Next(self.end, rate_limit="api")

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Rekeyed(Machine):
    @step
    async def start(self, ctx: Context) -> Next:
        return Next(self.end, concurrency_key="another")

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


@pytest.mark.parametrize("definition", [Limited, Rekeyed])
async def test_a_next_that_is_claimed_again_is_claimed_in_the_turn_that_queues_it(
    definition: type[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[tuple[int, int]] = []
    monkeypatch.setattr(
        ProcessCounters, "add", lambda self, requests, _, claims, counts: turns.append((requests, claims))
    )
    app = Hark("sqlite://", rate_limits={"api": Rate(allowed=10, period=1)})
    app.register(definition)
    async with app, app.worker({"default": 1}):  # one slot: the claim needs the one that this commit frees
        handle = await app.start(definition)
        await handle.result(timeout=30)
    claiming = [requests for requests, claims in turns if claims]
    assert claiming == [1, 1], "one claim with the start, and one with the outcome that is queued"


ARM = Arm("signal", "w", name="go")
EFFECT = SendBroadcast("open", "null")


def decision(move: Move, **more: Any) -> Decision:
    return Decision("next", "step", "{}", move, **more)


@pytest.mark.parametrize("move", [Advance(), Proceed(), Proceed(keep_slot=True), Proceed(arm=(ARM,))])
def test_these_moves_run_ahead(move: Move) -> None:
    assert move.runs_ahead()


@pytest.mark.parametrize(
    "move",
    [
        Advance(rate_limit="api"),
        Advance(rekey=True),
        Proceed(continue_as_new=True),
        Redo(0),
        Park((ARM,)),
        Finish("done"),
    ],
)
def test_every_other_move_may_make_work_and_is_not_plain(move: Move) -> None:
    assert not move.runs_ahead()
    assert decision(move).makes_work()
    assert not decision(move).is_advance()


@pytest.mark.parametrize(
    ("given", "makes_work", "is_advance"),
    [
        (decision(Advance()), False, True),
        (decision(Advance(), consume=(1,)), False, False),
        (decision(Advance(), effects=[EFFECT]), True, False),
        (decision(Advance(), progress="1"), False, False),
        (decision(Proceed(), journal=[JournalLine(0, 0, "run")]), False, True),
        (decision(Proceed(), journal=[JournalLine(0, 0, "broadcast", effect=EFFECT)]), True, False),
        (decision(Proceed(), cut_from=0), False, False),
        (decision(Proceed(), restore=(1,)), False, False),
        (decision(Proceed(arm=(ARM,))), True, False),
        (decision(Proceed(disarm=("w",))), False, False),
        (decision(Proceed(fire_deadlines=True)), False, False),
    ],
)
def test_what_a_decision_that_runs_ahead_brings_along(given: Decision, makes_work: bool, is_advance: bool) -> None:
    assert (given.makes_work(), given.is_advance()) == (makes_work, is_advance)
