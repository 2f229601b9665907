"""X8: cancelling is immediate and cancels children and awakeables in the same commit."""

import asyncio
from typing import Any

import pytest

from hark import (
    AlreadySettled,
    Child,
    Conflict,
    Context,
    Done,
    InstanceCancelled,
    Machine,
    NoTarget,
    NotFound,
    Retry,
    Spawn,
    step,
)  # fmt: skip
from hark.kernel.requests import Cancel, Deliver
from hark.model.decisions import Arm, Finish, NewAwakeable, NewInstance, Park, SendBroadcast, SendSignal
from tests.promises.support_signals import (
    Turns,
    Waiter,
    count,
    event_types,
    harness,
    outcome,
    rows,
    statuses,
    until_blocked,
)  # fmt: skip
from tests.support.harness import drained
from tests.support.inspect import everything
from tests.support.stores import Store

GO = {"names": ["go"]}


class Tree(Machine):
    """Spawns a chain of itself, `depth` deep, with a waiting instance at its end."""

    @step
    async def start(self, ctx: Context) -> Spawn:
        depth = ctx.state["depth"]
        child = Child(Tree, {"depth": depth - 1}, id=f"tree-{depth - 1}") if depth else Child(Waiter, GO, id="leaf")
        return Spawn([child, Child(Quick, id=f"quick-{depth}")], then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Done:
        return Done([[child.id, child.status, child.error] for child in ctx.children])


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


async def test_x8_a_cancelled_instance_is_finished_immediately(store: Store) -> None:
    async with harness(store, Waiter) as app:
        handle = await drained(app, app.start(Waiter, {"names": ["go"], "timeout": 60}, id="w", correlation_key="k"))
        cancelled = await app.cancel("k", "not wanted any more")
        assert (cancelled.id, cancelled.status, cancelled.error) == ("w", "cancelled", "not wanted any more")
        assert cancelled.finished_at is not None
        assert await app.waits() == []
        with pytest.raises(InstanceCancelled) as over:
            await handle.result()
        assert (over.value.id, over.value.reason) == ("w", "not wanted any more")
        with pytest.raises(NoTarget):
            await handle.signal("go")
        await app.advance(60)
        assert await app.drain() == {"steps": 0}
        assert (await event_types(app, "w"))[-1] == "cancelled"
        # Its key is free again.
        assert (await app.start(Waiter, GO, correlation_key="k")).id != "w"


@pytest.mark.parametrize("how", ["runnable", "delayed", "retrying", "blocked"])
async def test_x8_what_is_not_parked_can_be_cancelled_too(store: Store, how: str) -> None:
    class Retrying(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Retry(60)

    async with harness(store, Quick, Retrying, Waiter) as app:
        if how == "blocked":
            async with Turns(store, app.clock) as turns:
                await app.start(Waiter, GO, id="holder", concurrency_key="k")
                await app.start(Waiter, GO, id="x", concurrency_key="k")
                assert (await turns.run(lanes=["Waiter"], room=2)).claims[0].id == "holder"
            assert await rows(store, "SELECT blocked_on FROM instances WHERE id = 'x'") == [("slot:k",)]
            await app.cancel("holder")
        else:
            machine = Retrying if how == "retrying" else Quick
            await app.start(machine, id="x", delay=60 if how == "delayed" else None)
            if how != "runnable":
                await app.drain()
        assert (await app.cancel("x")).status == "cancelled"
        await app.advance(120)
        assert await app.drain() == {"steps": 0}
        assert (await app.get("x")).error == "cancelled"


async def test_x8_cancel_refuses_finished_and_missing_instances(store: Store) -> None:
    async with harness(store, Quick, Waiter) as app:
        await app.start(Quick, id="done")
        await drained(app, app.start(Waiter, GO, id="twice"))
        await app.cancel("twice")
        for id, status in (("done", "done"), ("twice", "cancelled")):
            before = await everything(store)
            with pytest.raises(Conflict) as refused:
                await app.cancel(id)
            assert refused.value.status == status
            assert await everything(store) == before
        with pytest.raises(NotFound):
            await app.cancel("nobody")
        await app.start(Waiter, GO, id="once")
        replies = [app.cancel("once"), app.cancel("once")]
        assert (await replies[0]).status == "cancelled"
        with pytest.raises(Conflict):
            await replies[1]


async def test_x8_a_cancel_cancels_all_descendants_and_nothing_else(store: Store) -> None:
    async with harness(store, Tree, Waiter, Quick) as app:
        await app.start(Tree, {"depth": 3}, id="tree-3")
        await drained(app, app.start(Waiter, GO, id="bystander"))
        assert await statuses(app, "tree-3", "tree-0", "leaf") == ["awaiting_children"] * 2 + ["awaiting_signal"]
        await app.cancel("tree-2")
        assert await statuses(app, "tree-2", "tree-1", "tree-0", "leaf") == ["cancelled"] * 4
        assert await statuses(app, "quick-2", "quick-0", "bystander") == ["done", "done", "awaiting_signal"]
        assert (await app.get("leaf")).error == "its parent was cancelled"
        # The parent above counts it as ended, once.
        assert await app.drain() == {"steps": 1, "done": 1}
        assert sorted(await app.result("tree-3")) == [["quick-3", "done", None], ["tree-2", "cancelled", "cancelled"]]
        assert [wait.instance_id for wait in await app.waits()] == ["bystander"]


async def test_x8_all_descendants_are_cancelled_in_one_commit(store: Store) -> None:
    async with harness(store, Tree, Waiter, Quick) as app, Turns(store, app.clock) as turns:
        await drained(app, app.start(Tree, {"depth": 2}, id="tree-2"))
        before = await everything(store)
        turn = await turns.open_turn(Cancel(target="tree-2"))
        await turn.tx.rollback()
        assert await everything(store) == before
        await turns.run(Cancel(target="tree-2"))
        assert await statuses(app, "tree-2", "tree-1", "tree-0", "leaf") == ["cancelled"] * 4
        assert await count(store, "waits") == 0


async def test_x8_awakeables_are_cancelled_in_the_same_commit(store: Store) -> None:
    async with harness(store, Tree, Waiter, Quick) as app, Turns(store, app.clock) as turns:
        await app.start(Tree, {"depth": 0}, id="tree-0")
        await turns.commit(
            await turns.claim("Tree"), Park((Arm("children", "w-c", children=(_leaf(),), join=1),)), step="joined"
        )
        ask = Park((Arm("awakeable", "w-a", name="prom_1a"),), awakeables=(NewAwakeable("prom_1a", 0),))
        await turns.commit(await turns.claim("Waiter"), ask, step="woken")
        assert (await app.awakeable("prom_1a")).status == "PENDING"
        await app.cancel("tree-0")
        assert (await app.awakeable("prom_1a")).status == "CANCELLED"
        with pytest.raises(AlreadySettled) as late:
            await app.resolve("prom_1a", 1)
        assert late.value.status == "CANCELLED"
        assert await count(store, "inbox") == 0


def _leaf() -> NewInstance:
    return NewInstance("Waiter", "{}", "leaf", named=True)


async def test_x8_fault_74_a_cancel_while_it_executes_with_children_and_awakeables(store: Store) -> None:
    """Woken by one of its waits, the others kept: all are removed in one commit, and the outcome is refused."""
    async with Turns(store) as turns:
        await turns.register("M", "C")
        await turns.start("M", "m")
        children = tuple(NewInstance("C", "{}", f"child-{n}") for n in range(2))
        arms = (
            Arm("signal", "w-s", name="go"),
            Arm("children", "w-c", children=children, join=2),
            Arm("awakeable", "w-a", name="prom_1a"),
        )
        await turns.commit(await turns.claim("M"), Park(arms, awakeables=(NewAwakeable("prom_1a", 0),)))
        running = (await turns.run(lanes=["C"])).claims[0]  # one child executes, the other is runnable
        await turns.run(Deliver(target="m", name="go"))
        claim = await turns.claim("M")
        await turns.run(cancel := Cancel(target="m"))
        assert cancel.result == "m"
        assert await rows(store, "SELECT DISTINCT status FROM instances") == [("cancelled",)]
        assert await rows(store, "SELECT status FROM awakeables") == [("CANCELLED",)]
        assert await count(store, "waits") == 0
        before = await everything(store)
        late = [outcome(claim, Finish("done", result='"late"')), outcome(running, Finish("done"))]
        await turns.run(*late)
        assert [request.fenced for request in late] == [True, True]
        assert await everything(store) == before


async def test_x8_fault_74_a_cancel_and_an_outcome_in_one_turn(store: Store) -> None:
    """The cancel comes first: outcome, effects and children of the step are all refused."""
    async with Turns(store) as turns:
        await turns.register("M", "Other")
        await turns.start("M", "m")
        await turns.start("Other", "other")
        effects = [SendSignal("other", "go", "1"), SendBroadcast("x", "2"), NewInstance("Other", "{}", "effect")]
        spawn = Park((Arm("children", "w", children=(NewInstance("Other", "{}", "child"),), join=1),))
        late = outcome(await turns.claim("M"), spawn, effects=effects)
        await turns.run(late, Cancel(target="m"))
        assert late.fenced
        assert await rows(store, "SELECT id, status FROM instances ORDER BY id") == [
            ("m", "cancelled"), ("other", "runnable"),
        ]  # fmt: skip
        assert await count(store, "inbox") == await count(store, "waits") == await count(store, "broadcasts") == 0


async def test_x8_a_spawn_committed_before_the_cancel_is_cancelled_with_its_children(pg_store: Store) -> None:
    """The cancel read the tree before the children existed; it waits for the parent, rereads and runs again."""
    async with Turns(pg_store) as worker, Turns(pg_store) as canceller:
        await worker.register("M")
        await worker.start("M", "m")
        claim = await worker.claim("M")
        await canceller.run()
        children = tuple(NewInstance("M", "{}", f"child-{n}") for n in range(3))
        spawning = await worker.open_turn(outcome(claim, Park((Arm("children", "w", children=children, join=3),))))
        cancel = Cancel(target="m")
        cancelling = asyncio.create_task(canceller.run(cancel))
        await until_blocked(pg_store, canceller)
        await spawning.tx.commit()
        turn = await cancelling
        assert turn.again == [cancel]
        assert await count(pg_store, "instances", "status = 'cancelled'") == 0
        await canceller.run(cancel)
        assert await count(pg_store, "instances", "status = 'cancelled'") == 4


async def test_x8_a_cancel_committed_before_the_spawn_leaves_no_children(pg_store: Store) -> None:
    async with Turns(pg_store) as worker, Turns(pg_store) as canceller:
        await worker.register("M")
        await worker.start("M", "m")
        claim = await worker.claim("M")
        cancelling = await canceller.open_turn(Cancel(target="m"))
        spawn = outcome(claim, Park((Arm("children", "w", children=(NewInstance("M", "{}", "c"),), join=1),)))
        spawning = asyncio.create_task(worker.run(spawn))
        await until_blocked(pg_store, worker)
        await cancelling.tx.commit()
        await spawning
        assert spawn.fenced
        assert await rows(pg_store, "SELECT id, status FROM instances") == [("m", "cancelled")]
