"""The place of the nth awakeable that a command creates."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hark import InvalidInput
from hark.doors.cli.run_directory import next_place
from hark.engine.commands.environment import run_directory


def take() -> str:
    with next_place() as place:
        return place


def test_the_nth_one_of_every_run_has_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    for period in (0, 0, 3):
        with run_directory(period) as directory:
            monkeypatch.setenv("HARK_RUN_DIR", str(directory))
            assert [take(), take()] == [f"awakeable#{period}.0", f"awakeable#{period}.1"]


def test_one_that_could_not_be_created_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_directory(1) as directory:
        monkeypatch.setenv("HARK_RUN_DIR", str(directory))
        with pytest.raises(ConnectionError), next_place():
            raise ConnectionError
        assert take() == "awakeable#1.0"


def test_processes_of_one_command_never_get_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_directory(0) as directory, ThreadPoolExecutor(8) as threads:
        monkeypatch.setenv("HARK_RUN_DIR", str(directory))
        places = list(threads.map(lambda _: take(), range(40)))
        assert sorted(places) == sorted(f"awakeable#0.{n}" for n in range(40))


def test_outside_of_a_command_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HARK_RUN_DIR", raising=False)
    with pytest.raises(InvalidInput, match="HARK_RUN_DIR is not set"):
        take()
    monkeypatch.setenv("HARK_RUN_DIR", os.fspath(tmp_path / "gone"))
    with pytest.raises(InvalidInput, match="cannot be used here: No such file or directory"):
        take()
