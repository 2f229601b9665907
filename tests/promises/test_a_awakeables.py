"""A1–A4, A7: awakeables created by durable functions."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Any

import pytest

from hark import (
    AlreadySettled,
    Await,
    AwakeableRejected,
    AwakeableTimedOut,
    Context,
    Done,
    FunctionContext,
    Hark,
    InvalidAnswer,
    Machine,
    NotFound,
    step,
    workflow,
)
from hark.testing import Harness
from tests.support.harness import drained, harness, parked
from tests.support.questions import Asker
from tests.support.questions import ask as put
from tests.support.stores import Store


@dataclass
class Verdict:
    approved: bool
    note: str = ""


@workflow
async def ask(ctx: FunctionContext, timeout: float | None = None) -> Any:
    question = await ctx.awakeable(timeout=timeout, title="May I?")
    try:
        return {"answer": await question}
    except AwakeableRejected as error:
        return {"rejected": str(error)}
    except TimeoutError as error:
        return {"timed out": type(error) is AwakeableTimedOut}


async def asked(app: Harness, **input: Any) -> tuple[Any, str]:
    it = await drained(app, app.start(ask, input))
    [question] = await app.awakeables(job=it.id)
    return it, question.id


async def test_a1_an_awakeable_settles_once_and_the_second_caller_learns_who_settled_it(store: Store) -> None:
    async with harness(store, ask) as app:
        for settle, status in (
            (lambda id: app.resolve(id, 1, by="ann"), "RESOLVED"),
            (lambda id: app.reject(id, "no", by="ann"), "REJECTED"),
        ):
            _, id = await asked(app)
            assert (await app.awakeable(id)).status == "PENDING"
            settled = await settle(id)
            assert (settled.status, settled.answered_by) == (status, "ann")
            for second in (app.resolve(id, 2), app.reject(id)):
                with pytest.raises(AlreadySettled) as refused:
                    await second
                assert (refused.value.status, refused.value.by) == (status, "ann")
                assert refused.value.at == settled.resolved_at
            assert (await app.awakeable(id)).payload == (1 if status == "RESOLVED" else None)


async def test_a2_the_id_encodes_instance_and_entry_and_may_be_padded(store: Store) -> None:
    async with parked(store, ask, id="job.with-odd_name") as (app, it):
        [question] = await app.awakeables()
        text = question.id.removeprefix("prom_1")
        assert "=" not in text
        instance, _, entry = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().rpartition(":")
        assert (instance, int(entry)) == (it.id, question.entry_index)
        assert question.instance_id == it.id
        padded = text.join(("prom_1", "=" * (-len(text) % 4)))
        assert (await app.awakeable(padded)).id == question.id
        await drained(app, app.resolve(padded, "yes"))
        assert await it.result() == {"answer": "yes"}


async def test_a2_an_id_that_encodes_another_instance_than_its_owner_still_settles(store: Store) -> None:
    """The id says which row to lock first; it does not prove the owner."""
    async with harness(store, ask, Asker) as app:
        other, _ = await asked(app)
        id = await put(app, store, "owner", named=other.id.replace("-", "."))
        assert (await app.resolve(id, 1)).instance_id == "owner"
        second = await put(app, store, "second", named=f"{other.id}.x")
        replies = await asyncio.gather(app.resolve(second, 1), app.resolve(second, 2), return_exceptions=True)
        assert sorted(isinstance(reply, AlreadySettled) for reply in replies) == [False, True]
        await app.drain()
        assert (await app.get("owner")).status == (await app.get("second")).status == "done"


@pytest.mark.parametrize("id", ["prom_1", "prom_1!!!", "prom_2abc", "x", "prom_1bm9jb2xvbg", "prom_1/////"])
async def test_a2_a_malformed_id_is_not_found(store: Store, id: str) -> None:
    async with harness(store, ask) as app:
        for verb in (app.awakeable, app.resolve, app.reject):
            with pytest.raises(NotFound):
                await verb(id)


async def test_a3_awaiting_holds_no_resources_and_a_replay_creates_the_same_awakeable(store: Store) -> None:
    ids: list[str] = []

    @workflow
    async def twice(ctx: FunctionContext) -> Any:
        first = await ctx.awakeable()
        ids.append(first.id)
        await ctx.wait_for_signal("go")
        return await first

    async with parked(store, twice) as (app, it):
        await drained(app, it.signal("go"))
        assert (await it.get()).status == "awaiting_signal"
        assert len(set(ids)) == 1
        assert len(ids) == 2
        assert len(await app.awakeables()) == 1
        await drained(app, app.resolve(ids[0], "x"))
        assert await it.result() == "x"


async def test_a3_fault_44_an_awakeable_settled_before_it_is_awaited_returns_immediately(store: Store) -> None:
    @workflow
    async def early(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.wait_for_signal("go")
        return await question

    async with parked(store, early) as (app, it):
        [question] = await app.awakeables()
        await drained(app, app.resolve(question.id, [1]))
        assert (await it.get()).status == "awaiting_signal"
        await drained(app, it.signal("go"))
        assert await it.result() == [1]


async def test_a3_an_awakeable_can_be_answered_as_soon_as_its_id_was_passed_on(store: Store) -> None:
    """An awakeable is in the store before a run can pass on its id: an answer during that run is not lost."""
    answered = asyncio.Event()

    @workflow
    async def hasty(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.run(tell, question.id)
        return await question

    async with Hark(store.url, **store.options) as app:

        async def tell(id: str) -> None:
            await app.resolve(id, "while it ran")
            answered.set()

        app.register(hasty)
        async with app.worker():
            it = await app.start(hasty)
            assert await it.result(timeout=20) == "while it ran"
    assert answered.is_set()


async def test_a4_a_timeout_raises_and_the_status_says_so(store: Store) -> None:
    async with harness(store, ask) as app:
        it, id = await asked(app, timeout=60)
        await app.advance(59)
        assert await app.drain() == {"steps": 0}
        await app.advance(1)
        assert (await app.awakeable(id)).status == "TIMEOUT"
        await app.drain()
        assert await it.result() == {"timed out": True}
        with pytest.raises(AlreadySettled) as late:
            await app.resolve(id, "late")
        assert late.value.status == "TIMEOUT"


async def test_a4_an_answered_instance_that_has_not_run_yet_does_not_time_out(
    store: Store,
) -> None:
    async with harness(store, ask) as app:
        it, id = await asked(app, timeout=60)
        assert [wait.name for wait in await app.waits(kind="awakeable")] == [id]
        await app.resolve(id, "in time")
        assert await app.waits(kind="awakeable") == []
        await app.advance(120)  # no worker has run it yet
        assert (await app.awakeable(id)).status == "RESOLVED"
        await app.drain()
        assert await it.result() == {"answer": "in time"}


async def test_a4_rejected_raises_with_the_message(store: Store) -> None:
    async with harness(store, ask) as app:
        it, id = await asked(app)
        await drained(app, app.reject(id, "approval denied"))
        assert await it.result() == {"rejected": "approval denied"}


async def test_a4_fault_46_cancelling_the_job_cancels_it_and_a_late_answer_is_a_conflict(store: Store) -> None:
    async with harness(store, ask) as app:
        it, id = await asked(app)
        await it.cancel()
        assert (await app.awakeable(id)).status == "CANCELLED"
        with pytest.raises(AlreadySettled) as late:
            await app.resolve(id, "late")
        assert late.value.status == "CANCELLED"


async def test_a4_a_function_that_ends_leaves_no_pending_awakeable(store: Store) -> None:
    @workflow
    async def forgetful(ctx: FunctionContext) -> None:
        await ctx.awakeable()
        await ctx.wait_for_signal("go")

    async with parked(store, forgetful) as (app, it):
        await drained(app, it.signal("go"))
        [question] = await app.awakeables()
        assert question.status == "CANCELLED"
        assert (await it.get()).status == "done"


async def test_fault_42_of_racing_answers_one_wins(store: Store) -> None:
    async with harness(store, ask) as app:
        it, id = await asked(app)
        replies = [app.resolve(id, n, by=f"p{n}") for n in range(50)]
        outcomes = await asyncio.gather(*replies, return_exceptions=True)
        winners = [one for one in outcomes if not isinstance(one, BaseException)]
        assert len(winners) == 1
        assert all(isinstance(one, AlreadySettled) for one in outcomes if one is not winners[0])
        assert {one.by for one in outcomes if isinstance(one, AlreadySettled)} == {winners[0].answered_by}
        await app.drain()
        assert await it.result() == {"answer": winners[0].payload}


async def test_fault_47_two_pending_awakeables_are_each_answered_by_id(store: Store) -> None:
    @workflow
    async def both(ctx: FunctionContext) -> Any:
        one, two = await ctx.awakeable(title="one"), await ctx.awakeable(title="two")
        return await ctx.gather(one, two)

    async with parked(store, both) as (app, it):
        questions = {question.title: question.id for question in await app.awakeables()}
        for bare in (it.id, "resume", "both"):
            with pytest.raises(NotFound):
                await app.resolve(bare, "which?")
        await drained(app, app.resolve(questions["two"], 2))
        assert (await it.get()).status == "awaiting_signal"
        await drained(app, app.resolve(questions["one"], 1))
        assert await it.result() == [1, 2]


async def test_a8_a_typed_schema_gives_the_typed_object_live_and_on_replay(store: Store) -> None:
    seen: list[Any] = []

    @workflow
    async def typed(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable(title="Deploy?", description="v1", schema=Verdict, assignees=["ann"])
        verdict = await question
        seen.append(verdict)
        await ctx.wait_for_signal("go")
        return verdict

    async with parked(store, typed) as (app, it):
        [question] = await app.awakeables()
        assert (question.title, question.description, question.assignees) == ("Deploy?", "v1", ("ann",))
        with pytest.raises(InvalidAnswer) as wrong:
            await app.resolve(question.id, {"approved": "maybe"})
        assert any("approved" in problem for problem in wrong.value.problems)
        assert (await app.awakeable(question.id)).status == "PENDING"
        await drained(app, app.resolve(question.id, {"approved": True}, by="ann"))
        await drained(app, it.signal("go"))
        assert await it.result() == {"approved": True, "note": ""}
    assert seen == [Verdict(True), Verdict(True)]


async def test_a8_a_json_schema_gives_plain_values(store: Store) -> None:
    @workflow
    async def plain(ctx: FunctionContext) -> Any:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return await (await ctx.awakeable(schema=schema))

    async with parked(store, plain) as (app, it):
        [question] = await app.awakeables()
        await drained(app, app.resolve(question.id, {"n": 3}))
        assert await it.result() == {"n": 3}


async def test_s8_a_machine_settles_a_functions_awakeable_with_its_outcome(store: Store) -> None:
    class Answerer(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Await("go", then="answer")

        @step
        async def answer(self, ctx: Context) -> Done:
            ctx.resolve(ctx.awaited[0].payload, "from a machine")
            return Done()

    async with harness(store, ask, Answerer) as app:
        it, id = await asked(app)
        machine = await app.start(Answerer)
        await drained(app, machine.signal("go", id))
        assert await it.result() == {"answer": "from a machine"}
        assert (await app.awakeable(id)).answered_by == machine.id


async def test_fault_69_a_signal_named_like_an_awakeable_settles_nothing(store: Store) -> None:
    async with harness(store, ask) as app:
        it, id = await asked(app)
        await it.signal(id, "forged")
        assert await app.drain() == {"steps": 0}
        assert (await app.awakeable(id)).status == "PENDING"


async def test_x8_a_retry_reopens_the_awakeables_that_the_failure_closed(store: Store) -> None:
    broken = True

    @workflow
    async def fragile(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.wait_for_signal("go")
        if broken:
            raise KeyError("a bug")
        return await question

    async with parked(store, fragile) as (app, it):
        [question] = await app.awakeables()
        await drained(app, it.signal("go"))
        assert (await it.get()).status == "failed"
        assert (await app.awakeable(question.id)).status == "CANCELLED"
        broken = False
        await drained(app, app.retry(it.id))
        assert (await app.awakeable(question.id)).status == "PENDING"
        await drained(app, app.resolve(question.id, "at last"))
        assert await it.result() == "at last"
