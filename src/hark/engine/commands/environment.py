"""Give a command the environment of its task: variables, and a directory that lasts as long as the command.

The directory has two files. `awakeables` counts what `hark awakeable create` creates in this run of the command: its
first line names the period of the task, in which the nth one is the same however often the command runs, and each
further line is one of them. `context.json` is the context of an agent. The guard removes the directory if the worker
was killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

_UNSET = ("HARK_SERVER", "HARK_SCHEMA", "HARK_CONTEXT")  # a command that says nothing else uses the store of its task


def task_environment(
    base: Mapping[str, str],
    *,
    url: str | None,
    schema: str,
    job: str,
    task: str,
    attempt: int,
    lease: str,
    directory: Path,
    context: Path | None = None,
) -> dict[str, str]:
    """The whole environment of a command.

    Args:
        base: The environment of the worker.
        url: The store, as another process reaches it; None if none can.
        schema: The schema of the store, in databases that have schemas.
        job: The id of the job.
        task: The name of the task.
        attempt: The attempt, from 1.
        lease: What fences the calls of the command: `{epoch}.{task id}`.
        directory: The directory of this run.
        context: The file with the context of an agent.
    """
    found = {name: value for name, value in base.items() if name not in _UNSET}
    found |= {
        "HARK_JOB": job,
        "HARK_TASK": task,
        "HARK_ATTEMPT": str(attempt),
        "HARK_LEASE": lease,
        "HARK_RUN_DIR": str(directory),
        "PATH": _path_with_hark(base.get("PATH", os.defpath)),
    }
    if url is None:
        found.pop("HARK_DB", None)
    else:
        found |= {"HARK_DB": url, "HARK_SCHEMA": schema}
    if context is not None:
        found["HARK_CONTEXT"] = str(context)
    return found


@contextlib.contextmanager
def run_directory(period: int) -> Iterator[Path]:
    """A private directory for one run of a command, with its file `awakeables`."""
    directory = Path(tempfile.mkdtemp(prefix="hark-task-"))
    try:
        (directory / "awakeables").write_text(f"{period}\n", "utf-8")
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _path_with_hark(path: str) -> str:
    """PATH, at whose end the scripts of this Python are found: `hark` is one of them."""
    scripts = os.path.dirname(sys.executable)
    return path if not scripts or scripts in path.split(os.pathsep) else f"{path}{os.pathsep}{scripts}"
