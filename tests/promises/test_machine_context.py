"""The attributes of `ctx` and of a signal."""

from datetime import UTC, datetime, timedelta

from hark import Await, Broadcast, Context, Done, Machine, Next, Retry, step
from hark.model.names import from_micros
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


async def test_api_a_step_sees_its_id_its_step_and_the_database_time(store: Store) -> None:
    seen: list[tuple[object, ...]] = []

    class Looks(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            seen.append((ctx.id, ctx.step, ctx.attempt, ctx.correlation_key, ctx.now()))
            seen.append((ctx.state, ctx.awaited, ctx.all, ctx.children, ctx.timed_out))
            return Next(self.again)

        @step("the second look")
        def again(self, ctx: Context) -> Retry | Done:
            seen.append((ctx.id, ctx.step, ctx.attempt, ctx.correlation_key, ctx.now()))
            return Retry(60) if ctx.attempt == 0 else Done()

    async with harness(store, Looks) as app:
        looks = await app.start(Looks, correlation_key="key")
        then = from_micros(app.clock.now)
        await app.drain()
        await drained(app, app.advance(60))
        assert seen == [
            (looks.id, "start", 0, "key", then),
            ({}, [], [], [], False),
            (looks.id, "the second look", 0, "key", then),
            (looks.id, "the second look", 1, "key", then + timedelta(seconds=60)),
        ]
        assert then.tzinfo == UTC


async def test_api_a_signal_has_id_kind_name_payload_and_time(store: Store) -> None:
    seen: list[list[tuple[object, ...]]] = []

    class Waits(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("word", Broadcast("market-open"), then=self.read)

        @step
        async def read(self, ctx: Context) -> Done:
            assert [signal.id for signal in ctx.all] == sorted({signal.id for signal in ctx.all})
            seen.extend([[(s.kind, s.name, s.payload, s.at) for s in box] for box in (ctx.awaited, ctx.all)])
            return Done()

    async with harness(store, Waits) as app:
        waits = await drained(app, app.start(Waits))
        await waits.signal("other", None)
        at = [from_micros(app.clock.now)]
        await app.advance(1)
        await waits.signal("word", {"n": [1]})
        await app.advance(1)
        assert await app.broadcast("market-open", "bell") == 1, "woken already, and a subscriber until it moves on"
        at += [at[0] + timedelta(seconds=1), at[0] + timedelta(seconds=2)]
        await app.drain()
        word = ("signal", "word", {"n": [1]}, at[1])
        bell = ("broadcast", "market-open", "bell", at[2])
        assert seen == [[word, bell], [("signal", "other", None, at[0]), word, bell]]
        assert isinstance(at[0], datetime)


async def test_api_a_broadcast_name_is_answered_by_a_broadcast_alone_and_a_plain_one_by_a_signal_alone(
    store: Store,
) -> None:
    class Waits(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            name = "x" if ctx.state["plain"] else Broadcast("x")
            return Await(name, then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([signal.kind for signal in ctx.awaited])

    async with harness(store, Waits) as app:
        plain, broad = [await app.start(Waits, {"plain": plain}) for plain in (True, False)]
        await app.drain()
        assert (await broad.signal("x")).status == "stored"
        assert await app.drain() == {"steps": 0}
        assert await app.broadcast("x") == 1
        await app.drain()
        assert await broad.result(timeout=0) == ["broadcast"]
        assert (await plain.get()).status == "awaiting_signal"
        assert (await plain.signal("x")).status == "woke"
        await app.drain()
        assert await plain.result(timeout=0) == ["signal"]
