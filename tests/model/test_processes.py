"""M5: which processes are known to be gone, and of which nothing is known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hark.model import processes
from hark.model.processes import is_gone, is_near, this_process


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def _named(pid: int) -> str:
    """Another process, as it would name itself."""
    stat = processes._read_stat(str(pid))
    assert stat is not None
    return f"{this_process().rpartition('/')[0]}/{pid}@{stat.start}"


def test_m5_a_killed_process_is_gone_before_and_after_its_parent_asks_for_its_exit_code(
    sleeper: subprocess.Popen[bytes],
) -> None:
    name = _named(sleeper.pid)
    assert is_near(name)
    assert not is_gone(name)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(name), "nobody has asked for its exit code"
    sleeper.wait()
    assert is_gone(name)


def test_m5_this_process_is_not_gone_and_not_its_own_neighbour() -> None:
    assert not is_gone(this_process())
    assert not is_near(this_process())


def test_m5_a_process_id_that_is_used_again_does_not_stand_for_the_earlier_process(
    sleeper: subprocess.Popen[bytes],
) -> None:
    try:
        assert is_gone(f"{_named(sleeper.pid).rpartition('@')[0]}@1")
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("part", range(4))
def test_m5_nothing_is_known_of_another_host_boot_or_namespace(part: int) -> None:
    place = this_process().rpartition("/")[0].split("/")
    if part < len(place):
        place[part] = "another"
        name = "/".join([*place, "4194304@1"])
        assert not is_near(name)
        assert not is_gone(name)


@pytest.mark.parametrize("text", ["", "x", "/", "host/boot/pid:[1]/12", "host/boot/pid:[1]/x@1"])
def test_m5_nothing_is_known_of_a_process_without_a_name(text: str) -> None:
    assert not is_near(text)
    assert not is_gone(text)
    assert not is_gone(f"{this_process().rpartition('/')[0]}/{text}")


def test_m5_a_process_that_cannot_be_looked_at_is_not_gone(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `hidepid`, /proc does not show the processes of other users; a signal says that they exist."""
    name = _named(sleeper.pid)

    def refused(pid: int, number: int) -> None:
        raise PermissionError

    try:
        with monkeypatch.context() as patch:
            patch.setattr(processes, "_read_stat", lambda pid: None)
            patch.setattr(os, "kill", refused)
            assert not is_gone(name)
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        ("S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 5 0 777 0", ("777", False)),
        ("Z 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 777 0", ("777", True)),
        ("Z 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 3 0 777 0", ("777", False)),  # threads of it run on
    ],
)
def test_m5_the_state_of_a_process_is_read_whatever_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stat: str, expected: tuple[str, bool]
) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "stat").write_text(f"12 (a) Z (b c) {stat}\n")
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert processes._read_stat("12") == expected


def test_m5_nothing_is_known_without_the_proc_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes._identify.cache_clear()
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    try:
        assert this_process() == ""
        assert not is_near("/12@1")
        assert not is_gone("/12@1")
    finally:
        processes._identify.cache_clear()
