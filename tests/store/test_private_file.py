"""The SQLite file, which holds the secret of the links, is for its owner only (X3)."""

import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hark import Hark
from hark.store import private_file


@pytest.fixture(params=[0o000, 0o022, 0o377], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_x3_a_new_file_and_its_wal_are_for_their_owner_only(tmp_path: Path) -> None:
    with Hark(f"sqlite:///{tmp_path / 'hark.db'}"):
        assert {file.name: mode(file) for file in tmp_path.iterdir()} == {
            "hark.db": 0o600, "hark.db-wal": 0o600, "hark.db-shm": 0o600,
        }  # fmt: skip


def test_x3_the_file_is_never_readable_by_others_not_even_while_it_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite finds a file that exists already, and with the right mode."""
    from hark.store import sqlite

    seen = []
    connect = sqlite._connect

    def look_and_connect(path: str, **options: bool) -> object:
        seen.append(mode(Path(path)))
        return connect(path, **options)

    monkeypatch.setattr(sqlite, "_connect", look_and_connect)
    with Hark(f"sqlite:///{tmp_path / 'hark.db'}"):
        pass
    assert seen
    assert set(seen) == {0o600}


def test_x3_a_link_to_a_file_that_does_not_exist_yet_creates_a_private_one(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "hark.db")
    with Hark(f"sqlite:///{tmp_path / 'link.db'}"):
        assert mode(tmp_path / "hark.db") == 0o600


@pytest.mark.parametrize("open_to", [0o640, 0o644, 0o606], ids=oct)
def test_x3_a_file_that_others_can_read_is_kept_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, open_to: int
) -> None:
    file = tmp_path / "my orders.db"
    with Hark(f"sqlite:///{file}"):
        pass
    file.chmod(open_to)
    for _ in range(2):
        with Hark(f"sqlite:///{file}"):
            assert mode(file) == open_to
    [warning] = [record for record in caplog.records if "chmod" in record.getMessage()]
    assert warning.levelno == logging.WARNING
    assert warning.getMessage().endswith(f"chmod 600 '{file}'")


def test_x3_no_warning_about_private_files_and_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for url in ("sqlite://", f"sqlite:///{tmp_path / 'hark.db'}", f"sqlite:///{tmp_path / 'hark.db'}"):
        with Hark(url):
            pass
    assert caplog.records == []


def test_a_file_that_cannot_be_created_is_left_to_sqlite(tmp_path: Path) -> None:
    private_file.create_or_warn(str(tmp_path / "nowhere" / "hark.db"))
    private_file.create_or_warn(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_x3_many_processes_that_create_one_file_together_agree(tmp_path: Path) -> None:
    code = f"from hark import Hark\nwith Hark('sqlite:///{tmp_path}/hark.db'): pass"
    processes = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
    assert mode(tmp_path / "hark.db") == 0o600
