"""The kernel does what its model says, for random requests in random order, combined into turns at random.

Requests are queued and then run as one turn, as the clerk does, with a clock that only the test moves. After every turn
each answer, each instance and each claim must be what the model says, and the audit must pass.

Of instances with the same queue position, a store may claim any: what is possible next can differ when a test case is
repeated. So a turn draws its dice in advance, always the same number of them, and the state only decides what they
mean. Drawing from what is possible, Hypothesis would now and then give up: "Inconsistent data generation".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from itertools import combinations
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)  # fmt: skip

from hark.engine.turns.call_attempts import CallAttempts
from hark.kernel.definitions import Catalog
from hark.kernel.execution import AdvanceTurn, CallTurn, choose_execution
from hark.kernel.fast.advance_turn import run_advance_turn
from hark.kernel.requests import (
    Cancel,
    Commit,
    Deliver,
    HandBack,
    InstanceMove,
    Migrate,
    Publish,
    Reclaim,
    Request,
    RetryInstance,
    StartInstances,
)
from hark.kernel.result import TurnResult
from hark.kernel.turn import run_turn
from hark.model.activation import Claim, Traits
from hark.model.decisions import Arm, Effect, NewInstance, SendBroadcast, SendSignal
from hark.model.migration import Migrated
from hark.model.values import PARKED, TERMINAL, Rate
from hark.store.postgres import PostgresStore
from hark.store.sql import Sql
from hark.store.sqlite import SqliteStore
from tests.support.model import Instance, Model
from tests.support.stores import Store
from tests.support.turns import (
    DEFINITION,
    REGISTER,
    TABLES,
    Content,
    TickingClock,
    advance,
    audit,
    capacity,
    done,
    hold,
    new,
    on,
    park,
    retry,
    rules,
    spawn,
    stop,
    timer,
    undoable,
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a failure is shrunk before it is shown
SECOND = 1_000_000
_EMPTY = [Sql(f"DELETE FROM {table}") for table in (*TABLES, "events", "broadcasts", "deliveries")]
_WORKERS = ["w1", "w2"]
_LANES = [f"{DEFINITION}@{version}" for version in (1, 2)]
_NAMES = ["a", "b"]
_KEYS = [None, None, "k1", "k2"]
_LIMITS = [None, None, None, "one", "two:x"]
_DEDUP = [None, None, "d1", "d2"]
_PLACES = [c for n in range(1, 6) for c in combinations(["a", "b", "children", "news", "timer"], n)]
_DICE = 120  # enough for four requests; the choices beyond it are the first of what is possible
_T = TypeVar("_T")


class Dice:
    """The choices of one turn."""

    def __init__(self, drawn: bytes) -> None:
        self._left = list(reversed(drawn))

    def pick(self, options: Sequence[_T], label: str) -> _T:
        chosen = options[(self._left.pop() if self._left else 0) % len(options)]
        note(f"{label}: {chosen}")
        return chosen


class Kernel(RuleBasedStateMachine):
    in_one_call = 0  # turns that were

    def __init__(self, run: Callable[[Any], Any], store: Any, clock: TickingClock) -> None:
        super().__init__()
        self.await_, self.store, self.clock = run, store, clock
        self.rules = rules(slots={"two": 2}, rates={"rate": Rate(allowed=2, period=10)}, max_crashes=2)
        self.catalog = Catalog()
        self.model = Model(max_crashes=2)
        self.claims: dict[str, Claim] = {}
        self.zombies: list[Claim] = []
        self.seen: dict[str, tuple[int, ...]] = {}
        self.queue: list[Request] = []
        self.made = 0

    @initialize()
    def empty(self) -> None:
        async def clear() -> None:
            tx = await self.store.begin()
            for sql in _EMPTY:
                await tx.fetch(sql)
            await run_turn(tx, self.rules, self.catalog, [REGISTER])
            await tx.commit()

        self.await_(clear())

    # -- requests ---------------------------------------------------------------------------------

    def _token(self) -> str:
        self.made += 1
        return f'"{self.made}"'

    def _item(self, dice: Dice) -> NewInstance:
        self.made += 1
        return new(
            f"i{self.made:03}",
            correlation_key=dice.pick(_KEYS, "key"),
            concurrency_key=dice.pick(_LIMITS, "limit"),
            rate_limit=dice.pick([None, None, None, "rate"], "rate"),
            delay=dice.pick([None, None, 5 * SECOND], "delay"),
        )

    def _target(self, dice: Dice) -> str:
        return dice.pick([*self.model.all, "k1", "k2", "missing"], "target")

    def _effects(self, dice: Dice) -> list[Effect]:
        made: list[Effect] = []
        for _ in range(dice.pick([0, 1, 2], "effects")):
            kind = dice.pick(["signal", "broadcast", "start"], "effect")
            if kind == "signal":
                made.append(
                    SendSignal(self._target(dice), dice.pick(_NAMES, "name"), self._token(), dice.pick(_DEDUP, "dedup"))
                )
            elif kind == "broadcast":
                made.append(SendBroadcast("news", self._token()))
            else:
                made.append(self._item(dice))
        return made

    def ask(self, dice: Dice) -> None:
        """Queue a request that is possible now; requests that make progress are more frequent than disturbances."""
        live = sum(inst.live for inst in self.model.all.values())
        asks = [self.signal, self.disturb] if live else []
        asks += [self.start] * (3 if live < 3 else live < 8)
        asks += [self.outcome] * 2 + [self.park] * 4 if self.claims else []
        asks += [self.answer] * 4 if self._awaited() else []
        asks += [self.zombie] if self.zombies else []
        dice.pick(asks, "ask")(dice)

    def start(self, dice: Dice) -> None:
        self.queue.append(StartInstances(items=[self._item(dice)]))

    def signal(self, dice: Dice) -> None:
        self._send(dice, self._target(dice), dice.pick(_NAMES, "name"))

    def _send(self, dice: Dice, target: str, name: str) -> None:
        dedup_key = dice.pick(_DEDUP, "dedup")
        self.queue.append(Deliver(target=target, name=name, payload=self._token(), dedup_key=dedup_key))

    def answer(self, dice: Dice) -> None:
        """Queue an answer that an instance waits for."""
        id, kind, name = dice.pick(self._awaited(), "wait")
        if kind == "signal":
            self._send(dice, id, name)
        else:
            self.queue.append(Publish(name=name, payload=self._token()))

    def _awaited(self) -> list[tuple[str, str, str]]:
        waits = [(inst.id, wait) for inst in self.model.all.values() if inst.parked for wait in inst.waits.values()]
        return [(id, wait.kind, wait.name) for id, wait in waits if wait.name is not None]

    def disturb(self, dice: Dice) -> None:
        failed = [inst.id for inst in self.model.all.values() if inst.status in ("failed", "held")]
        kinds = [
            "cancel",
            "reclaim",
            "migrate",
            *["hand back"] * bool(self.claims),
            *["retry"] * (1 + 2 * bool(failed)),
        ]
        match dice.pick(kinds, "kind"):
            case "cancel":
                force = dice.pick([False, False, False, True], "force")
                self.queue.append(Cancel(target=self._target(dice), force=force))
            case "retry":
                self.queue.append(RetryInstance(target=dice.pick(failed, "failed") if failed else self._target(dice)))
            case "migrate":
                self.queue.append(self._migration(self.model.all[dice.pick(sorted(self.model.all), "moved")]))
            case "reclaim":
                self.queue.append(Reclaim(owners=[dice.pick(_WORKERS, "dead")]))
            case "hand back":
                self.queue.append(HandBack(claims=[self._claim(dice)]))

    def _migration(self, inst: Instance) -> Migrate:
        """Move an instance to the other version, computed from what is committed now."""
        row = self.await_(Content.of(self.store)).instances[inst.id]
        migrated = Migrated(step=row.step, state=row.state)
        move = InstanceMove(
            inst.id, row.epoch, DEFINITION, "machine", "default", inst.version, 3 - inst.version, migrated
        )
        return Migrate(moves=[move], bulk="bulk")

    def outcome(self, dice: Dice) -> None:
        claim, effects = self._claim(dice), self._effects(dice)
        kinds = ["next", "next", "undoable", "undoable", "limited", "rekeyed", "retry", "done", "stop", "hold"]
        match dice.pick(kinds, "outcome"):
            case "next":
                self.queue.append(advance(claim, *effects))
            case "undoable":
                self.queue.append(undoable(claim, *effects))
            case "limited":
                self.queue.append(advance(claim, *effects, rate_limit="rate"))
            case "rekeyed":
                self.queue.append(advance(claim, *effects, rekey=True, concurrency_key=dice.pick(_LIMITS, "limit")))
            case "retry":
                self.queue.append(retry(claim, *effects, delay=dice.pick([0, 5 * SECOND], "delay")))
            case "done":
                self.queue.append(done(claim, *effects))
            case "stop":
                self.queue.append(stop(claim, *effects))
            case "hold":  # the code of each worker has its name as its fingerprint
                self.queue.append(hold(claim, dice.pick(_WORKERS, "code")))

    def park(self, dice: Dice) -> None:
        """Park on any number of waits of every kind; waits without an answer may stay armed."""
        claim = self._claim(dice)
        names = dice.pick(_PLACES, "names")
        timeout = dice.pick([None, None, 10 * SECOND, 20 * SECOND, -SECOND], "timeout")
        arms: list[Arm] = []
        for name in names:
            if name == "children":
                items = [self._item(dice) for _ in range(dice.pick([1, 2, 3], "children"))]
                arms += spawn(claim, items, join=dice.pick(range(1, len(items) + 1), "join")).decision.move.arm
            elif name == "timer":
                arms.append(timer(timeout=15 * SECOND))
            else:
                arms.append(on(name, "broadcast" if name == "news" else "signal", timeout=timeout))
        answered = {row.wait_id for row in claim.inbox}
        drop = tuple(wait.id for wait in claim.waits if wait.id in answered or wait.fired_at is not None)
        keep = dice.pick([False, True], "keep")
        self.queue.append(park(claim, *arms, effects=self._effects(dice), disarm=drop if keep else None))

    def zombie(self, dice: Dice) -> None:
        claim, effects = dice.pick(self.zombies, "zombie"), self._effects(dice)
        continues = dice.pick([False, True], "continues")
        self.queue.append(spawn(claim, [self._item(dice)], *effects) if continues else done(claim, *effects))

    def _claim(self, dice: Dice) -> Claim:
        return copy(self.claims[dice.pick(sorted(self.claims), "claim")])

    # -- the turn ---------------------------------------------------------------------------------

    @rule(
        dice=st.binary(min_size=_DICE, max_size=_DICE).map(Dice), asks=st.integers(0, 4),
        worker=st.sampled_from(_WORKERS), room=st.integers(0, 3),
        seconds=st.sampled_from([0, 0, 0, 1, 5, 10, 30]), in_one_call=st.booleans(),
    )  # fmt: skip
    def turn(self, dice: Dice, asks: int, worker: str, room: int, seconds: int, in_one_call: bool) -> None:
        for _ in range(asks):
            self.ask(dice)
        self.clock.advance(seconds * SECOND)
        self._turn(worker, room, sweep=seconds > 0, in_one_call=in_one_call)

    @rule(dice=st.binary(min_size=_DICE, max_size=_DICE).map(Dice), worker=st.sampled_from(_WORKERS))
    @precondition(lambda self: self.store.has_call_turns)
    def signal_alone(self, dice: Dice, worker: str) -> None:
        """A turn of the most frequent kind: a signal that an instance waits for, or only a claim."""
        awaited = [(id, name) for id, kind, name in self._awaited() if kind == "signal"]
        for id, name in [dice.pick(awaited, "wait")] if awaited else ():
            self._send(dice, id, name)
        self._turn(worker, dice.pick([0, 1, 2], "room"), in_one_call=True)

    def _turn(self, worker: str, room: int, sweep: bool = False, in_one_call: bool = False) -> None:
        requests, self.queue = self.queue, []
        turn, content = self.await_(self._run(requests, worker if room else None, room, sweep, in_one_call))
        assert all(isinstance(request, Cancel) and request.force for request in turn.again)
        self.queue += turn.again
        expected = self.model.turn(requests, turn.now, sweep)
        for request in requests:
            if request in expected:
                _assert_answer(request, expected[request])
        for commit in [r for r in requests if isinstance(r, Commit) and not r.fenced]:
            self._committed(commit, turn)
        if sweep and room:
            for id, inst in self.model.all.items():
                if inst.status == "held" and content.instances[id].status != "held":
                    assert worker not in inst.held_by, f"{worker} tried {id} again"
                    inst.release()
        for claim in turn.claims:
            self._claimed(claim, worker, content)
        self._compare(content)
        audit(content, self.rules, {seq for id, seqs in self.seen.items() for seq in seqs})

    async def _run(
        self, requests: list[Request], worker: str | None, room: int, sweep: bool, in_one_call: bool
    ) -> tuple[TurnResult, Content]:
        free = capacity(worker, room, codes=dict.fromkeys(_LANES, worker), try_held=sweep) if worker else None
        if free is not None:
            free.lanes = dict.fromkeys(_LANES, Traits())
        found = None
        if in_one_call and free is not None:
            free.backlog = not requests  # as the clerk, if no rows wait
        execution = choose_execution(requests, free, sweep=sweep, calls=in_one_call and self.store.has_call_turns)
        if type(execution) is CallTurn:
            found = await CallAttempts(enabled=True).run(self.store, requests, free, execution)
        if found is None:
            tx = await self.store.begin()
            try:
                if type(execution) is AdvanceTurn:
                    turn = await run_advance_turn(tx, execution.commits)
                else:
                    turn = await run_turn(tx, self.rules, self.catalog, requests, free, sweep=sweep)
            except BaseException:
                await tx.rollback()
                raise
        else:
            tx, turn = found
            Kernel.in_one_call += 1
        await tx.commit()
        return turn, await Content.of(self.store)

    def _committed(self, commit: Commit, turn: TurnResult) -> None:
        id = commit.claim.id
        inst = self.model.all[id]
        if commit.decision.label in ("await", "spawn"):
            self.seen[id] = commit.decision.handed
        if commit.result is True:
            before = self.claims[id]
            self.zombies.append(copy(before))
            before.run_ahead(commit.decision, turn.now, turn.inboxes.get(id))
            assert sorted(row.payload for row in before.inbox) == sorted(payload for _, _, payload, _ in inst.inbox)
        elif inst.status == "executing":
            inst.status, inst.owner = "runnable", None  # more urgent work got its slot

    def _claimed(self, claim: Claim, worker: str, content: Content) -> None:
        inst = self.model.all[claim.id]
        self.model.claimed(claim, worker)
        if claim.id in self.claims:
            self.zombies.append(self.claims[claim.id])
        self.claims[claim.id] = claim
        assert (claim.attempt, claim.crashes, claim.version) == (inst.attempt, inst.crashes, inst.version)
        rows = [(row.kind, row.name, row.payload, row.wait_id) for row in claim.inbox]
        assert sorted(map(repr, rows)) == sorted(map(repr, inst.inbox))
        assert [x for x in rows if x[0] == "signal"] == [x for x in inst.inbox if x[0] == "signal"], "FIFO"
        stored = {w.id: _seen(w, w.fired_at) for w in content.waits_of(claim.id)}
        assert {w.id: _seen(w, w.fired_at) for w in claim.waits} == stored

    def _compare(self, content: Content) -> None:
        for id, row in content.instances.items():
            if id not in self.model.all:
                assert (row.status, bool(row.counted)) == ("failed", True), "a child that could not start"
                continue
            inst = self.model.all[id]
            assert (row.version, row.lane) == (inst.version, _LANES[inst.version - 1])
            assert (row.on_cancel is not None, row.cancel_reason is not None) == (inst.undoable, inst.undoing)
            assert (row.status, row.attempt, row.crashes, row.lease_owner, row.due_at) == (
                inst.status, inst.attempt, inst.crashes, inst.owner, inst.due,
            )  # fmt: skip
            assert sorted((s.kind, s.name) for s in content.inbox(id)) == sorted(x[:2] for x in inst.inbox)
            if inst.live:
                waits = {
                    w.id: (w.kind, w.name, w.deadline, w.remaining, w.fired_at is not None)
                    for w in content.waits_of(id)
                }
                assert waits == {w.id: (w.kind, w.name, w.deadline, w.remaining, w.fired) for w in inst.waits.values()}
            if inst.status != "executing" and id in self.claims:
                self.zombies.append(self.claims.pop(id))
        assert self.model.all.keys() <= content.instances.keys()

    def teardown(self) -> None:
        """Every instance that can run does so in the end: none is left behind a limit, a delay or a lost lease."""
        self.queue = [Reclaim(owners=["w1", "w2"])]
        for _ in range(200):
            self.clock.advance(11 * SECOND)
            self._turn("w1", 3, sweep=True)
            self.queue = [done(claim) for claim in self.claims.values()]
            if not self.queue and all(inst.status in TERMINAL | PARKED | {"held"} for inst in self.model.all.values()):
                return
        raise AssertionError([inst for inst in self.model.all.values() if inst.status == "runnable"])


def _seen(wait: Any, fired: Any) -> tuple[Any, ...]:
    return (wait.kind, wait.name, wait.deadline, wait.remaining, fired)


def _assert_answer(request: Request, expected: Any) -> None:
    answer = request.result
    match request:
        case Commit():
            assert request.fenced != expected, f"fenced: {request}"
        case Deliver():
            assert (type(answer).__name__ if isinstance(answer, Exception) else answer.status) == expected
        case StartInstances() | Migrate():
            assert [type(a).__name__ if isinstance(a, Exception) else a for a in answer] == expected
        case _:
            assert (type(answer).__name__ if isinstance(answer, Exception) else answer) == expected


def _check(store: Any, clock: TickingClock, examples: int) -> None:
    with asyncio.Runner() as runner:
        runner.run(store.open())
        try:
            run_state_machine_as_test(
                lambda: Kernel(runner.run, store, clock),
                settings=settings(
                    max_examples=examples, stateful_step_count=30, deadline=None,
                    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
                    suppress_health_check=list(HealthCheck),
                ),
            )  # fmt: skip
        finally:
            runner.run(store.close())


def test_the_kernel_does_what_its_model_says_on_sqlite() -> None:
    clock = TickingClock()
    _check(SqliteStore("sqlite://", clock=clock), clock, examples=60)


@pytest.mark.usefixtures("postgres")
def test_the_kernel_does_what_its_model_says_on_postgresql(pg_store: Store) -> None:
    clock = TickingClock()
    url = f"{pg_store.url}?synchronous_commit=off"
    Kernel.in_one_call = 0
    _check(PostgresStore(url, schema=pg_store.options["schema"], lease=180, clock=clock), clock, examples=15)
    assert Kernel.in_one_call > 0
