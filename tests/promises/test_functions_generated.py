"""Generated functions: random programs, and an environment that answers, sends and waits in random order.

The oracle: a replay sees what was seen before, and continues; each run is done once per attempt; effects arrive once,
in the order of the calls; no function diverges from its journal; and when the environment answers for long enough, the
function ends and leaves no open wait. What was made and has an undo is undone, once, unless its visit has ended well.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark import AlreadySettled, FunctionContext, HarkError, RunFailed, workflow
from hark.engine.worker.worker import Worker
from hark.model.names import from_micros
from hark.testing import Harness
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a failure is shrunk before it is shown

Node = tuple[Any, ...]
Road = list[Any]

_names = st.sampled_from(["a", "b"])
_limit = st.none() | st.integers(1, 5)
_leaves = st.one_of(
    st.tuples(st.just("run"), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)),  # pauses, failures, retries
    st.tuples(st.just("wait"), st.lists(_names, min_size=1, max_size=2, unique=True).map(tuple), _limit),
    st.tuples(st.just("sleep"), st.integers(0, 5)),
    st.tuples(st.just("ask"), _limit),
    st.tuples(st.just("ask and go on"), _limit),
    st.tuples(st.just("effect")),
    st.tuples(st.just("effect, not awaited")),
    st.tuples(st.just("call"), st.booleans()),
    st.tuples(st.just("now")),
    st.tuples(st.just("answered")),
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    blocks = st.lists(st.lists(inner, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
    return st.tuples(st.sampled_from(["gather", "first"]), blocks)


_nodes = st.recursive(_leaves, _nested, max_leaves=6)
_broken = st.tuples(st.just("broken"), st.integers(1, 2))  # fails the function that often; a retry continues
_beside = st.tuples(st.just("beside"), st.integers(1, 2), st.lists(_nodes, min_size=1, max_size=2).map(tuple))
_frail = st.tuples(st.just("broken call"), st.integers(1, 2))
_impatient = st.tuples(st.just("impatient"), _names)
_undoable = st.tuples(st.just("undoable"), st.integers(0, 2))  # how often each of its undos fails before it works
_programs = st.lists(_nodes | _broken | _beside | _frail | _impatient | _undoable, min_size=1, max_size=5)
_events = st.lists(
    st.one_of(
        st.tuples(st.just("signal"), _names),
        st.tuples(st.just("settle"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("advance"), st.integers(0, 6)),
        st.tuples(st.just("drain")),
        st.tuples(st.just("child")),
        st.tuples(st.just("cancel")),
    ),
    max_size=12,
)


class World:
    """The acts of the programs of one example, as the environment saw them."""

    def __init__(self, program: list[Node], visits: int) -> None:
        self.program = program
        self.visits = visits
        self.roads: dict[int, list[Road]] = {}
        self.ran: Counter[str] = Counter()
        self.told: list[str] = []  # effects whose await was answered, in the last replay of each visit
        self.called: dict[int, list[str]] = {}
        self.made: list[str] = []  # what has to be undone, oldest first
        self.undone: Counter[str] = Counter()

    async def make(self, key: str) -> str:
        self.made.append(key)
        return key

    async def undo(self, key: str, failures: int) -> None:
        assert key == self.made[-1], "the latest first"
        self.undone[key] += 1
        if self.undone[key] % (failures + 1):
            raise OSError(key)
        self.made.pop()

    async def run(self, key: str, pauses: int, failures: int) -> str:
        self.ran[key] += 1
        for _ in range(pauses):
            await asyncio.sleep(0)
        if self.ran[key] <= failures:
            raise OSError(key)
        return key


_world: World


@workflow
async def generated(ctx: FunctionContext, visit: int = 0) -> Any:
    road: Road = []
    _world.roads.setdefault(visit, []).append(road)
    _world.called[visit] = []
    asked: list[Any] = []
    for n, node in enumerate(_world.program):
        await _do(ctx, node, f"{visit}.{n}", road, asked, visit)
    if visit + 1 < _world.visits:
        await ctx.run(_world.made.clear)
        return ctx.continue_as_new({"visit": visit + 1})
    return "ended"


async def _block(
    ctx: FunctionContext, nodes: tuple[Node, ...], path: str, road: Road, asked: list[Any], visit: int
) -> str:
    for n, node in enumerate(nodes):
        await _do(ctx, node, f"{path}.{n}", road, asked, visit)
    return path


async def _do(ctx: FunctionContext, node: Node, path: str, road: Road, asked: list[Any], visit: int) -> None:
    try:
        got = await _value(ctx, node, path, road, asked, visit)
    except (HarkError, TimeoutError) as error:
        if node[0] in ("broken", "beside", "broken call", "impatient"):
            raise
        got = (type(error).__name__, str(error))
    road.append((path, node[0], got))


async def _value(ctx: FunctionContext, node: Node, path: str, road: Road, asked: list[Any], visit: int) -> Any:
    match node:
        case ("run", pauses, failures, retries):
            return await ctx.run(_world.run, path, pauses, failures, retries=retries, backoff=1)
        case ("undoable", failures):
            undo = functools.partial(_world.undo, failures=failures)
            return await ctx.run(_world.make, path, undo=undo, retries=failures, backoff=1)
        case ("broken", failures):
            return await ctx.run(_world.run, path, 0, failures)
        case ("broken call", failures):
            return await ctx.call(frail, {"key": path, "failures": failures})
        case ("impatient", name):
            return (await ctx.wait_for_signal(name, timeout=3)).payload
        case ("beside", failures, nodes):
            try:
                broken = ctx.run(_world.run, f"{path}.broken", 2, failures)
                return await ctx.gather(broken, _block(ctx, nodes, path, road, asked, visit))
            except RunFailed:
                await ctx.run(_world.run, f"{path}.undo", 1, 0)
                raise
        case ("wait", names, limit):
            signal = await ctx.wait_for_signal(*names, timeout=limit)
            return [signal.name, signal.payload]
        case ("sleep", seconds):
            return await ctx.sleep(seconds)
        case ("ask", limit):
            handle = await ctx.awakeable(timeout=limit)
            return [handle.id, await handle]
        case ("ask and go on", limit):
            asked.append(await ctx.awakeable(timeout=limit))
            return asked[-1].id
        case ("answered",):
            return [await handle for handle in asked]
        case ("effect",):
            _world.called[visit].append(path)
            await ctx.signal("sink", "note", path)
            return path
        case ("effect, not awaited",):
            _world.called[visit].append(path)
            ctx.signal("sink", "note", path)
            return path
        case ("call", waits):
            return await ctx.call(child, {"waits": waits})
        case ("now",):
            return [str(await ctx.now()), str(ctx.uuid()), ctx.random()]
        case (kind, blocks):
            parts = [_block(ctx, nodes, f"{path}.{kind}{n}", road, asked, visit) for n, nodes in enumerate(blocks)]
            return await (ctx.gather(*parts) if kind == "gather" else ctx.first(*parts))
    raise AssertionError(node)


@workflow
async def child(ctx: FunctionContext, waits: bool) -> str:
    if waits:
        await ctx.wait_for_signal("go")
    return "grown"


@workflow
async def frail(ctx: FunctionContext, key: str, failures: int) -> Any:
    return await ctx.run(_world.run, key, 0, failures)


@workflow
async def sink(ctx: FunctionContext) -> list[Any]:
    notes: list[Any] = []
    while (signal := await ctx.wait_for_signal("note", "end")).name != "end":
        notes.append(signal.payload)
    return notes


async def _live(app: Harness, program: list[Node], events: list[tuple[Any, ...]], visits: int) -> None:
    global _world
    _world = world = World(program, visits)
    notes = await app.start(sink, correlation_key="sink")
    it = await app.start(generated)
    sent = 0
    cancelled = False
    for event in events:
        match event:
            case ("signal", name) if (await it.get()).status not in ("done", "failed", "cancelled"):
                sent += 1
                await it.signal(name, sent)
            case ("settle", n, resolves):
                await _settle(app, it.id, n, resolves)
            case ("advance", seconds):
                await app.advance(seconds)
            case ("drain",):
                await app.drain()
            case ("child",):
                await _let_children_go(app)
            case ("cancel",) if (await it.get()).status not in ("done", "failed", "cancelled"):
                await it.cancel("enough")
                cancelled = True
        await _mend(app, it)
    for _ in range(60):
        await app.drain()
        if (await it.get()).status in ("done", "cancelled"):
            break
        if not await _mend(app, it):
            for name in ("a", "b"):
                sent += 1
                await it.signal(name, sent)
            await _settle(app, it.id, 0, True)
            await _let_children_go(app)
            await app.advance(10)
    await notes.signal("end")
    await app.drain()
    _judge(world, await it.get(), await notes.result(timeout=0), cancelled)
    assert await app.awakeables(job=it.id, status="PENDING") == []
    assert [wait for wait in await app.waits() if wait.instance_id == it.id] == []
    for one in await app.list(definition="child", limit=1000):
        assert one.status in ("done", "cancelled")


async def _mend(app: Harness, it: Any) -> bool:
    instance = await it.get()
    if instance.status != "failed":
        return False
    # What "broken" and "impatient" raise, and nothing else.
    assert "OSError" in str(instance.error) or "SignalTimeout" in str(instance.error), instance.error
    assert _world.made == []
    await app.retry(it.id)
    if {"beside", "undoable"} & {node[0] for node in _world.program}:
        _world.roads.clear()  # operations requested after the failure are requested again: the journal differs
    return True


async def _settle(app: Harness, id: str, n: int, resolves: bool) -> None:
    pending = await app.awakeables(job=id, status="PENDING")
    if not pending:
        return
    question = pending[n % len(pending)]
    # No timer fires while its instance is runnable, after a retry for example. An answer after the timeout is refused.
    late = question.timeout_at is not None and question.timeout_at <= from_micros(app.clock.now)
    with pytest.raises(AlreadySettled, match="was TIMEOUT") if late else contextlib.nullcontext():
        await (app.resolve(question.id, "yes") if resolves else app.reject(question.id, "no"))


async def _let_children_go(app: Harness) -> None:
    for one in await app.list(definition="child", status="awaiting_signal", limit=1000):
        await app.signal(one.id, "go")


def _judge(world: World, instance: Any, notes: list[Any], cancelled: bool) -> None:
    assert instance.status == ("cancelled" if cancelled else "done"), (instance.status, instance.error, instance.waits)
    for roads in world.roads.values():
        for before, after in pairwise(roads):
            assert after[: len(before)] == before
    lines = [line for roads in world.roads.values() for line in roads[-1]]
    kinds = {node[0] for node in world.program}
    if cancelled:
        assert world.made == []
    if "undoable" not in kinds:  # with an undo, a retry runs everything again
        wanted = _runs(world)
        for path, count in world.ran.items():
            assert count <= wanted[path], (path, count)
        for path, kind, got in lines:
            if kind == "broken" or (kind == "run" and got == path):
                assert 1 <= world.ran[path] <= wanted[path]
    signals = [tuple(got) for _, kind, got in lines if kind == "wait" and isinstance(got, list)]
    assert len(set(signals)) == len(signals)
    called = [path for visit in sorted(world.called) for path in world.called[visit]]
    if not {"beside", "undoable"} & kinds:
        assert len(set(notes)) == len(notes)
        order = iter(called)
        assert all(note in order for note in notes), (notes, called)  # a subsequence
    if not cancelled:
        assert {path for path, kind, got in lines if kind == "effect" and got == path} <= set(notes)


def _runs(world: World) -> dict[str, int]:
    """The number of times that each run may happen at most."""
    found: dict[str, int] = {}

    def look(node: Node, path: str, times: int = 1) -> None:
        match node:
            case ("run", _, failures, retries):
                found[path] = (min(failures, retries) + 1) * times
            case ("broken" | "broken call", failures):
                found[path] = failures + 1
            case ("beside", failures, nodes):
                found[f"{path}.broken"] = failures + 1
                found[f"{path}.undo"] = failures
                for n, inner in enumerate(nodes):
                    look(inner, f"{path}.{n}", times * (failures + 1))
            case ("gather" | "first" as kind, blocks):
                for n, nodes in enumerate(blocks):
                    for m, inner in enumerate(nodes):
                        look(inner, f"{path}.{kind}{n}.{m}", times)

    for visit in range(world.visits):
        for n, node in enumerate(world.program):
            look(node, f"{visit}.{n}")
    return found


class _WithResidents(Harness):
    """Its worker stays for some drains, and with it the functions that are parked; when it stops, they are replayed
    next. Between two drains it claims nothing: a cancel must not come in the middle of an activation."""

    stays = 0
    _living: Worker | None = None
    _drains = 0

    async def drain(self) -> dict[str, int]:
        if self.stays == 0:
            return await super().drain()
        if self._living is None:
            self._living = self.worker({"default": 1})
            await self._living.start()
        self._living._activations.open = True
        await self._living.settle()
        self._living._activations.open = False
        self._drains += 1
        if self._drains % self.stays == 0:
            await self.stop()
        return {}

    async def stop(self) -> None:
        if self._living is not None:
            await self._living.stop()
            self._living = None


def _run(stays: int, program: list[Node], events: list[tuple[Any, ...]], visits: int, **options: Any) -> None:
    async def main() -> None:
        async with _WithResidents(generated, child, frail, sink, **options) as app:
            app.stays = stays
            try:
                await _live(app, program, events, visits)
            finally:
                await app.stop()

    asyncio.run(main())


_drawn = {"program": _programs, "events": _events, "visits": st.integers(1, 2)}


@given(stays=st.sampled_from([0, 4]), **_drawn)
@settings(max_examples=100, deadline=None)
def test_random_functions_end_alike_whether_they_are_replayed_or_stay_in_memory_between_activations(
    stays: int, program: list[Node], events: list[tuple[Any, ...]], visits: int
) -> None:
    _run(stays, program, events, visits)


@given(**_drawn)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_functions_replay_deterministically_and_end_on_postgres(
    pg_store: Store, program: list[Node], events: list[tuple[Any, ...]], visits: int
) -> None:
    _run(0, program, events, visits, url=pg_store.url, **pg_store.options)
