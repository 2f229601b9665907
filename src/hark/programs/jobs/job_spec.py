"""JobSpec: a job as data, as it is stored and interpreted.

The readers of files and the builder `Dag` (programs/jobs/file/) make it, already checked; `programs/jobs/` interprets
it. Templates and conditions stay texts here: they are compiled where they are used, once per process. The stored
source of a job definition is the JSON of its spec.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from msgspec import Struct

TaskType = Literal["task", "loop", "approval", "wait_for_event", "sleep", "workflow", "map"]
When = Literal["all_success", "all_done", "one_failed"]


class RetrySpec(Struct, frozen=True, omit_defaults=True):
    """The total number of attempts of a failed task, and the seconds between attempts: `delay` × `scaling`^n."""

    limit: int = 3
    delay: float = 1.0
    scaling: float = 2.0


class RegressSpec(Struct, frozen=True, omit_defaults=True):
    """The regression after the last attempt has failed: begin again at an earlier task, at most `limit` times."""

    regress_to: str
    limit: int = 3


class AgentSpec(Struct, frozen=True, omit_defaults=True):
    """An agent: a configured command line, and the model it gets."""

    type: str
    model: str | None = None


class QuestionSpec(Struct, frozen=True, omit_defaults=True):
    """The question of a gate `user_approval`, or of an approval: `title` and `description` may be templates."""

    title: str | None = None
    description: str | None = None
    assignees: tuple[str, ...] = ()
    timeout: float | None = None  # seconds


class TaskSpec(Struct, frozen=True, omit_defaults=True):
    """A task of a job. Of `run`, `handler` and `agent` it has what its type needs.

    `run` is a shell command or, with `agent`, the prompt. A text in `run`, `condition`, `over`, `input`, `match`,
    `title`, `description`, `concurrency_key`, `undo` and in any other value of the file may be a template.
    """

    name: str
    type: TaskType = "task"
    needs: tuple[str, ...] = ()
    when: When = "all_success"
    condition: str | None = None  # `if:`
    var: str | None = None  # its name among the results; None: the task's
    handler: str | None = None
    run: str | None = None
    agent: AgentSpec | None = None
    gate: str | None = None  # `user_approval`, a registered name, or an expression in {{ }}
    question: QuestionSpec | None = None  # of the gate `user_approval`; None: the one that it asks by itself
    retry: RetrySpec = RetrySpec(limit=1)
    on_fail: RegressSpec | None = None
    undo: str | None = None  # the shell command or, for a handler, the handler that undoes it
    timeout_sec: float | None = None
    heartbeat_sec: float | None = None
    priority: int = 0
    queue: str | None = None
    concurrency_key: str | None = None
    rate_limit: str | tuple[str, str] | None = None
    is_finally: bool = False  # listed under `finally:`
    # loop
    max_iterations: int | None = None
    max_duration: float | None = None
    loop_delay: float = 0.0
    # approval
    title: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    assignees: tuple[str, ...] = ()
    timeout: float | None = None  # also of wait_for_event
    # wait_for_event
    event: str | None = None
    match: str | None = None
    # sleep
    seconds: float | str | None = None
    # workflow
    definition: str | None = None
    input: Any = None  # JSON whose texts may be templates; for a task or loop it replaces the default input
    # map
    over: Any = None  # a template that gives a list, or a list
    as_: str = "item"  # `as:`; its name in templates
    concurrency: int | None = None
    # a service task of a process
    headers: dict[str, str] = {}


class ScheduleSpec(Struct, frozen=True, omit_defaults=True):
    """`schedule:` of a job file."""

    cron: str | None = None
    every: float | None = None  # seconds
    timezone: str = "UTC"
    overlap: Literal["skip", "allow", "queue"] = "skip"
    catch_up: int = 1
    input: Any = None
    correlation_key: str | None = None


class JobSpec(Struct, frozen=True, omit_defaults=True):
    """A checked job. The tasks of `finally:` come last in `tasks`."""

    name: str
    tasks: tuple[TaskSpec, ...]
    inputs: dict[str, Any] | None = None  # with their defaults; None: any input is accepted
    fail_fast: bool = False
    timeout_sec: float | None = None  # from its beginning to the end of its last task; `finally` comes after
    queue: str | None = None  # of its tasks, unless they say otherwise
    priority: int = 0
    schedule: ScheduleSpec | None = None
    description: str | None = None
    is_bpmn: bool = False  # not a job: a process, as the program of its service tasks sees it; never stored

    def queues(self) -> set[str]:
        """The queues that its tasks are started in."""
        return {task.queue or self.queue or "default" for task in self.tasks}


decode_job = msgspec.json.Decoder(JobSpec).decode
"""Read the spec of a stored text."""


def encode_job(spec: JobSpec) -> str:
    """The JSON text of a spec, as the store keeps it. The same spec always gives the same text."""
    return msgspec.json.encode(spec).decode()


def digest_of(source: str) -> str:
    """The digest that tells two versions of a job apart."""
    return hashlib.sha256(source.encode()).hexdigest()
