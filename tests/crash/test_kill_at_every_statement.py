"""kill -9 between any two statements of a turn; the next process completes everything, once.

See victim.py for the process that is killed and errand.py for its work and the checks. HARK_CHAOS=full kills at each
statement of the whole errand instead of at each distinct pair of consecutive statements.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.processes import ROOT
from tests.support.stores import Store

PARTS = 2  # that can run in parallel


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_m1_x1_fault_25_a_worker_killed_at_any_statement_loses_nothing_and_repeats_nothing(
    tmp_path: Path, store: Store, part: int
) -> None:
    _die_everywhere("machines", tmp_path, store, part)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_a7_fault_45_a_function_killed_between_any_two_journal_lines_resumes_where_it_was(
    tmp_path: Path, store: Store, part: int
) -> None:
    _die_everywhere("functions", tmp_path, store, part)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_x8_an_undo_killed_at_any_statement_continues_and_repeats_nothing_that_is_recorded(
    tmp_path: Path, store: Store, part: int
) -> None:
    _die_everywhere("undo", tmp_path, store, part)


@pytest.mark.timeout(600)
def test_v3_an_instance_that_is_held_and_retried_survives_a_kill_at_any_statement(tmp_path: Path, store: Store) -> None:
    _die_everywhere("held", tmp_path, store, 0, 1)


@pytest.mark.timeout(600)
def test_v4_v5_migrations_and_forks_survive_a_kill_at_any_statement(tmp_path: Path, store: Store) -> None:
    _die_everywhere("migrations", tmp_path, store, 0, 1)


@pytest.mark.timeout(600)
def test_j3_a_job_survives_the_death_of_its_process_after_any_commit(tmp_path: Path, store: Store) -> None:
    _die_everywhere("jobs", tmp_path, store, 0, 1, "commits")


@pytest.mark.timeout(600)
def test_b5_b6_a_process_survives_the_death_of_its_worker_after_any_commit(tmp_path: Path, store: Store) -> None:
    _die_everywhere("processes", tmp_path, store, 0, 1, "commits", least=10)


def _die_everywhere(
    errand: str, tmp_path: Path, store: Store, part: int, parts: int = PARTS, *modes: str, least: int = 20
) -> None:
    mode = ["full"] if os.environ.get("HARK_CHAOS") == "full" else modes
    arguments = [errand, str(tmp_path), store.url, json.dumps(store.options), str(part), str(parts), *mode]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.victim", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    deaths = (tmp_path / "deaths").read_text().splitlines()
    assert len(set(deaths)) == len(deaths) > least
    if errand in ("machines", "functions") and store.name == "postgres":
        assert "call_turn" in (tmp_path / "places").read_text().splitlines(), "no turn was one call"
