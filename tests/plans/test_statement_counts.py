"""The number of statements of a turn does not depend on its rows: no statement is sent once per row.

Each kind of work is done for 1, for 2 and for 200 instances. One may need fewer statements, because a single signal has
a shorter path; two and two hundred send exactly the same list.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark.engine.turns.call_attempts import CallAttempts
from hark.kernel.definitions import Catalog
from hark.kernel.execution import CallTurn, choose_execution
from hark.kernel.requests import (
    AssignAwakeable,
    Cancel,
    Capacity,
    ChangeSchedule,
    Commit,
    CommitNote,
    CommitTask,
    DefinitionRow,
    Deliver,
    FetchTasks,
    Fork,
    HandBack,
    InstanceMove,
    Message,
    Migrate,
    Publish,
    Reclaim,
    Register,
    RenewTask,
    Request,
    Retain,
    RetryInstance,
    SettleAwakeable,
    SetVariables,
    SignalWithStart,
    StartInstances,
)
from hark.kernel.result import TurnResult
from hark.kernel.rules import Rules
from hark.kernel.turn import run_turn
from hark.model.activation import Claim, JournalRow, Traits
from hark.model.bpmn_state import control_wait
from hark.model.decisions import (
    Arm,
    CancelChild,
    Decision,
    Effect,
    FailedAttempt,
    NewInstance,
    NewTask,
    Proceed,
    RetryChild,
    SendBroadcast,
    SendSignal,
    Settle,
    TellParent,
)
from hark.model.failures import Failure
from hark.model.lanes import BPMN, ENGINE_QUEUE, code_lane
from hark.model.migration import Migrated
from hark.model.notes import NotedEvent
from hark.model.trigger import Trigger, new_schedule
from hark.model.values import Rate
from hark.store.sql import Sql
from tests.support.inspect import counted
from tests.support.runs import (
    note_awakeable,
    note_events,
    note_parent,
    note_run,
    note_runs,
    note_state,
    note_wait,
    on_run,
    running,
)
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
)

MANY = 200
_TABLES = ("instances", "tags", "inbox", "waits", "awakeables", "events", "broadcasts", "buckets", "misses", "triggers",
           "messages", "streams", "journal")  # fmt: skip
_EMPTY = [Sql(f"DELETE FROM {table}") for table in _TABLES]
LIMITS = {"api": Rate(allowed=1000, period=60)}


class Table:
    """The kernel on a store, without a clerk."""

    def __init__(self, store: Any, clock: TickingClock) -> None:
        self.store, self.clock = store, clock
        self.rules: Rules = rules(rates=LIMITS, slots={"wide": 1000}, broadcast_limit=100_000)
        self.catalog = Catalog()
        self.numbers = itertools.count()

    async def turn(self, *requests: Request, capacity: Capacity | None = None, sweep: bool = False) -> TurnResult:
        tx = await self.store.begin()
        turn = await run_turn(tx, self.rules, self.catalog, requests, capacity, sweep=sweep)
        await tx.commit()
        assert not turn.again
        return turn

    def new(self, **options: Any) -> NewInstance:
        return NewInstance(DEFINITION, "{}", f"i{next(self.numbers):05}", version=1, **options)

    def many(self, n: int, **options: Any) -> list[NewInstance]:
        return [self.new(**options) for _ in range(n)]

    async def started(self, n: int, **options: Any) -> list[str]:
        items = self.many(n, **options)
        await self.turn(StartInstances(items=items))
        return [item.id for item in items]

    async def each_started(self, n: int, option: str, value: str) -> None:
        """Start instances with this option, whose value has a number of its own at the end for each."""
        await self.turn(StartInstances(items=[self.new(**{option: f"{value}{i}"}) for i in range(n)]))

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

    async def parked(self, n: int, arm: Callable[[int], Arm] = lambda i: on("go")) -> list[str]:
        claims = await self.claimed(n)
        await self.turn(*(park(claim, arm(i)) for i, claim in enumerate(claims)))
        return [claim.id for claim in claims]

    async def asking(self, n: int, **options: Any) -> list[str]:
        """Instances that wait for the answers to these awakeables."""
        questions = [asked(f"prom-{i}", **options) for i in range(n)]
        claims = await self.claimed(n)
        pairs = zip(claims, questions, strict=True)
        await self.turn(*(park(claim, arm, awakeables=(question,)) for claim, (question, arm) in pairs))
        return [question.id for question, _ in questions]

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
    async with store.opened(clock=clock) as made:
        found = Table(made, clock)
        await found.turn(REGISTER)
        yield found


# Each prepares n rows and returns the turn whose statements are counted.
Work = Callable[[Table, int], Awaitable[Awaitable[Any]]]
WORK: dict[str, Work] = {}


def work(function: Work) -> Work:
    WORK[function.__name__.replace("_", " ")] = function
    return function


@work
async def reports_and_heartbeats_of_workers_outside(t: Table, n: int) -> Any:
    claims = await t.fetchable(2 * n, fetch=True)
    ends = [CommitTask(commit=done(claim)) for claim in claims[:n]]
    return t.turn(*ends, *(RenewTask(id=claim.id, epoch=claim.epoch) for claim in claims[n:]))


@work
async def broadcasts_among_the_signals_of_one_step(t: Table, n: int) -> Any:
    [id] = await t.parked(1, lambda i: on("open", "broadcast"))
    [claim] = await t.claimed(1)
    effects: list[Effect] = []
    for i in range(n):
        effects += [SendBroadcast("open", f"{i}", f"{i}"), SendSignal(id, "go", f"{i}")]
    return t.turn(advance(claim, *effects))


@work
async def large_broadcasts(t: Table, n: int) -> Any:
    t.rules.broadcast_limit = 0
    await t.parked(1, lambda i: on("open", "broadcast"))
    return t.turn(*(Publish(name="open", dedup_key=f"{i}") for i in range(n)))


@work
async def outcomes_with_progress(t: Table, n: int) -> Any:
    commits = [advance(claim) for claim in await t.claimed(n)]
    for commit in commits:
        commit.decision.progress = '{"done": 1}'
    return t.turn(*commits)


@work
async def outcomes_that_run_ahead_after_failed_attempts(t: Table, n: int) -> Any:
    commits = [advance(claim) for claim in await t.claimed(n)]
    for commit in commits:
        commit.decision.failed_attempts = (FailedAttempt("error", "start", Failure("KeyError", "'x'", "…"), 0),) * 3
    return t.turn(*commits)


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


async def _children(t: Table, n: int) -> list[Claim]:
    """The claims of the children of one parent."""
    [claim] = await t.claimed(1)
    return (await t.turn(spawn(claim, t.many(n)), capacity=capacity("me", n))).claims


@work
async def ends_of_the_children_of_one_parent(t: Table, n: int) -> Any:
    return t.turn(*map(done, await _children(t, n)), capacity=capacity("me", n))


@work
async def ends_of_the_children_of_as_many_parents(t: Table, n: int) -> Any:
    parents = await t.claimed(n)
    claims = (await t.turn(*(spawn(claim, [t.new()]) for claim in parents), capacity=capacity("me", n))).claims
    return t.turn(*(done(claim) for claim in claims), capacity=capacity("me", n))


def _tasks(t: Table, n: int, wait: str) -> list[Effect]:
    """New tasks, in the lane that the worker of these tests has."""
    new = t.many(n, named=True, step="start", lane=code_lane(DEFINITION, 1), kind="task")
    return [NewTask(item, wait) for item in new]


async def _starting_tasks(t: Table, n: int) -> Commit:
    """The outcome of a job that waits for each end of its new tasks."""
    [job] = await t.claimed(1)
    arm = Arm("children", f"{job.id}-tasks", answers_each=True)
    return park(job, arm, effects=_tasks(t, n, arm.id))


async def _tasks_of_a_job(t: Table, n: int) -> list[Claim]:
    return (await t.turn(await _starting_tasks(t, n), capacity=capacity("me", n))).claims


@work
async def tasks_of_one_job(t: Table, n: int) -> Any:
    return t.turn(await _starting_tasks(t, n), capacity=capacity("me", n))


@work
async def an_activation_of_a_job_that_retries_and_cancels_tasks(t: Table, n: int) -> Any:
    claims = await _tasks_of_a_job(t, 2 * n)
    [job] = (await t.turn(*(stop(claim) for claim in claims[:n]), capacity=capacity("me", 1))).claims
    assert len(job.inbox) == n
    [wait] = job.waits
    effects: list[Effect] = [RetryChild(claim.id, parent_wait=wait.id) for claim in claims[:n]]
    effects += [CancelChild(claim.id, "enough") for claim in claims[n:]]
    return t.turn(park(job, effects=[*effects, *_tasks(t, n, wait.id)], disarm=()), capacity=capacity("me", n))


@work
async def timeouts(t: Table, n: int) -> Any:
    await t.parked(n, lambda i: timer(timeout=MINUTE))
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
    messages = [Message(name="m", key=f"k{i}", may_start=True, dedup_key="d") for i in range(n)]
    return t.turn(*(Publish(name=f"b{i}") for i in range(n)), *messages)


@work
async def timeouts_of_awakeables(t: Table, n: int) -> Any:
    await t.asking(n, timeout=MINUTE)
    t.clock.advance(2 * MINUTE)
    return t.turn(sweep=True)


@work
async def waits_that_receive_kept_messages(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    await t.turn(*_kept_messages([claim.id for claim in claims]))
    arms = [[on("paid", "message", key=claim.id) for _ in range(2)] for claim in claims]
    return t.turn(*(park(claim, *both) for claim, both in zip(claims, arms, strict=True)))


def _kept_messages(keys: Iterable[str]) -> list[Message]:
    return [Message(name="paid", key=key, ttl=MINUTE, dedup_key=dedup) for key in keys for dedup in ("d", None)]


@work
async def variables_and_retries_of_bpmn_instances(t: Table, n: int) -> Any:
    """Of live ones with incidents, and variables of failed ones."""
    await t.turn(Register(rows=[DefinitionRow("P", 1, BPMN, ENGINE_QUEUE, "start")]))
    items = [NewInstance("P", "{}", f"p{next(t.numbers):05}", version=1) for _ in range(2 * n)]
    await t.turn(StartInstances(items=items))
    claims = (await t.turn(capacity=Capacity("me", {ENGINE_QUEUE: 2 * n}, {BPMN: Traits()}))).claims
    commits = [park(claim, Arm("children", control_wait(claim.id), "", answers_each=True)) for claim in claims[:n]]
    commits += [stop(claim) for claim in claims[n:]]
    for commit in commits:
        commit.decision.step, commit.decision.state = "run", '{"variables": {}, "incidents": [{}]}'
    await t.turn(*commits)
    variables = [SetVariables(target=claim.id, payload='{"a":1}') for claim in claims]
    return t.turn(*variables, *(RetryInstance(target=claim.id) for claim in claims[:n]))


@work
async def cancels(t: Table, n: int) -> Any:
    ids = [*await t.parked(n), *[claim.id for claim in await t.claimed(n, concurrency_key="wide:1")]]
    return t.turn(*(Cancel(target=id) for id in ids))


@work
async def a_cancel_of_a_tree(t: Table, n: int) -> Any:
    claims = await _children(t, n)
    await t.turn(*(spawn(claim, [t.new()]) for claim in claims))
    return t.turn(Cancel(target=str(claims[0].parent_id)))


@work
async def cancels_of_what_has_an_undo(t: Table, n: int) -> Any:
    claims = [*await t.claimed(n, concurrency_key="wide:1"), *await t.claimed(n)]
    await t.turn(*(undoable(claim) for claim in claims))
    return t.turn(*(Cancel(target=claim.id) for claim in claims), capacity=capacity("me", n))


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
    await t.each_started(n, "correlation_key", "key-")
    claims = (await t.turn(capacity=capacity("me", n))).claims
    await t.turn(*(stop(claim) for claim in claims))
    return t.turn(*(RetryInstance(target=claim.id) for claim in claims))


async def _held(t: Table, n: int, **options: Any) -> list[str]:
    """Held instances, which wait for a time."""
    claims = await t.claimed(n, **options)
    await t.turn(*(park(claim, on("go"), timer(timeout=MINUTE)) for claim in claims))
    await t.turn(*(deliver(claim.id) for claim in claims))
    claims = (await t.turn(capacity=capacity("me", n))).claims
    await t.turn(*map(hold, claims))
    return [claim.id for claim in claims]


def _other_code(n: int) -> Capacity:
    return capacity("me", n, codes={code_lane(DEFINITION, 1): "other"}, try_held=True)


@work
async def held_instances_that_other_code_tries(t: Table, n: int) -> Any:
    await _held(t, n)
    return t.turn(capacity=_other_code(n))


@work
async def held_instances_with_a_key_that_other_code_tries(t: Table, n: int) -> Any:
    await _held(t, n, concurrency_key="wide:1")
    return t.turn(capacity=_other_code(n))


@work
async def deadlines_of_held_instances(t: Table, n: int) -> Any:
    await _held(t, n)
    t.clock.advance(MINUTE)
    return t.turn(sweep=True)


@work
async def migrations_of_parked_instances(t: Table, n: int) -> Any:
    ids = await t.asking(n)
    rows = await t.store.read(Sql("SELECT i.id, i.epoch, w.id FROM instances i JOIN waits w ON w.instance_id = i.id"))
    moves = []
    for (id, epoch, wait), question in zip(sorted(map(tuple, rows)), ids, strict=True):
        change = Migrated(
            step="start", state="{}", moved_waits=((wait, "there"),), moved_questions=((question, "there", None),),
            dropped_waits=(f"{wait}-gone",),
        )  # fmt: skip
        moves.append(InstanceMove(id, epoch, DEFINITION, "machine", "default", 1, 2, change))
    return t.turn(Migrate(moves=moves, bulk="bulk"))


@work
async def functions_that_continue_as_new_with_another_version(t: Table, n: int) -> Any:
    claims = await t.claimed(n)
    moves = [Proceed(continue_as_new=True, version=2) for _ in claims]
    pairs = zip(claims, moves, strict=True)
    return t.turn(*(Commit(claim=claim, decision=Decision("next", "start", "{}", move)) for claim, move in pairs))


@work
async def claims_that_are_refused(t: Table, n: int) -> Any:
    """Their key has one slot, which is taken: one statement blocks all of them."""
    await t.claimed(1, concurrency_key="narrow")
    await t.started(n, concurrency_key="narrow")
    return t.turn(capacity=capacity("me", n + 1))


@work
async def slots_that_become_free(t: Table, n: int) -> Any:
    await t.each_started(n, "concurrency_key", "tenant:")
    held = (await t.turn(capacity=capacity("me", n))).claims
    await t.each_started(n, "concurrency_key", "tenant:")
    await t.turn(capacity=capacity("me", n))  # refused: blocked on their keys
    return t.turn(*map(done, held), capacity=capacity("me", n))


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


async def waiting_tasks(t: Table, n: int) -> None:
    await t.turn(*map(_waits_for_the_run, await tasks_of_a_run(t, n)))


def _waits_for_the_run(task: Claim) -> CommitNote:
    return note_wait(task, on_run("go", f"w{task.id}"))


def signals_of_a_run(n: int) -> list[Deliver]:
    return [deliver("run", dedup_key=f"{i}") for i in range(n)]


_numbers = itertools.count()


@work
async def notes_of_tasks(t: Table, n: int) -> Any:
    notes: list[Request] = []
    for task in await tasks_of_a_run(t, n):
        notes += [note_events(task, NotedEvent("stream", "1"), progress="1"), note_state(task, "{}")]
        notes += [note_run(task, next(_numbers), is_first=True), note_runs(task)]
    return t.turn(*notes)


@work
async def waits_that_find_signals_of_their_run(t: Table, n: int) -> Any:
    tasks = await tasks_of_a_run(t, n)
    await t.turn(*signals_of_a_run(n))
    return t.turn(*map(_waits_for_the_run, tasks))


@work
async def ends_of_tasks_that_give_back_signals(t: Table, n: int) -> Any:
    tasks = await tasks_of_a_run(t, n)
    await t.turn(*signals_of_a_run(n))
    await t.turn(*map(_waits_for_the_run, tasks))
    return t.turn(*map(done, tasks))


@work
async def answers_to_tasks(t: Table, n: int) -> Any:
    asks = [note_awakeable(task, "awakeable#0") for task in await tasks_of_a_run(t, n)]
    await t.turn(*asks)
    return t.turn(*(SettleAwakeable(settle=Settle(ask.result.id, "RESOLVED", payload="1")) for ask in asks))


# -- what needs no more than rows of one kind ----------------------------------------------------------

Prepare = Callable[[Table, int], Awaitable[Any]]


def simple(prepare: Prepare, requests: Callable[[Table, int, Any], Iterable[Request]], room: int = 0) -> Work:
    """Requests for what `prepare` returns. The turn claims up to `room` instances for each."""

    async def made(t: Table, n: int) -> Any:
        asked = requests(t, n, await prepare(t, n))
        return t.turn(*asked, capacity=capacity("me", room * n) if room else None)

    return made


async def nothing(t: Table, n: int) -> None:
    pass


def parked_on(name: str, kind: str = "signal", **options: Any) -> Prepare:
    return lambda t, n: t.parked(n, lambda i: on(name, kind, **options))


WORK |= {
    "starts of one call": simple(nothing, lambda t, n, _: [StartInstances(items=t.many(n))]),
    "starts of many callers with keys": simple(
        nothing,
        lambda t, n, _: (
            StartInstances(items=[t.new(named=True, correlation_key=f"key-{i}", delay=5)]) for i in range(n)
        ),
    ),
    "starts that are claimed in the same turn": simple(
        nothing, lambda t, n, _: [StartInstances(items=t.many(n))], room=1
    ),
    "starts with tags": simple(
        nothing,
        lambda t, n, _: [StartInstances(items=[t.new(tags={"tenant": "a", "number": f"{i}"}) for i in range(n)])],
    ),
    "signals to as many instances": simple(Table.parked, lambda t, n, ids: map(deliver, ids)),
    "signals with dedup keys that are claimed in the same turn": simple(
        Table.parked, lambda t, n, ids: (deliver(id, dedup_key="k") for id in ids), room=1
    ),
    "signals to one": simple(
        lambda t, n: t.parked(1), lambda t, n, ids: (deliver(ids[0], dedup_key=f"{i}") for i in range(n))
    ),
    "signals from nats to keys": simple(
        lambda t, n: t.each_started(n, "correlation_key", "key-"),
        lambda t, n, _: (deliver(f"key-{i}", dedup_key="k", is_in_bucket=True) for i in range(n)),
    ),
    "signals without a target": simple(nothing, lambda t, n, _: (deliver(f"missing-{i}") for i in range(n))),
    "signals with start": simple(
        nothing,
        lambda t, n, _: (
            SignalWithStart(item=t.new(correlation_key=f"key-{i}"), name="go", dedup_key="k") for i in range(n)
        ),
    ),
    "messages": simple(
        lambda t, n: t.parked(n, lambda i: on("paid", "message", key=f"order-{i}")),
        lambda t, n, _: (Message(name="paid", key=f"order-{i}") for i in range(n)),
    ),
    "messages that are kept": simple(nothing, lambda t, n, _: _kept_messages(f"order-{i}" for i in range(n))),
    "fresh waits and messages that are armed together": simple(
        Table.claimed,
        lambda t, n, claims: (
            park(claim, on("news", "broadcast", fresh=True), on("paid", "message", key=claim.id)) for claim in claims
        ),
    ),
    "a broadcast to fresh waits": simple(
        parked_on("open", "broadcast", fresh=True), lambda t, n, _: [Publish(name="open")]
    ),
    "a broadcast to as many subscribers": simple(
        parked_on("open", "broadcast"), lambda t, n, _: [Publish(name="open")]
    ),
    "tasks that as many workers outside fetch": simple(
        Table.fetchable, lambda t, n, _: (FetchTasks(lanes=("task:resize",)) for _ in range(n))
    ),
    "answers to awakeables": simple(
        Table.asking, lambda t, n, ids: (SettleAwakeable(settle=Settle(id, "RESOLVED", payload="1")) for id in ids)
    ),
    "claims of awakeables": simple(
        Table.asking, lambda t, n, ids: (AssignAwakeable(awakeable=id, by="ann") for id in ids)
    ),
    "outcomes that run ahead": simple(Table.claimed, lambda t, n, claims: map(advance, claims), room=1),
    "outcomes that run ahead and consume": simple(Table.woken, lambda t, n, claims: map(advance, claims), room=1),
    "outcomes that retry": simple(Table.claimed, lambda t, n, claims: (retry(claim, delay=MINUTE) for claim in claims)),
    "outcomes that park": simple(
        Table.claimed, lambda t, n, claims: (park(claim, on("go"), on("stop", timeout=MINUTE)) for claim in claims)
    ),
    "outcomes that park again with signals": simple(
        Table.woken, lambda t, n, claims: (park(claim, on("go")) for claim in claims)
    ),
    "first results that have an undo": simple(Table.claimed, lambda t, n, claims: map(undoable, claims)),
    "children of one parent": simple(lambda t, n: t.claimed(1), lambda t, n, claims: [spawn(claims[0], t.many(n))]),
    "children of as many parents": simple(
        Table.claimed, lambda t, n, claims: (spawn(claim, [t.new()]) for claim in claims), room=1
    ),
    "ends of the tasks of one job": simple(_tasks_of_a_job, lambda t, n, claims: map(done, claims), room=1),
    "what tasks tell their job": simple(_tasks_of_a_job, lambda t, n, claims: map(note_parent, claims)),
    "what tasks tell their job with an outcome": simple(
        _tasks_of_a_job, lambda t, n, claims: (park(claim, on("go"), effects=[TellParent("{}")]) for claim in claims)
    ),
    "claims": simple(Table.started, lambda t, n, _: (), room=1),
    "claims under one key": simple(lambda t, n: t.started(n, concurrency_key="wide:1"), lambda t, n, _: (), room=1),
    "claims under as many keys": simple(
        lambda t, n: t.each_started(n, "concurrency_key", "tenant:"), lambda t, n, _: (), room=1
    ),
    "claims with tokens": simple(lambda t, n: t.each_started(n, "rate_limit", "api:"), lambda t, n, _: (), room=1),
    "work handed back": simple(
        lambda t, n: t.claimed(n, concurrency_key="wide:1"), lambda t, n, claims: [HandBack(claims=claims, retire="me")]
    ),
    "outcomes that hold": simple(Table.claimed, lambda t, n, claims: map(hold, claims)),
    "retries of held instances": simple(_held, lambda t, n, ids: (RetryInstance(target=id) for id in ids)),
    "cancels of held instances": simple(_held, lambda t, n, ids: (Cancel(target=id) for id in ids)),
    "forks": simple(
        nothing,
        lambda t, n, _: (
            Fork(
                start=StartInstances(items=[t.new()]),
                source="x",
                at=0,
                journal=[JournalRow(0, 0, "run", "f", "1", None)],
            )
            for _ in range(n)
        ),
        room=1,
    ),
    "work reclaimed from dead workers": simple(Table.claimed, lambda t, n, _: [Reclaim(owners=["me"])]),
    "awakeables of tasks": simple(
        tasks_of_a_run, lambda t, n, tasks: (note_awakeable(task, "awakeable#0") for task in tasks)
    ),
    "signals to a run whose tasks wait": simple(waiting_tasks, lambda t, n, _: signals_of_a_run(n)),
}


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
    assert sent == ["BEGIN", "SELECT * FROM call_turn_v4", "COMMIT"]
    return turn


async def _clear(t: Table) -> None:
    """Empty the tables: rows of the last size must not be claimed or due in the next."""
    t.clock.advance(MINUTE)
    t.rules = rules(rates=LIMITS, slots={"wide": 1000}, broadcast_limit=100_000)
    tx = await t.store.begin()
    for sql in _EMPTY:
        await tx.fetch(sql)
    await tx.commit()
