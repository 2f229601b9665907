"""The consequences of a handler's outcome: attempts, loops, pauses and gates. Without a store."""

import json
from typing import Any, cast

import pytest

from hark.model.activation import InboxRow, WaitRow
from hark.model.answers import load_answer
from hark.model.decisions import Decision, Finish, Park, Redo
from hark.model.failures import Failure
from hark.programs.jobs.job_spec import JobSpec, RetrySpec, TaskSpec
from hark.programs.jobs.tasks import gates
from hark.programs.jobs.tasks.task_outcomes import (
    Complete,
    Continue,
    Fail,
    Pause,
    TaskActivation,
    as_outcome,
    retry_delay,
)
from hark.programs.jobs.tasks.task_state import TaskState, dump_task_state, load_task_state
from tests.support.claims import a_claim

SECOND = 1_000_000


def activation_of(state: TaskState | None = None, **task: Any) -> TaskActivation:
    state = state or TaskState(task=0, run="job")
    claim = a_claim(id="job.0", step="work", state=dump_task_state(state), epoch=3)
    return TaskActivation(claim, state, JobSpec("job", (TaskSpec("work", handler="h", **task),), queue="ops"))


def after(decision: Decision) -> TaskState:
    return load_task_state(decision.state)


def boom() -> Failure:
    return Failure("ValueError", "boom", "traceback")


def test_a_plain_value_completes_the_task() -> None:
    decision = activation_of().outcome(as_outcome({"n": 1}), '{"n":1}', 0)
    assert decision.label == "done"
    assert decision.move == Finish("done", result='{"n":1}')
    assert as_outcome(Complete(3)) == Complete(3)


def test_a_failed_attempt_is_repeated_until_the_limit() -> None:
    retry = RetrySpec(limit=3, delay=2, scaling=3)
    state = TaskState(task=0, run="job", worked=5)
    delays = []
    for attempt in (1, 2):
        decision = activation_of(state, retry=retry).failed(boom())
        assert decision.label == "retry"
        assert isinstance(decision.move, Redo)
        assert decision.move.drop_waits
        assert decision.lane is None
        delays.append(decision.move.delay // SECOND)
        state = after(decision)
        assert (state.attempt, state.worked, state.ended, state.period) == (attempt + 1, 0, False, attempt)
    assert delays == [2, 6]
    decision = activation_of(state, retry=retry).failed(boom())
    assert decision.move == Finish("failed", error="ValueError: boom", traceback="traceback")
    assert (after(decision).ended, after(decision).attempt) == (True, 3)


def test_a_task_without_a_policy_has_one_attempt() -> None:
    decision = activation_of().outcome(Fail("no"), "null", 0)
    assert decision.move == Finish("failed", error="no")


def test_a_failure_that_forbids_another_attempt_ends_the_task() -> None:
    decision = activation_of(retry=RetrySpec(limit=9)).outcome(Fail("no", retry=False), "null", 0)
    assert isinstance(decision.move, Finish)


def test_a_retried_task_begins_with_its_first_attempt_and_its_checkpoint() -> None:
    state = TaskState(task=0, run="job", attempt=3, ended=True, period=4, checkpoint=gates.Raw(b'"kept"'))
    activation = activation_of(state)
    activation.begin(now=7)
    assert (state.attempt, state.ended, state.period, state.since) == (1, False, 5, 7)
    assert bytes(cast("gates.Raw", state.checkpoint)) == b'"kept"'


@pytest.mark.parametrize(
    ("retry", "attempt", "seconds"),
    [
        (RetrySpec(), 1, 1), (RetrySpec(), 4, 8), (RetrySpec(delay=0), 2, 0), (RetrySpec(delay=0.5, scaling=1), 9, 0.5),
        (RetrySpec(delay=10, scaling=10), 5000, 36_525 * 86_400),
    ],
)  # fmt: skip
def test_the_delay_between_attempts(retry: RetrySpec, attempt: int, seconds: float) -> None:
    assert retry_delay(retry, attempt) == seconds * SECOND


# -- loops -------------------------------------------------------------------------------------------


def test_a_loop_continues_until_max_iterations() -> None:
    state, outputs = TaskState(task=0, run="job", attempt=2, since=1), []
    for n in range(3):
        activation = activation_of(state, type="loop", max_iterations=3, loop_delay=1.5)
        assert activation.bound_reached(5) is None
        decision = activation.outcome(Continue(n), str(n), 5)
        state = after(decision)
        outputs.append(bytes(cast("gates.Raw", state.previous)))
    assert isinstance(decision.move, Finish)
    assert decision.move.error == "the loop 'work' reached max_iterations (3)"
    assert (state.iteration, outputs) == (2, [b"0", b"1", b"1"])


def test_an_iteration_begins_with_the_first_attempt() -> None:
    state = TaskState(task=0, run="job", attempt=2, worked=9)
    decision = activation_of(state, type="loop", loop_delay=1.5).continued("1", 5)
    assert (decision.label, decision.move) == ("next", Redo(1_500_000, drop_waits=True, asked="awakeable#0."))
    assert [event.type for event in decision.events] == ["iteration"]
    assert (after(decision).attempt, after(decision).iteration, after(decision).worked) == (1, 1, 0)


def test_a_loop_ends_at_max_duration() -> None:
    state = TaskState(task=0, run="job", since=10 * SECOND)
    activation = activation_of(state, type="loop", max_duration=60, retry=RetrySpec(limit=5))
    assert activation.bound_reached(69 * SECOND) is None
    decision = activation.continued("1", 70 * SECOND)
    assert isinstance(decision.move, Finish)  # not retried: another attempt would reach the bound too
    assert decision.move.error == "the loop 'work' reached max_duration (1 min)"


def test_continue_outside_a_loop_is_a_failed_attempt() -> None:
    decision = activation_of().continued("1", 0)
    assert isinstance(decision.move, Finish)
    assert "is not a loop" in (decision.move.error or "")


def test_a_pause_keeps_the_attempt_and_the_time_worked() -> None:
    state = TaskState(task=0, run="job", attempt=2, iteration=4, worked=9)
    decision = activation_of(state).outcome(Pause("quota", 5 * SECOND), "null", 0)
    assert (decision.label, decision.move) == ("next", Redo(5 * SECOND, drop_waits=True, asked="awakeable#0."))
    kept = after(decision)
    assert (kept.paused, kept.attempt, kept.iteration, kept.worked) == ("quota", 2, 4, 9)


def test_a_suspended_task_consumes_nothing() -> None:
    activation = activation_of()
    activation.consume, activation.handed = (1, 2), (1,)
    decision = activation.suspended()
    assert (decision.move, decision.consume, decision.handed) == (Park(disarm=()), (), (1,))


# -- gates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gate", "lane", "queue"),
    [("user_approval", "job", "hark.graphs"), ("{{ output > 3 }}", "job", "hark.graphs"), ("lint", "gate:lint", "ops")],
)
def test_an_output_waits_in_the_lane_of_its_gate(gate: str, lane: str, queue: str) -> None:
    decision = activation_of(gate=gate).completed("[1]")
    assert (decision.label, decision.lane, decision.queue) == ("next", lane, queue)
    assert (after(decision).phase, bytes(cast("gates.Raw", after(decision).output))) == ("gate", b"[1]")


