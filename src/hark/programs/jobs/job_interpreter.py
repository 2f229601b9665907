"""The interpreter of jobs: one activation handles the tasks that have ended and starts what they make ready.

A job is woken by the ends of its tasks, which all answer one wait, and by the end of its time if it has `timeout_sec`.
Both waits are armed by the first activation, and stay. What a job has to know is in its state; outputs are read from
the rows of the tasks, and only if a condition or the result of the job needs them.

When no task is left, the undos run if the job has failed or is being cancelled, one after the other. Then it ends.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import (
    Arm,
    CancelChild,
    Decision,
    DecisionEvent,
    Effect,
    Finish,
    NewTask,
    Park,
    RetryChild,
    stop,
)
from hark.model.errors import InvalidDefinition, InvalidInput, NotFound
from hark.model.events import EventType, OutcomeType
from hark.model.failures import Failure, storable
from hark.model.names import micros, new_id
from hark.programs.expressions import ExpressionError
from hark.programs.interpreted import NAMED_FAILURES, named
from hark.programs.jobs import states
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_inputs import checked_inputs
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.job_state import DEADLINE, RUN, START, JobState, dump_job_state, load_job_state
from hark.programs.jobs.job_variables import Compiled, Scope, condition_of, tasks_read_by
from hark.programs.jobs.new_tasks import embedded, is_interpreted, lane_of_undo, limit_templates, limits_of, new_task
from hark.programs.jobs.progress import JobProgress
from hark.programs.jobs.task_ids import parse_task_id, undo_id
from hark.programs.jobs.tasks.task_state import TaskState, load_task_state, restarted

_SKIPPED_BECAUSE = {
    states.SKIPPED: "its condition does not hold",
    states.UNREACHED: "a task that it needs has not completed",
    states.NOT_STARTED: "another task has failed, and the job fails fast",
}


async def run_job(claim: Claim, services: JobServices) -> Decision:
    graph = await services.job_graph(claim.definition, claim.version)
    return await _Activation(claim, services, graph).run()


class _Activation:
    def __init__(self, claim: Claim, services: JobServices, graph: JobGraph) -> None:
        self._claim = claim
        self._services = services
        self._graph = graph
        self._effects: list[Effect] = []
        self._events: list[DecisionEvent] = []
        self._arm: tuple[Arm, ...] = ()
        self._has_undo: bool | None = None
        self._limits: dict[int, dict[str, Any]] = {}
        self._disarm: tuple[str, ...] = ()
        wait = next((wait.id for wait in claim.waits if wait.kind == "children"), None)
        if wait is None:
            wait = new_id()
            self._arm = (Arm("children", wait, answers_each=True),)
        self._wait = wait
        self._timer = next((wait.id for wait in claim.waits if wait.place == DEADLINE), None)

    async def run(self) -> Decision:
        claim, graph = self._claim, self._graph
        if claim.step == START:
            self._state = await self._first_state()
            progress = JobProgress(graph, self._state)
            progress.begin()
            self._begin_period()
            self._has_undo = True if self._leaves_work() else None
        else:
            self._state = load_job_state(claim.state)
            progress = JobProgress(graph, self._state)
            if self._state.migrated:
                self._begin_with_version(progress)
            if claim.cancel_reason is not None and not self._state.cancelling:
                await self._take_ends_before_cancel(progress)
                progress.cancel()
                await self._repeat_undo()
            elif self._state.failed:
                progress.retry()
                self._begin_period()
            self._take_ends(progress)
            if self._is_time_over() and not self._state.cancelling:
                progress.time_out()
        scope = Scope(
            graph, claim.id, None, self._state.generations, row_numbers=self._state.row_numbers, absent=progress.absent
        )
        while ready := progress.ready():
            await self._start(progress, ready, scope)
        await self._collect(progress)
        progress.save()
        if not progress.finished or self._state.undoing is not None:
            return self._park()
        if (progress.failed or self._state.cancelling) and self._state.undo:
            await self._start_undo(progress)
            return self._park()
        return await self._finish(progress)

    def _is_time_over(self) -> bool:
        """Return True if the deadline of the job has fired. Its wait is over then."""
        if self._timer is None or not any(row.wait_id == self._timer for row in self._claim.inbox):
            return False
        self._disarm = (self._timer,)
        return True

    def _begin_period(self) -> None:
        """Arm the deadline of the job, which begins or was retried; an earlier deadline does not count any more."""
        if self._timer is not None:
            self._disarm, self._timer = (self._timer,), None
        if self._graph.spec.timeout_sec is not None:
            timeout = micros(self._graph.spec.timeout_sec, "timeout_sec", zero=False)
            self._arm += (Arm("timer", new_id(), DEADLINE, timeout=timeout),)

    def _leaves_work(self) -> bool:
        """Return True if a cancel of the job has to run something: a finally task or an undo."""
        return bool(self._graph.finals) or any(task.undo is not None for task in self._graph.tasks)

    def _begin_with_version(self, progress: JobProgress) -> None:
        """Begin what this version of the job has in addition to that before the migration."""
        state = self._state
        state.migrated = False
        progress.look_again()
        if self._claim.cancel_reason is not None:
            return
        self._has_undo = self._leaves_work()
        if self._timer is None and not state.failed and not state.timed_out and not progress.tasks_have_ended:
            self._begin_period()

    async def _first_state(self) -> JobState:
        spec = self._graph.spec
        if self._graph.gates:
            unknown = await self._services.unknown_gates(self._graph.gates)
            if unknown:
                raise InvalidDefinition(unknown_gates_text(spec.name, unknown), problems=[])
        inputs = checked_inputs(spec, json.load(self._claim.state))
        return JobState(Raw(json.dump(inputs).encode()), states.PENDING * len(spec.tasks))

    # -- what has ended ------------------------------------------------------------------------------

    def _take_ends(self, progress: JobProgress) -> None:
        job = self._claim.id
        numbers = self._state.numbers() if self._state.row_numbers or self._state.next_row else None
        for row in self._claim.inbox:
            if row.kind != "children" or row.wait_id != self._wait:
                continue
            ended = json.load(row.payload)
            if (address := parse_task_id(job, row.name)) is not None:
                row_number, generation = address
                number = row_number if numbers is None else numbers.get(row_number)
                if number is not None:  # else it is a task that the job does not have any more
                    progress.ended(number, generation, ended["status"], ended.get("error") or "")
            elif self._state.undoing is not None and row.name == undo_id(self._state.row_id(job, *self._state.undoing)):
                self._undo_ended(ended)

    async def _take_ends_before_cancel(self, progress: JobProgress) -> None:
        """Take the ends of tasks that came before a cancel of the job: the cancel has removed its wait and these ends,
        so they are read from the rows of the tasks."""
        self._state.cancelling = True  # so that no failure regresses the job
        started = progress.numbers_of(states.STARTED)
        ids = {self._state.row_id(self._claim.id, number): number for number in started}
        rows = await self._services.outputs(ids) if ids else {}
        for id, number in ids.items():
            row = rows.get(id)
            if row is not None and row.status in ("done", "failed"):
                progress.ended(number, progress.generation(number), row.status, row.error or "")
        await self._find_completed_before(progress)

    async def _find_completed_before(self, progress: JobProgress) -> None:
        """Find the tasks of older generations that completed when a regression was about to cancel them, and whose ends
        were not taken: they are to be undone too."""
        state, job = self._state, self._claim.id
        known = {*state.undo, *state.undone, state.undoing}
        older = {
            state.row_id(job, number, generation): (number, generation)
            for number, last in state.generations.items()
            for generation in range(last if self._graph.tasks[number].undo is not None else 0)
            if (number, generation) not in known
        }
        rows = await self._services.outputs([*older, *map(undo_id, older)]) if older else {}
        for id, address in older.items():
            if id in rows and rows[id].status == "done" and undo_id(id) not in rows:
                state.undo.append(address)

    def _undo_ended(self, ended: dict[str, Any]) -> None:
        assert self._state.undoing is not None
        number, _ = self._state.undoing
        if ended["status"] != "done":
            text = ended.get("error") or ended["status"]
            data = {"type": None, "message": text, "traceback": None, "attempt": 0, "error": text}
            self._record("undo_failed", self._graph.tasks[number].name, data)
        self._state.undone.append(self._state.undoing)
        self._state.undoing = None

    async def _repeat_undo(self) -> None:
        """Repeat the undo that a cancel of the job has cancelled, unless it had ended."""
        if self._state.undoing is None:
            return
        id = undo_id(self._state.row_id(self._claim.id, *self._state.undoing))
        row = (await self._services.outputs([id])).get(id)
        if row is not None and row.status in ("done", "failed"):
            self._undo_ended({"status": row.status, "error": row.error})
        else:
            self._effects.append(RetryChild(id, parent_wait=self._wait))

    # -- what starts ---------------------------------------------------------------------------------

    async def _start(self, progress: JobProgress, ready: list[int], scope: Scope) -> None:
        """Start those whose condition holds. What a condition or a limit refers to is read for all of them at once."""
        tasks = self._graph.tasks
        wrong: dict[int, str] = {}
        expressions: dict[int, list[Compiled]] = {}
        for number in ready:
            task = tasks[number]
            if task.condition is None and task.concurrency_key is None and task.rate_limit is None:
                continue
            try:
                compiled: list[Compiled] = [] if task.condition is None else [condition_of(task.condition)]
                expressions[number] = compiled + limit_templates(task)
            except ExpressionError as error:
                wrong[number] = str(error)
        if expressions:
            scope.inputs = json.load(bytes(self._state.inputs).decode())
            await scope.read(self._services, [one for compiled in expressions.values() for one in compiled])
        for number in ready:
            if progress.letter(number) != states.PENDING:
                continue  # one before it was refused, and the job fails fast
            try:
                if number in wrong:
                    progress.refuse(number, storable(wrong[number]))
                elif number not in expressions or self._may_start(number, scope.variables(*expressions[number])):
                    progress.start(number)
                else:
                    progress.skip(number)
            except (ExpressionError, InvalidInput) as error:
                progress.refuse(number, storable(str(error)))

    def _may_start(self, number: int, variables: dict[str, Any]) -> bool:
        task = self._graph.tasks[number]
        if task.condition is not None and not condition_of(task.condition).holds(variables):
            return False
        if not is_interpreted(task):  # the limits of a map are those of its items
            self._limits[number] = limits_of(task, self._services, variables)
        return True

    async def _collect(self, progress: JobProgress) -> None:
        """The effects and events of what the progress has changed."""
        job, tasks = self._claim.id, self._graph.tasks
        for number, generation in progress.cancels:
            if generation == progress.generation(number) and progress.letter(number) != states.STARTED:
                continue  # it has ended by itself
            reason = "the job has timed out" if self._state.timed_out else "the job has cancelled it"
            self._effects.append(CancelChild(self._state.row_id(job, number, generation), reason))
        ids = {number: self._state.row_id(job, number) for number in progress.starts}
        again = {number: id for number, id in ids.items() if progress.take_row(number)}
        rows = await self._services.outputs(again.values()) if again else {}
        for number, id in ids.items():
            if number in again:
                state = restarted(rows[id].status, rows[id].state) if id in rows else None
                self._effects.append(RetryChild(id, state=state, parent_wait=self._wait))
            else:
                new = self._task_state(progress, number)
                self._effects.append(self._new(new, id, **self._limits.get(number, {})))
        for number, letter in progress.skipped:
            self._record("skipped", tasks[number].name, {"reason": _SKIPPED_BECAUSE[letter]})
        for one in progress.regressions:
            data = {"to": tasks[one.to].name, "error": one.error, "count": one.count}
            self._record("regressed", tasks[one.task].name, data)

    def _task_state(self, progress: JobProgress, number: int) -> TaskState:
        """The first state of a task. It has what concerns the tasks that it may read, and not all: after a regression
        of thousands of tasks, the states of all of them would grow with their number."""
        inputs, generations = embedded(self._state.inputs), self._state.generations
        state = TaskState(number, self._claim.id, progress.generation(number), inputs=inputs)
        state.row_numbers = self._row_numbers(number)
        for other in tasks_read_by(self._graph, number):
            if other in generations:
                state.generations[other] = generations[other]
            if (ending := progress.absent(other)) is not None:
                state.absent[other] = ending
        return state

    def _row_numbers(self, number: int) -> dict[int, int]:
        """The numbers in the ids of the rows that a task may read, and of its own, where they differ."""
        rows = self._state.row_numbers
        if not rows:
            return {}
        return {other: rows[other] for other in (number, *tasks_read_by(self._graph, number)) if other in rows}

    async def _start_undo(self, progress: JobProgress) -> None:
        """Undo the task that completed last. It reads what the task could read, which may be of an older generation;
        after a migration, what a task of this version would read."""
        number, generation = self._state.undoing = self._state.undo.pop()
        id = self._state.row_id(self._claim.id, number, generation)
        undo = self._task_state(progress, number)
        undo.generation, undo.undo = generation, True
        row = None
        if not self._state.is_older(number, generation):
            row = (await self._services.outputs([id])).get(id)
        if row is not None:
            done = load_task_state(row.state)
            undo.generations, undo.absent = done.generations, done.absent
        self._effects.append(self._new(undo, undo_id(id), lane_of_undo(self._graph.tasks[number])))

    def _new(self, state: TaskState, id: str, lane: str | None = None, **limits: Any) -> NewTask:
        return NewTask(new_task(self._claim, self._graph.spec, state, id, lane, **limits), self._wait)

    def _record(self, type: EventType, step: str, data: dict[str, Any]) -> None:
        self._events.append(DecisionEvent(type, step, json.dump(data)))

    # -- the outcome ---------------------------------------------------------------------------------

    def _park(self) -> Decision:
        label: OutcomeType = "spawn" if self._effects else "await"
        return self._decision(Decision(label, RUN, dump_job_state(self._state), Park(self._arm, disarm=self._disarm)))

    async def _finish(self, progress: JobProgress) -> Decision:
        if self._state.cancelling:
            return self._decision(Decision("done", RUN, dump_job_state(self._state), Finish("done")))
        if progress.failed:
            self._state.failed = True
            failure = Failure(None, storable(await self._error(progress)))
            return self._decision(stop(RUN, dump_job_state(self._state), failure))
        result = await self._result(progress)
        return self._decision(Decision("done", RUN, dump_job_state(self._state), Finish("done", result=result)))

    def _decision(self, decision: Decision) -> Decision:
        decision.consume = tuple(row.seq for row in self._claim.inbox if row.wait_id is not None)
        decision.effects, decision.events = self._effects, tuple(self._events)
        decision.has_undo = self._has_undo
        return decision

    async def _result(self, progress: JobProgress) -> str:
        """The outputs of the completed tasks, by `var`."""
        job, tasks = self._claim.id, self._graph.tasks
        completed = progress.numbers_of(states.COMPLETED)
        ids = {number: self._state.row_id(job, number) for number in completed}
        rows = await self._services.outputs(ids.values())
        for number, id in ids.items():
            if id not in rows:  # only if the job failed, and was retried after the retention period
                raise NotFound(f"The output of task {tasks[number].name!r} is not kept any more. Start the job again.")
        outputs = {
            tasks[number].var or tasks[number].name: Raw((rows[id].result or "null").encode())
            for number, id in ids.items()
        }
        return msgspec.json.encode(outputs).decode()

    async def _error(self, progress: JobProgress) -> str:
        """The tasks that failed, with their errors; those that were cancelled only if none has failed."""
        job, state = self._claim.id, self._state
        failed = progress.numbers_of((states.FAILED, states.INVALID)) or progress.numbers_of(states.CANCELLED)
        first = failed[:NAMED_FAILURES]
        ids = {number: self._state.row_id(job, number) for number in first}
        rows = await self._services.outputs(id for number, id in ids.items() if number not in state.errors)
        texts = []
        for number in first:
            row = rows.get(ids[number])
            error = state.errors.get(number) or (row.error if row is not None else None) or "no reason was given"
            ending = "was cancelled" if progress.letter(number) == states.CANCELLED else "failed"
            texts.append(f"Task {self._graph.tasks[number].name!r} {ending}: {error}")
        if state.timed_out:
            limit = self._graph.spec.timeout_sec
            texts.insert(0, f"The job did not end within timeout_sec{'' if limit is None else f' ({limit:g} s)'}")
        return named(texts, len(failed) + state.timed_out)


def unknown_gates_text(job: str, gates: list[str]) -> str:
    """The error about gates that are not registered."""
    names = ", ".join(repr(gate) for gate in gates)
    return (
        f"The job {job!r} has the gate {names}, which is not registered. Register it with @app.gate(…) in the process "
        "that starts the job or in a worker, or use 'user_approval' or an expression in {{ }}."
    )
