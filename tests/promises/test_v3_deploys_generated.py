"""V1, V2, V3: generated functions, generated edits of them, and deploys and rollbacks while instances wait.

The code of each deploy is written into a module and imported, as that of a user is. The oracle is a model that knows
which operations each instance has asked for. After each deploy the check names exactly the instances that the new code
does not continue, and the patches that no instance needs. An instance is held exactly if the code does not continue it
when it runs, and nothing else ends it. When the codes that continue what is left are deployed again, each instance ends
with the values of its own road, and each of its runs was done once.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark import InstanceHeld
from hark.testing import Harness
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a failure is shrunk before it is shown

Node = tuple[Any, ...]
Program = tuple[Node, ...]
SECOND = 1_000_000

_runs = st.tuples(st.just("run"), st.sampled_from("abc"))
_waits = st.tuples(st.just("wait"), st.sampled_from("xy"))
_leaves = st.one_of(
    _runs,
    _waits,
    _waits,
    st.tuples(st.just("ask"), st.just("q")),
    st.tuples(st.just("sleep"), st.just("10")),
    st.tuples(st.just("now"), st.just("")),
)
_both = st.tuples(st.just("both"), _runs | _waits, _waits)
_nodes = st.one_of(
    _leaves,
    _leaves,
    _leaves,
    _both,
    st.tuples(st.just("loop"), st.integers(2, 3), st.lists(_leaves, min_size=1, max_size=2).map(tuple)),
    st.tuples(st.just("helper"), st.lists(_leaves, min_size=1, max_size=2).map(tuple)),
)
_programs = st.lists(_nodes, min_size=2, max_size=5).map(tuple)
_at = st.integers(0, 5)
_kinds = st.sampled_from(["insert", "replace", "remove", "remove", "swap", "append", "raise"])
_changes = st.tuples(st.just("change"), _kinds, _at, _leaves)
_patches = st.tuples(st.just("patch"), st.booleans(), _at, _leaves)
_gives = st.tuples(st.just("give"), _at)
_events = st.one_of(
    st.tuples(st.just("start")),
    _gives,
    _gives,
    _gives,
    st.tuples(st.just("send"), _at, st.sampled_from("xy")),
    st.tuples(st.just("drain")),
    st.tuples(st.just("exit")),
    _changes,
    _changes,
    _patches,
    _patches,
    st.tuples(st.just("unpatch")),
    st.tuples(st.just("roll back"), _at),
)
_histories = st.lists(_events, min_size=8, max_size=20)


# -- code ----------------------------------------------------------------------------------------------------------


_HEAD = """from hark import workflow
from tests.promises.test_v3_deploys_generated import done

@workflow(name={name!r})
async def order(ctx):
    road = []
