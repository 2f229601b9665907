"""M4: a raised exception goes to `handle`, which returns any outcome; so does an outcome that cannot be committed."""

import asyncio
from typing import Any

import pytest

from hark import (
    Await,
    Child,
    Context,
    Done,
    Machine,
    Next,
    Retry,
    Spawn,
    Stop,
    step,
)
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.promises.test_x4_bad_steps import LIMIT, LIMITS, OUTCOMES, Unspeakable
from tests.support.harness import drained
from tests.support.stores import Store


class Rude(BaseException):
    """Neither an Exception nor a request to stop the worker."""


# Mistakes of a step, and the error that `handle` gets for each.


@pytest.mark.parametrize("plain", [False, True], ids=["async def", "def"])
async def test_m4_whatever_a_step_does_wrong_goes_to_handle_once(plain: bool) -> None:
    handled: list[str] = []

    class Wrong(Machine):
        if plain:

            @step
            def start(self, ctx: Context) -> Any:
                return OUTCOMES[ctx.state["what"]][0](ctx)

        else:

            @step
            async def start(self, ctx: Context) -> Any:
                return OUTCOMES[ctx.state["what"]][0](ctx)

        @step
        async def other(self, ctx: Context) -> Done:
            raise AssertionError("no wrong outcome leads here")

        def handle(self, error: BaseException, ctx: Context) -> Stop:
            handled.append(ctx.state["what"])
            return Stop("handled")

    wrongs = list(OUTCOMES)
    async with Harness(Wrong, max_payload=LIMIT, rate_limits=LIMITS) as app:
        await app.start_many([(Wrong, {"what": wrong}) for wrong in wrongs])
        assert await app.drain() == {"steps": len(wrongs), "stop": len(wrongs)}
        assert {i.error for i in await app.list()} == {"handled"}
    assert handled == wrongs


