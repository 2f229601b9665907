"""Random jobs, for tests that compare with the small model."""

from __future__ import annotations

from hypothesis import strategies as st

from hark.programs.jobs.job_spec import JobSpec, RegressSpec, TaskSpec

_WHENS = ("all_success", "all_success", "all_success", "all_done", "one_failed")


@st.composite
def job_specs(draw: st.DrawFn, most: int = 7, *, fail_fast: bool = True) -> JobSpec:
    """A job whose tasks have needs, conditions, `when`, regressions and finally tasks. Each has the handler `any`."""
    count = draw(st.integers(1, most))
    finals = draw(st.integers(0, 2))
    tasks = []
    for number in range(count + finals):
        is_finally = number >= count
        earlier = range(count, number) if is_finally else range(number)
        needs = tuple(f"t{n}" for n in draw(st.sets(st.sampled_from(earlier), max_size=3))) if earlier else ()
        ancestors = sorted({f"t{number}", *needs}) if not is_finally else []
        regress = None
        if ancestors and draw(st.integers(0, 3)) == 0:
            regress = RegressSpec(draw(st.sampled_from(ancestors)), draw(st.integers(1, 2)))
        condition = f"inputs.t{number}" if draw(st.integers(0, 3)) == 0 else None
        when = draw(st.sampled_from(_WHENS))
        tasks.append(TaskSpec(
            f"t{number}", needs=needs, when=when, condition=condition, handler="any", on_fail=regress,
            is_finally=is_finally,
        ))  # fmt: skip
    return JobSpec("random", tuple(tasks), fail_fast=fail_fast and draw(st.integers(0, 3)) == 0)


def regressing(last: TaskSpec) -> JobSpec:
    """`build`, and after it this task and `check`, which regresses to `build` once."""
    check = TaskSpec("check", needs=("build",), handler="any", on_fail=RegressSpec("build", 1))
    return JobSpec("again", (TaskSpec("build", handler="any"), check, last))