"""


def source(name: str, program: Program) -> str:
    """The module of a program."""
    helpers: list[str] = []
    lines = [line for node in program for line in _lines(node, helpers)]
    body = "".join(f"    {line}\n" for line in lines)
    return _HEAD.format(name=name) + body + "    return road\n" + "".join(helpers)


def _lines(node: Node, helpers: list[str]) -> Iterator[str]:
    match node:
        case ("both", first, second):
            yield f"for one in await ctx.gather({_asked(first)}, {_asked(second)}):"
            yield "    road.append(getattr(one, 'payload', one))"
        case ("loop", times, nodes):
            yield f"for _ in range({times}):"
            yield from (f"    {line}" for one in nodes for line in _lines(one, helpers))
        case ("helper", nodes):
            name = f"helper_{len(helpers)}"
            inner = "".join(f"    {line}\n" for one in nodes for line in _lines(one, helpers))
            helpers.append(f"\nasync def {name}(ctx, road):\n{inner}")
            yield f"await {name}(ctx, road)"
        case ("patch", name, new, old):
            yield f"if ctx.patched({name!r}):"
            yield from (f"    {line}" for line in [*(line for one in new for line in _lines(one, helpers)), "pass"])
            yield "else:"
            yield from (f"    {line}" for line in [*(line for one in old for line in _lines(one, helpers)), "pass"])
        case ("ask", title):
            yield f"question = await ctx.awakeable(title={title!r})"
            yield "road.append(await question)"
        case ("raise",):
            yield "if isinstance(road, list):  # the compiler drops code behind a mere raise"
            yield "    raise KeyError('a bug')"
        case ("wait", _):
            yield f"road.append((await {_asked(node)}).payload)"
        case _:
            yield f"road.append(await {_asked(node)})"


def _asked(node: Node) -> str:
    match node:
        case ("run", name):
            return f"ctx.run(done, ctx.id, {name!r}, name={name!r})"
        case ("wait", name):
            return f"ctx.wait_for_signal({name!r})"
        case ("sleep", seconds):
            return f"ctx.sleep({seconds})"
    return "ctx.now()"


_modules = itertools.count()
_folder = tempfile.TemporaryDirectory()


def imported_source(text: str) -> Any:
    """The module of this text."""
    module = f"generated_orders_{next(_modules)}"
    path = Path(_folder.name, f"{module}.py")
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(module, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module] = found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


_ran: Counter[str] = Counter()
_exits = 0


async def done(id: str, name: str) -> str:
    """The run of all programs. The next one may be the death of its activation."""
    global _exits
    if _exits:
        _exits -= 1
        raise SystemExit
    _ran[f"{id} {name}"] += 1
    return name


# -- the model -----------------------------------------------------------------------------------------------------


class Misfit(Exception):
    """The code does not continue what was committed."""


class Blocked(Exception):
    """The code waits."""


@dataclass
class Order:
    """What an instance has asked for, as the model knows it."""

    id: str
    labels: list[Node] = field(default_factory=list)
    patches: set[tuple[int, str]] = field(default_factory=set)
    waits: dict[int, int] = field(default_factory=dict)  # open: by entry, the time at which a sleep is over, or 0
    has_run: bool = False
    is_woken: bool = True
    status: str = "live"
    held_by: set[Program] = field(default_factory=set)
    inbox: Counter[str] = field(default_factory=Counter)
    answered: set[int] = field(default_factory=set)

    def given(self, entry: int, now: int) -> bool:
        """Whether an open wait has its answer."""
        match self.labels[entry]:
            case ("wait", name):
                earlier = [one for one in self.waits if one < entry and self.labels[one] == ("wait", name)]
                return self.inbox[name] > len(earlier)
            case ("sleep", _):
                return self.waits[entry] <= now
        return entry in self.answered


class Walk:
    """One way of an instance through a program: a replay, and what follows it."""

    def __init__(self, order: Order, now: int, *, continues: bool) -> None:
        self.order, self.now, self.continues = order, now, continues
        self.entry = 0
        self.denied: set[str] = set()
        self.known = len(order.labels)

    def go(self, program: Program) -> None:
        """Raises Blocked, Misfit, or KeyError from a bug in the code."""
        for node in program:
            self._node(node)
        if self.entry < self.known:
            raise Misfit

    def _node(self, node: Node) -> None:
        match node:
            case ("loop", times, nodes):
                for one in nodes * times:
                    self._node(one)
            case ("helper", nodes):
                for one in nodes:
                    self._node(one)
            case ("patch", name, new, old):
                for one in new if self._patched(name) else old:
                    self._node(one)
            case ("both", first, second):
                self._receive([self._ask(first), self._ask(second)])
            case ("raise",):
                if self.entry < self.known:
                    raise Misfit
                raise KeyError
            case _:
                self._receive([self._ask(node)])

    def _patched(self, name: str) -> bool:
        if (self.entry, name) in self.order.patches:
            return True
        if self.entry < self.known:
            self.denied.add(name)
            return False
        self.order.patches |= {(self.entry, name)} if self.continues else set()
        return True

    def _ask(self, node: Node) -> int:
        entry = self.entry
        self.entry += 1
        if entry < self.known:
            if self.order.labels[entry] != node:
                raise Misfit
        elif not self.continues:
            if node[0] != "now":  # that one is answered at once, also in a check
                raise Blocked
        else:
            self.order.labels.append(node)
            if node[0] in ("wait", "ask", "sleep"):
                self.order.waits[entry] = self.now + int(node[1]) * SECOND if node[0] == "sleep" else 0
        return entry

    def _receive(self, entries: list[int]) -> None:
        order = self.order
        if not self.continues:
            if any(entry in order.waits for entry in entries):
                if self.entry < self.known:
                    raise Misfit
                raise Blocked
            return
        given = [entry for entry in entries if entry in order.waits and order.given(entry, self.now)]
        for entry in given:
            del order.waits[entry]
            if order.labels[entry][0] == "wait":
                order.inbox[order.labels[entry][1]] -= 1
        if any(entry in order.waits for entry in entries):
            if self.entry < self.known:
                raise Misfit
            raise Blocked


def misfit(order: Order, program: Program, now: int) -> bool:
    """Whether this code holds it when it runs."""
    return order.has_run and _replayed(order, program, now) == "misfit"


def denied(order: Order, program: Program, now: int) -> set[str]:
    """The patches that this instance needs."""
    walk = Walk(order, now, continues=False)
    return set(names_of(program)) if _outcome(walk, program) in ("misfit", "failed") else walk.denied


def _replayed(order: Order, program: Program, now: int) -> str:
    return _outcome(Walk(order, now, continues=False), program)


def _outcome(walk: Walk, program: Program) -> str:
    try:
        walk.go(program)
    except Misfit:
        return "misfit"
    except Blocked:
        return "blocked"
    except KeyError:
        return "failed"
    return "done"


def names_of(program: Program) -> list[str]:
    return [node[1] for node in program if node[0] == "patch"]


# -- deploys -------------------------------------------------------------------------------------------------------


class World:
    """A store, the codes that were deployed on it, and the model of its instances."""

    def __init__(self, name: str, url: str, options: dict[str, Any]) -> None:
        self.name, self.url, self.options = name, url, options
        self.orders: list[Order] = []
        self.codes: list[Program] = []
        self.app: Harness
        self.now: int | None = None
        self.patches = 0

    @property
    def program(self) -> Program:
        return self.codes[-1]

    async def deploy(self, program: Program) -> None:
        """Replace the process by one with this code. The check says before what will be held."""
        if self.codes:
            await self.close()
        self.codes.append(program)
        self.app = Harness(imported_source(source(self.name, program)).order, url=self.url, **self.options)
        if self.now is not None:
            self.app.clock.now = self.now
        self.now = self.app.clock.now
        await self.app.__aenter__()
        live = [order for order in self.orders if order.status in ("live", "held")]
        report = await self.app.check()
        assert {one.instance_id for one in report.problems} == {
            order.id for order in live if _replayed(order, program, self.now) in ("misfit", "failed")
        }, report
        assert report.continues == len(live) - len(report.problems)
        needed = {name for order in live for name in denied(order, program, self.now)}
        assert {*report.unneeded_patches} == {*names_of(program)} - needed

    def _time(self) -> int:
        assert self.now is not None
        return self.now

    async def close(self) -> None:
        await self.app.__aexit__(None, None, None)

    async def start(self) -> None:
        handle = await self.app.start(self.name)
        self.orders.append(Order(handle.id))

    async def send(self, order: Order, name: str) -> None:
        await self.app.signal(order.id, name, f"{name}!")
        order.inbox[name] += 1
        waited = [order.labels[entry] for entry in order.waits]
        order.is_woken = order.is_woken or ("wait", name) in waited

    async def give(self, order: Order) -> None:
        """Give an instance what it waits for."""
        for entry in sorted(order.waits):
            match order.labels[entry]:
                case ("wait", name):
                    await self.send(order, name)
                case ("ask", _) if entry not in order.answered:
                    [question] = await self.app.awakeables(job=order.id, status="PENDING")
                    await self.app.resolve(question.id, "yes")
                    order.answered.add(entry)
                    order.is_woken = True
                case ("sleep", _):
                    await self.advance(10)

    async def advance(self, seconds: int) -> None:
        await self.app.advance(seconds)
        self.now = self.app.clock.now
        for order in self.orders:
            due = [end for entry, end in order.waits.items() if order.labels[entry][0] == "sleep" and end <= self.now]
            order.is_woken = order.is_woken or bool(due)

    async def drain(self) -> None:
        expected = {order.id for order in self.orders if self._run(order)}
        with pytest.raises(InstanceHeld) if expected else nullcontext():
            await self.app.drain()
        for order in self.orders:
            found = await self.app.get(order.id)
            status = {"done": "done", "failed": "failed", "held": "held"}.get(found.status, "live")
            assert status == order.status, (order, found.status, found.error)

    def _run(self, order: Order) -> bool:
        """Whether it is held now by this code."""
        is_new = order.status == "held" and self.program not in order.held_by
        if not is_new and not (order.status == "live" and order.is_woken):
            return False
        if misfit(order, self.program, self._time()):
            order.status = "held"
            order.held_by.add(self.program)
            return True
        order.held_by.clear()
        order.has_run, order.is_woken = True, False
        outcome = _outcome(Walk(order, self._time(), continues=True), self.program)
        order.status = {"blocked": "live", "done": "done", "failed": "failed"}[outcome]
        return False

    # -- edits ------------------------------------------------------------------------------------

    def changed(self, kind: str, at: int, leaf: Node) -> Program:
        program = [*self.program]
        at %= len(program) + 1
        match kind:
            case "insert":
                program.insert(at, leaf)
            case "append":
                program.append(leaf)
            case "raise":
                program.insert(at, ("raise",))
            case "replace":
                program[at : at + 1] = [leaf]
            case "remove":
                program[at : at + 1] = []
            case "swap":
                program[at : at + 2] = program[at : at + 2][::-1]
        return tuple(program)

    def patched(self, replaces: bool, at: int, leaf: Node) -> Program:
        self.patches += 1
        program = [*self.program]
        at %= len(program) + 1
        old = tuple(program[at : at + 1]) if replaces and program[at : at + 1] and program[at][0] != "patch" else ()
        program[at : at + len(old)] = [("patch", f"change {self.patches}", (leaf,), old)]
        return tuple(program)

    def unpatched(self, unneeded: set[str]) -> Program:
        """Without the patches that no instance needs."""
        program: list[Node] = []
        for node in self.program:
            program += node[2] if node[0] == "patch" and node[1] in unneeded else [node]
        return tuple(program)

    async def act(self, event: tuple[Any, ...]) -> None:
        global _exits
        live = [order for order in self.orders if order.status in ("live", "held")]
        match event:
            case ("start",):
                await self.start()
            case ("give", at) if live:
                await self.give(live[at % len(live)])
                await self.drain()
            case ("send", at, name) if live:
                await self.send(live[at % len(live)], name)
            case ("drain",):
                await self.drain()
            case ("exit",):
                _exits = 1
            case ("change", kind, at, leaf):
                await self.deploy(self.changed(kind, at, leaf))
            case ("patch", replaces, at, leaf):
                await self.deploy(self.patched(replaces, at, leaf))
            case ("unpatch",):
                report = await self.app.check()
                before = {one.instance_id for one in report.problems}
                await self.deploy(self.unpatched({*report.unneeded_patches}))
                assert {one.instance_id for one in (await self.app.check()).problems} == before
            case ("roll back", at):
                await self.deploy(self.codes[-1 - at % len(self.codes)])

    async def end(self) -> None:
        """Deploy all codes again, the newest first, until everything has ended."""
        for program in [self.program, *reversed(self.codes)]:
            if not any(order.status in ("live", "held") for order in self.orders):
                break
            await self.deploy(program)
            await self.drain()
            for order in self.orders:
                for _ in range(40):
                    if order.status != "live" or misfit(order, program, self._time()):
                        break
                    await self.give(order)
                    await self.drain()
        for order in self.orders:
            found = await self.app.get(order.id)
            assert (found.status, order.status) in (("done", "done"), ("failed", "failed")), (order, found)
            if found.status == "failed":
                assert "a bug" in str(found.error)
            runs = Counter(f"{order.id} {name}" for kind, name in order.labels if kind == "run")
            assert {key: _ran[key] for key in _ran if key.startswith(order.id)} == runs
            if found.status == "done":
                assert [_shown(value) for value in found.result] == [_value(label) for label in order.labels]


def _value(label: Node) -> Any:
    return {"run": label[1], "wait": f"{label[1]}!", "ask": "yes", "sleep": None, "now": "now"}[label[0]]


def _shown(value: Any) -> Any:
    return "now" if isinstance(value, str) and value[:2] == "20" else value


_names = itertools.count()


async def _live(url: str, options: dict[str, Any], program: Program, events: list[tuple[Any, ...]]) -> None:
    global _exits
    _exits = 0
    _ran.clear()
    world = World(f"order-{next(_names)}", url, options)
    await world.deploy(program)
    try:
        await world.start()
        await world.drain()
        for event in events:
            await world.act(event)
        _exits = 0
        await world.end()
    finally:
        await world.close()


@given(program=_programs, events=_histories)
@settings(max_examples=30, deadline=None)
def test_v3_generated_deploys_hold_exactly_what_the_check_names_and_everything_ends(
    program: Program, events: list[tuple[Any, ...]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(f"sqlite:///{folder}/hark.db", {}, program, events))


@given(program=_programs, events=_histories)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_v3_generated_deploys_on_postgres(pg_store: Store, program: Program, events: list[tuple[Any, ...]]) -> None:
    asyncio.run(_live(pg_store.url, pg_store.options, program, events))
