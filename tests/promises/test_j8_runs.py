"""J8: `task.run`: a function runs once until the next checkpoint or outcome, whatever parks or crashes meanwhile."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from hark import BpmnError, Dag, Hark, InvalidInput, PayloadTooLarge, RunFailed, StoreUnavailable, TaskContext
from hark.model.notes import AnyNote, NoteRun
from tests.promises.support_jobs import one_task, ran, started
from tests.promises.support_machines import LEASE, harness, neighbour
from tests.support.harness import drained, held
from tests.support.inspect import query, until
from tests.support.stores import Store


class Model:
    """A model that is paid per call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def call(self, history: list[Any]) -> dict[str, Any]:
        self.calls.append(list(history))
        return {"answer": f"answer {len(self.calls)}", "needs_feedback": len(history) < 4}

    def call_in_thread(self, history: list[Any]) -> dict[str, Any]:
        assert threading.current_thread() is not threading.main_thread()
        self.calls.append(list(history))
        return {"answer": f"answer {len(self.calls)}", "needs_feedback": len(history) < 4}


def agent_loop() -> Dag:
    dag = Dag("agent")
    dag.loop("work", "work", max_iterations=9)
    return dag


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
async def test_j8_a_model_call_before_a_wait_is_not_paid_twice_when_the_task_parks(store: Store, sync: bool) -> None:
    model = Model()

    async def loop(task: TaskContext) -> Any:
        history = await task.load_checkpoint() or []
        result = await task.run(model.call, history)
        if not result["needs_feedback"]:
            return task.complete([*history, result["answer"]])
        await task.put_stream("Waiting for user feedback...")
        feedback = await task.wait_for_signal("user-feedback", 1800)
        await task.checkpoint([*history, result["answer"], feedback])
        return task.continue_(feedback)

    def loop_in_thread(task: TaskContext) -> Any:
        history = task.load_checkpoint().result() or []
        result = task.run(model.call_in_thread, history).result()
        if not result["needs_feedback"]:
            return task.complete([*history, result["answer"]])
        feedback = task.wait_for_signal("user-feedback", 1800).result()
        task.checkpoint([*history, result["answer"], feedback]).result()
        return task.continue_(feedback)

    async with harness(store, agent_loop()) as app:  # linger 0: every wait parks
        app.handler("work")(loop_in_thread if sync else loop)
        job = await drained(app, app.start("agent"))
        for feedback in ("more", "better"):
            assert (await app.get(f"{job.id}.0")).status == "awaiting_signal"
            await drained(app, job.signal("user-feedback", feedback))
        assert await job.result(timeout=10) == {
            "work": ["answer 1", "more", "answer 2", "better", "answer 3"],
        }
    assert [len(history) for history in model.calls] == [0, 2, 4]


async def test_j8_the_runs_between_two_checkpoints_are_kept_each_by_itself(store: Store) -> None:
    calls: list[str] = []

    def note(name: str) -> str:
        calls.append(name)
        return name

    async def work(task: TaskContext) -> Any:
        before = await asyncio.gather(task.run(note, "a"), task.run(note, "b"))
        first = await task.wait_for_signal("s", 600)
        after = [await task.run(note, kwargs={"name": "c"}), await task.wait_for_signal("s", 600)]
        await task.checkpoint(None)
        return [*before, first, *after, await task.run(note, "d"), await task.wait_for_signal("s", 600)]

    async with ran(store, one_task(), work=work) as (app, job):
        assert sorted(calls) == ["a", "b"]
        for n in range(2):
            await drained(app, job.signal("s", n))
        assert sorted(calls) == ["a", "b", "c", "d"]
        task = await app.get(f"{job.id}.0")
        assert task.status == "awaiting_signal"
        # What came before the checkpoint is dealt with: a handler that runs again asks for it anew.
        assert await query(store, "SELECT name, value FROM journal") == [("note", '"d"')]
        [entry] = await app.journal(task.id)
        assert (entry.kind, entry.name, entry.value) == ("run", "note", "d")


