"""X4: values that JSON would change, and keys that a type would drop, are refused where they are given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from hark import (
    AlreadySettled,
    Context,
    Done,
    FunctionContext,
    InstanceFailed,
    InvalidInput,
    Machine,
    Next,
    Outcome,
    Stop,
    step,
    workflow,
)
from hark.testing import Harness
from tests.support.harness import drained
from tests.support.stores import Store

AT = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass
class Order:
    number: int
    at: datetime | None = None


class Plain(Machine):
    @step
    async def start(self, ctx: Context) -> Outcome:
        ctx.state["at"] = AT
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Outcome:
        return Done()


class Typed(Machine):
    State = Order

    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        ctx.state.at = AT
        return Next(self.end)

    @step
    async def end(self, ctx: Context[Order]) -> Outcome:
        assert ctx.state.at == AT
        return Done(ctx.state.number)


@workflow
async def by_name(ctx: FunctionContext, order: Order, note: Any = None) -> int:
    await ctx.sleep(1)
    return order.number


@workflow
async def alone(ctx: FunctionContext, order: Order) -> str:
    return str(order.at)


def harness(store: Store) -> Harness:
    return Harness(Plain, Typed, by_name, alone, url=store.url, **store.options)


async def test_x4_a_date_in_a_plain_state_is_an_error_of_its_step_and_a_typed_state_keeps_it(store: Store) -> None:
    async with harness(store) as app:
        plain, typed = await app.start(Plain), await app.start(Typed, {"number": 1})
        await app.drain()
        with pytest.raises(InstanceFailed, match=r"The state contains datetime\.datetime at \$\.at, which would be"):
            await plain.result()
        assert await typed.result() == 1


Refused = tuple[Callable[[Harness], Any], str]
REFUSED: dict[str, Refused] = {
    "input of a plain machine": (lambda app: app.start(Plain, {"price": Decimal("1.1")}), "Decimal at $.price"),
    "input by name": (lambda app: app.start("unknown", {"raw": {1}}), "set at $.raw"),
    "argument without a type": (lambda app: app.start(by_name, {"order": {"number": 1}, "note": {1}}), "set at $.note"),
    "payload": (lambda app: app.signal("x", "go", {"at": AT}), "datetime.datetime at $.at"),
    "broadcast": (lambda app: app.broadcast("go", [AT]), "datetime.datetime at $[0]"),
    "unknown key of a State": (lambda app: app.start(Typed, {"number": 1, "nmber": 2}), "unknown key $.nmber"),
    "unknown key of an argument": (
        lambda app: app.start(by_name, {"order": {"number": 1, "x": 2}}), "unknown key $.order.x",
    ),
    "unknown key of the only argument": (lambda app: app.start(alone, {"number": 1, "x": 2}), "unknown key $.x"),
}  # fmt: skip


async def test_x4_what_json_would_lose_is_refused_at_the_call(store: Store) -> None:
    async with harness(store) as app:
        for call, problem in REFUSED.values():
            with pytest.raises(InvalidInput, match=re.escape(problem)):
                await call(app)
        assert await app.list() == []


async def test_x4_dates_in_results_and_progress_are_text(store: Store) -> None:
    text = {"at": "2026-01-02T00:00:00Z"}

    async def clock() -> Any:
        return {"at": AT}

    @workflow
    async def dated(ctx: FunctionContext) -> Any:
        assert await ctx.run(clock) == text, "the same live and in a replay"
        ctx.progress({"at": AT})
        return {"at": AT}

    class Dated(Machine):
        State = Order

        @step
        async def start(self, ctx: Context[Order]) -> Outcome:
            ctx.progress({"at": ctx.state.at})
            return Done({"at": ctx.state.at})

    async with Harness(dated, Dated, url=store.url, **store.options) as app:
        both = [await app.start(dated), await app.start(Dated, {"number": 1, "at": AT})]
        await app.drain()
        for one in both:
            assert await one.result() == text
            assert (await one.get()).progress == text


async def test_x4_typed_objects_are_accepted_wherever_json_is(store: Store) -> None:
    @workflow
    async def echo(ctx: FunctionContext, value: Any = None) -> Any:
        return [value, (await ctx.wait_for_signal("go")).payload, Order(3, AT)]

    async with Harness(echo, url=store.url, **store.options) as app:
        it = await app.start(echo, {"value": Order(1, AT)})
        await drained(app, it.signal("go", {"order": Order(2, AT)}))
        at = "2026-01-02T00:00:00Z"
        assert await it.result() == [
            {"number": 1, "at": at},
            {"order": {"number": 2, "at": at}},
            {"number": 3, "at": at},
        ]


async def test_x4_a_typed_argument_restores_a_date(store: Store) -> None:
    async with harness(store) as app:
        for given in (
            {"number": 1, "at": AT},
            Order(1, AT),
            {"order": Order(1, AT)},
            {"order": {"number": 1, "at": AT}},
        ):
            it = await drained(app, app.start(alone, given))
            assert await it.result() == "2026-01-02 00:00:00+00:00"


async def test_x4_an_instance_whose_type_has_lost_a_field_since_it_started_continues(store: Store) -> None:
    @dataclass
    class Old:
        number: int
        removed: int = 0

    def version_of(order: type) -> Any:
        async def takes(ctx: FunctionContext, order: Any) -> int:
            await ctx.wait_for_signal("go")
            return int(order.number)

        takes.__annotations__["order"] = order
        return workflow(takes)

    old, new = version_of(Old), version_of(Order)
    async with Harness(old, url=store.url, **store.options) as app:
        it = await drained(app, app.start(old, {"order": {"number": 7, "removed": 1}}))
    async with Harness(new, url=store.url, **store.options) as app:
        await drained(app, app.signal(it.id, "go"))
        assert await app.result(it.id) == 7


async def test_x4_the_time_in_an_error_of_an_effect_reaches_the_function(store: Store) -> None:
    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.run(str)  # which commits the question
        try:
            await ctx.resolve(question.id, 1)
            await ctx.resolve(question.id, 2)
        except AlreadySettled as error:
            return str(error.at)

    class Stops(Machine):
        @step
        async def start(self, ctx: Context) -> Outcome:
            return Stop({"at": AT})

    async with Harness(asks, Stops, url=store.url, **store.options) as app:
        it, stopped = await app.start(asks), await app.start(Stops)
        await app.drain()
        assert str((await app.awakeables())[0].resolved_at) == await it.result()
        assert (await stopped.get()).error == '{"at":"2026-01-02T00:00:00Z"}'
