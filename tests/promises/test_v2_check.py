"""V2: what new code does to what is live is known before it is deployed."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from hark import Await, Context, Done, FunctionContext, Hark, InvalidInput, LiveProblem, Machine, Report, step, workflow
from hark.app.door_access import DoorAccess
from hark.testing import Harness, assert_continues
from tests.support.harness import harness
from tests.support.inspect import query
from tests.support.stores import Store

ran: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


def note(text: str) -> str:
    ran.append(text)
    return text


def function(code: Any, version: int = 1) -> Any:
    return workflow(name="order", version=version)(code)


async def old(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    await ctx.wait_for_signal("paid")
    return await ctx.run(note, "ship", name="ship")


async def other_name(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(note, "hold", name="hold")
    await ctx.wait_for_signal("paid")
    return await ctx.run(note, "ship", name="ship")


async def other_wait(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    await ctx.sleep(60)
    return await ctx.run(note, "ship", name="ship")


async def sends_where_it_waited(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    await ctx.signal("another", "paid")
    await ctx.wait_for_signal("paid")


async def asks_the_time(ctx: FunctionContext, item: str) -> Any:
    await ctx.now()
    await old(ctx, item)


async def asks_a_question(ctx: FunctionContext, item: str) -> Any:
    await ctx.awakeable(title="Reserve?")
    await old(ctx, item)


async def asks_the_time_beside(ctx: FunctionContext, item: str) -> Any:
    await ctx.gather(ctx.now(), ctx.run(note, "reserve", name="reserve"))
    await ctx.wait_for_signal("paid")


async def behind_the_wait(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    await ctx.wait_for_signal("paid")
    await ctx.run(note, "thank", name="thank")
    return await ctx.run(note, "deliver", name="deliver")


async def other_input(ctx: FunctionContext, item: str, requester: str) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    await ctx.wait_for_signal("paid")


async def fails_now(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    raise KeyError(item)


async def exits_now(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(note, "reserve", name="reserve")
    ctx.wait_for_signal("paid")
    sys.exit(item)


async def answers_a_question(ctx: FunctionContext, item: str) -> Any:
    await ctx.resolve("a", None)


async def ends_now(ctx: FunctionContext, item: str) -> Any:
    return await ctx.run(note, "reserve", name="reserve")


async def guarded(ctx: FunctionContext, item: str) -> Any:
    name = "hold" if ctx.patched("hold") else "reserve"
    await ctx.run(note, name, name=name)
    await ctx.wait_for_signal("paid")
    return await ctx.run(note, "ship", name="ship")


class Writes:
    """What the store has: a check changes none of it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self) -> Any:
        return [
            await query(self._store, f"SELECT * FROM {table} ORDER BY 1, 2")
            for table in ("instances", "journal", "waits", "events", "definitions", "inbox")
        ]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (old, None),
        (behind_the_wait, None),
        (guarded, None),
        (other_name, (0, "run reserve", "run hold", "ctx.patched")),
        (other_wait, (1, "a wait for signal paid", "sleep", "ctx.patched")),
        (sends_where_it_waited, (1, "a wait for signal paid", "signal paid", "ctx.patched")),
        (asks_the_time, (0, "run reserve", "now", "ctx.patched")),
        (asks_a_question, (0, "run reserve", "awakeable", "ctx.patched")),
        (asks_the_time_beside, (1, "a wait for signal paid", "now", "ctx.patched")),
        (other_input, (None, '{"item":"book"}', "TypeError", "default")),
        (fails_now, (1, "a wait for signal paid", "KeyError: 'book'", "Correct the code")),
        (exits_now, (None, "to go on", "SystemExit: book", "It fails as soon as it runs next")),
        (answers_a_question, (0, "run reserve", "resolve", "ctx.patched")),
        (ends_now, (1, "a wait for signal paid", "the end", "ctx.patched")),
    ],
)
async def test_v2_every_live_function_is_replayed_and_nothing_runs(store: Store, code: Any, problem: Any) -> None:
    async with harness(store, function(old)) as app:
        ids = sorted([(await app.start("order", {"item": "book"})).id for _ in range(3)])
        await app.drain()
        ran.clear()
        before = await Writes(store).read()

        report = await app.check(function(code))

        assert ran == []
        assert await Writes(store).read() == before
        if problem is None:
            assert (report.continues, report.problems) == (3, ())
            return
        entry, expected, found, advice = problem
        assert report.continues == 0
        assert sorted(one.instance_id for one in report.problems) == ids
        for one in report.problems:
            assert (one.definition, one.version, one.entry) == ("order", 1, entry)
            assert expected in one.expected
            assert found in one.found
            assert advice in one.advice
            assert one.line is not None
            assert one.line.rpartition(":")[0] == __file__