@pytest.mark.parametrize("ends", ["checkpoint", "continue", "pause", "fail"])
async def test_j8_a_checkpoint_and_every_outcome_end_what_was_run(store: Store, ends: str) -> None:
    calls: list[int] = []

    async def call() -> int:
        calls.append(len(calls))
        return calls[-1]

    async def work(task: TaskContext) -> Any:
        value = await task.run(call)
        if value == 0 and ends == "checkpoint":
            await task.checkpoint("dealt with")
            value = await task.run(call)
        elif value == 0 and ends == "continue":
            return task.continue_()
        elif value == 0 and ends == "pause":
            return task.pause("a while", 5)
        elif value == 0:
            raise ValueError("boom")
        return [value, await task.wait_for_signal("s", 600)]

    dag = agent_loop() if ends == "continue" else one_task("agent", retry={"limit": 2, "delay": 5})
    async with ran(store, dag, work=work) as (app, job):
        await drained(app, app.advance(5))
        await drained(app, job.signal("s", "end"))
        assert await job.result(timeout=10) == {"work": [1, "end"]}
        assert calls == [0, 1]


async def test_j8_a_run_that_failed_fails_again_when_the_handler_runs_again(store: Store) -> None:
    """Otherwise the handler could go another way than the one on which it asked for what came after."""
    failures: list[Any] = []
    calls = 0

    def call() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("overloaded")
        return "answer"

    async def work(task: TaskContext) -> Any:
        try:
            return await task.run(call)
        except RunFailed as error:
            failures.append((error.type, error.message))
        await task.wait_for_signal("again", 600)
        return await task.run(call, name="second")

    async with ran(store, one_task(), work=work) as (app, job):
        assert calls == 1
        await drained(app, job.signal("again"))
        assert await job.result(timeout=10) == {"work": "answer"}
        assert (calls, failures) == (2, [("ValueError", "overloaded")] * 2)


async def test_j8_a_run_that_fails_fails_the_attempt_and_the_next_attempt_runs_it_again(store: Store) -> None:
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("overloaded")
        return "answer"

    async def work(task: TaskContext) -> Any:
        return await task.run(call)

    async with ran(store, one_task(retry={"limit": 2, "delay": 0}), work=work) as (app, job):
        assert await job.result(timeout=10) == {"work": "answer"}
        [retry] = [event for event in await app.events(f"{job.id}.0") if event.type == "retry"]
        assert "call raised ValueError: overloaded" in retry.data["message"]


async def test_j8_what_a_run_cannot_record_is_said(store: Store) -> None:
    said: list[str] = []

    async def work(task: TaskContext) -> Any:
        with pytest.raises(RunFailed) as raised:
            await task.run(object)
        said.append(str(raised.value))
        with pytest.raises(RunFailed) as raised:
            await task.run(str, "x" * 2000)
        assert raised.value.type == PayloadTooLarge.__name__
        with pytest.raises(InvalidInput, match="Leave out the"):
            task.run("not a function")  # type: ignore[call-overload]
        with pytest.raises(InvalidInput, match="kwargs"):
            task.run(str, kwargs={1: 2})  # type: ignore[dict-item]
        with pytest.raises(BpmnError):
            await task.run(_thrown)
        return "ok"

    async with harness(store, max_payload=1000) as app:
        app.handler("work")(work)
        job = await drained(app, app.start(one_task()))
        assert await job.result(timeout=10) == {"work": "ok"}
    assert "result of object" in said[0]


def _thrown() -> None:
    raise BpmnError("code")


@dataclass
class Answer:
    text: str
    tokens: int


async def test_j8_a_result_has_the_type_that_the_function_is_annotated_to_return(store: Store) -> None:
    def call() -> Answer:
        return Answer("hello", 3)

    async def work(task: TaskContext) -> Any:
        answer = await task.run(call)
        await task.wait_for_signal("s", 600)
        assert isinstance(answer, Answer)
        return answer.tokens

    async with ran(store, one_task(), work=work) as (app, job):
        await drained(app, job.signal("s"))
        assert await job.result(timeout=10) == {"work": 3}


# -- changed code ------------------------------------------------------------------------------------


def _handler(*names: str) -> Any:
    async def work(task: TaskContext) -> Any:
        ran = [await task.run(str, name, name=name) for name in names]
        return [*ran, await task.wait_for_signal("s", 600)]

    return work


