"""X8: a retry restores what the failed instance waited for: its messages if they are free, and its awakeables."""

import asyncio
from typing import Any

import pytest

from hark import AwakeableTimedOut, FunctionContext, workflow
from hark.kernel.requests import Message, RetryInstance, SettleAwakeable
from hark.model.decisions import Arm, Finish, NewAwakeable, Park, Settle
from hark.model.errors import AlreadySettled, Conflict, Duplicate
from tests.promises.support_signals import Turns, harness, outcome, rows, until_blocked
from tests.support.harness import drained
from tests.support.inspect import everything
from tests.support.stores import Store

FAILED = Finish("failed", error="broken")


def _payment(wait: str) -> Arm:
    return Arm("message", wait, name="payment", key="order-42")


async def _fail_while_waiting(turns: Turns, id: str, *arms: Arm, awakeables: tuple[NewAwakeable, ...] = ()) -> None:
    """Parked on several waits and woken by a message of its own; then it fails."""
    await turns.start("M", id)
    wake = Arm("message", f"wake-{id}", name="wake", key=id)
    await turns.commit(await turns.claim("M"), Park((*arms, wake), awakeables=awakeables), step="woken")
    await turns.run(Message(name="wake", key=id))
    await turns.commit(await turns.claim("M"), FAILED)


async def _wait_for_payment(turns: Turns, id: str) -> None:
    await turns.start("M", id)
    await turns.commit(await turns.claim("M"), Park((_payment(f"w-{id}"),)), step="woken")


