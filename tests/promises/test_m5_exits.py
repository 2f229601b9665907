"""M5, fault 76: an exit in the code of a user is a crash of its activation alone, and its neighbours go on."""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hark import Context, Dag, Done, FunctionContext, Hark, InstanceFailed, Machine, Next, Retry, Stop, step, workflow
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store

EXITS = [SystemExit, KeyboardInterrupt]


class Neighbours:
    """Instances of every kind that execute while another one exits, and what they have seen."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.begun: set[str] = set()
        self.go = threading.Event()

    async def wait(self, name: str) -> str:
        self.begun.add(name)
        try:
            while not self.go.is_set():
                await asyncio.sleep(0.01)
        except BaseException as error:
            self.seen.append(f"{name}: {error!r}")
            raise
        return name

    def wait_in_a_thread(self, name: str) -> str:
        self.begun.add(name)
        assert self.go.wait(30)
        return name

    def definitions(self) -> list[Any]:
        waits, waits_in_a_thread, seen = self.wait, self.wait_in_a_thread, self.seen

        class Waits(Machine):
            @step
            async def start(self, ctx: Context) -> Done:
                return Done(await waits("step"))

            def handle(self, error: BaseException, ctx: Context) -> Stop:
                seen.append(f"handle: {error!r}")
                return Stop(str(error))

        class WaitsInAThread(Waits):
            @step
            def start(self, ctx: Context) -> Done:
                return Done(waits_in_a_thread("def step"))

        @workflow
        async def runs(ctx: FunctionContext) -> list[str]:
            return await ctx.gather(ctx.run(waits, "run"), ctx.run(waits_in_a_thread, "def run"))

        self.started = [Waits, WaitsInAThread, runs]
        dag = Dag("neighbour")
        dag.task("work", "waits")
        return [*self.started, dag]

    def register(self, app: Hark) -> None:
        @app.handler("waits")
        async def waits_as_handler(task: Any) -> str:
            return await self.wait("handler")

    async def begin(self, app: Hark) -> list[str]:
        ids = [(await app.start(one)).id for one in [*self.started, "neighbour"]]
        await until(lambda: len(self.begun) == 5, "the neighbours to run")
        return ids


class Exits:
    """Code of a user that exits in one of its places, for as often as `left` says."""

    def __init__(self, error: type[BaseException], left: int) -> None:
        self.error = error
        self.left = left

    def maybe(self, *_: Any) -> None:
        if self.left:
            self.left -= 1
            if self.error is SystemExit:
                sys.exit(2)
            raise self.error

    async def maybe_later(self, *_: Any) -> None:
        await asyncio.sleep(0)
        self.maybe()


async def in_a_step(exits: Exits) -> None:
    exits.maybe()


async def in_a_step_that_has_waited(exits: Exits) -> None:
    await exits.maybe_later()


async def in_a_task_of_a_step(exits: Exits) -> None:
    await asyncio.create_task(exits.maybe_later())


async def in_a_gather_of_a_step(exits: Exits) -> None:
    await asyncio.gather(asyncio.sleep(0.01), exits.maybe_later())


async def in_a_task_group_of_a_step(exits: Exits) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0.01))
        group.create_task(exits.maybe_later())


async def in_a_timeout_of_a_step(exits: Exits) -> None:
    await asyncio.wait_for(exits.maybe_later(), 10)


async def in_a_thread_of_a_step(exits: Exits) -> None:
    await asyncio.to_thread(exits.maybe)


def machines(exits: Exits, code: Callable[[Exits], Coroutine[Any, Any, None]]) -> type[Machine]:
    class ExitsInAStep(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            await code(exits)
            return Done(ctx.attempt)

        def handle(self, error: BaseException, ctx: Context) -> Stop:
            return Stop(f"handle was called with {error!r}")

    return ExitsInAStep


def in_a_def_step(exits: Exits) -> type[Machine]:
    class ExitsInADefStep(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            exits.maybe()
            return Done(ctx.attempt)

        def handle(self, error: BaseException, ctx: Context) -> Stop:
            return Stop(f"handle was called with {error!r}")

    return ExitsInADefStep


def in_handle(exits: Exits) -> type[Machine]:
    class ExitsInHandle(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            raise ValueError("to be handled")

        def handle(self, error: BaseException, ctx: Context) -> Done:
            assert isinstance(error, ValueError)
            exits.maybe()
            return Done(ctx.attempt)

    return ExitsInHandle


def in_an_async_handle(exits: Exits) -> type[Machine]:
    class ExitsInAnAsyncHandle(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            raise ValueError("to be handled")

        async def handle(self, error: BaseException, ctx: Context) -> Done:
            assert isinstance(error, ValueError)
            await exits.maybe_later()
            return Done(ctx.attempt)

    return ExitsInAnAsyncHandle


def in_a_function(exits: Exits) -> Any:
    @workflow
    async def exits_itself(ctx: FunctionContext) -> str:
        exits.maybe()
        return "ended"

    return exits_itself


def in_a_run(exits: Exits) -> Any:
    @workflow
    async def exits_in_a_run(ctx: FunctionContext) -> str:
        await ctx.run(exits.maybe_later)
        return "ended"

    return exits_in_a_run


def in_a_def_run(exits: Exits) -> Any:
    @workflow
    async def exits_in_a_def_run(ctx: FunctionContext) -> str:
        await ctx.run(exits.maybe, retries=3)
        return "ended"

    return exits_in_a_def_run


def in_a_run_beside_others(exits: Exits) -> Any:
    @workflow
    async def exits_beside(ctx: FunctionContext) -> str:
        await ctx.gather(ctx.run(exits.maybe_later), ctx.run(exits.maybe), ctx.sleep(0.05))
        return "ended"

    return exits_beside


def in_a_run_with_a_timeout(exits: Exits) -> Any:
    @workflow
    async def exits_in_time(ctx: FunctionContext) -> str:
        await ctx.run(exits.maybe_later, timeout=60)
        return "ended"

    return exits_in_time


def in_an_undo(exits: Exits) -> Any:
    @workflow
    async def exits_in_its_undo(ctx: FunctionContext) -> str:
        await ctx.run(lambda: None, undo=exits.maybe_later)
        if not exits.left:
            return "ended"
        raise ValueError("to be undone")

    return exits_in_its_undo


DEFINITIONS: list[Callable[[Exits], Any]] = [
    *(
        (lambda exits, code=code: machines(exits, code))
        for code in (
            in_a_step,
            in_a_step_that_has_waited,
            in_a_task_of_a_step,
            in_a_gather_of_a_step,
            in_a_task_group_of_a_step,
            in_a_timeout_of_a_step,
            in_a_thread_of_a_step,
        )
    ),
    in_a_def_step,
    in_handle,
    in_an_async_handle,
    in_a_function,
    in_a_run,
    in_a_def_run,
    in_a_run_beside_others,
    in_a_run_with_a_timeout,
]


def _app(store: Store, *definitions: Any, **options: Any) -> Hark:
    app = Hark(store.url, **{"lease": 30.0, **store.options, **options})
    app.register(*definitions)
    return app


@pytest.mark.parametrize("error", EXITS)
async def test_m5_fault_76_an_exit_anywhere_is_a_crash_of_its_activation_and_its_neighbours_end_well(
    store: Store, error: type[BaseException]
) -> None:
    neighbours = Neighbours()
    all_exits = [Exits(error, 2) for _ in DEFINITIONS]
    definitions = [make(exits) for make, exits in zip(DEFINITIONS, all_exits, strict=True)]
    distinct = []
    for definition in definitions:
        if isinstance(definition, type):
            definition = type(f"{definition.__name__}{len(distinct)}", (definition,), {})
        distinct.append(definition)
    app = _app(store, *distinct, *neighbours.definitions(), max_crashes=3)
    neighbours.register(app)
    async with app, app.worker(grace=0.1) as worker:
        beside = await neighbours.begin(app)
        for definition, exits in zip(distinct, all_exits, strict=True):
            it = await app.start(definition)
            await app.result(it.id, timeout=20)
            assert exits.left == 0
            events = [event.type for event in await app.events(it)]
            assert events.count("reclaimed") >= 1, (definition, events)
            assert not {"stop", "failed", "error"} & set(events) or "Handle" in definition.__name__
        assert worker.open
        assert neighbours.seen == []
        neighbours.go.set()
        for id in beside:
            assert await app.result(id, timeout=20)
        assert neighbours.seen == []


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("error", EXITS)
async def test_m5_fault_76_an_exit_in_a_handler_or_a_gate_is_a_crash_of_its_task(
    store: Store, error: type[BaseException], is_async: bool
) -> None:
    in_handler, in_gate = Exits(error, 2), Exits(error, 2)
    dag = Dag("exits")
    dag.task("work", "work", gate="decide")
    neighbours = Neighbours()
    app = _app(store, dag, *neighbours.definitions(), max_crashes=3)
    neighbours.register(app)
    if is_async:

        @app.handler("work")
        async def work(task: Any) -> str:
            await in_handler.maybe_later()
            return "worked"

        @app.gate("decide")
        async def decide(output: Any, inputs: Any) -> bool:
            await in_gate.maybe_later()
            return True

    else:

        @app.handler("work")
        def work_in_a_thread(task: Any) -> str:
            in_handler.maybe()
            return "worked"

        @app.gate("decide")
        def decide_in_a_thread(output: Any, inputs: Any) -> bool:
            in_gate.maybe()
            return True

    async with app, app.worker(grace=0.1):
        beside = await neighbours.begin(app)
        job = await app.start(dag)
        assert await job.result(timeout=20) == {"work": "worked"}
        assert in_handler.left == in_gate.left == 0
        neighbours.go.set()
        for id in beside:
            assert await app.result(id, timeout=20)
        assert neighbours.seen == []


async def test_m5_fault_76_an_exit_in_an_undo_is_a_crash_and_the_undo_runs_again(store: Store) -> None:
    exits = Exits(SystemExit, 2)
    definition = in_an_undo(exits)
    async with harness(store, definition, max_crashes=3) as app:
        it = await drained(app, app.start(definition))
        assert exits.left == 0
        assert [event.type for event in await app.events(it)].count("reclaimed") == 2
        assert (await it.get()).status == "failed"
        assert "ValueError" in ((await it.get()).error or "")


async def test_m5_fault_76_a_step_that_always_exits_is_quarantined_with_a_reason_and_the_advice(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    definition = machines(Exits(SystemExit, 100), in_a_step)
    async with harness(store, definition, max_crashes=3) as app:
        it = await drained(app, app.start(definition))
        with pytest.raises(InstanceFailed, match="quarantined"):
            await it.result(timeout=0)
        error = (await it.get()).error or ""
        assert "3 times in a row" in error
        assert "SystemExit: 2" in error
        events = await app.events(it)
        assert [event.type for event in events] == ["started", "reclaimed", "reclaimed", "failed"]
        reclaimed = events[1].data
        assert reclaimed["error"].startswith("SystemExit: 2")
        assert "test_m5_exits.py" in reclaimed["traceback"]
        assert "argparse" in caplog.text
        assert "sys.exit(2)" in caplog.text, "the traceback is in the log"


async def test_m5_fault_76_any_committed_outcome_resets_the_count_of_exits(store: Store) -> None:
    exits = Exits(SystemExit, 2)

    class Twice(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            exits.maybe()
            return Next(self.again)

        @step
        async def again(self, ctx: Context) -> Retry | Done:
            if ctx.attempt == 0:
                exits.left = 2
                return Retry()
            exits.maybe()
            return Done("ended")

    async with harness(store, Twice, max_crashes=3) as app:
        it = await drained(app, app.start(Twice))
        assert await it.result(timeout=0) == "ended"


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit])
async def test_m5_a_cancellation_or_a_generator_exit_that_a_step_raises_fails_that_step_alone(
    store: Store, error: type[BaseException]
) -> None:
    neighbours = Neighbours()
    raising = [make(Exits(error, 1)) for make in (in_a_def_step, in_a_run_beside_others, in_a_run, in_a_function)]
    raising.append(machines(Exits(error, 1), in_a_gather_of_a_step))
    app = _app(store, *raising, *neighbours.definitions())
    neighbours.register(app)
    async with app, app.worker(grace=0.1):
        beside = await neighbours.begin(app)
        for definition in raising:
            it = await app.start(definition)
            with pytest.raises(InstanceFailed, match=error.__name__):
                await it.result(timeout=20)
        neighbours.go.set()
        for id in beside:
            assert await app.result(id, timeout=20)
        assert neighbours.seen == []


async def test_m5_fault_76_an_error_whose_text_exits_fails_its_instance_alone(store: Store) -> None:
    class Evil(Exception):
        def __str__(self) -> str:
            sys.exit(2)

    class Raises(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            raise Evil

    neighbours = Neighbours()
    app = _app(store, Raises, *neighbours.definitions())
    neighbours.register(app)
    async with app, app.worker(grace=0.1):
        beside = await neighbours.begin(app)
        it = await app.start(Raises)
        with pytest.raises(InstanceFailed, match="Evil"):
            await it.result(timeout=20)
        neighbours.go.set()
        for id in beside:
            assert await app.result(id, timeout=20)
        assert neighbours.seen == []


def test_m5_fault_76_a_step_that_stops_the_loop_of_a_worker_of_sync_code_leaves_it_running() -> None:
    class Stops(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            asyncio.get_running_loop().stop()
            await asyncio.sleep(0.01)
            return Done("ended")

    app = Hark("sqlite://")
    app.register(Stops)
    with app, app.worker():
        assert app.start(Stops).result().result(timeout=20).result() == "ended"


def test_m5_fault_76_an_exit_in_a_worker_of_sync_code_leaves_it_running() -> None:
    class Loud(Machine):
        """Its step leaves a callback on the loop that exits."""

        @step
        async def start(self, ctx: Context) -> Done:
            asyncio.get_running_loop().call_soon(sys.exit, 2)
            await asyncio.sleep(0.01)
            return Done("ended")

    exits = Exits(SystemExit, 2)
    definition = machines(exits, in_a_step)
    app = Hark("sqlite://")
    app.register(Loud, definition)
    with app, app.worker():
        assert app.start(Loud).result().result(timeout=20).result() == "ended"
        assert app.start(definition).result().result(timeout=20).result() == 2


async def test_m5_fault_76_the_end_of_the_loop_is_not_an_error_of_the_steps_on_it(store: Store) -> None:
    """A callback that exits ends the loop of `asyncio.run`, which cancels all tasks: those of the steps too."""
    seen: list[str] = []

    class Waits(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            seen.append("begun")
            await asyncio.sleep(60)
            return Done()

        def handle(self, error: BaseException, ctx: Context) -> Stop:
            seen.append(f"handle: {error!r}")
            return Stop(str(error))

    async def program() -> None:
        app = _app(store, Waits)
        async with app, app.worker(grace=0.1):
            await app.start(Waits, id="waits")
            while not seen:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_soon(sys.exit, 7)
            await asyncio.sleep(60)

    def run() -> Any:
        try:
            asyncio.run(program())
        except SystemExit as exit:
            return exit.code
        return None

    assert await asyncio.to_thread(run) == 7
    assert seen == ["begun"]
    async with Harness(url=store.url, **store.options) as app:
        waits = await app.get("waits")
        assert (waits.status, waits.attempt) == ("runnable", 0)
        assert [event.type for event in await app.events("waits")] == ["started", "handed_back"]