async def test_v2_a_held_instance_is_checked_like_the_others(store: Store) -> None:
    app = harness(store, function(old))
    async with app:
        await app.start("order", {"item": "book"})
        await app.drain()
        await query(store, "UPDATE instances SET status = 'held', held_by = 'x' RETURNING id")
        assert (await app.check()).continues == 1
        [problem] = (await app.check(function(other_name))).problems
        assert problem.expected == "run reserve"


async def test_v2_a_live_version_that_the_code_does_not_have_is_a_problem(store: Store) -> None:
    async with harness(store, function(old)) as app:
        await app.start("order", {"item": "book"})
        await app.drain()
    async with harness(store, function(old, version=2)) as app:
        [problem] = (await app.check()).problems
        assert (problem.version, problem.found) == (1, "version 2")
        assert "Keep version 1 registered" in problem.advice
        app.register(function(old))  # as it says
        assert (await app.check()).continues == 1
    async with harness(store) as app:
        [problem] = (await app.check()).problems
        assert problem.found == "it is not registered"
        assert (await app.check("another")).continues == 0


@dataclasses.dataclass
class OldCart:
    item: str


@dataclasses.dataclass
class NewCart:
    item: str
    price: int


@dataclasses.dataclass
class CartWithDefault:
    item: str
    price: int = 0


def machine(state: type) -> Any:
    class Cart(Machine, name="cart", state=state):
        @step
        async def start(self, ctx: Context[Any]) -> Any:
            return Await("paid", then="done")

        @step
        async def done(self, ctx: Context[Any]) -> Any:
            return Done()

    return Cart


class WithoutDone(Machine, name="cart", state=OldCart):
    @step
    async def start(self, ctx: Context[Any]) -> Any:
        return Await("paid", then="finish")

    @step
    async def finish(self, ctx: Context[Any]) -> Any:
        return Done()


async def test_v2_the_step_and_the_state_of_a_machine_are_looked_up(store: Store) -> None:
    async with harness(store, machine(OldCart)) as app:
        await app.start("cart", {"item": "book"})
        await app.drain()
        assert (await app.check(machine(OldCart))).continues == 1
        assert (await app.check(machine(CartWithDefault))).continues == 1
        [state] = (await app.check(machine(NewCart))).problems
        assert '"item":"book"' in state.expected.replace(" ", "")
        assert "default" in state.advice
        [gone] = (await app.check(WithoutDone)).problems
        assert gone.expected == "step 'done'"
        assert "--map done=" in gone.advice


def test_v2_a_report_fits_a_terminal_and_its_commands_stay_on_one_line() -> None:
    id, command = (
        "01a1f582-679f-72f6-b62a-b7822e46f7c8",
        "`hark instance migrate --definition Card --to 2 --map use=NEW`",
    )
    one = LiveProblem(id, "Card", 1, None, "a.py:1", "step 'use'", "x " * 70, f"Keep it; or {command}", "gone")
    lines = str(Report(0, (one,) * 5, ())).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(command in line for line in lines)


async def test_v2_the_handlers_and_gates_of_unfinished_jobs_are_looked_up(store: Store) -> None:
    from hark import load_job

    job = load_job(
        "name: release\ntasks:\n  - {name: build, handler: build}\n"
        "  - {name: verify, handler: verify, gate: score, needs: [build]}\n"
    )
    async with harness(store, job) as app:
        app.handler("build")(lambda task: "image")
        app.handler("verify")(lambda task: task.pause("wait", 3600))
        app.gate("score")(lambda output, inputs: True)
        await app.start("release")
        await app.drain()
        assert not (await app.check()).problems
    async with harness(store) as app:
        assert {one.expected for one in (await app.check()).problems} == {"the handler 'verify'", "the gate 'score'"}


