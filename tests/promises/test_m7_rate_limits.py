"""M7: token buckets, named in config, optionally per partition, with weights; the clock is moved by hand."""

from typing import Any

import pytest

from hark import Await, Context, Done, InvalidInput, Machine, Next, Rate, Retry, Start, Stop, step
from hark.testing import Harness
from tests.promises.support_machines import harness, neighbour
from tests.support.harness import drained
from tests.support.inspect import query, until
from tests.support.stores import Store

SECOND = Rate(allowed=1, period=1, burst=1)


class Call(Machine):
    """Records its name when it runs."""

    ran: list[str]

    @step
    async def start(self, ctx: Context) -> Done:
        self.ran.append(ctx.state)
        return Done()


@pytest.fixture(autouse=True)
def ran() -> list[str]:
    Call.ran = []
    return Call.ran


async def calls(app: Harness, names: str, **options: Any) -> list[Any]:
    """Started one after the other, so that their queue order is known."""
    return [await app.start(Call, name, **options) for name in names]


async def test_m7_a_bucket_lets_its_burst_through_and_then_its_rate(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": Rate(allowed=2, period=10, burst=3)}) as app:
        waiting = await calls(app, "abcdefgh", rate_limit="api")
        await app.drain()
        assert "".join(ran) == "abc"
        kept = await waiting[3].get()
        assert (kept.status, kept.attempt) == ("runnable", 0)
        for seconds, so_far in ((4.9, "abc"), (0.1, "abcd"), (10, "abcdef"), (1000, "abcdefgh")):  # a token every 5 s
            await drained(app, app.advance(seconds))
            assert "".join(ran) == so_far
        await app.advance(1000)
        await calls(app, "ijklm", rate_limit="api")
        await app.drain()
        assert "".join(ran) == "abcdefghijk", "what was not used is kept up to the burst, not beyond"


async def test_m7_without_a_burst_it_is_what_is_allowed_and_a_dict_says_the_same(store: Store, ran: list[str]) -> None:
    limits = {"rate": Rate(3, 60), "dict": {"allowed": 3, "period": 60}}
    async with harness(store, Call, rate_limits=limits) as app:
        await calls(app, "aaaaa", rate_limit="rate")
        await calls(app, "bbbbb", rate_limit="dict")
        await app.drain()
        assert "".join(sorted(ran)) == "aaabbb"
        await drained(app, app.advance(20))
        assert "".join(sorted(ran)) == "aaaabbbb"


async def test_m7_next_takes_rate_limit_and_weight_for_the_next_step(store: Store) -> None:
    at: list[tuple[str, int]] = []

    class Charges(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            at.append((ctx.step, 0))
            return Next(self.charge, rate_limit="stripe", weight=2)

        @step
        async def charge(self, ctx: Context) -> Next | Done:
            at.append((ctx.step, ctx.attempt))
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            if ctx.state["n"] < 3:
                return Next(self.charge, rate_limit="stripe", weight=2)
            return Next(self.free)

        @step
        async def free(self, ctx: Context) -> Done:
            at.append((ctx.step, 0))
            return Done()

    async with harness(store, Charges, rate_limits={"stripe": Rate(1, 1, burst=2)}) as app:
        charges = await app.start(Charges)
        assert await app.drain() == {"steps": 2, "next": 2}
        kept = await charges.get()
        assert (kept.step, kept.state, kept.status) == ("charge", {"n": 1}, "runnable"), "committed, and waiting"
        await app.advance(1)
        assert await app.drain() == {"steps": 0}, "half of its weight"
        await app.advance(1)
        assert await app.drain() == {"steps": 1, "next": 1}
        await app.advance(2)
        assert await app.drain() == {"steps": 2, "done": 1, "next": 1}, "the last step has no limit"
        assert [name for name, _ in at] == ["start", "charge", "charge", "charge", "free"]


async def test_m7_a_partition_has_a_bucket_of_its_own(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"stripe": SECOND}) as app:
        await calls(app, "aaa", rate_limit=("stripe", "tenant-1"))
        await calls(app, "bb", rate_limit=("stripe", "tenant:2"))
        await calls(app, "cc", rate_limit="stripe")
        await app.drain()
        assert "".join(sorted(ran)) == "abc"
        for so_far in ("aabbcc", "aaabbcc"):
            await drained(app, app.advance(1))
            assert "".join(sorted(ran)) == so_far


async def test_m7_a_weight_takes_that_many_tokens_fractions_included(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": Rate(1, 1, burst=4)}) as app:
        await app.start(Call, "heavy", rate_limit="api", weight=3)
        await app.start(Call, "half", rate_limit="api", weight=0.5)
        await app.start(Call, "half too", rate_limit="api", weight=0.5)
        await drained(app, app.start(Call, "late", rate_limit="api", weight=0.25))
        assert ran == ["heavy", "half", "half too"]
        await drained(app, app.advance(0.25))
        assert ran == ["heavy", "half", "half too", "late"]


async def test_m7_a_weight_above_the_burst_is_refused_immediately_and_blocks_nothing(
    store: Store, ran: list[str]
) -> None:
    class Greedy(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            return Next(self.end, rate_limit="api", weight=6)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

        def handle(self, error: Exception, ctx: Context) -> Stop:
            assert isinstance(error, InvalidInput)
            return Stop(error)

    async with harness(store, Call, Greedy, rate_limits={"api": Rate(1, 1, burst=5)}) as app:
        with pytest.raises(InvalidInput, match=r"weight=5\.5 .*'api'.*5"):
            await app.start(Call, "x", rate_limit="api", weight=5.5)
        greedy = await app.start(Greedy)
        await calls(app, "ab", rate_limit="api")
        await drained(app, app.start(Call, "c", rate_limit=("api", "t"), weight=5))
        assert "burst" in (await greedy.get()).error
        assert ran == ["a", "b", "c"]


async def test_m7_an_instance_that_needs_many_tokens_is_not_overtaken_by_one_that_needs_few(
    store: Store, ran: list[str]
) -> None:
    async with harness(store, Call, rate_limits={"api": Rate(1, 1, burst=4)}) as app:
        await app.start(Call, "first", rate_limit="api", weight=3)
        await app.start(Call, "heavy", rate_limit="api", weight=4)
        await drained(app, app.start(Call, "light", rate_limit="api"))
        assert ran == ["first"]
        await app.advance(1)
        await drained(app, app.start(Call, "newcomer", rate_limit="api"))
        assert ran == ["first"], "two tokens are there, and they are for the heavy one"
        await drained(app, app.advance(2))
        assert ran == ["first", "heavy"]
        await drained(app, app.advance(2))
        assert ran == ["first", "heavy", "light", "newcomer"]


async def test_m7_instances_that_request_tokens_together_are_served_in_order(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": Rate(1, 1, burst=4)}) as app, app.worker({"default": 10}):
        weights = {"first": 3, "heavy": 4, "light": 1, "lighter": 0.5}
        await app.start_many([Start(Call, name, rate_limit="api", weight=w) for name, w in weights.items()])
        await (await app.start(Call, "free")).result(timeout=30)
        await until(lambda: len(ran) == 2, "the first and the free one")
        assert sorted(ran) == ["first", "free"]
        for seconds, name in ((3, "heavy"), (1, "light"), (0.5, "lighter")):
            await app.advance(seconds)
            await until(lambda name=name: ran[-1] == name, f"{name} to run")


async def test_m7_the_more_urgent_instance_blocked_on_a_bucket_runs_first(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": SECOND}) as app:
        await calls(app, "abc", rate_limit="api")
        await app.drain()
        await drained(app, app.start(Call, "urgent", rate_limit="api", priority=-1))
        for _ in range(3):
            await drained(app, app.advance(1))
        assert ran == ["a", "urgent", "b", "c"]


async def test_m7_shards_share_the_rate_and_the_burst_between_them(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": Rate(4, 1, burst=8, shards=4)}) as app:
        await calls(app, "abcdefghijkl", rate_limit="api")
        await app.drain()
        assert len(ran) == 8
        await drained(app, app.advance(1))
        await drained(app, app.advance(1))
        assert sorted(ran) == list("abcdefghijkl")


async def test_m7_a_retry_of_a_limited_step_pays_again(store: Store) -> None:
    ran: list[int] = []

    class Tries(Machine):
        @step
        async def start(self, ctx: Context) -> Retry | Stop:
            ran.append(ctx.attempt)
            return Retry() if ctx.attempt < 2 else Stop("no luck")

    async with harness(store, Tries, rate_limits={"api": SECOND}) as app:
        tries = await app.start(Tries, rate_limit="api")
        for seen in ([0], [0, 1], [0, 1, 2]):
            await app.drain()
            assert ran == seen
            await app.advance(1)
        await app.advance(10)
        await app.retry(tries)
        await drained(app, app.start(Tries, rate_limit="api"))
        assert ran == [0, 1, 2, 0], "also when a failed instance is retried"


async def test_m7_a_limit_is_for_one_step_and_not_for_those_after_it(store: Store) -> None:
    class Once(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

    async with harness(store, Once, rate_limits={"api": Rate(1, 1000)}) as app:
        once = await drained(app, app.start(Once, rate_limit="api"))
        await once.signal("go")
        assert await app.drain() == {"steps": 1, "done": 1}


async def test_m7_a_cancelled_instance_leaves_its_tokens_to_the_next(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": SECOND}) as app:
        _, b, c, _ = await calls(app, "abcd", rate_limit="api")
        await app.drain()
        await b.cancel()
        await app.advance(1)
        # Unblocked by the sweep, and cancelled before a worker could run it.
        await drained(app, c.cancel())
        await drained(app, app.advance(1))
        assert ran == ["a", "d"]


MINUTE = Rate(allowed=1, period=60, burst=100)


@pytest.mark.parametrize("configured", [True, False], ids=["in the same process", "in one without the limit"])
async def test_m7_a_cancelled_head_leaves_the_bucket_to_the_next(
    store: Store, ran: list[str], configured: bool
) -> None:
    """The heavy one would have waited for 100 tokens, which is 100 minutes; the one behind it needs one."""
    async with harness(store, Call, rate_limits={"api": MINUTE}) as app:
        await app.start(Call, "first", rate_limit="api", weight=100)
        heavy = await app.start(Call, "heavy", rate_limit="api", weight=100)
        await drained(app, app.start(Call, "light", rate_limit="api"))
        if configured:
            await heavy.cancel()
        else:
            async with neighbour(app, store) as other:
                await other.cancel(heavy.id)
        await app.drain()
        await drained(app, app.advance(59))
        assert ran == ["first"]
        await drained(app, app.advance(1))
        assert ran == ["first", "light"]


async def test_m7_a_cancelled_head_that_has_an_undo_leaves_the_bucket_to_the_next(store: Store, ran: list[str]) -> None:
    class Undone(Call, on_cancel="undo"):
        @step
        async def undo(self, ctx: Context) -> Done:
            self.ran.append("undo")
            return Done()

    async with harness(store, Call, Undone, rate_limits={"api": MINUTE}) as app:
        await app.start(Call, "first", rate_limit="api", weight=100)
        heavy = await app.start(Undone, "heavy", rate_limit="api", weight=100)
        await drained(app, app.start(Call, "light", rate_limit="api"))
        await drained(app, heavy.cancel())
        assert ran == ["first", "undo"]
        await drained(app, app.advance(60))
        assert ran == ["first", "undo", "light"]


async def test_m7_the_row_behind_a_cancelled_head_runs_at_once_if_its_tokens_are_there(
    store: Store, ran: list[str]
) -> None:
    async with harness(store, Call, rate_limits={"api": MINUTE}) as app:
        await app.start(Call, "first", rate_limit="api", weight=95)
        heavy = await app.start(Call, "heavy", rate_limit="api", weight=100)
        await calls(app, "abc", rate_limit="api")
        await app.drain()
        await drained(app, heavy.cancel())
        assert ran == ["first", "a", "b", "c"]


async def test_m7_a_cancel_of_the_only_blocked_row_leaves_nothing_due(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": MINUTE}) as app:
        await app.start(Call, "first", rate_limit="api", weight=100)
        await (await app.start(Call, "second", rate_limit="api")).cancel()
        blocked = await drained(app, app.start(Call, "third", rate_limit="api"))
        await blocked.cancel()
        assert await query(store, "SELECT count(*) FROM buckets WHERE due_at IS NOT NULL") == [(0,)]


async def test_m7_a_heavy_row_behind_a_cancelled_head_is_not_tried_before_its_tokens_are_there(
    store: Store, ran: list[str]
) -> None:
    """A bucket that were due with every token would promote and refuse it each time."""
    async with harness(store, Call, rate_limits={"api": MINUTE}) as app:
        await app.start(Call, "first", rate_limit="api", weight=100)
        heavy = await app.start(Call, "heavy", rate_limit="api", weight=100)
        await app.start(Call, "next", rate_limit="api", weight=50)
        await drained(app, app.start(Call, "last", rate_limit="api"))
        await drained(app, heavy.cancel())
        assert await query(store, "SELECT due_at FROM buckets WHERE kind = 'rate'") == [
            (app.clock.now + 50 * 60 * 1_000_000,)
        ]
        await drained(app, app.advance(50 * 60))
        assert ran == ["first", "next"]


async def test_m7_all_workers_draw_from_the_same_bucket(store: Store, ran: list[str]) -> None:
    limits = {"api": Rate(10, 3600, burst=10)}
    async with (
        harness(store, Call, rate_limits=limits) as app,
        neighbour(app, store, Call, rate_limits=limits) as other,
        app.worker({"default": 50}),
        other.worker({"default": 50}),
    ):
        await app.start_many([Start(Call, "limited", rate_limit="api") for _ in range(40)])
        for free in await app.start_many([(Call, "free")] * 20):
            await free.result(timeout=30)
        await until(lambda: ran.count("limited") == 10, "the burst")
    assert ran.count("limited") == 10


async def test_m7_a_clock_that_jumps_back_refills_nothing_twice(store: Store, ran: list[str]) -> None:
    async with harness(store, Call, rate_limits={"api": Rate(1, 1, burst=2)}) as app:
        await calls(app, "abc", rate_limit="api")
        await app.drain()
        app.clock.now -= 3_600_000_000
        await calls(app, "d", rate_limit="api")
        await drained(app, app.advance(0))
        assert ran == ["a", "b"]
        await drained(app, app.advance(3601))
        assert ran == ["a", "b", "c"]