async def test_j8_changed_runs_hold_the_task_and_name_what_was_recorded(store: Store) -> None:
    async with harness(store, one_task()) as app:
        app.handler("work")(_handler("plan", "act"))
        job = await drained(app, app.start("job"))
    async with harness(store, one_task()) as app:
        app.handler("work")(_swapped())
        await app.signal(job.id, "s", 1)
        found = await held(app, f"{job.id}.0")
        assert found.error.startswith("NonDeterministic: The handler of task 'work' asks for its runs in another order")
        assert "run 0 since its last checkpoint was run 'plan', and is now run 'act'" in found.error
        state = (await app.get(job.id)).state["tasks"]["work"]
        assert state["status"] == "suspended"
        why = await app.why(job.id)
        assert "run 'plan'" in why.text
        assert why.blockers[-1].reason == "held"
        assert "hark instance retry" in why.blockers[-1].text
        [event] = [event for event in await app.events(f"{job.id}.0") if event.type == "held"]
        assert (event.data["entry"], event.data["expected"]) == (0, "run 'plan'")
    async with harness(store, one_task()) as app:
        app.handler("work")(_handler("plan", "act"))
        await app.drain()
        assert await job_result(app, job.id) == {"work": ["plan", "act", 1]}


async def job_result(app: Hark, id: str) -> Any:
    return (await app.get(id)).result


def _swapped() -> Any:
    async def work(task: TaskContext) -> Any:
        second = await task.run(str, "act", name="act")
        try:
            first = await task.run(str, "plan", name="plan")
        except Exception:
            first = "swallowed"
        return [first, second, await task.wait_for_signal("s", 600)]

    return work


# -- crashes, lost leases, stops ---------------------------------------------------------------------


async def test_j8_a_worker_that_dies_after_a_run_has_committed_it(store: Store) -> None:
    calls: list[str] = []
    stuck = asyncio.Event()

    def handler(name: str) -> Any:
        async def call() -> str:
            calls.append(name)
            return name

        async def work(task: TaskContext) -> Any:
            first = await task.run(call)
            if name == "dies":
                stuck.set()
                await asyncio.Event().wait()
            return [first, await task.run(call)]

        return work

    async with harness(store) as app:
        app.handler("work")(handler("lives"))
        other = neighbour(app, store)
        other.handler("work")(handler("dies"))
        job = await app.start(one_task())
        worker = other.worker(grace=0)
        async with other:
            await worker.start()
            await stuck.wait()
            worker._activations.open = False  # it is dead, as others see it
            await drained(app, app.advance(LEASE + 1))
            assert await job.result(timeout=10) == {"work": ["dies", "lives"]}
            await worker.stop()
    assert calls == ["dies", "lives"]


async def test_j8_a_run_that_ends_under_a_lost_lease_is_not_recorded(store: Store) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()
    refused: list[str] = []

    async def slow() -> str:
        reached.set()
        await go_on.wait()
        return "zombie"

    async def zombie(task: TaskContext) -> Any:
        try:
            return await task.run(slow, name="call")
        except BaseException as error:
            refused.append(type(error).__name__)
            raise

    async def work(task: TaskContext) -> Any:
        mine = await task.run(str, "mine", name="call")
        return [mine, await task.wait_for_signal("s", 600)]

    async with harness(store) as app:
        app.handler("work")(work)
        other = neighbour(app, store)
        other.handler("work")(zombie)
        job = await app.start(one_task())
        worker = other.worker(grace=0)
        async with other:
            await worker.start()
            await reached.wait()
            assert other._clerk.worker is not None
            other._clerk.worker.abandon = lambda ids: None  # type: ignore[method-assign]  # it does not notice
            worker._activations.open = False  # and claims nothing more
            await drained(app, app.advance(LEASE + 1))
            go_on.set()
            await until(lambda: bool(refused), "the zombie to be refused")
            await worker.stop()
        assert refused == ["TaskLost"]
        await drained(app, job.signal("s", 1))
        assert await job.result(timeout=10) == {"work": ["mine", 1]}