async def test_v2_a_patch_is_unneeded_once_no_live_instance_has_answered_false(store: Store) -> None:
    async with harness(store, function(old)) as app:
        before = await app.start("order", {"item": "book"})
        await app.drain()
        assert (await app.check(function(guarded))).unneeded_patches == ()  # it would answer False
        assert (await app.check(function(other_name))).unneeded_patches == ()  # it has none
    async with harness(store, function(guarded)) as app:
        after = await app.start("order", {"item": "book"})
        await app.drain()
        assert (await app.check()).unneeded_patches == ()
        await app.signal(before, "paid")
        await app.drain()
        report = await app.check()
        assert (report.continues, report.unneeded_patches) == (1, ("hold",))
        assert not (await app.check(function(other_name))).problems  # without the call
        await app.signal(after, "paid")
        await app.drain()


async def test_v2_a_child_that_the_code_calls_is_not_registered_by_the_check(store: Store) -> None:
    @workflow(name="child")
    async def child(ctx: FunctionContext) -> None: ...

    async def calls(ctx: FunctionContext, item: str) -> Any:
        await ctx.run(note, "reserve", name="reserve")
        await ctx.wait_for_signal("paid")
        await ctx.call(child)

    async with harness(store, function(old)) as app:
        started = await app.start("order", {"item": "book"})
        await app.drain()
        await app.signal(started, "paid")
        await query(store, "UPDATE instances SET status = 'runnable' RETURNING id")
        await app.check(function(calls))
        assert [one.name for one in await app.definitions()] == ["order"]


async def test_v2_an_export_gives_the_same_report_where_there_is_no_store(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "live.ndjson"
    async with harness(store, function(old), machine(OldCart)) as app:
        for _ in range(3):
            await app.start("order", {"item": "book"})
        await app.start("cart", {"item": "book"})
        await app.drain()
        assert await DoorAccess(app).export_live(path) == 4
        here = [await app.check(function(code), machine(OldCart)) for code in (old, other_name, guarded)]
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    there = Hark("sqlite:////nowhere/hark.db")  # not open
    for code, expected in zip((old, other_name, guarded), here, strict=True):
        found = await there.check(function(code), machine(OldCart), export=path)
        assert found.continues == expected.continues
        assert _sorted(found.problems) == _sorted(expected.problems)
        assert found.unneeded_patches == expected.unneeded_patches
    assert (await there.check("cart", export=path)).problems[0].found == "it is not registered"


def _sorted(problems: tuple[LiveProblem, ...]) -> list[LiveProblem]:
    return sorted(problems, key=lambda one: one.instance_id)


async def test_v2_the_secrets_of_links_are_not_in_an_export(store: Store, tmp_path: Path) -> None:
    @workflow
    async def asks(ctx: FunctionContext) -> None:
        await ctx.awakeable(title="ok?")
        await ctx.wait_for_signal("never")

    async with harness(store, asks) as app:
        await app.start(asks)
        await app.drain()
        [(nonce,)] = await query(store, "SELECT value FROM journal WHERE kind = 'awakeable'")
        await DoorAccess(app).export_live(tmp_path / "live")
        assert nonce.strip('"') not in (tmp_path / "live").read_text()
        assert (await app.check(export=tmp_path / "live")).continues == 1


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda text: text[: len(text) // 2], "not a complete export"),
        (lambda text: "", "not a complete export"),
        (lambda text: text.replace('"format":1', '"format":99'), "use the same version"),
        (lambda text: text.replace('"hark":"live"', '"x":1'), "is not an export"),
        (lambda text: text.replace('{"instance":[', '{"instance":[1,', 1), "damaged"),
        (lambda text: text.replace('{"instance":', "x{", 1), "damaged"),
        (lambda text: "\n".join([*text.splitlines()[:5], *text.splitlines()[6:]]), "ends after 19 .* says 20"),
        (lambda text: text + text, "damaged"),
    ],
)
async def test_v2_a_damaged_export_or_one_of_another_version_is_refused(damage: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "live"
    async with Harness(function(old)) as app:
        for _ in range(20):
            await app.start("order", {"item": "book"})
        await app.drain()
        await DoorAccess(app).export_live(path)
        path.write_text(damage(path.read_text()))
        with pytest.raises(InvalidInput, match=text):
            await app.check(export=path)
        with pytest.raises(InvalidInput, match="cannot be read"):
            await app.check(export=tmp_path / "absent")
        with pytest.raises(InvalidInput):
            await app.check(3)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="cannot be written"):
            await DoorAccess(app).export_live(tmp_path / "absent" / "live")


