"""Make the rows of new tasks, with their lane, queue and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import NewInstance
from hark.model.lanes import ENGINE_QUEUE, JOB, SHELL, agent_lane, task_lane
from hark.programs.expressions.budget import Meter
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.job_spec import JobSpec, TaskSpec
from hark.programs.jobs.job_variables import Compiled, render, templates_in
from hark.programs.jobs.tasks.task_state import MAX_EMBEDDED, TaskState, dump_task_state

KIND = "task"
_INTERPRETED = frozenset(("approval", "wait_for_event", "sleep", "workflow", "map"))


def is_interpreted(task: TaskSpec) -> bool:
    """Return True if the interpreter of jobs runs this task itself, and not a handler, a command or an agent."""
    return task.type in _INTERPRETED


def limit_templates(task: TaskSpec) -> list[Compiled]:
    """The templates in its concurrency key and its rate limit."""
    return [*templates_in(task.concurrency_key), *templates_in(task.rate_limit)]


def limits_of(
    task: TaskSpec, services: JobServices, variables: Mapping[str, Any], meter: Meter | None = None
) -> dict[str, Any]:
    """The concurrency key and the rate limit of a task, rendered and checked, as options of `new_task`. `meter` counts
    the work."""
    options: dict[str, Any] = {}
    if task.concurrency_key is not None:
        options["concurrency_key"] = services.concurrency_key(_text(render(task.concurrency_key, variables, meter)))
    if task.rate_limit is not None:
        rate = render(task.rate_limit, variables, meter)
        options["rate_limit"] = services.rate_limit(rate if isinstance(rate, str) else tuple(map(_text, rate)), 1)
    return options


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dump(value)


def lane_of(task: TaskSpec) -> str:
    """The lane that does the work of a task or, for a map, of its items."""
    if task.agent is not None:
        return agent_lane(task.agent.type)
    if task.handler is not None:
        return task_lane(task.handler)
    return SHELL


def lane_of_undo(task: TaskSpec) -> str:
    """The lane that undoes a task: the same kind of work as the task itself."""
    assert task.undo is not None
    return SHELL if task.handler is None else task_lane(task.undo)


def embedded(inputs: Raw) -> Raw | UnsetType:
    """The inputs for the state of a task, if they are small."""
    return inputs if len(memoryview(inputs)) <= MAX_EMBEDDED else UNSET


def new_task(
    claim: Claim, spec: JobSpec, state: TaskState, id: str, lane: str | None = None, **options: Any
) -> NewInstance:
    """The row of a task; `claim` is that of the job, or of the map for an item.

    Args:
        claim: The parent.
        spec: The job.
        state: The first state of the task.
        id: Its id.
        lane: What runs it; None: what its spec says.
        **options: Its concurrency key and its rate limit, rendered.
    """
    task = spec.tasks[state.task]
    if lane is None:
        lane = JOB if is_interpreted(task) else lane_of(task)
    return NewInstance(
        definition=claim.definition,
        version=claim.version,
        state=dump_task_state(state),
        id=id,
        named=True,
        step=task.name,
        queue=ENGINE_QUEUE if lane == JOB else task.queue or spec.queue or "default",
        priority=task.priority or spec.priority,
        trace=claim.trace,
        scheduled_at=claim.scheduled_at,
        lane=lane,
        kind=KIND,
        **options,
    )
