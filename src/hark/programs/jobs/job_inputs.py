"""Check the input of a job against `inputs:`, and add the defaults."""

from __future__ import annotations

from typing import Any

from hark.model.errors import InvalidInput
from hark.model.nearest import did_you_mean
from hark.programs.jobs.job_spec import JobSpec


def checked_inputs(spec: JobSpec, given: Any) -> Any:
    """The inputs of a job: what was given, and the defaults for the rest. Without `inputs:`, anything is accepted.

    Raises:
        InvalidInput: It is not an object, or has an input that the job does not declare.
    """
    if spec.inputs is None:
        return {} if given is None else given
    if given is None:
        return dict(spec.inputs)
    if not isinstance(given, dict):
        raise InvalidInput(f"The job {spec.name!r} takes an object with its inputs, not {type(given).__name__}.")
    for name in given:
        if name not in spec.inputs:
            hint = did_you_mean(name, spec.inputs)
            have = ", ".join(spec.inputs) or "none"
            raise InvalidInput(f"The job {spec.name!r} has no input {name!r}.{hint} Its inputs: {have}.")
    return {**spec.inputs, **given}
