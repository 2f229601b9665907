"""Protect the file of a SQLite database from other users: it holds the secret that signs links, and all payloads.

SQLite gives `-wal` and `-shm` the mode of the database itself.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import Final

from hark.model.log import get_logger

_log = get_logger()
_OTHERS: Final = stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH
_warned: set[str] = set()  # files this process has warned about


def create_or_warn(path: str) -> None:
    """Create the file with mode 0600, before SQLite can create it with the mode of the umask.

    A file that exists keeps its mode, because it may be shared on purpose; the log says once per process if others may
    read it. An error is left to SQLite, which finds it too.
    """
    real = os.path.realpath(path)  # a symbolic link to a file that does not exist yet
    try:
        file = os.open(real, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except FileExistsError:
        _warn_if_open_to_others(real)
    except OSError:
        pass
    else:
        if hasattr(os, "fchmod"):  # not on Windows
            os.fchmod(file, 0o600)  # the umask may have taken more
        os.close(file)


def _warn_if_open_to_others(path: str) -> None:
    if os.name != "posix" or path in _warned:
        return
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & _OTHERS:
        _warned.add(path)
        _log.warning(
            "Other users of this machine can read or change the database, which holds the secret of the answer links. "
            "Run: chmod 600 %s",
            shlex.quote(path),
        )
