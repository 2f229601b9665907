"""The job files of examples/jobs run as their first lines say."""

import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hark import load_job
from hark.testing import Harness
from tests.doors.support_cli import run_cli

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "jobs"
BIN = Path(sys.executable).parent
Hark = Callable[..., tuple[int, str]]


@pytest.fixture
def hark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hark:
    """Run `hark` in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        done = run_cli(*words)
        return done.code, done.out + done.err

    return run


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    with subprocess.Popen([str(BIN / "hark"), "worker"], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "working" in process.stdout.readline()
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)


def until(hark: Hark, says: str, *words: str) -> str:
    """Run a command until it prints a text."""
    end = time.monotonic() + 60
    while True:
        _, out = hark(*words)
        if re.search(says, out):
            return out
        assert time.monotonic() < end, out
        time.sleep(0.05)


def question(hark: Hark, job: str) -> Any:
    found = re.search(r"prom_1\S+", hark("awakeable", "list", "--job", job, "--status", "PENDING")[1])
    assert found
    return found[0]


def commands(name: str) -> list[list[str]]:
    """The commands in the comment that begins an example."""
    lines = re.findall(r"^#   (hark .*)$", (EXAMPLES / name).read_text("utf-8"), re.M)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_j5_the_complete_approval_flow(hark: Hark, tmp_path: Path) -> None:
    run, status, listing, resolve, work = commands("approval.yaml")
    code, out = hark("job", "run", str(EXAMPLES / "approval.yaml"), *run[3:])
    assert (code, "✓ verify [suspended] [gate: user_approval]" in out) == (75, True), out
    assert "✓ verify [suspended] [gate: user_approval]" in hark(*status)[1]
    assert re.search(r"\[·\] prom_1\S+\n  Job: approval-1\n  Task: verify\n  Status: PENDING\n", hark(*listing)[1])
    id = question(hark, "approval-1")
    assert hark(*[id if word.startswith("prom_1") else word for word in resolve])[0] == 0
    assert hark(*[id if word.startswith("prom_1") else word for word in resolve])[0] == 4  # the first answer counts
    assert work == ["worker"]
    with worker(tmp_path):
        out = until(hark, "approval-1 done", *status)
    assert re.search(r"^✓ verify \[completed\]", out, re.M)
    assert re.search(r"^✓ deploy \[completed\]", out, re.M)


def test_the_pipeline_runs_to_its_end(hark: Hark) -> None:
    [run] = commands("pipeline.yaml")
    code, out = hark("job", "run", str(EXAMPLES / "pipeline.yaml"), *run[3:])
    assert code == 0, out
    assert '["unit passed on registry/shop","end-to-end passed on registry/shop"]' in out
    assert "publish: published" in out
    assert "report: publish is completed" in out
    assert re.search(r"publish \[completed\] \(attempt 2", out)


def test_feedback_waits_for_an_event_and_an_answer_that_matches_its_schema(hark: Hark, tmp_path: Path) -> None:
    run, _, broadcast, _, resolve = commands("feedback.yaml")
    code, out = hark("job", "run", str(EXAMPLES / "feedback.yaml"), *run[3:])
    assert code == 75, out
    assert "hark broadcast payment" in out
    assert hark("broadcast", "payment", "--payload", '{"order": 7}')[0] == 0  # another order
    assert hark(*broadcast)[0] == 0
    with worker(tmp_path):
        until(hark, "waits for Refund order 42 of 100", "job", "status", "feedback-1")
        id = question(hark, "feedback-1")
        assert hark("awakeable", "resolve", id, "--payload", '{"approved": true}')[0] == 2  # it lacks the reason
        assert hark(*[id if word.startswith("prom_1") else word for word in resolve])[0] == 0
        until(hark, "feedback-1 done", "job", "status", "feedback-1")
    assert "refunded because a good customer" in hark("instance", "show", "feedback-1")[1]


@pytest.mark.parametrize("paid", [{"order": 42, "amount": 10}, None])
async def test_feedback_records_nothing_if_nothing_is_refunded(paid: dict[str, int] | None) -> None:
    async with Harness() as app:
        job = await app.start(load_job(EXAMPLES / "feedback.yaml"), {"order": 42})
        await app.drain()
        if paid is not None:
            await app.broadcast("payment", paid)
        else:
            await app.advance(3601)
        await app.drain()
        assert set(await job.result(timeout=10)) == {"paid"}


def test_every_job_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {"approval.yaml", "feedback.yaml", "pipeline.yaml"}