async def test_m4_by_default_the_error_stops_the_instance_and_is_recorded(store: Store) -> None:
    class Raises(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            match ctx.state["how"]:
                case "text":
                    raise ValueError("no such order: 42")
                case "bare":
                    raise TimeoutError
                case "odd":
                    raise ValueError("a\0b \ud800 \U0001f600")
                case "mute":
                    raise Unspeakable
                case "rude":
                    raise Rude("out")

    async with harness(store, Raises) as app:
        handles = [await app.start(Raises, {"how": how}) for how in ("text", "bare", "odd", "mute", "rude")]
        assert await app.drain() == {"steps": 5, "stop": 5}
        kept = [await handle.get() for handle in handles]
        assert [i.status for i in kept] == ["failed"] * 5
        assert [i.error for i in kept] == [
            "ValueError: no such order: 42",
            "TimeoutError",
            "ValueError: a\\0b \\ud800 \U0001f600",
            "Unspeakable: (its text cannot be read)",
            "Rude: out",
        ]
        assert (await app.events(handles[0]))[-1].type == "stop"


async def test_m4_handle_may_return_any_outcome(store: Store) -> None:
    class Mends(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            if ctx.attempt == 0:
                raise ValueError(ctx.state["how"])
            return Done("retried")

        @step
        async def other(self, ctx: Context) -> Done:
            return Done(f"other {len(ctx.awaited)} {len(ctx.children)}")

        def handle(self, error: Exception, ctx: Context) -> Any:
            match str(error):
                case "next":
                    return Next(self.other)
                case "retry":
                    return Retry(5)
                case "await":
                    return Await("go", then=self.other)
                case "spawn":
                    return Spawn([Child(Mends, {"how": "done"})], then=self.other)
                case "done":
                    return Done("done", state={"fixed": True})
                case _:
                    return Stop("stopped")

    async with harness(store, Mends) as app:
        handles = {
            how: await app.start(Mends, {"how": how}) for how in ("next", "retry", "await", "spawn", "done", "stop")
        }
        await app.drain()
        await handles["await"].signal("go")
        await drained(app, app.advance(5))
        ends = {how: await handle.get() for how, handle in handles.items()}
        assert {how: (i.status, i.result or i.error) for how, i in ends.items()} == {
            "next": ("done", "other 0 0"),
            "retry": ("done", "retried"),
            "await": ("done", "other 1 0"),
            "spawn": ("done", "other 0 1"),
            "done": ("done", "done"),
            "stop": ("failed", "stopped"),
        }
        assert ends["done"].state == {"fixed": True}


async def test_m4_handle_sees_attempt_grow_with_every_retry_it_asks_for(store: Store) -> None:
    attempts: list[int] = []

    class Backs(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            raise ConnectionError("down")

        def handle(self, error: Exception, ctx: Context) -> Retry | Stop:
            attempts.append(ctx.attempt)
            return Retry(1.0 * ctx.attempt) if ctx.attempt < 5 else Stop(error)

    async with harness(store, Backs) as app:
        backs = await app.start(Backs)
        for _ in range(6):
            await app.drain()
            await app.advance(5)
        assert attempts == [0, 1, 2, 3, 4, 5]
        assert (await backs.get()).error == "ConnectionError: down"


async def test_m4_handle_may_be_async_or_sync(store: Store) -> None:
    class Async(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            raise ValueError

        async def handle(self, error: Exception, ctx: Context) -> Done:
            await asyncio.sleep(0)
            return Done("async")

    class Plain(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            raise ValueError

        def handle(self, error: Exception, ctx: Context) -> Done:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return Done("in a thread")

    async with harness(store, Async, Plain) as app:
        one, two = await app.start(Async), await app.start(Plain)
        await app.drain()
        assert [await one.result(timeout=0), await two.result(timeout=0)] == ["async", "in a thread"]


async def test_m4_if_handle_raises_the_instance_fails_with_both_errors_recorded(store: Store) -> None:
    class Twice(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            raise ValueError("the first")

        def handle(self, error: BaseException, ctx: Context) -> Any:
            match ctx.state["how"]:
                case "raises":
                    raise KeyError("the second")
                case "rude":
                    raise Rude("the second")
                case "cancelled":
                    raise asyncio.CancelledError("the second")
                case "no outcome":
                    return "the second"
                case "unserialisable":
                    return Done(object())
                case "bad state":
                    return Retry(state={"the second": object()})

    hows = ("raises", "rude", "cancelled", "no outcome", "unserialisable", "bad state")
    async with harness(store, Twice) as app:
        handles = [await app.start(Twice, {"how": how}) for how in hows]
        assert await asyncio.wait_for(app.drain(), 30) == {"steps": 6, "stop": 6}
        for how, handle in zip(hows, handles, strict=True):
            kept = await handle.get()
            assert kept.status == "failed"
            assert kept.state == {"how": how}
            assert kept.error.startswith("ValueError: the first; then handle raised "), kept.error
        assert (await handles[0].get()).error.endswith("KeyError: 'the second'")


async def test_m4_a_step_that_cancels_itself_and_a_handle_that_does_not_survive_it_fail_the_instance(
    store: Store,
) -> None:
    class Gone(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(0)
            return Done()

        async def handle(self, error: BaseException, ctx: Context) -> Any:
            raise asyncio.CancelledError("again")

    async with harness(store, Gone) as app:
        one, two = await app.start(Gone), await app.start(Gone)
        assert await asyncio.wait_for(app.drain(), 30) == {"steps": 2, "stop": 2}
        for handle in (one, two):
            kept = await handle.get()
            assert (kept.status, kept.error) == ("failed", "CancelledError: ; then handle raised CancelledError: again")


async def test_m4_fault_30_an_unserialisable_result_goes_to_handle_and_never_loops(store: Store) -> None:
    runs: list[int] = []

    class Holds(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            runs.append(ctx.attempt)
            return Done({"socket": object()})

    async with harness(store, Holds) as app:
        holds = await app.start(Holds)
        assert await app.drain() == {"steps": 1, "stop": 1}
        assert runs == [0]
        kept = await holds.get()
        assert (kept.status, kept.result) == ("failed", None)
        assert "$.socket" in kept.error
        assert "object" in kept.error


async def test_m4_an_error_of_one_instance_fails_no_other(store: Store) -> None:
    class Mixed(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done(object() if ctx.state["n"] % 7 == 0 else ctx.state["n"])

    async with harness(store, Mixed) as app, app.worker({"default": 50}):
        handles = await app.start_many([(Mixed, {"n": n}) for n in range(50)])
        for n, handle in enumerate(handles):
            if n % 7:
                assert await handle.result(timeout=30) == n
        failed = await app.list(status="failed", limit=100)
        assert sorted(i.state["n"] for i in failed) == [0, 7, 14, 21, 28, 35, 42, 49]
