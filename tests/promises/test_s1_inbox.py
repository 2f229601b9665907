"""S1: every instance has a durable inbox, addressed by id or by correlation key."""

import pytest

from hark import Context, Done, Machine, NoTarget, Stop, step
from tests.promises.support_signals import Waiter, count, harness
from tests.support.harness import drained
from tests.support.stores import Store


class Ender(Machine):
    """Ends immediately, done or failed as its input says."""

    @step
    async def start(self, ctx: Context) -> Done | Stop:
        return Stop("asked to") if ctx.state.get("fail") else Done()


@pytest.mark.parametrize("target", ["waiter-1", "order:1"])
async def test_s1_a_signal_finds_its_instance_by_id_and_by_key(store: Store, target: str) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="waiter-1", correlation_key="order:1")
        await drained(app, app.start(Waiter, {"names": ["go"]}, id="waiter-2", correlation_key="order:2"))
        delivery = await app.signal(target, "go", {"n": 1})
        assert (delivery.status, delivery.instance_id) == ("woke", "waiter-1")
        assert await app.drain() == {"steps": 1, "done": 1}
        assert (await app.result("waiter-1"))["awaited"] == [["go", {"n": 1}]]
        assert (await app.get("waiter-2")).status == "awaiting_signal"


async def test_s1_a_handle_is_a_target_and_has_a_signal_method(store: Store) -> None:
    async with harness(store, Waiter) as app:
        handle = await app.start(Waiter, {"names": ["go"]})
        assert (await app.signal(handle, "other")).status == "stored"
        assert (await handle.signal("go", 7, dedup_key="x")).status == "stored"
        assert (await handle.signal("go", 7, dedup_key="x")).status == "duplicate"
        await app.drain()
        assert (await handle.result())["awaited"] == [["go", 7]]


async def test_s1_the_inbox_outlives_the_process_that_filled_it(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        await app.signal("w", "go", ["text", 1.5, None, {"a": "ü"}])
    async with harness(store, Waiter) as app:
        await app.drain()
        assert (await app.result("w"))["awaited"] == [["go", ["text", 1.5, None, {"a": "ü"}]]]


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_s1_fault_12_a_terminal_target_raises_and_leaves_no_row(store: Store, end: str) -> None:
    async with harness(store, Ender, Waiter) as app:
        if end == "cancelled":
            await drained(app, app.start(Waiter, {"names": ["go"]}, id="x", correlation_key="k"))
            await app.cancel("x")
        else:
            await drained(app, app.start(Ender, {"fail": end == "failed"}, id="x", correlation_key="k"))
        assert (await app.get("x")).status == end
        events = await count(store, "events")
        for target in ("x", "k"):
            with pytest.raises(NoTarget) as refused:
                await app.signal(target, "go", dedup_key="never-seen")
            assert refused.value.target == target
            assert end in str(refused.value)
        assert await count(store, "inbox") == 0
        assert await count(store, "events") == events


async def test_s1_fault_12_a_missing_target_raises_and_leaves_no_row(store: Store) -> None:
    async with harness(store, Waiter) as app:
        with pytest.raises(NoTarget, match="no such instance"):
            await app.signal("nobody", "go", dedup_key="one")
        assert await count(store, "inbox") == 0
        # The name and the dedup key stay usable for later signals.
        await app.start(Waiter, {"names": ["go"]}, id="nobody")
        assert (await app.signal("nobody", "go", dedup_key="one")).status == "stored"


async def test_s1_one_bad_target_does_not_fail_others_in_its_turn(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        replies = [app.signal(target, "go", n) for n, target in enumerate(["w", "nobody", "w"])]
        assert (await replies[0]).status == "stored"
        with pytest.raises(NoTarget):
            await replies[1]
        assert (await replies[2]).status == "stored"
        await app.drain()
        assert (await app.result("w"))["awaited"] == [["go", 0], ["go", 2]]


async def test_s1_a_key_without_a_live_holder_means_its_latest_holder(store: Store) -> None:
    async with harness(store, Waiter) as app:
        for n in range(3):
            await app.advance(1)
            handle = await app.start(Waiter, {"names": ["go"]}, correlation_key="k")
            await drained(app, app.signal("k", "go", n, dedup_key=f"event-{n}"))
        assert (await app.get("k")).id == handle.id
        assert (await app.signal("k", "go", dedup_key="event-2")).status == "duplicate"
        for n in (0, 1):
            with pytest.raises(NoTarget):
                await app.signal("k", "go", dedup_key=f"event-{n}")
