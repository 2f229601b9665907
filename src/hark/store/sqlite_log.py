"""Copy the -wal of a SQLite database into its file while the store is at rest (V7).

SQLite does it after every 1,000 pages, and when the last connection is closed: a quiet store could have everything in
its -wal for days, and a copy of the file alone was an empty database.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

import apsw

from hark.store.file_identity import FileIdentity

_REST: Final = 1.0  # seconds without a turn after which the -wal is copied into the file
_REST_OF_OTHERS: Final = 10.0  # the same after commits of other processes, which do it first if they rest


def copy_log(db: apsw.Connection) -> bool:
    """Copy the -wal into the file, without waiting for readers that need older pages. Return True if all of it was
    copied. The -wal keeps its size, and the next write begins it anew."""
    [[busy, frames, copied]] = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return not busy and frames == copied


def close(db: apsw.Connection, identity: FileIdentity | None, *, copy: bool = False) -> None:
    """Close a connection. With `copy`, the file is whole afterwards, also if another process has it open."""
    if identity is not None and not identity.may_write():
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    elif identity is not None and copy:
        with contextlib.suppress(apsw.Error):  # nothing is lost: the next process that opens the file reads its -wal
            copy_log(db)
    db.close()


def copy_beside(path: str) -> bool:
    """As `copy_log`, on a connection of its own: for a thread that waits for the disk."""
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return copy_log(db)
    except apsw.BusyError:
        return False
    finally:
        db.close()


class Rest:
    """Decides when the -wal is copied: once after the last turn of this process, and now and then for other processes.

    A busy store is not copied here: SQLite does it after every 1,000 pages.
    """

    __slots__ = ("_due", "_seen", "copied")

    def __init__(self) -> None:
        self.copied: object | None = None
        """The last turn that is in the file; the process has none before it."""
        self._seen: object | None = None
        self._due: float | None = None  # by the monotonic clock

    def is_due(self, last: object | None, *, moved: bool) -> bool:
        """Return True when the time has come. Called at each poll, so that a turn has nothing to do for it.

        Args:
            last: The last turn of this process.
            moved: Another connection has committed since the last call.
        """
        now = time.monotonic()
        if last is not self._seen:
            self._seen = last
            self._due = now + _REST
        elif moved and self._due is None:
            self._due = now + _REST_OF_OTHERS
        if self._due is None or now < self._due:
            return False
        self._due = None
        return True

    def put_off(self) -> None:
        """Try again later: another process copies, or a reader needs older pages."""
        self._due = time.monotonic() + _REST_OF_OTHERS
