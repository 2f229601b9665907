"""Keep the jobs that this process has registered: deploy them, and check their inputs and gates.

The source of a job is in the store, so any worker may run it. The copy here only serves the caller, who gets an error
at once.

The code of jobs is a third of all that Hark can import, so it is imported where it is used: a process without jobs
never loads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hark.engine.worker.registry import LaneProgram
from hark.kernel.requests import Deploy
from hark.model import json
from hark.model.errors import InvalidDefinition
from hark.model.lanes import ENGINE_QUEUE
from hark.model.problem import Problem
from hark.model.trigger import Trigger, new_schedule

if TYPE_CHECKING:
    from hark.programs.jobs.file import Job
    from hark.programs.jobs.job_spec import ScheduleSpec


def job_of(definition: Any) -> Job | None:
    """The checked job of a Job or a Dag; None for anything else.

    Raises:
        InvalidDefinition: The Dag has mistakes.
    """
    module = sys.modules.get("hark.programs.jobs.file")  # while it is not imported, nothing can be a job
    return None if module is None else module.job_of(definition)


def load_job_program() -> LaneProgram:
    """Make the program that runs the lane of jobs."""
    from hark.programs.jobs.job_program import JobProgram

    return JobProgram()


class RegisteredJobs:
    """The registered jobs of one app, by name. The last one registered under a name counts."""

    def __init__(self, max_payload: int) -> None:
        self._max_payload = max_payload
        self._jobs: dict[str, Job] = {}
        self._versions: dict[str, tuple[str, int]] = {}  # digest and version, once it is deployed

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def forget_versions(self) -> None:
        """Forget the deployed versions: the app may be opened on another store, which has versions of its own."""
        self._versions = {}

    def add(self, job: Job) -> bool:
        """Keep a job. False when the same one is registered already."""
        known = self._jobs.get(job.name)
        self._jobs[job.name] = job
        return known is None or known.digest != job.digest

    def jobs(self) -> list[Job]:
        return list(self._jobs.values())

    def find(self, name: str, version: int | None) -> Job | None:
        """The registered job that a start of this name and version means, if that is certain."""
        job = self._jobs.get(name)
        return job if job is not None and version in (None, self.version(job)) else None

    def version(self, job: Job) -> int | None:
        """The version it was deployed as; None if it is not deployed yet: then it becomes the newest."""
        digest, version = self._versions.get(job.name, ("", 0))
        return version if digest == job.digest else None

    def deployment(self, job: Job) -> tuple[Deploy, Callable[[Any], tuple[str, int]]]:
        """The request that deploys a job, and the function that converts its result."""
        schedule = job.spec.schedule
        starts = []
        if schedule is not None:
            starts.append(schedule_of_job(job.name, schedule, self.state(job, schedule.input)))
        request = Deploy(
            name=job.name,
            kind="job",
            queue=ENGINE_QUEUE,
            initial="start",
            source=job.source,
            digest=job.digest,
            starts=starts,
        )

        def deployed(version: int) -> tuple[str, int]:
            self._versions[job.name] = (job.digest, version)
            return job.name, version

        return request, deployed

    def state(self, job: Job, input: Any) -> str:
        """The first state of an instance: its input as it was given. The defaults are added when it begins, by the
        version that runs: a start by name may mean a newer one than that of this process.

        Raises:
            InvalidInput: The job does not take this input.
        """
        from hark.programs.jobs.job_inputs import checked_inputs

        text = json.dump({} if input is None else input, limit=self._max_payload, what="input")
        checked_inputs(job.spec, json.load(text))
        return text


def unknown_gates(job: Job, gates: Iterable[str]) -> InvalidDefinition:
    """The error about gates of a job that are not registered."""
    from hark.programs.jobs.job_interpreter import unknown_gates_text

    unknown = list(gates)
    problems = [
        Problem(task.name, job.gate_lines.get(task.name), f"the gate {task.gate!r} is not registered")
        for task in job.spec.tasks
        if task.gate in unknown
    ]
    return InvalidDefinition(unknown_gates_text(job.name, unknown), problems=problems)


def gates_of(job: Job) -> list[str]:
    """The names of the gates of a job that have to be registered."""
    from hark.programs.jobs.job_graph import is_registered_gate

    gates = (task.gate for task in job.spec.tasks)
    return list(dict.fromkeys(gate for gate in gates if gate is not None and is_registered_gate(gate)))


def schedule_of_job(name: str, spec: ScheduleSpec, state: str) -> Trigger:
    """The schedule of a job file, under the name of its job. `state` is the first state for the input of `spec`.

    Raises:
        InvalidInput: It is malformed.
    """
    return new_schedule(
        name, state, cron=spec.cron, every=spec.every, timezone=spec.timezone, overlap=spec.overlap,
        catch_up=spec.catch_up, correlation_key=spec.correlation_key,
    )  # fmt: skip
