"""Machines, gates and direct access to the kernel, for the tests of signals, broadcasts, cancel and retry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from hark import Await, Broadcast, Context, Done, Machine, step
from hark.kernel.definitions import Catalog
from hark.kernel.limits import Limits
from hark.kernel.requests import Capacity, Commit, DefinitionRow, Register, Request, StartInstances
from hark.kernel.result import TurnResult
from hark.kernel.rules import Rules
from hark.kernel.turn import run_turn
from hark.model.activation import Claim, Traits
from hark.model.decisions import Advance, Decision, Effect, Finish, NewInstance, Park, Redo
from hark.model.lanes import ENGINE_QUEUE, INTERPRETED
from hark.testing import Harness
from tests.support.inspect import query, until
from tests.support.postgres import blocked_by_a_client
from tests.support.stores import Store


class Impatient(Harness):
    """A result that never arrives fails the test soon, instead of blocking the run."""

    def result(self, target: Any, timeout: Any = None) -> Any:
        return super().result(target, 30 if timeout is None else timeout)


def harness(store: Store, *definitions: type[Machine], **options: Any) -> Harness:
    return Impatient(*definitions, url=store.url, **store.options, **options)


def seen(ctx: Context) -> dict[str, Any]:
    """What a step saw, as its result."""
    return {
        "awaited": [[signal.name, signal.payload] for signal in ctx.awaited],
        "all": [[signal.name, signal.payload] for signal in ctx.all],
        "timed_out": ctx.timed_out,
        "attempt": ctx.attempt,
    }


def _await(state: dict[str, Any], then: str) -> Await:
    names: list[str | Broadcast] = [*state.get("names", ()), *map(Broadcast, state.get("broadcasts", ()))]
    deadline = datetime.fromisoformat(state["deadline"]) if "deadline" in state else None
    return Await(*names, then=then, timeout=state.get("timeout"), deadline=deadline)


class Waiter(Machine):
    """Waits once for the names in its input, and ends with what it saw."""

    @step
    async def start(self, ctx: Context) -> Await:
        return _await(ctx.state, "woken")

    @step
    async def woken(self, ctx: Context) -> Done:
        return Done(seen(ctx))


class Pack(Machine):
    """Awaits again until it was handed `size` signals or timed out."""

    @step
    async def start(self, ctx: Context) -> Await:
        return _await(ctx.state, "collect")

    @step
    async def collect(self, ctx: Context) -> Await | Done:
        ctx.state["looks"] = ctx.state.get("looks", 0) + 1
        if len(ctx.awaited) < ctx.state["size"] and not ctx.timed_out:
            return _await(ctx.state, "collect")
        return Done({"payloads": [s.payload for s in ctx.awaited], "looks": ctx.state["looks"], **seen(ctx)})


class Gate:
    """Stops a step in the middle until the test releases it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def hold(self) -> None:
        self.reached.set()
        await self.open.wait()


async def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return await query(store, sql)


async def count(store: Store, table: str, where: str = "true") -> int:
    [[number]] = await query(store, f"SELECT count(*) FROM {table} WHERE {where}")
    return int(number)


async def statuses(app: Harness, *ids: str) -> list[str]:
    return [(await app.get(id)).status for id in ids]


async def event_types(app: Harness, id: str) -> list[str]:
    return [event.type for event in await app.events(id, limit=1000)]


class OpenTurn(NamedTuple):
    """A turn whose transaction the test commits or rolls back."""

    tx: Any
    result: TurnResult


class Turns:
    """The kernel alone, on a connection of its own: one turn at a time, committed or not as the test says."""

    def __init__(self, store: Store, clock: Callable[[], int] | None = None, *, broadcast_limit: int = 50_000) -> None:
        self.made_for = store
        self.store: Any = store.make(clock=clock)
        self.rules = Rules(Limits({}, {}), 5, broadcast_limit, broadcast_limit)
        self.catalog = Catalog()

    async def __aenter__(self) -> Turns:
        await self.store.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.store.close()

    async def open_turn(
        self,
        *requests: Request,
        lanes: Sequence[str] = (),
        room: int = 1,
        capacity: Capacity | None = None,
        **how: bool,
    ) -> OpenTurn:
        """Run a turn and leave its transaction open."""
        tx = await self.store.begin()
        if lanes:
            able = dict.fromkeys([*(f"{name}@1" for name in lanes), *INTERPRETED], Traits())
            capacity = Capacity("by-hand", {"default": room, ENGINE_QUEUE: room}, able)
        try:
            result = await run_turn(tx, self.rules, self.catalog, requests, capacity, **how)
        except BaseException:
            await tx.rollback()
            raise
        return OpenTurn(tx, result)

    async def run(self, *requests: Request, **how: Any) -> TurnResult:
        turn = await self.open_turn(*requests, **how)
        await turn.tx.commit()
        return turn.result

    async def register(self, *names: str) -> None:
        await self.run(Register(rows=[DefinitionRow(name, 1, "machine", "default", "start") for name in names]))

    async def start(self, definition: str, *ids: str, **options: Any) -> None:
        items = [NewInstance(definition, "{}", id, named=True, **options) for id in ids]
        request = StartInstances(items=items)
        await self.run(request)
        assert request.result == list(ids)

    async def claim(self, *definitions: str) -> Claim:
        """Claim the one that can run, or fail."""
        [claim] = (await self.run(lanes=definitions)).claims
        return claim

    async def nobody_runs(self, *definitions: str) -> bool:
        return not (await self.run(lanes=definitions)).claims

    async def commit(self, claim: Claim, move: Advance | Redo | Park | Finish, **decision: Any) -> Commit:
        request = outcome(claim, move, **decision)
        await self.run(request)
        assert not request.fenced
        return request

    async def park_all(self, definition: str, ids: Sequence[str], arms: Callable[[str], Park], step: str) -> None:
        """Start many and park them all, in a turn each for the lot."""
        await self.start(definition, *ids)
        claims = (await self.run(lanes=[definition], room=len(ids))).claims
        assert len(claims) == len(ids)
        await self.run(*(outcome(claim, arms(claim.id), step=step) for claim in claims))

    def pid(self) -> int:
        return int(self.store._db.get_server_pid())


def outcome(
    claim: Claim,
    move: Advance | Redo | Park | Finish,
    *,
    step: str | None = None,
    consume: Sequence[int] = (),
    handed: Sequence[int] = (),
    effects: Sequence[Effect] = (),
) -> Commit:
    """A decision as an interpreter would return it."""
    label = {Advance: "next", Redo: "retry", Park: "await", Finish: "done"}[type(move)]
    decision = Decision(label, step or claim.step, claim.state, move, tuple(consume), tuple(handed), list(effects))
    return Commit(claim=claim, decision=decision)


async def until_blocked(store: Store, turns: Turns) -> None:
    """Wait until that connection is blocked by a lock of another one."""

    async def blocked() -> bool:
        return bool((await query(store, blocked_by_a_client(turns.pid())))[0][0])

    await until(blocked, "the second connection to wait for the first")