async def test_j8_a_task_is_not_parked_while_a_function_runs_beside_its_wait(store: Store) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    async def slow() -> str:
        calls.append(1)
        running.set()
        await go_on.wait()
        return "paid"

    async def work(task: TaskContext) -> Any:
        return await asyncio.gather(task.run(slow), task.wait_for_signal("s", 600))

    async with started(store, one_task(), work=work) as (app, job):
        draining = asyncio.create_task(app.drain())
        await running.wait()
        await asyncio.sleep(0.2)  # several times the linger
        assert (await app.get(f"{job.id}.0")).status == "executing"
        go_on.set()
        await draining
        assert (await app.get(f"{job.id}.0")).status == "awaiting_signal"
        await drained(app, job.signal("s", 1))
        assert await job.result(timeout=10) == {"work": ["paid", 1]}
    assert calls == [1]


async def test_j8_a_worker_that_stops_records_the_function_that_runs_beside_a_wait(store: Store) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    async def slow() -> str:
        calls.append(1)
        running.set()
        await go_on.wait()
        return "paid"

    async def work(task: TaskContext) -> Any:
        return await asyncio.gather(task.run(slow), task.wait_for_signal("s", 600))

    async with Hark(store.url, **store.options) as app:
        app.handler("work")(work)
        worker = app.worker(grace=30)
        await worker.start()
        job = await app.start(one_task())
        await running.wait()
        await until(lambda: query(store, "SELECT 1 FROM waits WHERE name = 's'"), "the wait to be armed")
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        go_on.set()
        await stopping
        assert (await app.get(f"{job.id}.0")).status == "awaiting_signal"
        await job.signal("s", 1)
        async with app.worker():
            assert await job.result(timeout=30) == {"work": ["paid", 1]}
    assert calls == [1]


async def test_j8_a_run_ends_with_the_time_of_its_attempt(store: Store) -> None:
    cancelled = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def work(task: TaskContext) -> Any:
        return await task.run(slow)

    async with Hark(store.url, **store.options) as app, app.worker():
        app.handler("work")(work)
        job = await app.start(one_task(timeout_sec=0.05))
        await job.wait_for("failed", timeout=30)
        assert "timeout_sec" in ((await job.get()).error or "")
    assert cancelled.is_set()


async def test_j8_an_undo_that_a_cancel_of_its_job_repeats_gets_what_it_has_run(store: Store) -> None:
    """The first activation of the undo ends without an outcome, but has recorded a run."""
    calls: list[int] = []
    began = asyncio.Event()

    async def refund() -> str:
        calls.append(1)
        return "refunded"

    async def undo(task: TaskContext) -> Any:
        refunded = await task.run(refund)
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return refunded

    dag = one_task(undo="undo")
    dag.task("fails", "fails", needs=["work"])
    async with started(store, dag, work=lambda task: 1, undo=undo, fails=lambda task: task.fail("no")) as (app, job):
        drain = asyncio.create_task(app.drain())
        await began.wait()
        await job.cancel()
        await drain
        undone = await app.get(f"{job.id}.0.undo")
        assert (undone.status, undone.result, calls) == ("done", "refunded", [1])
        assert (await job.get()).status == "cancelled"


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed, and the answer was lost"])
async def test_j8_an_outage_after_a_function_has_ended_does_not_run_it_again(store: Store, committed: bool) -> None:
    calls: list[int] = []

    async def call() -> str:
        calls.append(1)
        return "paid"

    async def work(task: TaskContext) -> Any:
        return [await task.run(call), await task.wait_for_signal("s", 600)]

    async with harness(store) as app:
        app.handler("work")(work)
        note, failed = app._services.note, []

        def failing_once(one: AnyNote) -> Any:
            if not isinstance(one, NoteRun) or failed:
                return note(one)
            failed.append(one)
            return _after(note(one) if committed else None)

        app._services.note = failing_once  # type: ignore[method-assign]
        job = await drained(app, app.start(one_task()))
        await drained(app, job.signal("s", 1))
        assert await job.result(timeout=10) == {"work": ["paid", 1]}
    assert (calls, len(failed)) == ([1], 1)


def _after(committing: Any) -> Any:
    async def unavailable() -> None:
        if committing is not None:
            await committing
        raise StoreUnavailable("The database does not answer.")

    return asyncio.ensure_future(unavailable())