def at_gate(*rows: dict[str, Any], **task: Any) -> TaskActivation:
    state = TaskState(task=0, run="job", phase="gate", output=gates.Raw(b'{"n":1}'))
    activation = activation_of(state, gate="user_approval", **task)
    activation.claim.waits = [WaitRow("w", "gate", "awakeable", "prom_1", None, None, None, None)]
    activation.claim.inbox = [InboxRow(9, "awakeable", "prom_1", None, json.dumps(row), 0) for row in rows]
    return activation


def answered(activation: TaskActivation) -> Decision:
    return gates._decide_by_answer(activation, load_answer(activation.claim.inbox[0].payload))


def test_an_approval_completes_the_task_and_records_who_gave_it() -> None:
    answer = {"status": "RESOLVED", "payload": {"action": "approve", "comment": "fine"}, "by": "ann"}
    decision = answered(at_gate(answer))
    assert decision.move == Finish("done", result='{"n":1}')
    said = {"gate": "user_approval", "action": "approve", "by": "ann", "comment": "fine"}
    assert after(decision).decided == said
    [event] = decision.events
    assert (event.type, json.loads(event.data or "")) == ("gate", said)


def test_an_approval_may_replace_the_output() -> None:
    answer = {"status": "RESOLVED", "payload": {"action": "approve", "output": None}}
    decision = answered(at_gate(answer))
    assert decision.move == Finish("done", result="null")
    assert (after(decision).decided or {})["edited"] is True


def test_a_rejection_fails_the_attempt_and_the_handler_runs_again_in_its_own_lane() -> None:
    answer = {"status": "RESOLVED", "payload": {"action": "reject", "reason": "typos"}, "by": "ann"}
    decision = answered(at_gate(answer, retry=RetrySpec(limit=2)))
    assert (decision.label, decision.lane, decision.queue) == ("retry", "task:h", "ops")
    assert after(decision).phase == "run"
    assert decision.failure is not None
    assert decision.failure.message == "rejected by ann (gate user_approval): typos"


def test_a_rejected_awakeable_is_a_rejection() -> None:
    decision = answered(at_gate({"status": "REJECTED", "error": "not now"}))
    assert isinstance(decision.move, Finish)
    assert decision.move.error == "rejected (gate user_approval): not now"


def test_items_of_a_map_and_undos_have_no_gate() -> None:
    item = TaskState(task=0, run="job", number=3, item=gates.Raw(b"1"))
    undo = TaskState(task=0, run="job", undo=True)
    assert [activation_of(state, gate="user_approval").gate for state in (item, undo)] == [None, None]
