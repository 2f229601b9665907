"""M3: what a state may be; loaded before every step, committed after it; a wrong type goes to `handle`."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest

from hark import (
    Await,
    Context,
    Done,
    InvalidState,
    Machine,
    Next,
    Retry,
    Spawn,
    Stop,
    step,
)
from tests.promises.support_machines import harness
from tests.support.harness import drained, held
from tests.support.stores import Store


@dataclass
class Item:
    sku: str
    count: int = 1


@dataclass
class Basket:
    order: int
    n: int = 0
    items: list[Item] = field(default_factory=list)


class Counts(Machine):
    """The steps used with every kind of state."""

    @step
    async def start(self, ctx: Context) -> Next:
        ctx.state.n += 1
        ctx.state.items.append(type(ctx.state.items[0])(sku="b"))
        return Next("check")

    @step
    async def check(self, ctx: Context) -> Done:
        return Done([type(ctx.state).__name__, ctx.state.n, [item.sku for item in ctx.state.items]])


class WithDataclass(Counts):
    State = Basket


class WithStruct(Counts):
    class State(msgspec.Struct):
        class Item(msgspec.Struct):
            sku: str
            count: int = 1

        order: int
        n: int = 0
        items: list[Item] = []


class WithPydantic(Counts):
    class State(pydantic.BaseModel):
        class Item(pydantic.BaseModel):
            sku: str
            count: int = 1

        order: int
        n: int = 0
        items: list[Item] = []


class WithStateElsewhere(Counts, state=Basket):
    pass


@pytest.mark.parametrize(
    ("machine", "type_name"),
    [(WithDataclass, "Basket"), (WithStruct, "State"), (WithPydantic, "State"), (WithStateElsewhere, "Basket")],
)
async def test_m3_a_typed_state_is_loaded_before_and_committed_after_each_step(
    store: Store, machine: type[Machine], type_name: str
) -> None:
    async with harness(store, machine) as app:
        counts = await app.start(machine, {"order": 42, "items": [{"sku": "a"}]})
        first = {"order": 42, "n": 0, "items": [{"sku": "a", "count": 1}]}
        assert (await counts.get()).state == first, "defaults are filled in at the start"
        await app.drain()
        assert await counts.result(timeout=0) == [type_name, 1, ["a", "b"]]
        second = {"order": 42, "n": 1, "items": [{"sku": "a", "count": 1}, {"sku": "b", "count": 1}]}
        assert (await counts.get()).state == second


async def test_m3_an_object_of_the_state_is_accepted_as_input(store: Store) -> None:
    async with harness(store, WithDataclass, WithPydantic) as app:
        one = await app.start(WithDataclass, Basket(1, items=[Item("a")]))
        two = await app.start(WithPydantic, WithPydantic.State(order=2, items=[WithPydantic.State.Item(sku="a")]))
        await app.drain()
        assert [(await one.result(timeout=0))[1], (await two.result(timeout=0))[1]] == [1, 1]


async def test_m3_without_a_state_it_is_plain_json_and_none_is_an_empty_object(store: Store) -> None:
    class Plain(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done(ctx.state)

    values = [None, {"a": [1, {"b": None}]}, [1, 2], "text", 7, 1e22, -0.0, {"ü": "\U0001f600"}]
    async with harness(store, Plain) as app:
        handles = [await app.start(Plain, value) for value in values]
        await app.drain()
        results = [await handle.result(timeout=0) for handle in handles]
        assert results == [{}, *values[1:]]
        assert [repr(value) for value in results[5:7]] == ["1e+22", "-0.0"]


async def test_m3_state_on_any_outcome_replaces_and_left_out_keeps_what_the_step_left(store: Store) -> None:
    class Replaces(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            ctx.state["left"] = True
            given = {"state": {"how": ctx.state["how"], "given": True}} if ctx.state["given"] else {}
            match ctx.state["how"]:
                case "next":
                    return Next(self.park, **given)
                case "retry":
                    return Retry(99, **given)
                case "await":
                    return Await("x", then=self.park, **given)
                case "spawn":
                    return Spawn([], then=self.park, **given)
                case "done":
                    return Done(**given)
                case _:
                    return Stop("no", **given)

        @step
        async def park(self, ctx: Context) -> Await:
            return Await("never", then=self.park)

    async with harness(store, Replaces) as app:
        for how in ("next", "retry", "await", "spawn", "done", "stop"):
            left = await app.start(Replaces, {"how": how, "given": False})
            replaced = await drained(app, app.start(Replaces, {"how": how, "given": True}))
            assert (await left.get()).state == {"how": how, "given": False, "left": True}
            assert (await replaced.get()).state == {"how": how, "given": True}


class Typed(Machine):
    """Makes its state invalid, so that `handle` is called."""

    @dataclass
    class State:
        what: str
        n: int = 0

    @step
    async def start(self, ctx: Context) -> Next | Done:
        match ctx.state.what:
            case "other type":
                return Next(self.start, {"what": "x"})
            case "none":
                return Next(self.start, None)
            case "wrong field":
                ctx.state.n = "many"
            case "not json":
                ctx.state.n = object()
            case "reassigned":
                ctx.state = [1]
            case "nan":
                ctx.state.n = float("nan")
            case "nul":
                ctx.state.what = "a\0"
            case "surrogate":
                ctx.state.what = "a\ud800"
            case "large":
                ctx.state.what = "x" * 2000
        return Done()

    def handle(self, error: Exception, ctx: Context) -> Stop:
        assert ctx.state == Typed.State(ctx.state.what), "as it was before the step"
        return Stop(f"{type(error).__name__} in {ctx.state.what}")


async def test_m3_a_state_of_the_wrong_type_goes_to_handle_and_does_not_crash_loop(store: Store) -> None:
    wrong = ["other type", "none", "wrong field", "not json", "reassigned", "nan", "nul", "surrogate", "large"]
    async with harness(store, Typed, max_payload=1000) as app:
        handles = await app.start_many([(Typed, {"what": what}) for what in wrong])
        assert await app.drain() == {"steps": len(wrong), "stop": len(wrong)}
        errors = [(await handle.get()).error for handle in handles]
        assert errors == [f"{'PayloadTooLarge' if what == 'large' else 'InvalidState'} in {what}" for what in wrong]
        assert [(await handle.get()).state["n"] for handle in handles] == [0] * len(wrong), "nothing half-written"


async def test_m3_input_that_does_not_match_goes_to_handle_if_the_starter_had_no_code(store: Store) -> None:
    seen: list[Any] = []

    class Picky(Machine):
        State = Basket

        @step
        async def start(self, ctx: Context) -> Done:
            return Done()

        def handle(self, error: Exception, ctx: Context) -> Any:
            seen.append((type(error), ctx.state))
            return Done("fixed", state=Basket(order=1))

    async with harness(store, Picky) as worker, harness(store) as door:
        picky = await door.start("Picky", {"order": "first"})
        await worker.drain()
        assert seen == [(InvalidState, {"order": "first"})], "a state that cannot be loaded is shown as it is"
        assert await picky.result(timeout=60) == "fixed"
        assert (await picky.get()).state["order"] == 1


async def test_m3_v3_a_stored_state_that_new_code_cannot_load_is_held_until_code_fits(store: Store) -> None:
    def version_one(state: type) -> type[Machine]:
        class Grows(Machine):
            State = state

            @step
            async def start(self, ctx: Context) -> Await:
                return Await("go", then=self.end)

            @step
            async def end(self, ctx: Context) -> Done:
                return Done(ctx.state.n)

        return Grows

    @dataclass
    class Renamed:
        number: int

    async with harness(store, version_one(Basket)) as app:
        grows = await drained(app, app.start("Grows", {"order": 1, "n": 5}))
    async with harness(store, version_one(Renamed)) as app:
        await app.signal(grows.id, "go")
        error = str((await held(app, grows.id)).error)
        assert "does not match" in error
        assert "default" in error
    async with harness(store, version_one(Basket)) as app:
        await app.drain()
        assert await app.result(grows.id, timeout=0) == 5
