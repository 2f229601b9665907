"""Notice that the files of a SQLite database were removed or replaced while they are open (X5).

A process goes on writing to a file that has no name any more: what it acknowledges is lost when it ends. So a path
must still lead to the files that were opened. The log of SQLite (-wal) is one of them, because every commit goes
there. A file that is copied into ours stays the same and is not noticed, unless ours is found empty. Nothing here opens
a file: closing it again would release the locks that SQLite has on it in this process.

A process does not go on with the new file by itself. What it holds (claims, parked functions, caches, positions of
readers) is of the lost past, and a file that is being restored looks like one that is there. Nor does it end, since the
one that a supervisor starts instead would create an empty file in the middle of the restore.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from hark.model.log import get_logger
from hark.store.protocol import Replaced

_log = get_logger()
_LOG: Final = "-wal"
_INDEX: Final = "-shm"


class FileIdentity:
    """The files that one store has opened, by device and inode, which no other file can get while they are open."""

    __slots__ = ("_files", "_index", "_lost", "_path", "_real")

    def __init__(self, path: str) -> None:
        """Call it once SQLite has opened the file and has read from it: then it has all three files."""
        self._path = os.path.abspath(path)
        self._real = real = os.path.realpath(path)  # SQLite follows a link once, and puts the others beside the file
        self._files = [(name, _identity(name)) for name in (self._path, real + _LOG)]
        self._index = (real + _INDEX, _identity(real + _INDEX))
        self._lost: str | None = None
        self.check()

    def check(self) -> None:
        """Raise `Replaced` if a commit would not be in the database at the path. Costs 2 µs for each of two files.

        Once it has raised, it always does: a turn may have been committed to the file that is gone, which this process
        then does not know.
        """
        self.check_known()
        for name, opened in self._files:
            if opened is None or _identity(name) not in (opened, _UNKNOWN):
                self._lose(name)

    def check_all(self) -> None:
        """Check also the index of the log, without which other processes do not see the locks of this one."""
        if self._lost is not None:
            self._set_log_aside()
        self.check()
        name, opened = self._index
        if opened is None or _identity(name) not in (opened, _UNKNOWN):
            self._lose(name)

    def check_known(self) -> None:
        """Raise `Replaced` if an earlier check has. Costs nothing."""
        if self._lost is not None:
            raise Replaced(self._lost)

    def may_write(self) -> bool:
        """Return True if the -wal may be copied into the file when it is closed. If only the -wal was removed, that
        saves what is in it. If there is another -wal, other processes have read the file without ours."""
        (name, opened), (log, opened_log) = self._files
        return _identity(name) == opened and _identity(log) in (opened_log, None)

    def _lose(self, name: str) -> None:
        what = "was replaced by another file" if os.path.exists(name) else "was removed"
        if _identity(name) == _EMPTY:
            what = "was emptied"
        self._lost = f"{name!r} {what} while this process had it open"
        _log.error(
            "%s, so nothing is stored any more. Stop all processes that use %r, restore the database if it is to be, "
            "and start them again. To restore one, stop all processes first, and remove its -wal and -shm files.",
            self._lost, self._path,
        )  # fmt: skip
        self._set_log_aside()
        raise Replaced(self._lost)

    def _set_log_aside(self) -> None:
        """Rename our -wal and -shm if another database is in the place of ours: the next process that opens it would
        take them for those of the new one, and write pages of the old one into it. A file that is missing may come
        back, and needs its -wal then."""
        (_, opened), log = self._files
        if _identity(self._real) in (opened, None, _UNKNOWN):
            return
        for name, ours in (log, self._index):
            if ours is not None and _identity(name) == ours:
                aside = f"{name}.replaced-{os.getpid()}"
                with contextlib.suppress(OSError):  # another process of the old database has done it
                    os.rename(name, aside)
                    _log.warning("%r belongs to the database that was replaced; it is %r now.", name, aside)


def holders_of_removed(path: str) -> list[int]:
    """Find the processes that have a file open which was removed from this path. Linux says it, about processes of the
    same user; elsewhere there are none."""
    removed = f"{os.path.realpath(path)} (deleted)"
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc/self/fd") else ()):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if any(_link(f"/proc/{pid}/fd/{file}") == removed for file in os.listdir(f"/proc/{pid}/fd")):
                found.append(int(pid))
    return found


def _link(name: str) -> str:
    try:
        return os.readlink(name)
    except OSError:  # closed meanwhile
        return ""


_Identity = tuple[int, int]
_UNKNOWN: Final[_Identity] = (-1, -1)  # the file system does not say
_EMPTY: Final[_Identity] = (-2, -2)  # no database: one that is open has a page at least, and SQLite removes its -wal


def _identity(name: str) -> _Identity | None:
    """Device and inode of a file; None if there is none."""
    try:
        found = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNKNOWN
    if found.st_size == 0 and not name.endswith((_LOG, _INDEX)):
        return _EMPTY
    return found.st_dev, found.st_ino
