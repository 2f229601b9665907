"""V2, V3: generated machines, generated edits of their steps and states, and deploys and rollbacks while they wait.

As test_v3_deploys_generated.py for functions: the check names exactly the instances whose step is gone or whose state
the new code cannot read, exactly these are held when they run, and each instance ends with the road of its own steps.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark import InstanceHeld, InvalidInput
from hark.testing import Harness
from tests.promises.test_v3_deploys_generated import imported_source
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a failure is shrunk before it is shown

_at = st.integers(0, 5)
_kinds = st.sampled_from(["insert step", "remove step", "rename step", "rename method", "swap steps"])
_fields = st.sampled_from(["default", "required", "other type", "remove field", "optional"])
_events = st.one_of(
    st.tuples(st.just("start")),
    st.tuples(st.just("go"), _at),
    st.tuples(st.just("go"), _at),
    st.tuples(st.just("go later"), _at),
    st.tuples(_kinds, _at),
    st.tuples(_fields, _at),
    st.tuples(st.just("roll back"), _at),
    st.tuples(st.just("drain")),
)
_histories = st.lists(_events, min_size=8, max_size=20)
_DEFAULTS = {"int": 0, "str": "", "int | None": None}


@dataclass(frozen=True)
class Code:
    """A machine whose steps follow each other, each after the signal `go`, with the fields of its state."""

    steps: tuple[tuple[str, str], ...]  # names, with the names of the methods
    fields: tuple[tuple[str, str, bool], ...] = ()  # names, types, whether they have a default

    def source(self, name: str) -> str:
        lines = [
            "from __future__ import annotations", "from dataclasses import dataclass",
            "from hark import Await, Done, Machine, step", f"class Order(Machine, name={name!r}):", "    @dataclass",
            "    class State:", "        road: str",
        ]  # fmt: skip
        for field_name, kind, has_default in sorted(self.fields, key=lambda one: one[2]):
            lines.append(f"        {field_name}: {kind}" + (f" = {_DEFAULTS[kind]!r}" if has_default else ""))
        for place, (name, method) in enumerate(self.steps):
            then = self.steps[place + 1 : place + 2]
            move = f"Await('go', then={then[0][0]!r})" if then else "Done(ctx.state.road)"
            decorator = "step" if name == method else f"step({name!r})"
            lines += [
                f"    @{decorator}", f"    async def {method}(self, ctx):", f"        ctx.state.road += ' {name}'",
                f"        return {move}",
            ]  # fmt: skip
        return "\n".join(lines) + "\n"


def _reads(kind: str, value: Any) -> bool:
    return isinstance(value, {"int": int, "str": str, "int | None": int | None}[kind])


@dataclass
class Order:
    """An instance, as the model knows it."""

    id: str
    state: dict[str, Any]
    step: str = "start"
    status: str = "live"
    has_run: bool = False
    is_woken: bool = True
    held_by: set[Code] = field(default_factory=set)

    def fits(self, code: Code) -> bool:
        return self.step in dict(code.steps) and all(
            _reads(kind, self.state[name]) if name in self.state else has_default
            for name, kind, has_default in code.fields
        )

    def run(self, code: Code) -> None:
        values = {name: self.state.get(name, _DEFAULTS[kind]) for name, kind, _ in code.fields}
        self.state = {"road": f"{self.state['road']} {self.step}", **values}
        names = [name for name, _ in code.steps]
        rest = names[names.index(self.step) + 1 :]
        self.has_run, self.is_woken = True, False
        self.step, self.status = (rest[0], "live") if rest else (self.step, "done")


class World:
    """A store, the codes that were deployed on it, and the model of its instances."""

    def __init__(self, name: str, url: str, options: dict[str, Any]) -> None:
        self.name, self.url, self.options = name, url, options
        self.orders: list[Order] = []
        self.codes: list[Code] = []
        self.app: Harness
        self.made = 0

    async def deploy(self, code: Code) -> None:
        if self.codes:
            await self.close()
        self.codes.append(code)
        self.app = Harness(imported_source(code.source(self.name)).Order, url=self.url, **self.options)
        await self.app.__aenter__()
        live = [order for order in self.orders if order.status in ("live", "held")]
        report = await self.app.check()
        assert {one.instance_id for one in report.problems} == {one.id for one in live if not one.fits(code)}, report
        assert report.continues == len(live) - len(report.problems)

    async def close(self) -> None:
        await self.app.__aexit__(None, None, None)

    async def start(self) -> None:
        accepts = all(has_default for _, _, has_default in self.codes[-1].fields)
        with nullcontext() if accepts else pytest.raises(InvalidInput):
            handle = await self.app.start(self.name, {"road": ""})
            state = {name: _DEFAULTS[kind] for name, kind, _ in self.codes[-1].fields}
            self.orders.append(Order(handle.id, {"road": "", **state}))

    async def go(self, order: Order) -> None:
        await self.app.signal(order.id, "go")
        order.is_woken = True

    async def drain(self) -> None:
        with pytest.raises(InstanceHeld) if self._run() else nullcontext():
            await self.app.drain()
        for order in self.orders:
            found = await self.app.get(order.id)
            status = {"done": "done", "failed": "failed", "held": "held"}.get(found.status, "live")
            assert status == order.status, (order, found.status, found.error)
            if status == "done":
                assert found.result == order.state["road"]

    def _run(self) -> bool:
        """Whether an instance is held now by this code."""
        code, is_held = self.codes[-1], False
        for order in self.orders:
            is_new = order.status == "held" and code not in order.held_by
            if not is_new and not (order.status == "live" and order.is_woken):
                continue
            if order.fits(code):
                order.held_by.clear()
                order.run(code)
            elif order.has_run:
                order.status, is_held = "held", True
                order.held_by.add(code)
            else:
                order.status = "failed"
        return is_held

    def changed(self, kind: str, at: int) -> Code:
        code = self.codes[-1]
        self.made += 1
        place, new = 1 + at % len(code.steps), f"s{self.made}"
        steps, fields = [*code.steps], [*code.fields]
        match kind:
            case "insert step":
                steps.insert(place, (new, new))
            case "remove step":
                steps[place : place + 1] = []
            case "rename step":
                steps[place : place + 1] = [(new, new) for _ in steps[place : place + 1]]
            case "rename method":
                steps[place : place + 1] = [(name, new) for name, _ in steps[place : place + 1]]
            case "swap steps":
                steps[place : place + 2] = steps[place : place + 2][::-1]
            case "default" | "required":
                fields.append((f"f{self.made}", [*_DEFAULTS][at % 3], kind == "default"))
            case "remove field" if fields:
                del fields[at % len(fields)]
            case "other type" if fields:
                name, old, has_default = fields[at % len(fields)]
                fields[at % len(fields)] = name, "int" if old == "str" else "str", has_default
            case "optional" if fields:
                name, old, _ = fields[at % len(fields)]
                fields[at % len(fields)] = name, old, True
        return replace(code, steps=tuple(steps), fields=tuple(fields))

    async def act(self, event: tuple[Any, ...]) -> None:
        waiting = [order for order in self.orders if order.status == "live" and order.has_run and not order.is_woken]
        match event:
            case ("start",):
                await self.start()
            case ("drain",):
                await self.drain()
            case ("go" | "go later" as when, at) if waiting:
                await self.go(waiting[at % len(waiting)])
                if when == "go":
                    await self.drain()
            case ("go" | "go later", _):
                pass
            case ("roll back", at):
                await self.deploy(self.codes[-1 - at % len(self.codes)])
            case (kind, at):
                await self.deploy(self.changed(kind, at))

    async def end(self) -> None:
        """Deploy all codes again, the newest first, until everything has ended."""
        for code in [self.codes[-1], *reversed(self.codes)]:
            if not any(order.status in ("live", "held") for order in self.orders):
                break
            await self.deploy(code)
            await self.drain()
            for order in self.orders:
                while order.status == "live" and order.fits(code):
                    await self.go(order)
                    await self.drain()
        assert {order.status for order in self.orders} <= {"done", "failed"}


_names = itertools.count()


async def _live(url: str, options: dict[str, Any], events: list[tuple[Any, ...]]) -> None:
    world = World(f"machine-{next(_names)}", url, options)
    await world.deploy(Code((("start", "start"), ("pay", "pay"), ("ship", "ship"))))
    try:
        await world.start()
        await world.drain()
        for event in events:
            await world.act(event)
        await world.end()
    finally:
        await world.close()


@given(events=_histories)
@settings(max_examples=30, deadline=None)
def test_v3_generated_machines_are_held_exactly_if_the_check_names_them(events: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_live(f"sqlite:///{folder}/hark.db", {}, events))


@given(events=_histories)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_v3_generated_machines_on_postgres(pg_store: Store, events: list[tuple[Any, ...]]) -> None:
    asyncio.run(_live(pg_store.url, pg_store.options, events))
