"""J6: the queues of a run do what a small model says, for random signals, waits, ends and deadlines of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hark.kernel.definitions import Catalog
from hark.kernel.requests import Cancel, Commit, Deliver, HandBack, Request
from hark.kernel.turn import run_turn
from hark.model.activation import Claim
from hark.model.decisions import Decision, Finish, Park, Redo
from hark.store.sql import Sql
from hark.store.sqlite import SqliteStore
from tests.support.runs import note_state, note_timeout, note_wait, on_run, running, workers
from tests.support.turns import MINUTE, REGISTER, Content, TickingClock, audit, rules

_TASKS = ["run.0", "run.1", "run.2"]
_ACTIONS = ["send", "wait", "checkpoint", "linger", "attempt", "hand back", "time out", "end", "cancel"]
actions = st.lists(
    st.tuples(st.sampled_from(_ACTIONS), st.sampled_from(_TASKS), st.sampled_from("ab")), min_size=5, max_size=40
)


class Model:
    """What the tasks have: signals in the queues of the run, open waits, and signals received and not consumed."""

    def __init__(self) -> None:
        self.queues: dict[str, list[int]] = {"a": [], "b": []}
        self.waits: list[tuple[str, str, str]] = []  # open, the oldest first: task, name, id
        self.received: dict[str, dict[str, tuple[str, int]]] = {task: {} for task in _TASKS}  # by wait: name, number
        self.places: dict[int, int] = {}  # in the queue: a signal that goes on from one wait to another gets a new one

    def send(self, name: str, number: int) -> None:
        self.queues[name].append(number)
        self.places[number] = 1 + max(self.places.values(), default=0)
        self._match(name)

    def wait(self, task: str, name: str, id: str) -> int | None:
        self.waits.append((task, name, id))
        self._match(name)
        return self.received[task].get(id, (name, None))[1]

    def _match(self, name: str) -> None:
        open = [wait for wait in self.waits if wait[1] == name]
        while open and self.queues[name]:
            task, _, id = wait = open.pop(0)
            self.waits.remove(wait)
            self.received[task][id] = (name, self.queues[name].pop(0))

    def consume(self, task: str) -> None:
        self.received[task].clear()

    def drop(self, task: str) -> None:
        """Its waits are gone, and what it has received goes back."""
        self.waits = [wait for wait in self.waits if wait[0] != task]
        back, self.received[task] = self.received[task].values(), {}
        for name, number in back:
            self.queues[name] = sorted([*self.queues[name], number], key=self.places.__getitem__)
        for name, queue in self.queues.items():
            before = list(queue)
            self._match(name)
            last = max(self.places.values(), default=0)
            self.places |= {number: last + n for n, number in enumerate(before, 1) if number not in queue}


class Engine:
    def __init__(self, store: SqliteStore, clock: TickingClock) -> None:
        self.store, self.clock, self.rules = store, clock, rules()
        self.catalog = Catalog()
        self.claims: dict[str, Claim] = {}
        self.seqs: dict[str, list[int]] = {}
        self.model = Model()
        self.made = 0

    async def run(self, *requests: Request, **how: Any) -> Any:
        tx = await self.store.begin()
        claim = how.pop("claim", None)
        result = await run_turn(tx, self.rules, self.catalog, requests, claim, **how)
        await tx.commit()
        return result

    async def act(self, action: str, task: str, name: str) -> None:
        claim = self.claims.get(task)
        if action == "send":
            self.made += 1
            self.model.send(name, self.made)
            await self.run(Deliver(target="run", name=name, payload=str(self.made)))
        elif action == "cancel":
            self.model.drop(task)
            await self.run(Cancel(target=task))
            self.claims.pop(task, None)
        elif claim is not None:
            await self._task(action, claim, name)
        for claimed in (await self.run(claim=workers(), sweep=True)).claims:
            self.claims[claimed.id] = claimed
        await self.check()

    async def _task(self, action: str, claim: Claim, name: str) -> None:
        task, model = claim.id, self.model
        waits = tuple(w.id for w in (await Content.of(self.store)).waits_of(task))
        seqs = tuple(row.seq for row in (await Content.of(self.store)).inbox(task))
        match action:
            case "wait":
                self.made += 1
                id = f"w{self.made:04}"
                request = note_wait(claim, on_run(name, id, timeout=MINUTE))
                expected = model.wait(task, name, id)
                await self.run(request)
                assert (request.result and int(request.result.payload)) == expected
            case "time out" if waits:
                self.clock.advance(MINUTE)
                late = note_timeout(claim, waits[0])
                await self.run(late)
                is_late = any(wait[2] == waits[0] for wait in model.waits)
                assert (late.result.kind == "timer") == (is_late or waits[0] not in model.received[task])
                model.waits = [wait for wait in model.waits if wait[2] != waits[0]]
                self.clock.now -= MINUTE  # the others have not come
            case "checkpoint":
                gone = tuple(w for w in waits if w in model.received[task])
                timers = tuple(row.seq for row in (await Content.of(self.store)).inbox(task) if row.kind == "timer")
                signals = tuple(seq for seq in seqs if seq not in timers)
                model.consume(task)
                await self.run(note_state(claim, "{}", consume=(*signals, *timers), disarm=gone, run_id="run"))
            case "linger" if any(wait[0] == task for wait in model.waits):
                park = Decision("await", "work", "{}", Park(disarm=()), handed=seqs)
                await self.run(Commit(claim=claim, decision=park))
                del self.claims[task]
            case "attempt":
                model.drop(task)
                decision = Decision("retry", "work", "{}", Redo(0, drop_waits=True))
                await self.run(Commit(claim=claim, decision=decision))
                del self.claims[task]
            case "hand back":
                await self.run(HandBack(claims=[claim]))
                del self.claims[task]
            case "end":
                model.drop(task)
                await self.run(Commit(claim=claim, decision=Decision("done", "work", "{}", Finish("done"))))
                del self.claims[task]
            case _:
                pass

    async def check(self) -> None:
        payloads = {seq: int(payload) for seq, payload in await self.store.read(_PAYLOADS)}
        content = await Content.of(self.store)
        audit(content, self.rules, seen=[row.seq for row in content.signals])
        for name, queue in self.model.queues.items():
            stored = [s.seq for s in content.inbox("run") if s.kind == "signal" and s.name == name]
            assert [payloads[seq] for seq in stored] == queue
        for task, received in self.model.received.items():
            directed = {s.wait_id: (s.name, payloads[s.seq]) for s in content.inbox(task) if s.kind == "signal"}
            assert directed == received
        open = {(w.instance_id, w.name, w.id) for w in content.waits if w.key == "run" and w.fired_at is None}
        assert open == set(self.model.waits)


_PAYLOADS = Sql("SELECT seq, payload FROM inbox WHERE kind = 'signal'")


@asynccontextmanager
async def engine() -> AsyncIterator[Engine]:
    clock = TickingClock()
    store = SqliteStore("sqlite://", clock=clock)
    await store.open()
    try:
        made = Engine(store, clock)
        await made.run(REGISTER)
        made.claims = {claim.id: claim for claim in await running(made.run, "run", *_TASKS)}
        yield made
    finally:
        await store.close()


@given(actions)
@settings(max_examples=30, deadline=None)
def test_j6_the_queues_of_a_run_are_those_of_the_model(given: list[tuple[str, str, str]]) -> None:
    async def play() -> None:
        async with engine() as made:
            for action, task, name in given:
                await made.act(action, task, name)

    asyncio.run(play())
