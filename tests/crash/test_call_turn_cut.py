"""The connection is cut before, during and after a turn that is one call: it is applied once, and the caller gets the
right answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hark import Hark, workflow
from hark.engine.turns.call_attempts import CallAttempts
from tests.support.inspect import query, until
from tests.support.proxy import Accident, Held, Proxy, cut_after, cut_before, cut_reply
from tests.support.stores import Store

WORD = "the-word-in-the-turn-that-is-cut"
ACCIDENTS: dict[str, tuple[bytes, Accident]] = {
    "before the call": (WORD.encode(), cut_before),
    "after the call": (WORD.encode(), cut_reply),
}
COMMITS: dict[str, Accident] = {"before the commit": cut_before, "after the commit": cut_after}


@workflow
async def conversation(ctx: Any, by_signal: bool) -> list[str]:
    """Collects words until the last one: signals, or answers to questions."""
    words: list[str] = []
    while words[-1:] != ["end"]:
        if by_signal:
            words.append((await ctx.wait_for_signal("word")).payload)
        else:
            words.append(await (await ctx.awakeable()))
    return words


class Speaker:
    """Sends words to a conversation that is parked."""

    def __init__(self, app: Hark, by_signal: bool) -> None:
        self.app = app
        self.by_signal = by_signal
        self.said: list[str] = []

    async def begin(self) -> None:
        self.it = await self.app.start(conversation, {"by_signal": self.by_signal}, id="it")

    async def ready(self) -> None:
        async def parked() -> bool:
            return (await self.app.get("it")).status == "awaiting_signal"

        await until(parked, "the function to wait")

    async def say(self, word: str) -> None:
        await self.ready()
        self.said.append(word)
        if self.by_signal:
            assert (await self.app.signal("it", "word", word)).status == "woke"
        else:
            question = await self.app.wait_for_awakeable(job="it", timeout=30)
            assert (await self.app.resolve(question.id, word)).status == "RESOLVED"

    async def end(self) -> None:
        await self.say("end")
        assert await self.it.result(timeout=30) == self.said


@pytest.fixture
async def proxy(pg_store: Store) -> AsyncIterator[Proxy]:
    async with Proxy(pg_store.url) as proxy:
        yield proxy


@pytest.fixture(params=[True, False], ids=["signal", "answer"])
async def speaker(request: pytest.FixtureRequest, proxy: Proxy, pg_store: Store) -> AsyncIterator[Speaker]:
    app = Hark(proxy.url, lease=3.0, **pg_store.options)
    app.register(conversation)
    async with app:
        speaker = Speaker(app, request.param)
        async with app.worker():
            await speaker.begin()
            await speaker.ready()
            yield speaker


@pytest.fixture
def in_one_call(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each turn that was to be a call, whether it was one, or was cut in the middle of one."""
    done: list[bool] = []
    run = CallAttempts.run

    async def noted(self: CallAttempts, store: Any, requests: Any, *how: Any) -> Any:
        found: Any = "cut"
        try:
            found = await run(self, store, requests, *how)
            return found
        finally:
            if requests:
                done.append(found is not None)

    monkeypatch.setattr(CallAttempts, "run", noted)
    return done


async def _until_in_one_call(speaker: Speaker, in_one_call: list[bool]) -> None:
    """After a call of no use some turns are not tried; after one that was not, the next one is."""
    for _ in range(200):
        await speaker.ready()
        in_one_call.clear()
        await speaker.say("warm")
        if in_one_call[:1] == [True]:
            await speaker.ready()
            in_one_call.clear()
            return
    raise AssertionError("no turn was one call")


