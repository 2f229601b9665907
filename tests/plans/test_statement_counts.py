"""The number of statements of a turn does not depend on its rows: no statement is sent once per row.

Each kind of work is done for 1, for 2 and for 200 instances. One may need fewer statements, because a single signal has
a shorter path; two and two hundred send exactly the same list.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark.engine.turns.call_attempts import CallAttempts
from hark.kernel.execution import CallTurn, choose_execution
from hark.kernel.requests import (
    Cancel,
    Capacity,
    ChangeSchedule,
    Commit,
    CommitTask,
    Deliver,
    FetchTasks,
    HandBack,
    Message,
    Publish,
    Reclaim,
    RenewTask,
    Request,
    Retain,
    RetryInstance,
    SettleAwakeable,
    SignalWithStart,
    StartInstances,
)
from hark.kernel.result import TurnResult
from hark.kernel.rules import Rules
from hark.kernel.turn import run_turn
from hark.model.activation import Claim, Traits
from hark.model.decisions import (
    Arm,
    CancelChild,
    Effect,
    FailedAttempt,
    NewInstance,
    NewTask,
    RetryChild,
    SendBroadcast,
    SendSignal,
    Settle,
)
from hark.model.failures import Failure
from hark.model.lanes import code_lane
from hark.model.notes import NotedEvent
from hark.model.trigger import Trigger, new_schedule
from hark.model.values import Rate
from hark.store.sql import Sql
from tests.support.inspect import counted
from tests.support.runs import note_awakeable, note_events, note_state, note_wait, on_run, running
from tests.support.stores import Store
from tests.support.turns import (
    DEFINITION,
    MINUTE,
    REGISTER,
    TickingClock,
    advance,
    asked,
    capacity,
    done,
    new,
    on,
    park,
    retry,
    rules,
    spawn,
    stop,
    timer,
    undoable,
)

MANY = 200
_TABLES = ("instances", "tags", "inbox", "waits", "awakeables", "events", "broadcasts", "buckets", "misses", "triggers")
_EMPTY = [Sql(f"DELETE FROM {table}") for table in _TABLES]
LIMITS = {"api": Rate(allowed=1000, period=60)}


class Table:
    """The kernel on a store, without a clerk."""

    def __init__(self, store: Any, clock: TickingClock) -> None:
        self.store, self.clock = store, clock
        self.rules: Rules = rules(rates=LIMITS, slots={"wide": 1000}, broadcast_limit=100_000)
        self.catalog: dict[str, Any] = {}
        self.numbers = itertools.count()

    async def turn(self, *requests: Request, capacity: Capacity | None = None, sweep: bool = False) -> TurnResult:
        tx = await self.store.begin()
        turn = await run_turn(tx, self.rules, self.catalog, requests, capacity, sweep=sweep)
        await tx.commit()
        assert not turn.again
        return turn

    def new(self, **options: Any) -> NewInstance:
        return NewInstance(DEFINITION, "{}", f"i{next(self.numbers):05}", version=1, **options)

    async def started(self, n: int, **options: Any) -> list[str]:
        items = [self.new(**options) for _ in range(n)]
        await self.turn(StartInstances(items=items))
        return [item.id for item in items]

    async def claimed(self, n: int, **options: Any) -> list[Claim]:
        """Start instances and claim them."""
        await self.started(n, **options)
        claims = (await self.turn(capacity=capacity("me", n))).claims
        assert len(claims) == n
        return claims

    async def fetchable(self, n: int, *, fetch: bool = False) -> list[Claim]:
        """Start tasks, which have no parent here, and fetch them as a worker outside does."""
        await self.started(n, lane="task:resize", kind="task", step="resize", queue="default")
        request = FetchTasks(lanes=("task:resize",), most=n, result=[])
        if fetch:
            await self.turn(request)
            assert len(request.result) == n
        return list(request.result)

    async def parked(self, n: int, arm: Callable[[], Arm] = lambda: on("go")) -> list[str]:
        claims = await self.claimed(n)
        await self.turn(*(park(claim, arm()) for claim in claims))
        return [claim.id for claim in claims]

    async def woken(self, n: int) -> list[Claim]:
        """Instances that execute again, each with one signal."""
        ids = await self.parked(n)
        claims = (await self.turn(*(deliver(id) for id in ids), capacity=capacity("me", n))).claims
        assert len(claims) == n
        return claims


def schedule(name: str, **options: Any) -> ChangeSchedule:
    return ChangeSchedule(name=name, definition=DEFINITION, start=new_schedule(name, "{}", every=60, **options))


def deliver(id: str, **options: Any) -> Deliver:
    return Deliver(target=id, name="go", payload='{"x":1}', **options)


@asynccontextmanager
async def table(store: Store) -> AsyncIterator[Table]:
    clock = TickingClock()
    made: Any = store.make(clock=clock)
    await made.open()
    try:
        found = Table(made, clock)
        await found.turn(REGISTER)
        yield found
    finally:
        await made.close()


# Each prepares n rows and returns the turn whose statements are counted.
Work = Callable[[Table, int], Awaitable[Awaitable[Any]]]
WORK: dict[str, Work] = {}


def work(function: Work) -> Work:
    WORK[function.__name__.replace("_", " ")] = function
    return function


@work
async def starts_of_one_call(t: Table, n: int) -> Any:
    return t.turn(StartInstances(items=[t.new() for _ in range(n)]))


@work
async def starts_of_many_callers_with_keys(t: Table, n: int) -> Any:
    requests = [StartInstances(items=[t.new(named=True, correlation_key=f"key-{i}", delay=5)]) for i in range(n)]
    return t.turn(*requests)


@work
async def starts_that_are_claimed_in_the_same_turn(t: Table, n: int) -> Any:
    return t.turn(StartInstances(items=[t.new() for _ in range(n)]), capacity=capacity("me", n))


@work
async def starts_with_tags(t: Table, n: int) -> Any:
    return t.turn(StartInstances(items=[t.new(tags={"tenant": "a", "number": f"{i}"}) for i in range(n)]))


@work
async def signals_to_as_many_instances(t: Table, n: int) -> Any:
    ids = await t.parked(n)
    return t.turn(*(deliver(id) for id in ids))


@work
async def signals_with_dedup_keys_that_are_claimed_in_the_same_turn(t: Table, n: int) -> Any:
    ids = await t.parked(n)
    return t.turn(*(deliver(id, dedup_key="k") for id in ids), capacity=capacity("me", n))


@work
async def signals_to_one(t: Table, n: int) -> Any:
    [id] = await t.parked(1)
    return t.turn(*(deliver(id, dedup_key=f"{i}") for i in range(n)))


@work
async def signals_from_nats_to_keys(t: Table, n: int) -> Any:
    await t.turn(StartInstances(items=[t.new(correlation_key=f"key-{i}") for i in range(n)]))
    return t.turn(*(deliver(f"key-{i}", dedup_key="k", is_in_bucket=True) for i in range(n)))


@work
async def signals_without_a_target(t: Table, n: int) -> Any:
    return t.turn(*(deliver(f"missing-{i}") for i in range(n)))


@work
async def signals_with_start(t: Table, n: int) -> Any:
    return t.turn(
        *(SignalWithStart(item=t.new(correlation_key=f"key-{i}"), name="go", dedup_key="k") for i in range(n))
    )


@work
async def messages(t: Table, n: int) -> Any:
    keys = itertools.count()
    await t.parked(n, lambda: on("paid", "message", key=f"order-{next(keys)}"))
    return t.turn(*(Message(name="paid", key=f"order-{i}") for i in range(n)))


@work
async def fresh_waits_and_messages_that_are_armed_together(t: Table, n: int) -> Any:
    keys = itertools.count()
    arms = [(on("news", "broadcast", fresh=True), on("paid", "message", key=f"k-{next(keys)}")) for _ in range(n)]
    return t.turn(*(park(claim, *pair) for claim, pair in zip(await t.claimed(n), arms, strict=True)))


@work
async def a_broadcast_to_fresh_waits(t: Table, n: int) -> Any:
    await t.parked(n, lambda: on("open", "broadcast", fresh=True))
    return t.turn(Publish(name="open"))


@work
async def tasks_that_as_many_workers_outside_fetch(t: Table, n: int) -> Any:
    await t.fetchable(n)
    return t.turn(*(FetchTasks(lanes=("task:resize",)) for _ in range(n)))


@work
async def reports_and_heartbeats_of_workers_outside(t: Table, n: int) -> Any:
    claims = await t.fetchable(2 * n, fetch=True)
    ends = [CommitTask(commit=done(claim)) for claim in claims[:n]]
    return t.turn(*ends, *(RenewTask(id=claim.id, epoch=claim.epoch) for claim in claims[n:]))


@work
async def answers_to_awakeables(t: Table, n: int) -> Any:
    commits = []
    for i, claim in enumerate(await t.claimed(n)):
        awakeable, arm = asked(f"prom-{i}")
        commits.append(park(claim, arm, awakeables=(awakeable,)))
    await t.turn(*commits)
    return t.turn(*(SettleAwakeable(settle=Settle(f"prom-{i}", "RESOLVED", payload="1")) for i in range(n)))


@work
async def a_broadcast_to_as_many_subscribers(t: Table, n: int) -> Any:
    await t.parked(n, lambda: on("open", "broadcast"))
    return t.turn(Publish(name="open"))


@work
async def broadcasts_among_the_signals_of_one_step(t: Table, n: int) -> Any:
    [id] = await t.parked(1, lambda: on("open", "broadcast"))
    [claim] = await t.claimed(1)
    effects: list[Effect] = []
    for i in range(n):
        effects += [SendBroadcast("open", f"{i}", f"{i}"), SendSignal(id, "go", f"{i}")]
    return t.turn(advance(claim, *effects))


@work
async def large_broadcasts(t: Table, n: int) -> Any:
    t.rules.broadcast_limit = 0
    await t.parked(1, lambda: on("open", "broadcast"))
    return t.turn(*(Publish(name="open", dedup_key=f"{i}") for i in range(n)))


@work
async def outcomes_that_run_ahead(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    return t.turn(*(advance(claim) for claim in claims), capacity=capacity("me", n))


@work
async def outcomes_that_run_ahead_and_consume(t: Table, n: int) -> Any:
    claims = await t.woken(n)
    return t.turn(*(advance(claim) for claim in claims), capacity=capacity("me", n))


@work
async def outcomes_with_progress(t: Table, n: int) -> Any:
    commits = [advance(claim) for claim in await t.claimed(n)]
    for commit in commits:
        commit.decision.progress = '{"done": 1}'
    return t.turn(*commits)


@work
async def outcomes_that_retry(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    return t.turn(*(retry(claim, delay=MINUTE) for claim in claims))


@work
async def outcomes_that_run_ahead_after_failed_attempts(t: Table, n: int) -> Any:
    commits = [advance(claim) for claim in await t.claimed(n)]
    for commit in commits:
        commit.decision.failed_attempts = (FailedAttempt("error", "start", Failure("KeyError", "'x'", "…"), 0),) * 3
    return t.turn(*commits)


@work
async def outcomes_that_park(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    return t.turn(*(park(claim, on("go"), on("stop", timeout=MINUTE)) for claim in claims))


@work
async def outcomes_that_park_again_with_signals(t: Table, n: int) -> Any:
    claims = await t.woken(n)
    return t.turn(*(park(claim, on("go")) for claim in claims))


@work
async def outcomes_that_end(t: Table, n: int) -> Any:
    claims = await t.woken(n)
    return t.turn(*((stop if i % 2 else done)(claim) for i, claim in enumerate([*claims, *await t.claimed(2)])))


@work
async def outcomes_with_effects(t: Table, n: int) -> Any:
    ids = await t.parked(n)
    claims = await t.claimed(n)
    commits = [
        advance(claim, SendSignal(id, "go", "1", "k"), t.new(correlation_key=f"by-{id}"))
        for id, claim in zip(ids, claims, strict=True)
    ]
    return t.turn(*commits, capacity=capacity("me", 3 * n))


@work
async def children_of_one_parent(t: Table, n: int) -> Any:
    [claim] = await t.claimed(1)
    return t.turn(spawn(claim, [t.new() for _ in range(n)]))


@work
async def children_of_as_many_parents(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    return t.turn(*(spawn(claim, [t.new()]) for claim in claims), capacity=capacity("me", n))


@work
async def ends_of_the_children_of_one_parent(t: Table, n: int) -> Any:
    [claim] = await t.claimed(1)
    claims = (await t.turn(spawn(claim, [t.new() for _ in range(n)]), capacity=capacity("me", n))).claims
    return t.turn(*(done(claim) for claim in claims), capacity=capacity("me", n))


@work
async def ends_of_the_children_of_as_many_parents(t: Table, n: int) -> Any:
    parents = await t.claimed(n)
    claims = (await t.turn(*(spawn(claim, [t.new()]) for claim in parents), capacity=capacity("me", n))).claims
    return t.turn(*(done(claim) for claim in claims), capacity=capacity("me", n))


def _tasks(t: Table, n: int, wait: str) -> list[Effect]:
    """New tasks, in the lane that the worker of these tests has."""
    return [
        NewTask(t.new(named=True, step="start", lane=code_lane(DEFINITION, 1), kind="task"), wait) for _ in range(n)
    ]


async def _job_with_tasks(t: Table, n: int) -> tuple[str, list[Claim]]:
    """A job that waits for each end of its tasks, and the claims of the tasks."""
    [claim] = await t.claimed(1)
    arm = Arm("children", f"{claim.id}-tasks", answers_each=True)
    job = park(claim, arm, effects=_tasks(t, n, arm.id))
    return claim.id, (await t.turn(job, capacity=capacity("me", n))).claims


@work
async def tasks_of_one_job(t: Table, n: int) -> Any:
    [claim] = await t.claimed(1)
    arm = Arm("children", f"{claim.id}-tasks", answers_each=True)
    return t.turn(park(claim, arm, effects=_tasks(t, n, arm.id)), capacity=capacity("me", n))


@work
async def ends_of_the_tasks_of_one_job(t: Table, n: int) -> Any:
    _, claims = await _job_with_tasks(t, n)
    return t.turn(*(done(claim) for claim in claims), capacity=capacity("me", n))


@work
async def an_activation_of_a_job_that_retries_and_cancels_tasks(t: Table, n: int) -> Any:
    _, claims = await _job_with_tasks(t, 2 * n)
    [job] = (await t.turn(*(stop(claim) for claim in claims[:n]), capacity=capacity("me", 1))).claims
    assert len(job.inbox) == n
    [wait] = job.waits
    effects: list[Effect] = [RetryChild(claim.id, parent_wait=wait.id) for claim in claims[:n]]
    effects += [CancelChild(claim.id, "enough") for claim in claims[n:]]
    return t.turn(park(job, effects=[*effects, *_tasks(t, n, wait.id)], disarm=()), capacity=capacity("me", n))


@work
async def timeouts(t: Table, n: int) -> Any:
    await t.parked(n, lambda: timer(timeout=MINUTE))
    t.clock.advance(2 * MINUTE)
    return t.turn(sweep=True, capacity=capacity("me", n))


@work
async def delays_that_are_over(t: Table, n: int) -> Any:
    await t.started(n, delay=MINUTE)
    t.clock.advance(2 * MINUTE)
    return t.turn(sweep=True, capacity=capacity("me", n))


@work
async def ticks_of_schedules(t: Table, n: int) -> Any:
    await t.turn(*(schedule(f"s{i}", overlap="queue", correlation_key=f"k{i}") for i in range(n)))
    t.clock.advance(2 * MINUTE)
    await t.turn(sweep=True)
    t.clock.advance(MINUTE)
    return t.turn(sweep=True, capacity=capacity("me", n))


@work
async def changes_of_schedules(t: Table, n: int) -> Any:
    await t.turn(*(schedule(f"s{i}") for i in range(n)))
    verbs = [ChangeSchedule(verb=verb, name=f"s{i}") for i in range(n) for verb in ("pause", "resume", "trigger")]
    return t.turn(*verbs, *(ChangeSchedule(verb="delete", name=f"s{i}") for i in range(n)))


@work
async def broadcasts_and_messages_that_start(t: Table, n: int) -> Any:
    starts = [Trigger(kind="broadcast", name=f"b{i}", element=f"b{i}") for i in range(n)]
    starts.append(Trigger(kind="message", name="m"))
    await t.turn(*(ChangeSchedule(name=one.name, definition=DEFINITION, start=one) for one in starts))
    messages = [Message(name="m", key=f"k{i}", may_start=True) for i in range(n)]
    return t.turn(*(Publish(name=f"b{i}") for i in range(n)), *messages)


@work
async def timeouts_of_awakeables(t: Table, n: int) -> Any:
    commits = []
    for i, claim in enumerate(await t.claimed(n)):
        awakeable, arm = asked(f"prom-{i}", timeout=MINUTE)
        commits.append(park(claim, arm, awakeables=(awakeable,)))
    await t.turn(*commits)
    t.clock.advance(2 * MINUTE)
    return t.turn(sweep=True)


@work
async def cancels(t: Table, n: int) -> Any:
    ids = [*await t.parked(n), *[claim.id for claim in await t.claimed(n, concurrency_key="wide:1")]]
    return t.turn(*(Cancel(target=id) for id in ids))


@work
async def a_cancel_of_a_tree(t: Table, n: int) -> Any:
    [claim] = await t.claimed(1)
    claims = (await t.turn(spawn(claim, [t.new() for _ in range(n)]), capacity=capacity("me", n))).claims
    await t.turn(*(spawn(claim, [t.new()]) for claim in claims))
    return t.turn(Cancel(target=claim.id))


@work
async def cancels_of_what_has_an_undo(t: Table, n: int) -> Any:
    claims = [*await t.claimed(n, concurrency_key="wide:1"), *await t.claimed(n)]
    await t.turn(*(undoable(claim) for claim in claims))
    return t.turn(*(Cancel(target=claim.id) for claim in claims), capacity=capacity("me", n))


@work
async def first_results_that_have_an_undo(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    return t.turn(*(undoable(claim) for claim in claims))


@work
async def ends_of_undos(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    await t.turn(*(undoable(claim) for claim in claims))
    cancels = [Cancel(target=claim.id) for claim in claims]
    undoing = (await t.turn(*cancels, capacity=capacity("me", n))).claims
    assert {claim.cancel_reason for claim in undoing} == {"cancelled"}
    return t.turn(*(done(claim) for claim in undoing[::2]), *(stop(claim) for claim in undoing[1::2]))


@work
async def retries_of_the_failed(t: Table, n: int) -> Any:
    keys = itertools.count()
    await t.turn(StartInstances(items=[t.new(correlation_key=f"key-{next(keys)}") for _ in range(n)]))
    claims = (await t.turn(capacity=capacity("me", n))).claims
    await t.turn(*(stop(claim) for claim in claims))
    return t.turn(*(RetryInstance(target=claim.id) for claim in claims))


@work
async def work_handed_back(t: Table, n: int) -> Any:
    claims = await t.claimed(n, concurrency_key="wide:1")
    return t.turn(HandBack(claims=claims, retire="me"))


@work
async def work_reclaimed_from_dead_workers(t: Table, n: int) -> Any:
    await t.claimed(n)
    return t.turn(Reclaim(owners=["me"]))


@work
async def claims(t: Table, n: int) -> Any:
    await t.started(n)
    return t.turn(capacity=capacity("me", n))


@work
async def claims_under_one_key(t: Table, n: int) -> Any:
    await t.started(n, concurrency_key="wide:1")
    return t.turn(capacity=capacity("me", n))


@work
async def claims_under_as_many_keys(t: Table, n: int) -> Any:
    await t.turn(StartInstances(items=[t.new(concurrency_key=f"tenant:{i}") for i in range(n)]))
    return t.turn(capacity=capacity("me", n))


@work
async def claims_with_tokens(t: Table, n: int) -> Any:
    await t.turn(StartInstances(items=[t.new(rate_limit=f"api:{i}") for i in range(n)]))
    return t.turn(capacity=capacity("me", n))


@work
async def claims_that_are_refused(t: Table, n: int) -> Any:
    """Their key has one slot, which is taken: one statement blocks all of them."""
    await t.claimed(1, concurrency_key="narrow")
    await t.started(n, concurrency_key="narrow")
    return t.turn(capacity=capacity("me", n + 1))


@work
async def slots_that_become_free(t: Table, n: int) -> Any:
    await t.turn(StartInstances(items=[t.new(concurrency_key=f"tenant:{i}") for i in range(n)]))
    held = (await t.turn(capacity=capacity("me", n))).claims
    await t.turn(StartInstances(items=[t.new(concurrency_key=f"tenant:{i}") for i in range(n)]))
    await t.turn(capacity=capacity("me", n))  # refused: blocked on their keys
    return t.turn(*(done(claim) for claim in held), capacity=capacity("me", n))


@work
async def what_retention_removes(t: Table, n: int) -> Any:
    claims = await t.woken(n)
    await t.turn(*(done(claim) for claim in claims))
    t.clock.advance(MINUTE)
    return t.turn(Retain(before=t.clock.now, ids=[claim.id for claim in claims]))


@work
async def a_bit_of_everything(t: Table, n: int) -> Any:
    parked, woken, running = await t.parked(n), await t.woken(n), await t.claimed(2 * n)
    await t.started(n)
    requests: list[Request] = [deliver(id, dedup_key="k") for id in parked]
    requests += [StartInstances(items=[t.new(correlation_key=f"key-{i}")]) for i in range(n)]
    requests += [done(claim) for claim in woken]
    requests += [Cancel(target=claim.id) for claim in running[:n]]
    requests += [_outcome(claim, i) for i, claim in enumerate(running[n:])]
    return t.turn(*requests, capacity=capacity("me", n), sweep=True)


def _outcome(claim: Claim, n: int) -> Commit:
    return advance(claim) if n % 2 else park(claim, on("go", timeout=MINUTE))


# -- runs --------------------------------------------------------------------------------------------


async def tasks_of_a_run(t: Table, n: int) -> list[Claim]:
    async def run(*requests: Request, claim: Capacity | None = None) -> TurnResult:
        return await t.turn(*requests, capacity=claim)

    return await running(run, "run", *(f"run.{i}" for i in range(n)))


def signals_of_a_run(n: int) -> list[Deliver]:
    return [deliver("run", dedup_key=f"{i}") for i in range(n)]


@work
async def notes_of_tasks(t: Table, n: int) -> Any:
    notes: list[Request] = []
    for task in await tasks_of_a_run(t, n):
        notes += [note_events(task, NotedEvent("stream", "1"), progress="1"), note_state(task, "{}")]
    return t.turn(*notes)


@work
async def waits_that_find_signals_of_their_run(t: Table, n: int) -> Any:
    tasks = await tasks_of_a_run(t, n)
    await t.turn(*signals_of_a_run(n))
    return t.turn(*(note_wait(task, on_run("go", f"w{task.id}")) for task in tasks))


@work
async def signals_to_a_run_whose_tasks_wait(t: Table, n: int) -> Any:
    tasks = await tasks_of_a_run(t, n)
    await t.turn(*(note_wait(task, on_run("go", f"w{task.id}")) for task in tasks))
    return t.turn(*signals_of_a_run(n))


@work
async def ends_of_tasks_that_give_back_signals(t: Table, n: int) -> Any:
    tasks = await tasks_of_a_run(t, n)
    await t.turn(*signals_of_a_run(n))
    await t.turn(*(note_wait(task, on_run("go", f"w{task.id}")) for task in tasks))
    return t.turn(*(done(task) for task in tasks))


@work
async def awakeables_of_tasks(t: Table, n: int) -> Any:
    return t.turn(*(note_awakeable(task, "awakeable#0") for task in await tasks_of_a_run(t, n)))


@work
async def answers_to_tasks(t: Table, n: int) -> Any:
    asks = [note_awakeable(task, "awakeable#0") for task in await tasks_of_a_run(t, n)]
    await t.turn(*asks)
    return t.turn(*(SettleAwakeable(settle=Settle(ask.result.id, "RESOLVED", payload="1")) for ask in asks))


@pytest.mark.parametrize("what", WORK)
async def test_the_number_of_statements_does_not_depend_on_the_number_of_rows(
    store: Store, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async with table(store) as t:
        sent: dict[int, list[str]] = {}
        for n in (1, 2, MANY):
            await _clear(t)
            turn = await WORK[what](t, n)
            with counted(store, monkeypatch) as sent[n]:
                await turn
        assert sent[MANY] == sent[2]
        assert len(sent[1]) <= len(sent[2])
        assert len(sent[2]) < 40


async def test_only_signals_from_nats_to_a_key_ask_for_its_earlier_holders(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with table(store) as t:
        id = "01900000-0000-7000-8000-000000000000"  # the shape of a generated id
        await t.turn(StartInstances(items=[t.new(correlation_key="key"), new(id)]))
        sent = {}
        for target, from_nats in itertools.product(("key", id), (False, True)):
            with counted(store, monkeypatch) as sent[target, from_nats]:
                await t.turn(deliver(target, dedup_key=f"{from_nats}", is_in_bucket=from_nats))
        assert [key for key, names in sent.items() if "seen_by_holders" in names] == [("key", True)]


async def test_t2_a_sweep_without_a_due_schedule_asks_once_and_no_other_turn_asks(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with table(store) as t:
        await t.turn(schedule("later"))
        [id] = await t.parked(1)
        with counted(store, monkeypatch) as sent:
            await t.turn(sweep=True)
        assert [name for name in sent if "trigger" in name] == ["due_triggers"]
        with counted(store, monkeypatch) as sent:
            [claim] = (await t.turn(deliver(id), capacity=capacity("me", 1))).claims
            await t.turn(done(claim))
        assert not [name for name in sent if "trigger" in name or "schedule" in name]


async def test_a_call_turn_is_one_statement_between_begin_and_commit(pg_store: Store) -> None:
    async with table(pg_store) as t:
        calls = CallAttempts(enabled=True)
        for n in (1, 5):
            ids = await t.parked(n)
            room = Capacity("me", {"default": n}, {code_lane(DEFINITION, 1): Traits()}, backlog=False)
            turn = await _run_in_one_call(t, calls, [deliver(id, dedup_key="k") for id in ids], room)
            assert sorted(claim.id for claim in turn.claims) == sorted(ids)
            await t.started(n)
            turn = await _run_in_one_call(t, calls, [], capacity("me", n))
            assert len(turn.claims) == n


async def _run_in_one_call(t: Table, calls: CallAttempts, requests: list[Request], room: Capacity) -> TurnResult:
    """Run a turn, which must be BEGIN, one call and COMMIT."""
    sent: list[str] = []
    with (await t.store._writer()).query_logger(lambda query: sent.append(" ".join(query.query.split())[:26])):
        execution = choose_execution(requests, room, calls=True)
        assert isinstance(execution, CallTurn)
        found = await calls.run(t.store, requests, room, execution)
        assert found is not None
        tx, turn = found
        await tx.commit()
        await asyncio.sleep(0)  # the driver logs in a callback of the loop
    assert sent == ["BEGIN", "SELECT * FROM call_turn_v1", "COMMIT"]
    return turn


async def _clear(t: Table) -> None:
    """Empty the tables: rows of the last size must not be claimed or due in the next."""
    t.clock.advance(MINUTE)
    t.rules = rules(rates=LIMITS, slots={"wide": 1000}, broadcast_limit=100_000)
    tx = await t.store.begin()
    for sql in _EMPTY:
        await tx.fetch(sql)
    await tx.commit()
