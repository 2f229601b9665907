"""The testing kit: an engine in memory, with a clock that moves only when the test says so.

    async with Harness(Checkout) as app:
        order = await app.start(Checkout, {"order": 42})
        assert await app.drain() == {"steps": 1, "await": 1}
        await app.advance(3600)

    app.answer("Deploy?", {"approved": True})    # a scripted answer, given by `drain()` from then on

    print(await app.coverage("order"))           # which sequence flows of a BPMN process were taken, and which missed

A Harness is a Hark: the same engine, the same statements, the same worker. Only the clock is different. The pytest
fixture `hark_app` is in hark/pytest_plugin.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hark.app import Hark
from hark.app.arguments import target_of
from hark.app.handle import Handle
from hark.engine.turns.caller_errors import closed_early
from hark.engine.turns.reply import Reply, answer_all
from hark.model.errors import InstanceHeld
from hark.model.lanes import ENGINE_QUEUE
from hark.model.names import micros
from hark.model.outcomes import Duration
from hark.model.report import Report
from hark.model.values import Awakeable, Instance
from hark.programs.machines.machine import Machine
from hark.store import reads
from hark.views.bpmn_coverage import MovedFeed, PathCoverage

if TYPE_CHECKING:
    from hark.programs.functions.workflow import Workflow
    from hark.programs.jobs.file import Dag, Job


class HandClock:
    """A clock that starts at the real time and stands still until it is set.

    Attributes:
        now: The time in µs since 1970.
    """

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.now


class Harness(Hark):
    """A Hark for tests: in memory by default, with a clock that `advance` moves.

    Args:
        *definitions: The `Machine` classes, `@workflow` functions and jobs to register.
        url: The store; by default an empty one in memory.
        **options: The other options of `Hark`.

    Attributes:
        clock: Its clock; `clock.now` is the time in µs since 1970.

    Raises:
        InvalidInput: An option is malformed, or is not available in this version.

    Example:
        async def test_an_order_that_is_not_paid_fails():
            async with Harness(Checkout) as app:
                order = await app.start(Checkout, {"order": 42})
                await app.drain()
                await app.advance(3600)
                await app.drain()
                assert (await order.get()).status == "failed"
    """

    _on_close: ClassVar[Callable[[list[PathCoverage]], None] | None] = None  # set by `pytest --hark-coverage`

    def __init__(
        self, *definitions: Workflow[..., Any] | type[Machine] | Job | Dag, url: str = "sqlite://", **options: Any
    ) -> None:
        self.clock = HandClock()
        super().__init__(url, **{"linger": 0.0, **options}, clock=self.clock)
        self.register(*definitions)
        self._script: list[tuple[Callable[[Awakeable], bool], Any, str | None]] = []
        self._moved = MovedFeed()
        self._watching: set[asyncio.Task[None]] = set()  # for `result`

    def answer(
        self, question: str | Callable[[Awakeable], bool], payload: Any = None, *, reject: str | None = None
    ) -> None:
        """Script an answer: from now on `drain` answers every open awakeable that matches.

        Args:
            question: The title or id of the awakeable, or a function that says whether an `Awakeable` matches. The
                first answer that matches is given.
            payload: The answer.
            reject: The reason to reject it with, instead of an answer.

        Example:
            app.answer("Deploy v1?", {"approved": True})
            app.answer(lambda question: "ann" in question.assignees, reject="on holiday")
        """
        matches = question if callable(question) else lambda asked: question in (asked.title, asked.id)
        self._script.append((matches, payload, reject))

    async def drain(self) -> dict[str, int]:
        """Run everything that can run, in order, through the same worker as in production.

        Returns:
            The number of activations as `steps`, and how many had each outcome: next, retry, await, spawn, done,
            stop. Outcomes that did not occur are left out.

        Raises:
            InstanceHeld: The code of an instance does not fit what was committed. Raised when nothing else can run.

        Example:
            assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        """
        before = await self._held()
        tally = Counter(await self._drain())
        while await self._answer():
            tally.update(await self._drain())
        if tally.get("held"):
            held = {id: one for id, one in (await self._held()).items() if before.get(id) != one}
            if held:
                raise _instance_held(held)
        return {"steps": tally.pop("steps", 0), **dict(sorted(tally.items()))}

    async def _held(self) -> dict[str, tuple[int, str]]:
        """The held instances, each with its epoch and its error."""
        rows = await self._read(lambda store: store.read(reads.held_instances))
        return {id: (epoch, error) for id, epoch, error in rows}

    def result(self, target: str | Handle[Any] | Instance, timeout: Duration | None = None) -> Reply[Any]:
        """Wait until an instance has finished, and return its result, as `Hark.result` does.

        Args:
            target: The instance: its id, its correlation key or its handle.
            timeout: How long to wait, in seconds or as a `timedelta`; None waits forever.

        Returns:
            A reply with the result: a JSON value.

        Raises:
            InstanceHeld: It is held: its code does not fit what was committed. A Hark would wait on.
        """
        ended = super().result(target, timeout)
        held = self._wait_for_status(target_of(target), "held", timeout)
        reply: Reply[Any] = Reply()

        async def first() -> None:
            tasks = [asyncio.ensure_future(_settled(one)) for one in (ended, held)]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if not ended.done() and isinstance(found := await tasks[1], Instance):
                    answer_all([(reply, _instance_held({found.id: (0, found.error or "")}))])
                else:
                    answer_all([(reply, await tasks[0])])
            finally:
                for task in tasks:
                    task.cancel()
                answer_all([(reply, closed_early())])  # if it has no answer: the app closes

        async def begin() -> None:  # closing the app waits for what is spawned, and `first` may wait until then
            watching = asyncio.ensure_future(first())
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)

        self._clerk.spawn(begin)
        return reply

    async def _answer(self) -> int:
        """Give the scripted answers to the awakeables that match; how many were given."""
        given = 0
        for asked in await self.awakeables(status="PENDING", limit=10_000) if self._script else ():
            for matches, payload, reject in self._script:
                if matches(asked):
                    await (self.resolve(asked.id, payload) if reject is None else self.reject(asked.id, reject))
                    given += 1
                    break
        return given

    async def _drain(self) -> dict[str, int]:
        tally: Counter[str] = Counter()
        queues = {"default", *(row.queue for row in self._registry.rows())}
        while True:
            worker = self.worker(dict.fromkeys(sorted(queues), 1))
            async with worker:
                await worker.settle()
            tally.update(worker.tally)
            used = {queue for (queue,) in await self._read(lambda store: store.read(reads.queues))} - {ENGINE_QUEUE}
            if used <= queues:
                return tally
            queues |= used  # a start named a queue of its own

    async def advance(self, seconds: Duration) -> None:
        """Move the clock forward, and fire everything that is due by then, this very instant included.

        It makes instances runnable and runs none: `drain` does that.

        Args:
            seconds: How far, in seconds or as a `timedelta`; 0 fires what is due now.
        """
        self.clock.now += micros(seconds, "advance", zero=True)
        await self.sweep()

    def coverage(self, process: str, *, version: int | None = None) -> Reply[PathCoverage]:
        """Report the sequence flows of a BPMN process that its instances have taken so far, in this Harness.

        It is counted from the events of the instances, so what was removed with `forget` before is not in it.
        `pytest --hark-coverage` prints the sums over all tests.

        Args:
            process: The id of the process.
            version: Its version; by default the newest. Instances of other versions are not counted.

        Returns:
            A reply with a `PathCoverage`: `.taken` and `.missed` are lists of ids of flows, `.ratio` is a number
            from 0 to 1, and `str()` lists the missed ones with the names of their source and target.

        Raises:
            NotFound: There is no such process, or no such version of it.

        Example:
            assert (await app.coverage("order")).missed == []
        """
        return self._read(lambda store: self._moved.coverage(store, process, version))

    async def __aexit__(self, *exc: object) -> None:
        if Harness._on_close is not None:
            Harness._on_close(await self._read(self._moved.all))
        await super().__aexit__(*exc)

    def __exit__(self, *exc: object) -> None:
        if Harness._on_close is not None:
            Harness._on_close(self._read(self._moved.all).result())
        super().__exit__(*exc)


def assert_continues(export: str | Path, *definitions: Workflow[..., Any] | type[Machine]) -> Report:
    """Fail a test if an unfinished instance would not go on with this code.

    Args:
        export: A file that `hark export --live` wrote.
        *definitions: The `@workflow` functions and `Machine` classes to check; instances of others are left out.

    Returns:
        The `Report` of `Hark.check`.

    Raises:
        AssertionError: Some would not go on; the text says which, why, and what to do.
        InvalidInput: The file is not such an export, or was written by another version of Hark.

    Example:
        def test_the_new_code_continues_what_is_live():
            assert_continues("tests/live.ndjson", order, Checkout)
    """
    with ThreadPoolExecutor(1) as thread:  # the test may be `async def`, where nothing may block the event loop
        report = thread.submit(lambda: Hark("sqlite://").check(*definitions, export=export).result()).result()
    if report.problems:
        raise AssertionError(f"the code does not fit what is live:\n{report}")
    return report


async def _settled(reply: Reply[Any]) -> Any:
    """The value of a reply, or its error."""
    try:
        return await reply
    except Exception as error:
        return error


def _instance_held(held: dict[str, tuple[int, str]]) -> InstanceHeld:
    id, (_, error) = next(iter(held.items()))
    more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
    return InstanceHeld(f"Instance {id}{more} is held: {error}", id=id, error=error)