@pytest.mark.parametrize("accident", ACCIDENTS)
async def test_fault_70_a_call_whose_connection_is_cut_is_applied_once(
    speaker: Speaker, proxy: Proxy, pg_store: Store, in_one_call: list[bool], accident: str
) -> None:
    await _until_in_one_call(speaker, in_one_call)
    proxy.at(*ACCIDENTS[accident])
    await speaker.say(WORD)
    assert proxy.accidents == 1
    assert in_one_call[0], "the turn that was cut was not one call"
    await speaker.end()
    assert await query(pg_store, f"SELECT count(*) FROM inbox WHERE payload LIKE '%{WORD}%'") == [(1,)]
    assert await query(pg_store, "SELECT attempt, crashes FROM instances") == [(0, 0)]


@pytest.mark.parametrize("accident", COMMITS)
async def test_fault_70_a_call_whose_commit_is_cut_is_applied_once(
    speaker: Speaker, proxy: Proxy, pg_store: Store, in_one_call: list[bool], accident: str
) -> None:
    await _until_in_one_call(speaker, in_one_call)
    proxy.at_commit(COMMITS[accident])
    await speaker.say(WORD)
    assert proxy.accidents == 1
    assert in_one_call[0], "the turn that was cut was not one call"
    await speaker.end()
    assert await query(pg_store, f"SELECT count(*) FROM inbox WHERE payload LIKE '%{WORD}%'") == [(1,)]


async def test_fault_70_a_call_that_the_server_reads_after_the_client_is_gone_does_not_happen(
    speaker: Speaker, proxy: Proxy, pg_store: Store, in_one_call: list[bool]
) -> None:
    await _until_in_one_call(speaker, in_one_call)
    late = Held()
    proxy.at(WORD.encode(), late)
    await speaker.say(WORD)
    assert proxy.accidents == 1
    assert in_one_call[0], "the turn that was cut was not one call"
    await speaker.ready()
    late.let_go.set()
    await late.arrived.wait()
    await speaker.say("next")
    await speaker.end()
    assert await query(pg_store, f"SELECT count(*) FROM inbox WHERE payload LIKE '%{WORD}%'") == [(1,)]


@pytest.mark.parametrize("accident", [cut_before, cut_reply], ids=["before the call", "after the call"])
async def test_fault_70_claims_of_a_call_whose_answer_is_lost_are_made_again(
    proxy: Proxy, pg_store: Store, accident: Accident
) -> None:
    sender = Hark(pg_store.url, **pg_store.options)
    sender.register(conversation)
    app = Hark(proxy.url, lease=3.0, **pg_store.options)
    app.register(conversation)
    async with sender, app:
        speaker = Speaker(sender, by_signal=True)
        async with app.worker():
            await speaker.begin()
            for _ in range(20):
                await speaker.say("warm")
            await speaker.ready()
            proxy.at(b"conversation@1", accident)
            await speaker.say(WORD)
            await speaker.end()
    assert proxy.accidents == 1
    assert await query(pg_store, "SELECT attempt, crashes FROM instances") == [(0, 0)]


async def test_fault_70_a_call_that_waits_for_a_lock_when_its_connection_is_cut_is_applied_once(
    speaker: Speaker, proxy: Proxy, pg_store: Store, in_one_call: list[bool]
) -> None:
    await _until_in_one_call(speaker, in_one_call)
    other = await asyncpg.connect(pg_store.url, server_settings={"search_path": pg_store.options["schema"]})
    try:
        holder = other.transaction()
        await holder.start()
        await other.execute("SELECT FROM instances FOR UPDATE")
        saying = asyncio.create_task(speaker.say(WORD))
        await until(lambda: _waits_for_a_lock(pg_store), "the call to wait")
        proxy.cut()
        await holder.rollback()
    finally:
        await other.close()
    await saying
    await speaker.end()
    assert await query(pg_store, f"SELECT count(*) FROM inbox WHERE payload LIKE '%{WORD}%'") == [(1,)]


async def _waits_for_a_lock(store: Store) -> bool:
    found = await query(
        store,
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'hark clerk' AND wait_event_type = 'Lock' "
        "AND query LIKE '%call_turn_v%'",
    )
    return bool(found)
