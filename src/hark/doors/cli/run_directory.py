"""The directory of a running command of a task, which `hark awakeable create` uses. The worker makes it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from hark.model.errors import InvalidInput


@contextlib.contextmanager
def next_place() -> Iterator[str]:
    """The place of the next awakeable of this run of the command: the nth one of every run has the same place.

    The place counts only if the block ends without an error. Other processes of the command wait for that: two of them
    never get the same place.

    Raises:
        InvalidInput: This process is not part of a task's command, or the directory is not available to it.
    """
    import fcntl

    directory = os.environ.get("HARK_RUN_DIR")
    if not directory:
        raise InvalidInput("HARK_RUN_DIR is not set: pass on the variables of the task whose names begin with HARK_.")
    try:
        file = open(os.path.join(directory, "awakeables"), "r+", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise InvalidInput(
            f"The directory of the task, HARK_RUN_DIR={directory}, cannot be used here: {error.strerror}. The command "
            "has ended, or it runs in a container: create the awakeable outside of it, and pass on its id."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        period, *made = file.read().splitlines()
        yield f"awakeable#{period}.{len(made)}"
        file.write("+\n")
