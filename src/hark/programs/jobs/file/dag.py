"""`Dag`: a job built in Python. It collects what a job file would say, and the same checks are applied to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack

from hark.model import json
from hark.model.errors import InvalidDefinition
from hark.model.outcomes import Duration
from hark.model.problem import Problem
from hark.model.schema import compile_schema
from hark.programs.jobs.file.loading import Job
from hark.programs.jobs.job_spec import JobSpec


class TaskOptions(TypedDict, total=False):
    """The keys of a job file that any task may have; `condition` is `if:`."""

    when: Literal["all_success", "all_done", "one_failed"]
    condition: str
    var: str
    description: str
    priority: int
    on_fail: Mapping[str, Any]


class WorkOptions(TaskOptions, total=False):
    """The options of a task that runs a handler or a command."""

    undo: str
    input: Any
    timeout_sec: Duration
    heartbeat_sec: Duration
    queue: str
    concurrency_key: str
    rate_limit: str | tuple[str, str]


After = str | Iterable[str]

_ANY_TASK = {"name": "-", "run": "-"}  # stands for the others while one is checked


class Dag:
    """A job built in Python: tasks, and which of them come after which.

    Each method adds a task and returns its name, which `after=` of a later task takes. A task is checked when it is
    added, the whole when it is registered or started. A template in a text means the same as in a job file.

    Args:
        name: The name of the job.
        inputs: The inputs with their defaults; others are refused. None accepts any input.
        defaults: Values for all tasks that do not have their own, such as `{"retry": {"limit": 3}}`.
        timeout_sec: Seconds or timedelta from its beginning after which the job fails and its tasks are cancelled.
        fail_fast: Whether the first failure cancels the tasks that still run.
        queue: The queue of its tasks, unless they have their own.
        priority: Jobs with a lower number run first.
        schedule: When the job starts by itself: a cron expression, or the options as a dict.
        description: What the job is for.

    Raises:
        InvalidDefinition: One of these is wrong.

    Example:
        dag = Dag("feedback-loop")
        review = dag.task("review", "wait-for-review")
        dag.loop("fix", "llm-fix", max_iterations=10, after=[review])
        handle = await app.start(dag)
    """

    def __init__(
        self,
        name: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        timeout_sec: Duration | None = None,
        fail_fast: bool = False,
        queue: str | None = None,
        priority: int = 0,
        schedule: str | Mapping[str, Any] | None = None,
        description: str | None = None,
    ) -> None:
        given = {
            "name": name, "inputs": inputs, "defaults": defaults, "timeout_sec": timeout_sec, "fail_fast": fail_fast,
            "queue": queue, "priority": priority, "schedule": schedule, "description": description,
        }  # fmt: skip
        self._job = {key: _plain(value) for key, value in given.items() if value is not None}
        self._tasks: list[dict[str, Any]] = []
        self._last: list[dict[str, Any]] = []
        self._names: set[str] = set()
        self._checked: Job | None = None
        self._check([], [])

    @property
    def name(self) -> str:
        """The name of the job."""
        return str(self._job["name"])

    @property
    def spec(self) -> JobSpec:
        """The checked job as data.

        Raises:
            InvalidDefinition: The job has mistakes; `.problems` lists them.
        """
        return self.job().spec

    def job(self) -> Job:
        """Check the whole.

        Returns:
            The job as it is now.

        Raises:
            InvalidDefinition: The job has mistakes; `.problems` lists them.
        """
        if self._checked is None:
            from hark.programs.jobs.file import compiling

            value = {**self._job, "tasks": self._tasks, "finally": self._last}
            self._checked = Job(*compiling.compile_value(value, f"The job {self.name!r}"))
        return self._checked

    def task(
        self,
        name: str,
        handler: str | None = None,
        *,
        after: After = (),
        gate: str | Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        run: str | None = None,
        agent: str | Mapping[str, Any] | None = None,
        **options: Unpack[WorkOptions],
    ) -> str:
        """Add a task that runs a handler, a shell command, or an agent.

        Args:
            name: The name of the task, unique in the job.
            handler: The name of a handler, registered with `@app.handler(name)`.
            after: The names of the tasks that must have ended before.
            gate: "user_approval", the name of a registered gate, or an expression: it decides on the output. With the
                question: `{"user_approval": {"title": …, "description": …, "assignees": […], "timeout": …}}`.
            retry: How often it is attempted: `{"limit": 3, "delay": 1, "scaling": 2}`.
            run: A shell command instead of a handler or, with `agent`, the prompt.
            agent: The agent that gets the prompt: its type, or `{"type": …, "model": …}`.
            **options: Other keys of a task in a job file, such as `timeout_sec`; `condition` is `if:`.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
        """
        return self._add(
            self._tasks,
            "task",
            after,
            name=name,
            handler=handler,
            gate=gate,
            retry=retry,
            run=run,
            agent=agent,
            **options,
        )

    def loop(
        self,
        name: str,
        handler: str,
        *,
        after: After = (),
        max_iterations: int | None = None,
        max_duration: Duration | None = None,
        loop_delay: Duration | None = None,
        gate: str | Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        **options: Unpack[WorkOptions],
    ) -> str:
        """Add a task whose handler runs again while it returns `task.continue_(…)`.

        Args:
            name: The name of the task, unique in the job.
            handler: The name of a handler, registered with `@app.handler(name)`.
            after: The names of the tasks that must have ended before.
            max_iterations: How often the loop runs at most; then it fails.
            max_duration: Seconds or timedelta after which it fails instead of beginning another iteration.
            loop_delay: Seconds or timedelta between two iterations.
            gate: As for `task`.
            retry: As for `task`.
            **options: Other keys of a task in a job file.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
        """
        return self._add(
            self._tasks, "loop", after, name=name, handler=handler, max_iterations=max_iterations,
            max_duration=max_duration, loop_delay=loop_delay, gate=gate, retry=retry, **options,
        )  # fmt: skip

    def approval(
        self,
        name: str,
        title: str,
        *,
        after: After = (),
        schema: Any = None,
        assignees: Iterable[str] | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> str:
        """Add a question to a person. The output is the answer; a rejection fails the task.

        Args:
            name: The name of the task, unique in the job.
            title: What the answerer is asked.
            after: The names of the tasks that must have ended before.
            schema: A type or JSON Schema that the answer must match; None takes `{"action": "approve"}` or "reject".
            assignees: The people and programs that may answer; None: anyone may.
            timeout: Seconds or timedelta after which the task fails.
            **options: Other keys of a task in a job file, such as `description`.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
            InvalidInput: The schema is not one.
        """
        stored, _ = compile_schema(schema)
        return self._add(
            self._tasks, "approval", after, name=name, title=title, schema=json.load(stored) if stored else None,
            assignees=None if assignees is None else list(assignees), timeout=timeout, **options,
        )  # fmt: skip

    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        after: After = (),
        match: str | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> str:
        """Add a wait for a broadcast. The output is its payload, or `{"timeout": true}`.

        Args:
            name: The name of the task, unique in the job.
            event: The name of the broadcast.
            after: The names of the tasks that must have ended before.
            match: Which of these events count: an expression such as "{{ event.id == tasks.create.output.id }}".
            timeout: Seconds or timedelta after which the wait ends.
            **options: Other keys of a task in a job file.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
        """
        return self._add(
            self._tasks, "wait_for_event", after, name=name, event=event, match=match, timeout=timeout, **options
        )

    def sleep(self, name: str, seconds: Duration | str, *, after: After = (), **options: Unpack[TaskOptions]) -> str:
        """Add a pause.

        Args:
            name: The name of the task, unique in the job.
            seconds: Seconds, a timedelta, or a template that gives seconds.
            after: The names of the tasks that must have ended before.
            **options: Other keys of a task in a job file.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
        """
        return self._add(self._tasks, "sleep", after, name=name, seconds=seconds, **options)

    def workflow(
        self,
        name: str,
        definition: Any,
        input: Any = None,
        *,
        after: After = (),
        retry: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> str:
        """Add a task that starts another definition and waits for its result.

        Args:
            name: The name of the task, unique in the job.
            definition: The name of a job, workflow, machine or process; or the thing itself.
            input: Its input; texts in it may be templates.
            after: The names of the tasks that must have ended before.
            retry: As for `task`.
            **options: Other keys of a task in a job file.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
        """
        program = getattr(definition, "__hark_program__", definition)
        label = program if isinstance(program, str) else getattr(program, "name", program)
        return self._add(
            self._tasks, "workflow", after, name=name, definition=label, input=input, retry=retry, **options
        )

    def map(
        self,
        name: str,
        handler: str | None = None,
        over: str | list[Any] = "",
        *,
        after: After = (),
        as_: str | None = None,
        concurrency: int | None = None,
        run: str | None = None,
        agent: str | Mapping[str, Any] | None = None,
        gate: str | Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        **options: Unpack[WorkOptions],
    ) -> str:
        """Add a task that does the same for each item of a list. The output is the list of outputs, in order.

        Args:
            name: The name of the task, unique in the job.
            handler: The name of a handler, registered with `@app.handler(name)`; its input is the item.
            over: The list, or a template that gives one: "{{ tasks.find.output }}".
            after: The names of the tasks that must have ended before.
            as_: The name of the item in templates; `item` unless given.
            concurrency: How many items are worked on at the same time; None for all.
            run: A shell command instead of a handler or, with `agent`, the prompt.
            agent: As for `task`.
            gate: As for `task`.
            retry: As for `task`; for each item.
            **options: Other keys of a task in a job file.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
        """
        more = {"as": as_} if as_ is not None else {}
        return self._add(
            self._tasks, "map", after, name=name, handler=handler, over=over, concurrency=concurrency, run=run,
            agent=agent, gate=gate, retry=retry, **options, **more,
        )  # fmt: skip

    def finally_(
        self,
        name: str,
        handler: str | None = None,
        *,
        after: After = (),
        retry: Mapping[str, Any] | None = None,
        run: str | None = None,
        agent: str | Mapping[str, Any] | None = None,
        **options: Unpack[WorkOptions],
    ) -> str:
        """Add a task that always runs last, after all others have ended, however they ended.

        Args:
            name: The name of the task, unique in the job.
            handler: The name of a handler, registered with `@app.handler(name)`.
            after: The names of other tasks added with `finally_`.
            retry: As for `task`.
            run: A shell command instead of a handler or, with `agent`, the prompt.
            agent: As for `task`.
            **options: Other keys of a task in a job file.

        Returns:
            The name of the task.

        Raises:
            InvalidDefinition: The task has a mistake.
        """
        return self._add(
            self._last, "task", after, name=name, handler=handler, retry=retry, run=run, agent=agent, **options
        )

    def _add(self, tasks: list[dict[str, Any]], kind: str, after: After, **given: Any) -> str:
        if "condition" in given:
            given["if"] = given.pop("condition")
        needs = [after] if isinstance(after, str) else list(after)
        task = {key: _plain(value) for key, value in given.items() if value is not None}
        task |= ({"type": kind} if kind != "task" else {}) | ({"needs": needs} if needs else {})
        self._check([task] if tasks is self._tasks else [], [task] if tasks is self._last else [])
        name = str(task["name"])
        if name in self._names:
            problem = Problem(name, None, f"There are two tasks named {name!r}.")
            raise InvalidDefinition(f"The job {self.name!r} has a problem:\n  {problem}", problems=[problem])
        self._names.add(name)
        tasks.append(task)
        self._checked = None
        return name

    def _check(self, tasks: list[dict[str, Any]], last: list[dict[str, Any]]) -> None:
        """Check the options of the job and one task, so that a mistake is raised by the line that makes it."""
        from hark.programs.jobs.file import compiling

        value = {**self._job, "tasks": tasks or [_ANY_TASK], "finally": last}
        compiling.check_value(value, f"The job {self._job.get('name')!r}")

    def __repr__(self) -> str:
        return f"<dag {self.name}, {len(self._tasks) + len(self._last)} tasks>"


def _plain(value: Any) -> Any:
    """Durations as seconds, also in a dict of options."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value
