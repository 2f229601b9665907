"""Whatever is given to `load_job`, it is a job or an InvalidDefinition with problems, soon."""

from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hark import InvalidDefinition, load_job
from hark.programs.jobs.file.keys import JOB_KEYS, TASK_KEYS
from hark.programs.jobs.file.loading import parse_job_file
from hark.programs.jobs.job_spec import decode_job

JOB = (Path(__file__).parents[3] / "examples" / "jobs" / "pipeline.yaml").read_bytes()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(
    ["{{ inputs.x }}", "{{ tasks.a.output", "a", "b", "user_approval", "map", "loop", "0 9 * * *", "{{ item }}"]
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*TASK_KEYS, "limit"]), inner, max_size=4)
    ),
    max_leaves=8,
)
TASKS = st.dictionaries(st.sampled_from([*TASK_KEYS]), VALUES, max_size=6)
JOBS = st.dictionaries(st.sampled_from([*JOB_KEYS]), VALUES | st.lists(TASKS, max_size=4), max_size=6)


def load(source: Any) -> None:
    """Load it, and check what is promised of the result."""
    try:
        job = parse_job_file(source, "The file") if isinstance(source, bytes) else load_job(source)
    except InvalidDefinition as error:
        problems = error.problems
    else:
        assert decode_job(job.source) == job.spec
        return
    assert problems
    assert all(problem.message for problem in problems)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
@example(b"a: " + b"{" * 5000)
@example(b"- " * 20000)
@example(b'{"a": "' + b"\\" * 999)
@example(b"a: &a [*a, *a]")
@example(b"? ? ? ?")
@example(b'{"a": 1e400}')
@example(b"name: j\ntasks:\n - name: a\n   run: |\n    cat <<E\n    " + b"x" * 100_000 + b"\n    E\n")
@example(b"name: j\ntasks:\n - {name: a, run: x, needs: [a, a, a]}\n")
def test_any_bytes_are_a_job_or_have_problems(data: bytes) -> None:
    load(data)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_a_job_or_has_problems(data: Any) -> None:
    start = data.draw(st.integers(0, len(JOB)))
    end = data.draw(st.integers(start, min(len(JOB), start + 60)))
    load(JOB[:start] + data.draw(st.binary(max_size=20)) + JOB[end:])


@settings(max_examples=150, deadline=None)
@given(JOBS)
def test_any_values_under_known_keys_are_a_job_or_have_problems(value: dict[str, Any]) -> None:
    load(value)
