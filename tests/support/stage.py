"""Two turns on two real connections, stepped by hand.

A `Side` is a process: a store with its own connection and its own cache of limits. An `Act` is one of its turns,
which stops before the statement that the test names. A statement that waits for another transaction's lock is
detected with `pg_blocking_pids`; nothing here depends on how long anything takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest
from msgspec import structs

from hark.kernel.definitions import Catalog
from hark.kernel.fast.advance_turn import are_advances, run_advance_turn
from hark.kernel.fast.call_turn import call_parameters, run_call_turn
from hark.kernel.requests import Capacity, Request, StartInstances
from hark.kernel.result import TurnResult
from hark.kernel.rules import Rules
from hark.kernel.turn import run_turn
from hark.model.activation import Claim
from hark.store import reads, statements
from hark.store.postgres import PostgresStore, PostgresTx
from hark.store.sql import Sql
from tests.support.postgres import Postgres, blocked_by_a_client
from tests.support.stores import Store
from tests.support.turns import (
    MINUTE,
    REGISTER,
    TABLES,
    Content,
    TickingClock,
    audit,
    capacity,
    new,
    park,
    rules,
    spawn,
)

_Result = TypeVar("_Result", bound=TurnResult | None)
_NAMES = {id(value): name for name, value in (vars(statements) | vars(reads)).items() if isinstance(value, Sql)}
_HANG = 60  # seconds; reached only if a test hangs
# Statements that lock, or read rows that are not locked: another transaction around them can make a difference.
# The others write under locks that are held by then, so stopping between two of them shows nothing new.
_MATTER = {
    "reserve", "addresses", "descendants", "abandoned", "message_waits", "awakeable_owners", "subscribers",
    "take_pending_deliveries", "add_pending_deliveries", "lock", "advance_all", "taken", "insert_instances", "due",
    "hold_buckets", "due_buckets", "promote", "claimable", "claimable_tasks", "insert_buckets", "try_buckets",
    "retire", "expired", "idle_buckets", "record_definitions", "newest_definitions", "deploy_definitions",
    "set_undeployed", "commit", "lock_free", "run_waits", "due_triggers", "triggers_by_id", "lock_triggers",
    "lock_due_triggers", "save_triggers", "release_triggers", "kept_messages", "seen_messages", "triggers_by_event",
    "insert_messages", "forget_expired_messages", "call_turn", "held_groups", "claimable_held",
}  # fmt: skip
_TABLES = ("instances", "inbox", "waits", "awakeables", "buckets", "events", "broadcasts", "deliveries", "workers",
           "tombstones", "misses", "triggers", "messages", "streams", "journal")  # fmt: skip
_EMPTY = "".join(f"DELETE FROM {table};" for table in _TABLES)
_TRUNCATE = f"TRUNCATE {', '.join(_TABLES)}"
_CONTENT = {table: f"SELECT {', '.join(columns)} FROM {table}" for table, columns in TABLES.items()}


class Side:
    """One process, as the database sees it."""

    def __init__(self, name: str, store: PostgresStore, stage: Stage) -> None:
        self.name = name
        self.store = store
        self.stage = stage
        self.rules = stage.make_rules()
        self.catalog = Catalog()
        self.pid = 0

    async def open(self) -> None:
        await self.store.open()
        tx = await self.store.begin()
        self.pid = tx._db.get_server_pid()
        await run_turn(tx, self.rules, self.catalog, [REGISTER])
        await tx.commit()

    async def run(self, *requests: Request, claim: Capacity | None = None, **how: Any) -> TurnResult:
        """Run one turn from begin to commit; repeated, as the clerk does, if the turn requests it."""
        while True:
            tx = await self.store.begin()
            try:
                turn = await self.turn(tx, requests, claim, **how)
            except BaseException:
                await tx.rollback()
                raise
            await tx.commit()
            if not turn.again:
                return turn
            requests = tuple(turn.again)

    def turn(
        self, tx: Any, requests: Sequence[Request], claim: Capacity | None, *, plain: bool = False, **how: Any
    ) -> Coroutine[Any, Any, TurnResult]:
        if plain:
            assert claim is None
            assert are_advances(requests)
            return run_advance_turn(tx, requests)
        return run_turn(tx, self.rules, self.catalog, requests, claim, **how)

    def act(self, part: Part, every: bool = False) -> Act:
        return Act(self, part, every)


@dataclass
class Part:
    """The requests of one side in its turn."""

    requests: Sequence[Request] = ()
    claim: Capacity | None = None
    how: dict[str, Any] = field(default_factory=dict)


def part(*requests: Request, claim: Capacity | None = None, **how: Any) -> Part:
    return Part(requests, claim, how)


class _SteppedTx:
    """A transaction that asks its `Act` before it sends a statement."""

    def __init__(self, tx: PostgresTx, ask: Callable[[str], Awaitable[None]]) -> None:
        self.__dict__.update(_tx=tx, _ask=ask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def __setattr__(self, name: str, value: Any) -> None:  # a call turn sets what it has found out
        setattr(self._tx, name, value)

    async def fetch(self, sql: Sql, rows: Any = None, **values: Any) -> Any:
        await self._ask(_NAMES[id(sql)])
        return await self._tx.fetch(sql, rows, **values)

    async def reserve(self, numbers: Sequence[int]) -> None:
        await self._ask("reserve")
        await self._tx.reserve(numbers)


class Act:
    """One turn, stepped. Not even BEGIN is sent before the test steps it."""

    def __init__(self, side: Side, part: Part, every: bool = False) -> None:
        self.side = side
        self.part = part
        self.every = every
        self.sent: list[str] = []
        self.passed = 0  # stopping points seen so far
        self.turn: TurnResult | None = None
        self._stop: Callable[[str, bool], bool] = lambda name, matters: True
        self._stands = asyncio.Event()
        self._go = asyncio.Event()
        self._task = asyncio.create_task(self._play())
        self._task.add_done_callback(lambda _: self._stands.set())

    async def to(self, place: int) -> str:
        """Run to the nth stopping point (or the nth statement): 'stands', 'blocked' or 'done'."""
        return await self._until(lambda name, matters: matters and self.passed >= place)

    async def up_to(self, name: str) -> str:
        """Run until it is about to send this statement: 'stands'. 'blocked' if a lock stops it before; it stops at the
        statement when it has got the lock."""
        return await self._until(lambda sent, _: sent == name)

    async def before(self, name: str) -> None:
        """Run until it is about to send this statement for the first time from here."""
        assert await self.up_to(name) == "stands", f"never came to {name}: {self.sent}"

    async def run(self) -> str:
        """Run as far as it gets: 'done', or 'blocked' behind the other side's lock."""
        return await self._until(lambda name, matters: False)

    async def finish(self) -> TurnResult:
        """Run to the end, which must be reached."""
        self._stop = lambda name, matters: False
        self._go.set()
        async with asyncio.timeout(_HANG):
            return await self._task

    async def drop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(BaseException):
            await self._task

    async def _until(self, stop: Callable[[str, bool], bool]) -> str:
        self._stop = stop
        self._stands.clear()
        self._go.set()
        async with asyncio.timeout(_HANG):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stands.wait(), 0.003)
                if self._task.done():
                    self._task.result()
                    return "done"
                if self._stands.is_set():
                    return "stands"
                if await self.side.stage.is_blocked(self.side.pid):
                    return "blocked"

    async def _ask(self, name: str) -> None:
        matters = self.every or name in _MATTER or any(sent in _MATTER for sent in self.sent[-1:])
        while self._stop(name, matters):
            self._go.clear()
            self._stands.set()
            await self._go.wait()
        self.passed += matters
        self.sent.append(name)

    async def _play(self) -> TurnResult:
        await self._ask("begin")
        if self.side.stage.call_turns and (turn := await self._play_in_one_call()) is not None:
            return turn
        tx = await self.side.store.begin()
        part, side = self.part, self.side
        turn = side.turn(self._stepped(tx), part.requests, part.claim, **part.how)
        return await self._end(tx, turn)

    async def _play_in_one_call(self) -> TurnResult | None:
        """As engine/turns/call_attempts.py: None if the turn has to be executed in full."""
        part, claim = self.part, self.part.claim
        if part.requests and claim is not None:
            claim = structs.replace(claim, backlog=False)  # else it is never one call
        values = None if part.how else call_parameters(part.requests, claim)
        if values is None:
            return None
        tx = await self.side.store.begin(call_turn=True)
        turn = await self._end(tx, run_call_turn(self._stepped(tx), part.requests, claim, values))
        self.side.stage.in_one_call += turn is not None
        return turn

    def _stepped(self, tx: PostgresTx) -> Any:
        return _SteppedTx(tx, self._ask)

    async def _end(self, tx: PostgresTx, turn: Coroutine[Any, Any, _Result]) -> _Result:
        """Carry out the turn, and commit it unless it has no result."""
        try:
            result = await turn
            if result is None:
                await tx.rollback()
                return result
            self.turn = result
            await self._ask("commit")
        except BaseException:
            await tx.rollback()
            raise
        await tx.commit()
        return result