async def test_x8_a_retry_whose_message_is_awaited_by_another_is_a_conflict_and_nothing_changes(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        await _fail_while_waiting(turns, "old", _payment("w-old"))
        await _wait_for_payment(turns, "new")
        before = await everything(store)
        refused = RetryInstance(target="old")
        await turns.run(refused)
        assert type(refused.result) is Conflict
        assert refused.result.status == "failed"
        for word in ("payment", "order-42", "instance new", "then retry again"):
            assert word in str(refused.result)
        assert await everything(store) == before
        await turns.run(Message(name="payment", key="order-42"))
        again = RetryInstance(target="old")
        await turns.run(again)
        assert again.result == "old", "the message is free again"
        sent = Message(name="payment", key="order-42")
        await turns.run(sent)
        assert sent.result == "old"


async def test_x8_of_two_failed_receivers_of_one_message_only_one_can_be_retried(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        await _fail_while_waiting(turns, "one", _payment("w-one"))
        await _fail_while_waiting(turns, "two", _payment("w-two"))
        retries = [RetryInstance(target="one"), RetryInstance(target="two"), RetryInstance(target="two")]
        await turns.run(*retries)
        assert retries[0].result == "one"
        for refused in retries[1:]:
            assert type(refused.result) is Conflict
            assert "instance one" in str(refused.result)


@pytest.mark.parametrize("first", ["park", "retry"])
async def test_x8_a_retry_and_a_park_on_its_message_are_serialised(pg_store: Store, first: str) -> None:
    async with Turns(pg_store) as one, Turns(pg_store) as two:
        await one.register("M")
        await _fail_while_waiting(one, "old", _payment("w-old"))
        await one.start("M", "new")
        retry: Any = RetryInstance(target="old")
        park = outcome(await one.claim("M"), Park((_payment("w-new"),)))
        await two.run()
        turn = await one.open_turn(park if first == "park" else retry)
        meeting = asyncio.create_task(two.run(retry if first == "park" else park))
        await until_blocked(pg_store, two)
        await turn.tx.commit()
        if first == "park":
            await meeting
            assert type(retry.result) is Conflict
            assert "instance new" in str(retry.result)
        else:
            await meeting
            assert park.fenced
            assert isinstance(park.result, Duplicate)  # its program gets the error and decides
            assert park.result.holder == retry.result == "old"


# -- awakeables --------------------------------------------------------------------------------------


def _asked(id: str, index: int) -> tuple[NewAwakeable, Arm]:
    return NewAwakeable(id, index), Arm("awakeable", f"w-{id}", name=id)


async def _awakeables(store: Store) -> dict[str, tuple[Any, ...]]:
    found = await rows(store, "SELECT id, status, answered_by, resolved_at IS NULL FROM awakeables")
    return {id: (status, by, bool(pending)) for id, status, by, pending in found}


async def test_x8_a_retry_reopens_the_awakeables_that_the_failure_cancelled_and_nothing_else(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        questions = [_asked(id, n) for n, id in enumerate(("open", "answered", "withdrawn"))]
        await turns.start("M", "m")
        arms, awakeables = tuple(arm for _, arm in questions), tuple(asked for asked, _ in questions)
        await turns.commit(await turns.claim("M"), Park(arms, awakeables=awakeables), step="woken")
        await turns.run(SettleAwakeable(settle=Settle("answered", "RESOLVED", "1", by="ann")))
        claim = await turns.claim("M")
        wake = Arm("message", "wake", name="wake", key="m")
        seqs = [row.seq for row in claim.inbox]
        await turns.commit(claim, Park((wake,), disarm=("w-answered", "w-withdrawn")), consume=seqs)
        await turns.run(Message(name="wake", key="m"))
        await turns.commit(await turns.claim("M"), FAILED)
        refused = SettleAwakeable(settle=Settle("open", "RESOLVED", "2"))
        await turns.run(refused)
        assert (type(refused.result), refused.result.status) == (AlreadySettled, "CANCELLED")

        await turns.run(RetryInstance(target="m"))
        assert await _awakeables(store) == {
            "open": ("PENDING", None, True),
            "answered": ("RESOLVED", "ann", False),
            "withdrawn": ("CANCELLED", None, False),
        }
        answer = SettleAwakeable(settle=Settle("open", "RESOLVED", "2", by="bob"))
        await turns.run(answer)
        assert not isinstance(answer.result, Exception)
        claim = await turns.claim("M")
        assert [row.name for row in claim.inbox if row.kind == "awakeable"] == ["open"]


class Disk:
    works = False

    def build(self) -> str:
        if not self.works:
            raise ConnectionError("no disk")
        return "built"


async def test_x8_a_function_asks_the_same_question_again_when_it_is_retried(store: Store) -> None:
    """The link that was sent before the failure works again; in between it does not."""
    disk = Disk()

    @workflow
    async def release(ctx: FunctionContext) -> Any:
        approval = await ctx.awakeable(title="Deploy?")
        built = await ctx.run(disk.build)
        return [built, await approval]

    async with harness(store, release) as app:
        handle = await drained(app, app.start(release))
        [before] = await app.awakeables(job=handle)
        assert ((await handle.get()).status, before.status) == ("failed", "CANCELLED")
        with pytest.raises(AlreadySettled):
            await app.resolve(before.id, "yes")
        disk.works = True
        await app.retry(handle)
        [again] = await app.awakeables(job=handle)
        assert (again.id, again.url, again.status) == (before.id, before.url, "PENDING")
        await drained(app, app.resolve(before.id, "yes"))
        assert await handle.result(timeout=0) == ["built", "yes"]


async def test_x8_a_question_whose_time_ran_out_during_the_failure_times_out_after_the_retry(store: Store) -> None:
    disk = Disk()

    @workflow
    async def release(ctx: FunctionContext) -> Any:
        approval = await ctx.awakeable(60, title="Deploy?")
        await ctx.run(disk.build)
        try:
            return await approval
        except AwakeableTimedOut:
            return "too late"

    async with harness(store, release) as app:
        handle = await drained(app, app.start(release))
        await app.advance(120)
        disk.works = True
        await app.retry(handle)
        await drained(app, app.advance(0))
        assert await handle.result(timeout=0) == "too late"
        [asked] = await app.awakeables(job=handle)
        assert asked.status == "TIMEOUT"
