"""How a job is shown: the lines of the first design, what waits and how to answer it, a table on a terminal."""

import contextlib
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hark.doors.cli.job_display import LineView, LiveView, print_report, task_line
from hark.doors.cli.options import Options
from hark.model.job_report import JobReport, TaskReport, TaskWait
from hark.model.values import Instance

NOW = datetime.now(UTC)
JOB = Instance(
    "r-1", "release", "job", 1, "run", "awaiting_children", {}, None, None, None, 0, "hark.graphs", None, None,  # type: ignore[arg-type]
    NOW, None,  # type: ignore[arg-type]
)  # fmt: skip
GATE = TaskWait("awakeable", "prom_1x", "Release it?", None, NOW, "hark awakeable resolve prom_1x --payload '{}'")
BUILD = TaskReport("build", "task", "completed", "r-1.0", 2, started_at=NOW, finished_at=NOW + timedelta(seconds=3))
VERIFY = TaskReport("verify", "task", "suspended", "r-1.1", 1, "user_approval", True, waits=(GATE,))
SHIP = TaskReport("ship", "task", "pending")
REPORT = JobReport(JOB, (BUILD, VERIFY, SHIP))


def printed(report: JobReport, options: Options = Options()) -> str:  # noqa: B008
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_report(options, report)
    return out.getvalue()


def test_j5_a_task_that_waits_for_its_gate_is_shown_as_in_the_first_design() -> None:
    assert task_line(VERIFY) == "✓ verify [suspended] [gate: user_approval]"
    assert task_line(replace(VERIFY, status="completed", at_gate=False)) == "✓ verify [completed]"
    assert task_line(BUILD) == "✓ build [completed] (attempt 2, 3 s)"
    assert task_line(SHIP) == "· ship [pending]"
    assert task_line(replace(VERIFY, at_gate=False, gate=None)) == "‖ verify [suspended]"
    assert task_line(replace(SHIP, status="failed")) == "✗ ship [failed]"


def test_j5_status_says_how_to_answer_with_the_options_that_were_given() -> None:
    out = printed(REPORT, Options(db="sqlite:///x.db"))
    assert "    waits for Release it?\n" in out
    assert "    hark awakeable resolve prom_1x --payload '{}' --db sqlite:///x.db\n" in out
    failed = replace(SHIP, status="failed", error="Boom\x1b[31m")
    assert "    Boom\\x1b[31m\n" in printed(JobReport(JOB, (failed,)))
    stuck = replace(SHIP, id="r-1.2", note="No worker has the handler 'x'.")
    assert "No worker has the handler 'x'." in printed(JobReport(JOB, (stuck,)))


def test_only_waits_means_that_nothing_goes_on_without_help() -> None:
    timer = TaskWait("timer", None, None, NOW, NOW, None)
    assert REPORT.only_waits
    assert not JobReport(replace(JOB, status="runnable"), REPORT.tasks).only_waits
    assert not JobReport(JOB, (VERIFY, replace(SHIP, id="r-1.2"))).only_waits
    assert not JobReport(JOB, (VERIFY, replace(SHIP, id="r-1.2", status="suspended", waits=(timer,)))).only_waits
    assert JobReport(JOB, (replace(SHIP, id="r-1.2", note="No worker has it."),)).only_waits
    assert not JobReport(JOB, (BUILD,)).only_waits


def test_lines_are_printed_once_per_change() -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        view = LineView(Options())
        for report in (REPORT, REPORT, JobReport(JOB, (BUILD, replace(VERIFY, status="completed", waits=()), SHIP))):
            view.show(report)
    lines = [line for line in out.getvalue().splitlines() if not line.startswith("    ")]
    assert [line.split(" (")[0] for line in lines] == [
        "✓ build [completed]", "✓ verify [suspended] [gate: user_approval]", "✓ verify [completed]",
    ]  # fmt: skip


def test_the_live_table_shows_states_waits_and_of_many_tasks_the_important_ones() -> None:
    out = io.StringIO()
    many = tuple(replace(SHIP, name=f"t{number}") for number in range(100))
    with contextlib.redirect_stdout(out), LiveView(Options()) as view:
        view.show(JobReport(JOB, (*many, VERIFY)))
    text = out.getvalue()
    assert "verify" in text
    assert "user_approval" not in text
    assert "hark awakeable resolve prom_1x" in " ".join(text.split())
    assert "61 more" in text