@dataclass
class Duel:
    """Two concurrent parts."""

    one: Part
    two: Part
    seen: Sequence[int] = ()


Race = AsyncGenerator[Duel, tuple[TurnResult, TurnResult]]
"""Prepares a duel and yields it; what is after the `yield` must hold in either order."""


def race(
    *, deep: bool = False, every: bool = False, more_than: int = 0
) -> Callable[[Callable[..., Race]], Callable[..., Coroutine[Any, Any, None]]]:
    """Explore the race that a test is; more than so many interleavings are played."""

    def decorate(test: Callable[..., Race]) -> Callable[..., Coroutine[Any, Any, None]]:
        @functools.wraps(test)
        async def explore(stage: Stage, **fixtures: Any) -> None:
            played = await stage.explore(lambda: test(stage=stage, **fixtures), deep=deep, every=every)
            assert played > more_than

        return explore

    return decorate


class Stage:
    """Two sides in one schema, and a third connection that observes."""

    def __init__(self, store: Store, make_rules: Callable[[], Rules]) -> None:
        self.make_rules = make_rules
        self.clock = TickingClock()
        url = f"{store.url}?synchronous_commit=off"  # races do not depend on the disk
        stores = [
            PostgresStore(url, schema=store.options["schema"], lease=3 * _HANG, clock=self.clock) for _ in range(2)
        ]
        self.one, self.two = (Side(name, s, self) for name, s in zip(("one", "two"), stores, strict=True))
        self._url = url
        self._schema = store.options["schema"]
        self.eye: asyncpg.Connection
        self.call_turns = False  # an act is one call if it can be
        self.in_one_call = 0  # acts that were

    async def open(self) -> None:
        await self.one.open()
        await self.two.open()
        self.eye = await asyncpg.connect(self._url, server_settings={"search_path": self._schema})

    async def close(self) -> None:
        await self.one.store.close()
        await self.two.store.close()
        await self.eye.close()

    async def is_blocked(self, pid: int) -> bool:
        return bool(await self.eye.fetchval(blocked_by_a_client(pid)))

    async def renew(self, *workers: str, beside: bool = False) -> None:
        """The statement of the lease thread; `beside`: on a connection of its own, as in production."""
        db = await asyncpg.connect(self._url, server_settings={"search_path": self._schema}) if beside else self.eye
        now = self.clock()
        for worker in workers:
            given = {"id": worker, "until": now + MINUTE, "definitions": "", "info": "{}", "now": now}
            text, arguments = statements.renew.bind(None, given)
            await db.fetch(text, *arguments)
        if beside:
            await db.close()

    async def clear(self, *, whole: bool = False) -> None:
        """Reset all tables; `whole`: vacuum dead rows too, which takes longer."""
        await self.eye.execute(_TRUNCATE if whole else _EMPTY)
        for side in (self.one, self.two):
            side.rules.limits.known.clear()

    async def content(self) -> Content:
        """The whole content, read through a third connection."""
        return Content({table: await self.eye.fetch(text) for table, text in _CONTENT.items()})

    async def audited_content(self, seen: Sequence[int] = ()) -> Content:
        """The whole content, audited."""
        content = await self.content()
        audit(content, self.one.rules, seen)
        return content

    # -- instances to begin with ------------------------------------------------------------------

    async def start(self, *ids: str, **options: Any) -> None:
        request = StartInstances(items=[new(id, **options) for id in ids])
        await self.one.run(request)
        assert request.result == list(ids)

    async def claim(self, owner: str = "worker", room: int = 1) -> list[Claim]:
        return (await self.one.run(claim=capacity(owner, room))).claims

    async def executing(self, id: str, owner: str = "worker", **options: Any) -> Claim:
        await self.start(id, **options)
        [claim] = await self.claim(owner)
        assert claim.id == id
        return claim

    async def parked(self, id: str, *arms: Any, **options: Any) -> None:
        claim = await self.executing(id, **options)
        await self.one.run(park(claim, *arms))

    async def family(
        self, parent: str, *children: str, join: int | None = None, also: Sequence[Any] = ()
    ) -> list[Claim]:
        """A parent parked on executing children; returns the children's claims, in order."""
        claim = await self.executing(parent)
        commit = spawn(claim, [new(child) for child in children], join=join)
        commit.decision.move.arm += tuple(also)
        await self.one.run(commit)
        claims = {claim.id: claim for claim in await self.claim(room=len(children))}
        return [claims[child] for child in children]

    async def drain(self) -> list[Claim]:
        """Sweep and claim until nothing is left to do; the clock is moved past every short wait."""
        claims: list[Claim] = []
        for _ in range(50):
            self.clock.advance(200_000)
            turn = await self.one.run(claim=capacity("drain", 10), sweep=True)
            claims += turn.claims
            if not turn.claims and not turn.pending.more and turn.pending.earliest is None:
                return claims
        raise AssertionError("there was always more to do")

    # -- interleavings ----------------------------------------------------------------------------

    async def explore(self, prepare: Callable[[], Race], *, deep: bool = False, every: bool = False) -> int:
        """Each side runs first and is stopped at each stopping point, and the other runs as far as it gets.

        With `deep` the other is stopped too, at each of its stopping points, while the first continues. With `every`
        every statement is a stopping point. Returns the number of interleavings.
        """
        played = 0
        first = 0 if every else 1  # a side stopped at its first point has done nothing: that is the other order
        for leads in (1, 2):
            for at in count(first):
                for stop in count(first) if deep else (None,):
                    over, stood = await self._duel(prepare, leads, at, stop, every)
                    played += 1
                    if over or not stood:
                        break
                if over:
                    break
        return played

    async def _duel(
        self, prepare: Callable[[], Race], leads: int, at: int, stop: int | None, every: bool
    ) -> tuple[bool, bool]:
        """Run one interleaving; says whether the first ended before its stop and whether the other reached its own."""
        await self.clear()
        race = prepare()
        duel = await anext(race)
        one, two = self.one.act(duel.one, every), self.two.act(duel.two, every)
        lead, follow = (one, two) if leads == 1 else (two, one)
        try:
            over = await lead.to(at) == "done"
            how = await (follow.run() if stop is None else follow.to(stop))
            if how != "done" and await lead.run() == "blocked":
                assert how == "stands", "each waits for the other"
                await follow.run()
            await lead.finish()
            await follow.finish()
            for act in (lead, follow):
                assert act.turn is not None
                if act.turn.again:
                    await act.side.run(*act.turn.again)
            await self.audited_content(duel.seen)
            assert one.turn is not None
            assert two.turn is not None
            with contextlib.suppress(StopAsyncIteration):
                await race.asend((one.turn, two.turn))
                raise AssertionError("a race yields once")
        except BaseException as error:
            error.add_note(f"{lead.side.name} leads, stopped at place {at}; the other at {stop}")
            error.add_note(f"  {one.side.name}: {' '.join(one.sent)}\n  {two.side.name}: {' '.join(two.sent)}")
            raise
        finally:
            await one.drop()
            await two.drop()
        return over, how == "stands"


IN_BOTH_WAYS = pytest.mark.parametrize("call_turns", [False, True], ids=["full", "call"])
"""Runs a test with `stage` a second time with acts that are one call, if they can be."""


@contextlib.asynccontextmanager
async def staged(store: Store, make_rules: Callable[[], Rules] = rules) -> AsyncIterator[Stage]:
    stage = Stage(store, make_rules)
    await stage.open()
    try:
        yield stage
    finally:
        await stage.close()


@contextlib.contextmanager
def no_deadlock(stage: Stage, postgres: Postgres) -> Iterator[None]:
    """Check afterwards, in the server's log, that neither side was a deadlock victim."""
    if postgres.log is None:  # the log of a server that we did not start is not ours to read
        yield
        return
    log = Path(postgres.log)
    before = log.stat().st_size
    yield
    with log.open("rb") as file:
        file.seek(before)
        fallen = set(map(int, re.findall(rb"\[(\d+)\] ERROR:  deadlock detected", file.read())))
    assert not fallen & {stage.one.pid, stage.two.pid}, "the server logged a deadlock"
