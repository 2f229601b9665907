"""The journal of a function, as people read it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from hark import FunctionContext, InvalidInput, NotFound, RunFailed, workflow
from tests.support.harness import harness
from tests.support.stores import Store


@workflow
async def order(ctx: FunctionContext, total: int) -> str:
    if ctx.patched("quote"):
        total += 1
    quote = await ctx.run(lambda: {"total": total}, name="quote")
    await ctx.now()
    with contextlib.suppress(RunFailed):
        await ctx.run(_refuse, name="charge")
    approval = await ctx.awakeable(title="Approve?")
    await approval
    paid = await ctx.wait_for_signal("paid", "waived")
    await ctx.wait_for_signal("never")
    return f"{quote} {paid}"


def _refuse() -> None:
    raise ValueError("no card")


async def test_v2_the_journal_shows_what_the_code_asked_for_and_received(store: Store) -> None:
    async with harness(store, order) as app:
        started = await app.start(order, {"total": 41}, correlation_key="order:1")
        await app.drain()
        entries = await app.journal("order:1")
        assert [(one.number, one.kind, one.name, one.value) for one in entries] == [
            (0, "patch", "quote", True),
            (0, "run", "quote", {"total": 42}),
            (1, "now", None, entries[2].value),
            (2, "run", "charge", None),
            (3, "awakeable", entries[4].name, None),
        ]
        assert "ValueError: no card" in (entries[3].error or "")
        [question] = await app.awakeables(job=started)
        assert entries[4].name == question.id  # and not the secret of its link

        await app.resolve(question.id, {"by": "ann"})
        await app.drain()
        await app.signal(started, "waived", 7)
        await app.drain()
        after = await app.journal(started, after=2)
        assert [(one.number, one.kind, one.name, one.value) for one in after] == [
            (3, "awakeable", question.id, {"by": "ann"}),
            (4, "wait", "waived", 7),
        ]
        assert after.next is None


async def test_v2_pages_of_a_journal_go_on_after_the_last_number(store: Store) -> None:
    @workflow
    async def count(ctx: FunctionContext) -> None:
        for number in range(7):
            ctx.patched("loop")
            await ctx.run(lambda number=number: number, name="count")
        await ctx.wait_for_signal("end")

    async with harness(store, count) as app:
        counting = await app.start(count)
        await app.drain()
        read: list[Any] = []
        after: str | None = None
        while True:
            page = await app.journal(counting, limit=3, after=after)
            assert len(page) <= 3
            read += [one for one in page if one.kind == "run"]
            if page.next is None:
                break
            after = page.next
        assert [(one.number, one.value) for one in read] == [(number, number) for number in range(7)]


async def test_v2_a_journal_that_is_not_there(store: Store) -> None:
    async with harness(store, order) as app:
        with pytest.raises(NotFound):
            await app.journal("nobody")
        with pytest.raises(InvalidInput):
            await app.journal("nobody", after="x")
        assert list(await app.journal(await app.start(order, {"total": 1}))) == []


async def test_v2_no_entry_is_lost_behind_many_patches_at_one_number(store: Store) -> None:
    @workflow
    async def patched(ctx: FunctionContext) -> None:
        for number in range(3):
            for one in range(40):
                ctx.patched(f"{number}.{one}") if number == 1 else None
            await ctx.run(lambda number=number: number, name="count")
        await ctx.wait_for_signal("end")

    async with harness(store, patched) as app:
        started = await app.start(patched)
        await app.drain()
        pages, after = [], None
        while not pages or after is not None:
            page = await app.journal(started, limit=1, after=after)
            pages.append([one.number for one in page])
            after = page.next
        assert pages == [[0], [1] * 41, [2]]