async def test_v2_an_export_that_was_changed_anywhere_is_checked_or_refused(tmp_path: Path) -> None:
    path, dice = tmp_path / "live", random.Random(1)
    async with Harness(function(guarded), machine(OldCart)) as app:
        await app.start("order", {"item": "book"})
        await app.start("cart", {"item": "book"})
        await app.drain()
        await app.start("order", {"item": "book"})
        await DoorAccess(app).export_live(path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        refused: list[str] = []
        for _ in range(400):
            changed = list(lines)
            place = dice.randrange(len(lines))
            changed[place] = _changed(lines[place], dice)
            path.write_text("".join(json.dumps(line) + "\n" for line in changed))
            try:
                await app.check(export=path)
            except InvalidInput as error:
                refused.append(str(error))
    assert 50 < len(refused) < 350
    assert all(str(path) in text for text in refused)


def _changed(value: Any, dice: random.Random) -> Any:
    """The same JSON with another value at a random place, or without what is there."""
    if not isinstance(value, dict | list) or not value:
        return dice.choice([None, 5, -1, "x", "", [], {}, 1.5, True, "{", 2**70])
    if isinstance(value, list):
        place = dice.randrange(len(value))
        kept = [] if dice.random() < 0.1 else [_changed(value[place], dice)]
        return [*value[:place], *kept, *value[place + 1 :]]
    name = dice.choice(sorted(value))
    rest = {key: item for key, item in value.items() if key != name}
    return rest if dice.random() < 0.1 else {**rest, name: _changed(value[name], dice)}


async def fails_with_data(ctx: FunctionContext, item: str) -> Any:
    raise KeyError(item)


async def reserves(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(lambda: {"item": item}, name="reserve")
    await ctx.wait_for_signal("paid")


class Shelf(BaseModel):
    item: str
    place: str


def shelf(item: str) -> Shelf:
    return Shelf(item=item, place="")


async def reads_a_shelf(ctx: FunctionContext, item: str) -> Any:
    await ctx.run(shelf, item, name="reserve")
    await ctx.wait_for_signal("paid")


class StrictCart(BaseModel):
    item: str
    currency: str


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (function(old), function(other_input), "missing 1 required positional argument: 'requester'"),
        (function(old), function(fails_with_data), "KeyError: 'item-"),
        (function(reserves), function(reads_a_shelf), "place"),
        (machine(OldCart), machine(StrictCart), "1 validation error for StrictCart"),
    ],
)
async def test_v2_instances_with_other_data_and_one_cause_are_one_group(before: Any, after: Any, found: str) -> None:
    async with Harness(before) as app:
        for number in range(5):
            await app.start(before, {"item": f"item-{'abcde'[number]}"})
        await app.drain()
        report = await app.check(after)
    assert len(report.problems) == 5
    assert "5 would not go on" in str(report)
    assert found in " ".join(str(report).split())


async def test_v2_a_test_fails_with_the_problems_of_an_export(tmp_path: Path) -> None:
    path = tmp_path / "live"
    async with Harness(function(old)) as app:
        for number in range(5):
            await app.start("order", {"item": "book"}, id=f"o-{number}")
        await app.drain()
        await DoorAccess(app).export_live(path)
    assert_continues(path, function(old))  # also in an async test
    with pytest.raises(AssertionError) as failed:
        assert_continues(path, function(other_name))
    text = str(failed.value)
    assert "order version 1: 5 would not go on" in text
    assert "expected   run reserve, entry 0 of the journal" in text
    assert f"line       {__file__}:" in text
    assert "and 2 more" in text
    assert "0 of 5 unfinished instances would go on." in text
