"""A turn as one call does exactly what the full turn does: for every request, instance, wait and free slot.

The rows are made once. Each turn runs in both ways from these rows, and is rolled back (tests/support/both_ways.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark.kernel.fast.call_turn import call_parameters, run_call_turn
from hark.kernel.requests import (
    AssignAwakeable,
    Cancel,
    Capacity,
    DefinitionRow,
    Deliver,
    Register,
    Request,
    SettleAwakeable,
    StartInstances,
)
from hark.kernel.result import TurnResult
from hark.model import validation
from hark.model.activation import Claim, Traits
from hark.model.decisions import Arm, JournalLine, NewAwakeable, NewInstance, Settle
from hark.model.lanes import BPMN, ENGINE_QUEUE, JOB
from hark.model.names import awakeable_id
from hark.store import statements as sql
from hark.store.postgres import PostgresStore, PostgresTx
from hark.store.sql import Sql
from tests.support.both_ways import BothWays
from tests.support.postgres import Postgres
from tests.support.runs import LANE, note_awakeable, note_wait, on_run, running
from tests.support.stores import Store, postgres_schema
from tests.support.turns import MINUTE, REGISTER, TickingClock, done, new, on, park, spawn, stop, timer

pytestmark = pytest.mark.slow

FUNCTION = Traits(keeps_journal=True, creates_awakeables=True, waits_while_executing=True, remembers_inbox=True)
LANES = {
    "m@1": Traits(), "m@2": Traits(), "f@1": FUNCTION, "parent@1": Traits(), "limited@1": Traits(), "many@1": Traits(),
    LANE: Traits(), JOB: Traits(), BPMN: Traits(),
}  # fmt: skip
ALL = {"default": 40, "other": 40, ENGINE_QUEUE: 40}
MADE = "01900000-0000-7000-8000-00000000000{}"  # the shape of a generated id
ODD = "quote \" ' \\ {} , [ ] \x01 \x1e \x1f \x7f \u2028 \ufeff é 💥 %s $1 :name \\u0000 \t\r\n"
NUMBER = '{"type": "integer"}'
SLOW_SCHEMA = '{"type": "array", "items": {"type": "integer"}}'
SLOW_ANSWER = f"[{', '.join(['1'] * 3000)}]"  # too large to be validated in a turn


# -- the rows ------------------------------------------------------------------------------------------


class Rows:
    """Makes the rows that the turns of this file meet, by full turns."""

    def __init__(self, ways: BothWays) -> None:
        self.ways = ways
        self.run = ways.run

    async def sql(self, *texts: str) -> None:
        tx = await self.ways.store.begin()
        for text in texts:
            await tx.fetch(Sql(text))
        await tx.commit()

    async def executing(self, *items: NewInstance) -> list[Claim]:
        """Each is started in a turn of its own: no two have the same queue position."""
        for item in items:
            request = StartInstances(items=[item])
            await self.run(request)
            assert request.result == [item.id]
        found = await self.run(claim=Capacity("maker", ALL, LANES))
        claims = {claim.id: claim for claim in found.claims}
        assert claims.keys() == {item.id for item in items}
        return [claims[item.id] for item in items]

    async def make(self) -> None:
        await self.run(
            REGISTER,
            Register(rows=[DefinitionRow("f", 1, "workflow", "default", "start")]),
            Register(rows=[DefinitionRow(n, 1, "machine", "default", "start") for n in ("parent", "limited", "many")]),
        )
        await self.parked()
        await self.asking()
        await self.with_history()
        await self.functions()
        await self.finished()
        await self.interpreted()
        await self.executing(new("executing", correlation_key="busy"))
        await self.families()
        await self.limited()
        await self.claimable()
        self.ways.clock.advance(2 * MINUTE)  # some deadlines have passed, and no sweep has come yet

    async def parked(self) -> None:
        waits: dict[str, tuple[dict[str, Any], list[Arm]]] = {
            "plain": ({}, [on("go")]),
            "urgent": ({"priority": -5}, [on("go")]),
            MADE.format(0): ({}, [on("go")]),
            "several": (
                {},
                [
                    on("go", timeout=MINUTE * 60), on("stop"), timer(timeout=MINUTE * 90), on("news", "broadcast"),
                    on("payment", "message", key="order-42"),
                ],
            ),
            "overdue": ({}, [on("go", timeout=MINUTE), timer(timeout=MINUTE)]),
            "twice": ({}, [on("go", place="a"), on("go", place="b")]),
            "other kinds": ({}, [on("go", "broadcast"), on("go", "message", key="go"), timer(timeout=MINUTE * 60)]),
            "keyed": ({"correlation_key": "order-1"}, [on("go")]),
            "keyed as made": ({"correlation_key": MADE.format(1)}, [on("go")]),
            "forever": ({"correlation_key": "order-2", "scope": "forever"}, [on("go")]),
            "other-queue": ({"queue": "other"}, [on("go")]),
            "other-version": ({"version": 2}, [on("go")]),
            "slotted": ({"concurrency_key": "two:parked"}, [on("go")]),
            "rated": ({}, [on("go")]),
            "unordered": ({}, [Arm("signal", "wait-z", name="go"), Arm("signal", "wait-a", name="stop")]),
            "directed": ({}, [on("go"), on("stop")]),
            "closed": ({}, [on("go"), on("stop")]),
            "marked": ({"trace": f"00-{'a' * 32}-{'b' * 16}-01", "tags": {"a": "b"}, "scheduled_at": 7}, [on("go")]),
        }  # fmt: skip
        claims = await self.executing(*(new(id.replace(" ", "-"), **options) for id, (options, _) in waits.items()))
        commits = [park(claim, *arms) for claim, (_, arms) in zip(claims, waits.values(), strict=True)]
        for commit in commits:
            commit.decision.state = '{"odd": "💥"}'
        await self.run(*commits)
        await self.sql(
            "UPDATE instances SET rate_limit = 'rate' WHERE id = 'rated'",
            "UPDATE waits SET key = 'other' WHERE instance_id = 'directed' AND name = 'stop'",
            "UPDATE waits SET closed_at = 1 WHERE instance_id = 'closed' AND name = 'stop'",
        )

    async def asking(self) -> None:
        """Instances that wait for the answer to an awakeable, and most of them for a signal too."""
        options: dict[str, dict[str, Any]] = {
            "asks": {},
            "asks-2": {"title": ODD, "description": ODD, "nonce": "n", "due_at": 5, "task": "t"},
            "asks-schema": {"schema": NUMBER},
            "asks-schema-2": {"schema": NUMBER},
            "asks-slowly": {"schema": SLOW_SCHEMA},
            "asks-ann": {"assignees": '["ann", "bob\\u00e9", "a\\"b"]'},
            "asks-any": {"assignees": "[]"},
            "asks-group": {"assignees": '["ann"]', "groups": '["staff"]'},
            "asks-late": {"timeout": MINUTE},
            "asks-in-time": {"timeout": MINUTE * 60},
            "asks-claimed": {},
            "asks-for-task": {},
        }
        claims = await self.executing(*(new(id) for id in options))
        commits = []
        for claim in claims:
            question = NewAwakeable(awakeable_id(claim.id, 0), 0, **options[claim.id])
            arm = on(question.id, "awakeable", timeout=question.timeout)
            commits.append(park(claim, arm, on("go"), awakeables=(question,)))
        await self.run(*commits)
        await self.run(AssignAwakeable(awakeable=awakeable_id("asks-claimed", 0), by="ann"))
        await self.sql("UPDATE awakeables SET task_id = 'task' WHERE instance_id = 'asks-for-task'")

        [twice, silent, wrong, named, answered] = await self.executing(
            *map(new, ("asks-twice", "silent", "wrong", "named", "answered"))
        )
        questions = [NewAwakeable(awakeable_id("asks-twice", n), n) for n in range(2)]
        asked = NewAwakeable(awakeable_id("silent", 0), 0)
        others = NewAwakeable(awakeable_id("named", 7), 0)  # its id names another instance than its owner
        settled = NewAwakeable(awakeable_id("answered", 0), 0)
        await self.run(
            park(twice, *(on(q.id, "awakeable") for q in questions), awakeables=tuple(questions)),
            park(silent, on("go"), awakeables=(asked,)),  # does not wait for the answer
            park(wrong, on(others.id, "awakeable"), on("go"), awakeables=(others,)),
            park(named, on(others.id, "awakeable")),
            park(answered, on(settled.id, "awakeable"), awakeables=(settled,)),
        )
        await self.run(SettleAwakeable(settle=Settle(settled.id, "RESOLVED", payload="1", by="ann")))
        [claim] = (await self.run(claim=Capacity("maker", ALL, LANES))).claims
        again = park(claim, on("go"), disarm=())  # keeps the wait for the answer it has
        again.decision.consume, again.decision.handed = (), tuple(row.seq for row in claim.inbox)
        await self.run(again)

    async def with_history(self) -> None:
        """Instances with consumed and unconsumed signals, and dedup keys that they have seen."""
        [claim, noisy] = await self.executing(new("deduped", correlation_key="dedup"), new("noisy"))
        await self.run(park(claim, on("go")), park(noisy, on("go")))
        await self.run(Deliver(target="deduped", name="go", dedup_key="used", payload=f'"{ODD}"'))
        [claim] = (await self.run(claim=Capacity("maker", ALL, LANES))).claims
        again = park(claim, on("go"))
        again.decision.consume = tuple(row.seq for row in claim.inbox)
        await self.run(again)
        for n, id in enumerate(("deduped", "noisy", "noisy")):
            await self.run(Deliver(target=id, name="noise", dedup_key=f"seen-{n}", payload=f'"{ODD}"'))

    async def functions(self) -> None:
        """Functions with journals: of this visit, and of an earlier one that must not be read."""
        ids = ("f-parked", "f-asks", "f-empty", "f-woken", "f-mixed", "f-named")
        items = [NewInstance("f", "{}", id, named=True) for id in ids]
        claims = await self.executing(*items)
        question = NewAwakeable(awakeable_id("f-asks", 3), 3)
        commits = [
            park(claims[0], on("go", place="2"), on("stop", place="3")),
            park(claims[1], on(question.id, "awakeable"), timer(timeout=MINUTE * 60), awakeables=(question,)),
            park(claims[2], on("go")),
            *(park(claim, on("go")) for claim in claims[3:]),
        ]
        commits[4].decision.journal = [
            JournalLine(0, 7, "anew"),
            JournalLine(1, 8, "now", None, "5"),
            JournalLine(2, 2, "run", "é 💥", '{"a": [1, "\\u001f"]}'),
            JournalLine(3, 3, "run", "fails", None, '{"type": "HarkError", "message": "\\u001d"}'),
            JournalLine(4, 9, "sleep", None, "null"),
            JournalLine(5, 10, "run", "fails", None, '{"type": "HarkError"}'),
        ]
        commits[5].decision.journal = [JournalLine(0, 0, "run", "a\x1db\x1fc\x1e", "1")]
        for commit in commits:
            if commit.claim.id not in ("f-empty", "f-mixed", "f-named"):
                commit.decision.journal = [
                    JournalLine(0, 0, "run", "first", f'"{ODD}"'),
                    JournalLine(1, 4, "run", None, None, '{"type": "ValueError", "message": "é"}'),
                ]
        await self.run(*commits)
        await self.sql(
            "INSERT INTO journal (instance_id, visit, seq, entry, kind, name, value, at) "
            "SELECT 'f-asks', 1, n, n, 'run', 'later', '\"' || n || '\"', 1 FROM generate_series(0, 12) n",
            "UPDATE instances SET visit = 1 WHERE id = 'f-asks'",
        )

    async def finished(self) -> None:
        items = [
            new("done", correlation_key="over"), new("failed", correlation_key="again"), new("cancelled"),
            new("first-holder", correlation_key="holder-id"),
        ]  # fmt: skip
        claims = await self.executing(*items)
        await self.run(done(claims[0]), stop(claims[1]), Cancel(target="cancelled"), done(claims[3]))
        claims = await self.executing(new("done-later", correlation_key="over"))
        await self.run(done(claims[0]))
        # The second holder of a key; and an instance whose id was the key of another one.
        claims = await self.executing(new("holds-again", correlation_key="again"), new("holder-id"))
        await self.run(*(park(claim, on("go")) for claim in claims))

    async def families(self) -> None:
        """Parents that wait for children: with a signal beside them, for each end, and woken by all ends."""
        parents = [NewInstance("parent", "{}", id, named=True) for id in ("parent", "each", "ended")]
        claims = await self.executing(*parents)
        commits = [spawn(claim, [new(f"child-of-{claim.id}", version=2)]) for claim in claims]
        commits[0].decision.move.arm += (on("go"),)
        [each] = commits[1].decision.move.arm
        each.answers_each = True
        commits[1].decision.move.arm += (on("go"),)
        commits[1].decision.move.has_children = False
        await self.run(*commits)
        children = (await self.run(claim=Capacity("maker", ALL, {"m@2": Traits()}))).claims
        await self.run(*(done(child) for child in children if child.id == "child-of-ended"))

    async def interpreted(self) -> None:
        """Jobs, tasks and processes."""
        [asks, waits] = await running(self.run, "job", "job.0", "job.1")
        question = note_awakeable(asks, "awakeable#0", job_id="job")
        await self.run(question)
        assert question.result.id == awakeable_id("job", 0)
        await self.run(note_wait(waits, on_run("go", "wait-of-job", job_id="job")))
        item = NewInstance("m", "{}", "process", True, 1, "run", ENGINE_QUEUE, lane=BPMN, kind="bpmn")
        task = NewInstance("m", "{}", "task", True, 1, "work", "default", lane=LANE, kind="task")
        claims = await self.executing(item, task)
        await self.run(*(park(claim, on("go")) for claim in claims))

    async def limited(self) -> None:
        """Of three instances under a key with two slots, the third is blocked; of two others each waits for a time."""
        options = {"concurrency_key": "two:x"}
        for n in range(3):
            await self.run(StartInstances(items=[new(f"slot-{n}", version=2, **options)]))
        await self.run(claim=Capacity("maker", ALL, {"m@2": Traits()}))
        await self.run(StartInstances(items=[new("delayed", delay=60 * MINUTE)]))
        limited = NewInstance("limited", "{}", "claimable-limited", named=True, concurrency_key="two:y")
        await self.run(StartInstances(items=[limited]))

    async def claimable(self) -> None:
        """Rows to claim: new ones, woken ones with inbox, waits and journal, in two queues and several lanes."""
        await self.run(Deliver(target="f-woken", name="go", payload=f'"{ODD}"'))
        [woken] = await self.executing_of("m@2", new("woken", version=2))
        await self.run(park(woken, on("go"), on("stop", timeout=MINUTE * 60)))
        await self.run(Deliver(target="woken", name="go"), Deliver(target="woken", name="noise"))
        for item in (
            new("new-1"), new("new-2", priority=3), new("new-3", priority=-3), new("new-in-other", queue="other"),
            NewInstance("f", "{}", "f-new", named=True),
            NewInstance("m", "{}", "new-process", True, 1, "run", ENGINE_QUEUE, lane=BPMN, kind="bpmn"),
            *(NewInstance("many", "{}", f"many-{n}", named=True) for n in range(7)),
        ):  # fmt: skip
            await self.run(StartInstances(items=[item]))

    async def executing_of(self, lane: str, item: NewInstance) -> list[Claim]:
        await self.run(StartInstances(items=[item]))
        return (await self.run(claim=Capacity("maker", ALL, {lane: Traits()}))).claims


class Turns:
    """Runs the comparisons from synchronous tests."""

    def __init__(self, runner: asyncio.Runner, ways: BothWays) -> None:
        self._runner = runner
        self.ways = ways

    def compare(self, make: Callable[[], Sequence[Request]], capacity: Capacity | None) -> bool:
        return self._runner.run(self.ways.compare(make, capacity))


@pytest.fixture(scope="module")
def turns(postgres: Postgres) -> Iterator[Turns]:
    clock = TickingClock()
    with postgres_schema(postgres.url) as schema, asyncio.Runner() as runner:
        url = f"{schema.url}?synchronous_commit=off"
        store = PostgresStore(url, schema=schema.options["schema"], lease=180, clock=clock)
        runner.run(store.open())
        try:
            ways = BothWays(store, clock)
            runner.run(Rows(ways).make())
            yield Turns(runner, ways)
        finally:
            runner.run(store.close())


# -- requests ------------------------------------------------------------------------------------------


def signal(target: str, name: str = "go", **options: Any) -> Deliver:
    return Deliver(target=target, name=name, **{"payload": f'"{ODD}"', **options})


def answer(owner: str, entry: int = 0, status: Any = "RESOLVED", **options: Any) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(awakeable_id(owner, entry), status, **{"payload": "1", **options}))


def validated(request: SettleAwakeable, schema: str) -> SettleAwakeable:
    """As the request comes back after its answer was validated beside the turns."""
    assert request.settle.payload is not None
    request.schema, request.problems = schema, validation.problems(schema, request.settle.payload)
    return request


def worker(free: int = 5, lanes: Sequence[str] = ("m@1", "f@1"), backlog: bool = False, **more: int) -> Capacity:
    return Capacity("ours", {"default": free, **more}, {lane: LANES[lane] for lane in lanes}, backlog)


_REJECTED = {"status": "REJECTED", "payload": None, "error": ODD, "by": "ann", "via": "http"}
ONE_CALL: dict[str, tuple[list[Request], Capacity | None]] = {
    "a signal, without a worker": ([signal("plain")], None),
    "a signal, with a slot": ([signal("plain")], worker()),
    "the last slot": ([signal("plain")], worker(1)),
    "an id that was made": ([signal(MADE.format(0))], worker()),
    "a key": ([signal("order-1")], worker()),
    "an id that was made, from NATS": ([signal(MADE.format(0), is_in_bucket=True)], worker()),
    "a key that is held forever": ([signal("order-2")], worker()),
    "a key with a finished holder and a live one": ([signal("again")], worker()),
    "an id that was the key of another": ([signal("holder-id")], worker()),
    "a key that looks like an id, beside a key": ([signal(MADE.format(1)), signal("order-1")], worker()),
    "a key before an id that was made": ([signal("order-1"), signal(MADE.format(0))], worker()),
    "waits in the order of their ids": ([signal("unordered")], worker()),
    "a closed wait and one for directed rows": ([signal("closed"), signal("directed")], worker()),
    "several waits": ([signal("several", "stop")], worker()),
    "an overdue wait": ([signal("overdue")], worker()),
    "two waits for one name": ([signal("twice")], worker()),
    "another queue": ([signal("other-queue")], worker(other=1)),
    "another version": ([signal("other-version")], worker(lanes=("m@2",))),
    "a concurrency key, without a worker": ([signal("slotted")], None),
    "a rate limit, without a worker": ([signal("rated")], None),
    "another lane, without a worker": ([signal("other-version"), signal("other-queue")], None),
    "columns that are seldom set": ([signal("marked")], worker()),
    "a new dedup key": ([signal("deduped", dedup_key="new")], worker()),
    "a dedup key that another has seen": ([signal("plain", dedup_key="seen-0")], worker()),
    "an inbox with other signals": ([signal("noisy")], worker()),
    "a function": ([signal("f-parked")], worker()),
    "a function that is in memory": (
        [signal("f-parked"), signal("f-mixed")],
        Capacity("ours", {"default": 5}, {"f@1": FUNCTION}, False, in_memory={"f-parked": 3}),
    ),
    "a function with lines of all kinds": ([signal("f-mixed")], worker()),
    "a function whose run has control characters in its name": ([signal("f-named")], worker()),
    "functions, one with control characters": ([signal("f-mixed"), signal("f-named"), signal("f-parked")], worker()),
    "a function without a journal": ([signal("f-empty")], worker()),
    "a function with two visits": ([answer("f-asks", 3)], worker()),
    "five signals": (
        [signal(id) for id in ("twice", "plain", "urgent", "f-parked", MADE.format(0))],
        worker(),
    ),
    "signals and answers": ([answer("asks"), signal("plain"), answer("asks-2"), signal("f-parked")], worker()),
    "an answer": ([answer("asks-2", by="ann", via="http")], worker()),
    "an answer, without a worker": ([answer("asks-2")], None),
    "a rejection": ([answer("asks", **_REJECTED)], worker()),
    "a rejection of a question with a schema": ([answer("asks-schema", **_REJECTED)], worker()),
    "an answer without a payload": ([answer("asks", payload=None)], worker()),
    "an answer in time": ([answer("asks-in-time")], worker()),
    "an answer of an assignee": ([answer("asks-ann", by="ann")], worker()),
    "an answer of an assignee with an odd name": ([answer("asks-ann", by="bobé")], worker()),
    "an answer of an assignee with quotes": ([answer("asks-ann", by='a"b')], worker()),
    "an answer without a name": ([answer("asks-ann")], worker()),
    "an answer to a group": ([answer("asks-group", by="eve")], worker()),
    "an answer to a claimed question": ([answer("asks-claimed", by="bob")], worker()),
    "an answer that matches its schema": ([answer("asks-schema")], worker()),
    "two answers that were validated": (
        [validated(answer(id), NUMBER) for id in ("asks-schema", "asks-schema-2")],
        worker(),
    ),
    "a large answer that was validated": (
        [validated(answer("asks-slowly", payload=SLOW_ANSWER), SLOW_SCHEMA)],
        worker(),
    ),
    "an answer that was validated, and has no schema now": ([validated(answer("asks"), NUMBER)], worker()),
    "one of two answers": ([answer("asks-twice", 1)], worker()),
    "the signal of one that asks": ([signal("asks")], worker()),
    "claims": ([], worker(5, backlog=True)),
    "claims for two slots": ([], worker(2, backlog=True)),
    "claims of two queues": ([], worker(1, backlog=True, other=2)),
    "claims of woken instances": ([], worker(3, ("m@2",), backlog=True)),
    "no claims in the queue of processes": ([], worker(0, (JOB, "m@1"), backlog=True, **{ENGINE_QUEUE: 3})),
    "no claims": ([], Capacity("ours", {"other": 3}, {"m@2": Traits()})),
    "claims beside a full queue": ([], Capacity("ours", {"default": 2, "other": 0}, {"m@1": Traits()})),
}  # fmt: skip
ORDINARY: dict[str, tuple[list[Request], Capacity | None]] = {
    "six signals": ([signal(id) for id in ("plain", "urgent", "twice", "several", "overdue", "keyed")], worker(9)),
    "a missing target": ([signal("missing")], worker()),
    "a missing target that looks like an id": ([signal(MADE.format(9))], worker()),
    "one missing target of two": ([signal("plain"), signal("missing")], worker()),
    "a finished target": ([signal("done")], worker()),
    "the key of finished instances": ([signal("over")], worker()),
    "a failed target": ([signal("failed")], None),
    "a cancelled target": ([signal("cancelled")], None),
    "a key that looks like an id": ([signal(MADE.format(1))], worker()),
    "a key, from NATS": ([signal("order-1", is_in_bucket=True)], worker()),
    "a key from NATS that looks like an id, beside a key": (
        [signal(MADE.format(1), is_in_bucket=True), signal("order-1")],
        worker(),
    ),
    "an executing target": ([signal("busy")], worker()),
    "a runnable target": ([signal("new-1")], worker()),
    "a delayed target": ([signal("delayed")], worker()),
    "a blocked target": ([signal("slot-2")], worker()),
    "a signal that is not awaited": ([signal("plain", "stop")], worker()),
    "the name of a broadcast and a message": ([signal("other-kinds")], worker()),
    "a wait for directed rows": ([signal("directed", "stop")], worker()),
    "a closed wait": ([signal("closed", "stop")], worker()),
    "two signals to one instance": ([signal("several"), signal("several", "stop")], worker()),
    "two signals to one instance, by id and by key": ([signal("keyed"), signal("order-1")], worker()),
    "a signal and an answer to one instance": ([answer("asks"), signal("asks")], worker()),
    "two answers to one instance": ([answer("asks-twice", 0), answer("asks-twice", 1)], worker()),
    "one answer twice": ([answer("asks"), answer("asks")], worker()),
    "a dedup key that was seen": ([signal("deduped", dedup_key="seen-0")], worker()),
    "a dedup key that was consumed": ([signal("dedup", dedup_key="used")], worker()),
    "a concurrency key": ([signal("slotted")], worker()),
    "a rate limit": ([signal("rated")], worker()),
    "another queue": ([signal("other-queue")], worker()),
    "another version": ([signal("other-version")], worker()),
    "no slot": ([signal("plain")], worker(0)),
    "no slot in this queue": ([signal("plain")], worker(0, other=3)),
    "fewer slots than signals": ([signal("plain"), signal("urgent")], worker(1)),
    "rows that may wait longer": ([signal("plain")], worker(backlog=True)),
    "children beside the signal": ([signal("parent")], worker(lanes=("parent@1",))),
    "a wait for each child": ([signal("each")], worker(lanes=("parent@1",))),
    "a job": ([signal("job")], worker(lanes=(JOB,), **{ENGINE_QUEUE: 3})),
    "a process": ([signal("process")], worker(lanes=(BPMN,), **{ENGINE_QUEUE: 3})),
    "a task": ([signal("task")], worker(lanes=(LANE,))),
    "an answer to a task": ([answer("job")], worker(lanes=(JOB, LANE), **{ENGINE_QUEUE: 3})),
    "an answer that a task gets": ([answer("asks-for-task")], worker()),
    "a settled awakeable": ([answer("answered")], worker()),
    "a late answer": ([answer("asks-late")], worker()),
    "an answer that is not awaited": ([answer("silent")], worker()),
    "a missing awakeable": ([answer("asks", 5)], worker()),
    "an awakeable of a missing instance": ([answer("missing")], worker()),
    "an awakeable with the id of another instance": ([answer("named", 7)], worker()),
    "an awakeable with an id that names no instance": ([SettleAwakeable(settle=Settle("free", "RESOLVED"))], worker()),
    "an answer of another person": ([answer("asks-ann", by="eve")], worker()),
    "an answer of another person, with the link": ([answer("asks-ann", by="eve", via="link")], worker()),
    "an answer to a question with an empty list of assignees": ([answer("asks-any", by="eve")], worker()),
    "an answer that does not match": ([answer("asks-schema", payload='"text"')], worker()),
    "an answer that was validated, and does not match": (
        [validated(answer("asks-schema", payload='"text"'), NUMBER)],
        worker(),
    ),
    "an answer that was validated against another schema": (
        [validated(answer("asks-schema", payload="[1]"), SLOW_SCHEMA)],
        worker(),
    ),
    "a large answer": ([answer("asks-slowly", payload=SLOW_ANSWER)], worker()),
    "two answers with a schema": ([answer("asks-schema"), answer("asks-schema-2")], worker()),
    "an answer with a schema after a signal": ([signal("plain"), answer("asks-schema")], worker()),
    "a withdrawal": ([answer("asks", status="CANCELLED", payload=None)], worker()),
    "no requests and no worker": ([], None),
    "claims without a slot": ([], worker(0, backlog=True)),
    "claims of what this turn makes claimable, which is nothing": ([], worker()),
    "claims under a limit": ([], worker(5, ("m@1", "limited@1"), backlog=True)),
    "claims of parents": ([], worker(5, ("parent@1",), backlog=True)),
    "claims of a parent behind others": ([], worker(2, ("m@1", "parent@1"), backlog=True)),
    "a signal to a parent behind another": ([signal("plain"), signal("parent")], worker(lanes=("m@1", "parent@1"))),
    "claims in the queue of processes": ([], worker(0, (JOB, BPMN, "m@1"), backlog=True, **{ENGINE_QUEUE: 3})),
    "more claims than a call takes": ([], worker(6, ("many@1",), backlog=True)),
}  # fmt: skip


def fresh(requests: Sequence[Request]) -> Callable[[], list[Request]]:
    return lambda: [copy(request) for request in requests]


@pytest.mark.parametrize("case", ONE_CALL)
def test_a_frequent_turn_is_one_call_with_the_result_of_the_full_turn(turns: Turns, case: str) -> None:
    requests, capacity = ONE_CALL[case]
    assert turns.compare(fresh(requests), capacity)


@pytest.mark.parametrize("case", ORDINARY)
def test_any_other_turn_is_executed_in_full(turns: Turns, case: str) -> None:
    requests, capacity = ORDINARY[case]
    assert not turns.compare(fresh(requests), capacity)


# -- any turn ------------------------------------------------------------------------------------------

TARGETS = [
    "plain", "urgent", MADE.format(0), MADE.format(1), MADE.format(9), "several", "overdue", "twice", "other-kinds",
    "keyed", "order-1", "keyed-as-made", "directed", "closed", "unordered",
    "forever", "order-2", "other-queue", "other-version", "slotted", "rated",
    "marked", "asks", "asks-schema", "asks-twice", "silent", "wrong", "answered", "deduped", "dedup", "noisy",
    "f-parked", "f-asks", "f-empty", "f-woken", "done", "over", "failed", "again", "holds-again", "cancelled",
    "holder-id", "first-holder", "parent", "each", "ended", "child-of-parent", "job", "job.0", "process", "task",
    "executing", "busy", "slot-0", "slot-2", "delayed", "claimable-limited", "woken", "new-1", "missing",
]  # fmt: skip
ASKED = [
    *((id, 0) for id in ("asks", "asks-2", "asks-schema", "asks-schema-2", "asks-slowly", "asks-ann", "asks-any")),
    *((id, 0) for id in ("asks-group", "asks-late", "asks-in-time", "asks-claimed", "asks-twice", "silent")),
    *(("answered", 0), ("asks-twice", 1), ("f-asks", 3), ("named", 7), ("asks-for-task", 0)),
    *(("asks", 5), ("missing", 0), ("job", 0)),
]  # fmt: skip
READY = [
    *(signal(id) for id in ("plain", "urgent", MADE.format(0), "several", "overdue", "twice", "order-1", "order-2")),
    *(signal(id) for id in ("marked", "again", "holder-id", "deduped", "noisy", "f-parked", "f-empty", "silent")),
    *(answer(id) for id in ("asks", "asks-2", "asks-in-time", "asks-claimed", "asks-twice")),
    *(answer("asks-ann", by="ann"), answer("asks-group", by="eve", via="http"), answer("f-asks", 3)),
    validated(answer("asks-schema"), NUMBER),
    validated(answer("asks-schema-2"), NUMBER),
]  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8) | st.just(ODD)
payloads = st.one_of(
    st.sampled_from(["1", "null", '""', "{}", '{"a": [1, 1.50, null]}', '"\\u0000"', "1" * 300]), texts
)
answers = st.sampled_from(["1", "null", '"text"', '{"b": 1.0,  "a": "é\\u001f"}', SLOW_ANSWER, None])
signals = st.builds(
    signal, st.sampled_from(TARGETS), st.sampled_from(["go", "go", "go", "stop", "noise", ODD]), payload=payloads,
    dedup_key=st.sampled_from([None, None, None, "new", "seen-0", "seen-1", "used", "", ODD]),
)  # fmt: skip
settlements = st.builds(
    lambda asked, **options: answer(*asked, **options),
    st.sampled_from(ASKED),
    status=st.sampled_from(["RESOLVED", "RESOLVED", "REJECTED", "TIMEOUT", "CANCELLED"]),
    payload=answers, error=st.none() | texts, by=st.sampled_from([None, None, "ann", "eve", 'a"b', ODD]),
    via=st.sampled_from([None, "python", "http", "link", "step"]),
)  # fmt: skip


def _validated_or_not(request: SettleAwakeable, schema: str | None) -> SettleAwakeable:
    return request if schema is None or request.settle.payload is None else validated(request, schema)


anything = (
    signals | settlements | st.builds(_validated_or_not, settlements, st.sampled_from([None, NUMBER, SLOW_SCHEMA]))
)
rooms = st.builds(
    lambda free, lanes, backlog: Capacity("ours", free, {lane: LANES[lane] for lane in lanes}, backlog),
    st.fixed_dictionaries(
        {"default": st.integers(0, 8)}, optional={"other": st.integers(0, 3), ENGINE_QUEUE: st.integers(0, 3)}
    ),
    st.lists(st.sampled_from(list(LANES)), unique=True) | st.just(["m@1", "f@1"]),
    st.booleans(),
)
ready = st.tuples(
    st.lists(st.sampled_from(READY), unique_by=id, min_size=1, max_size=5), st.sampled_from([None, worker(), worker(9)])
)
claims = st.tuples(st.just([]), rooms)


anything_mixed = st.tuples(st.lists(st.sampled_from(READY) | anything, max_size=5), rooms | st.none())


def test_any_turn_has_the_same_result_in_both_ways(turns: Turns) -> None:
    before = turns.ways.in_one_call

    @given(st.one_of(ready, anything_mixed, claims))
    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    def check(turn: tuple[list[Request], Capacity | None]) -> None:
        requests, capacity = turn
        turns.compare(fresh(requests), capacity)

    check()
    # Otherwise this has compared full turns with themselves. About 150 of them are one call.
    assert turns.ways.in_one_call > before + 50


def test_a_request_that_was_tried_without_use_is_executed_in_full() -> None:
    tried = [
        Deliver(target="x", name="go", by_key=True),
        Deliver(target="x", name="go", also_lock=frozenset({"y"})),
        SettleAwakeable(settle=Settle(awakeable_id("x", 0), "RESOLVED"), read_owner=True),
        SettleAwakeable(settle=Settle(awakeable_id("x", 0), "RESOLVED"), task_id="y"),
        Cancel(target="x"),
    ]
    assert [call_parameters([request], worker()) for request in tried] == [None] * len(tried)


async def test_a_call_has_the_time_the_number_and_the_position_of_its_turn(pg_store: Store) -> None:
    """Without the clock of a test, the function itself reads the time; the kernel must know all that it wrote."""
    async with pg_store.opened() as store:
        ways = BothWays(store, TickingClock())
        await ways.run(REGISTER, StartInstances(items=[new("x"), new("y")]))
        claims = (await ways.run(claim=Capacity("maker", ALL, LANES))).claims
        await ways.run(*(park(claim, on("go")) for claim in claims))
        before = await store.time()
        tx, result = await _in_one_call(store, signal("x"))
        assert before <= result.now <= await store.time()
        assert await store.committed(result.xid)
        assert await store.read(sql.proof_of_commit, tx=result.xid, now=result.now)
        [[since, updated_at, at, event_at]] = await store.read(
            Sql(
                "SELECT i.since, i.updated_at, s.at, e.at FROM instances i JOIN inbox s ON s.instance_id = i.id "
                f"JOIN events e ON e.instance_id = i.id WHERE i.id = 'x' AND e.tx = {result.xid}"
            )
        )
        assert (since, updated_at, at, event_at) == (tx.position, result.now, result.now, result.now)
        # A clock that steps back: the position is still behind that of the turn before.
        tx.position = last = before + 10**12
        tx, _ = await _in_one_call(store, signal("y"))
        assert await store.read(Sql("SELECT since FROM instances WHERE id = 'y'")) == [(last + 1,)]
        assert (tx.position, (await store.begin()).position) == (last + 1, last + 2)


async def _in_one_call(store: PostgresStore, request: Request) -> tuple[PostgresTx, TurnResult]:
    tx = await store.begin(call_turn=True)
    values = call_parameters([request], None)
    assert values is not None
    result = await run_call_turn(tx, [request], None, values)
    assert result is not None
    await tx.commit()
    return tx, result
