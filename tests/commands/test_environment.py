"""The environment of a command, and the directory of its run."""

import os
import sys
from pathlib import Path

from hark.engine.commands.environment import run_directory, task_environment


def environment(base: dict[str, str], url: str | None = "postgresql://host/db", **more: Path) -> dict[str, str]:
    return task_environment(
        base, url=url, schema="hark", job="j", task="build", attempt=2, lease="7.j.0", directory=Path("/run/x"), **more
    )


def test_a_command_gets_the_environment_of_the_worker_and_its_task() -> None:
    found = environment({"HOME": "/home/x", "PATH": "/bin", "HARK_DB": "other", "HARK_SECRET": "s"})
    assert found == {
        "HOME": "/home/x",
        "PATH": f"/bin{os.pathsep}{os.path.dirname(sys.executable)}",
        "HARK_SECRET": "s",
        "HARK_DB": "postgresql://host/db",
        "HARK_SCHEMA": "hark",
        "HARK_JOB": "j",
        "HARK_TASK": "build",
        "HARK_ATTEMPT": "2",
        "HARK_LEASE": "7.j.0",
        "HARK_RUN_DIR": "/run/x",
    }


def test_commands_use_the_store_of_the_task_and_no_other() -> None:
    found = environment({"HARK_SERVER": "http://x", "HARK_DB": "other", "HARK_CONTEXT": "old"}, url=None)
    assert not {"HARK_SERVER", "HARK_DB", "HARK_SCHEMA", "HARK_CONTEXT"} & set(found)
    assert environment({}, context=Path("/run/x/context.json"))["HARK_CONTEXT"] == "/run/x/context.json"


def test_the_directory_of_a_run_is_private_and_does_not_outlive_it() -> None:
    with run_directory(3) as directory:
        assert (directory / "awakeables").read_text() == "3\n"
        assert directory.stat().st_mode & 0o777 == 0o700
    assert not directory.exists()
