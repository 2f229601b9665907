"""A8: an awakeable carries what the answerer needs, validates the answer, and records who answered and how."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from hark import AlreadySettled, Context, Done, InvalidAnswer, InvalidInput, Machine, NotAssigned, step
from hark.testing import Harness
from tests.promises.support_signals import harness
from tests.support.inspect import everything
from tests.support.questions import Asker, ask
from tests.support.stores import Store


@dataclass
class Verdict:
    approve: bool
    amount: int = 0


@asynccontextmanager
async def asked(store: Store, *definitions: type[Machine], **question: Any) -> AsyncIterator[tuple[Harness, str]]:
    async with harness(store, Asker, *definitions) as app:
        yield app, await ask(app, store, **question)


async def test_a8_an_awakeable_carries_what_the_answerer_needs(store: Store) -> None:
    async with asked(
        store, title="Pay?", description="Invoice 7", schema=Verdict, assignees=["ann", "bob"], timeout=60
    ) as (app, id):
        shown = await app.awakeable(id)
        assert (shown.title, shown.description, shown.assignees) == ("Pay?", "Invoice 7", ("ann", "bob"))
        assert shown.schema["$defs"]["Verdict"]["required"] == ["approve"]
        assert shown.timeout_at == shown.created_at + timedelta(seconds=60)


async def test_a8_an_answer_that_does_not_match_is_refused_with_the_reasons_and_nothing_changes(store: Store) -> None:
    async with asked(store, schema=Verdict) as (app, id):
        before = await everything(store)
        with pytest.raises(InvalidAnswer) as refused:
            await app.resolve(id, {"approve": "maybe", "amount": "x"}, by="ann")
        assert refused.value.problems == [
            'approve: "maybe" is not of type "boolean"',
            'amount: "x" is not of type "integer"',
        ]
        assert all(problem in str(refused.value) for problem in refused.value.problems)
        assert await everything(store) == before
        assert await app.drain() == {"steps": 0}


async def test_a8_a_valid_answer_after_an_invalid_one_settles_the_awakeable(store: Store) -> None:
    async with asked(store, schema=Verdict) as (app, id):
        with pytest.raises(InvalidAnswer):
            await app.resolve(id)  # null is an answer too, and does not match the schema
        settled = await app.resolve(id, Verdict(True, 3), by="ann")
        assert (settled.status, settled.payload) == ("RESOLVED", {"approve": True, "amount": 3})
        assert await app.drain() == {"steps": 1, "done": 1}
        assert (await app.result("asker"))[0]["payload"] == {"approve": True, "amount": 3}


async def test_a8_an_invalid_answer_does_not_affect_others_in_its_turn(store: Store) -> None:
    """All in one turn: each is validated separately, and the first valid one settles it."""
    async with asked(store, schema=Verdict) as (app, id):
        replies = [app.resolve(id, payload) for payload in ("no", {"approve": True}, {"approve": False}, 7)]
        answers: list[Any] = []
        for reply in replies:
            try:
                answers.append(await reply)
            except Exception as error:
                answers.append(error)
        assert [type(answer).__name__ for answer in answers] == [
            "InvalidAnswer", "Awakeable", "AlreadySettled", "AlreadySettled",
        ]  # fmt: skip
        assert (await app.awakeable(id)).payload == {"approve": True}


async def test_a8_a_rejection_needs_no_schema(store: Store) -> None:
    async with asked(store, schema=Verdict) as (app, id):
        assert (await app.reject(id, "not my business")).error == "not my business"


async def test_a8_already_settled_takes_precedence_over_an_invalid_answer(store: Store) -> None:
    async with asked(store, schema=Verdict) as (app, id):
        await app.resolve(id, Verdict(True), by="ann")
        with pytest.raises(AlreadySettled) as late:
            await app.resolve(id, "nonsense")
        assert late.value.by == "ann"


async def test_a8_an_invalid_answer_from_an_effect_is_an_event_on_its_sender(store: Store) -> None:
    class Settler(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            ctx.resolve(ctx.state["id"], {"approve": 1})
            return Done()

    async with asked(store, Settler, schema=Verdict) as (app, id):
        await app.start(Settler, {"id": id}, id="settler")
        assert await app.drain() == {"steps": 1, "done": 1}
        [refused] = [event.data for event in await app.events("settler") if event.type == "unsettled"]
        assert refused["awakeable"] == id
        assert 'approve: 1 is not of type "boolean"' in refused["error"]
        assert (await app.awakeable(id)).status == "PENDING"


async def test_a8_who_answered_through_which_door_and_when_is_recorded(store: Store) -> None:
    async with asked(store) as (app, id):
        settled = await app.resolve(id, 1, by="ann", via="cli")
        assert (settled.answered_by, settled.resolved_at) == ("ann", (await app.awakeable(id)).resolved_at)
        [_, event] = [event for event in await app.events("asker") if event.type == "awakeable"]
        assert event.data == {"awakeable": id, "status": "RESOLVED", "by": "ann", "via": "cli"}
        assert event.at == settled.resolved_at


async def test_a8_the_recorded_door_is_python_for_code_and_step_for_a_workflow(store: Store) -> None:
    class Settler(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            ctx.reject(ctx.state["id"], "no")
            return Done()

    async with asked(store, Settler, asker="first") as (app, id):
        second = await ask(app, store, "second")
        await app.resolve(second, 1)
        await app.start(Settler, {"id": id}, id="settler")
        await app.drain()
        doors = {
            event.data["awakeable"]: (event.data.get("by"), event.data["via"])
            for event in await app.events(limit=100)
            if event.type == "awakeable" and event.data["status"] != "PENDING"
        }
        assert doors == {id: ("settler", "step"), second: (None, "python")}


async def test_a8_a_named_answerer_must_be_an_assignee(store: Store) -> None:
    async with asked(store, assignees=["ann", "bob"]) as (app, id):
        before = await everything(store)
        for verb in (app.resolve, app.reject):
            with pytest.raises(NotAssigned) as refused:
                await verb(id, "x", by="mallory", via="http")
            assert refused.value.problems == ["by: mallory is not an assignee (ann, bob)"]
        assert await everything(store) == before
        assert (await app.resolve(id, "x", by="bob")).answered_by == "bob"


@pytest.mark.parametrize("how", [{}, {"by": "a passer-by", "via": "link"}])
async def test_a8_code_without_a_name_and_link_holders_may_answer(store: Store, how: Any) -> None:
    async with asked(store, assignees=["ann"]) as (app, id):
        assert (await app.resolve(id, "x", **how)).status == "RESOLVED"


@pytest.mark.parametrize("bad", [{"by": ""}, {"by": "x" * 300}, {"by": 3}, {"via": "\0"}])
async def test_x4_malformed_names_are_refused(store: Store, bad: Any) -> None:
    async with asked(store) as (app, id):
        with pytest.raises(InvalidInput):
            await app.resolve(id, 1, **bad)
