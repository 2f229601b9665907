"""Translate errors of SQLite into the kinds of failure of the contract (store/protocol.py)."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from typing import Final

import apsw

from hark.model.errors import InvalidInput, StoreUnavailable
from hark.model.reasons import reason
from hark.store.protocol import Conflicted, Damaged, Full, Refused, StoreFault

_FULL: Final = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.NoMemError)
DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError)


def fault_of(error: apsw.Error, db: apsw.Connection) -> StoreFault:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Conflicted(reason(error))
    if isinstance(error, DAMAGED):
        return Damaged(f"{reason(error)}. {_repair(db.filename)}")
    return Full(reason(error)) if isinstance(error, _FULL) else Refused(reason(error))


def damaged(error: apsw.Error, path: str) -> StoreUnavailable:
    return StoreUnavailable(f"The SQLite database {path!r} is damaged: {reason(error)}. {_repair(path)}.")


def _repair(path: str) -> str:
    """Say what to do about a damaged file."""
    path = shlex.quote(path)
    return (
        f'Stop all processes that use the database and copy it with its -wal file. `sqlite3 {path} "PRAGMA '
        f'integrity_check"` lists what is damaged. If that is only an index, `sqlite3 {path} REINDEX` repairs it; else '
        f"restore a backup, or save what can be read: `sqlite3 {path} .recover | sqlite3 NEW`. Check the disk"
    )


@contextlib.contextmanager
def opening(path: str | None) -> Iterator[None]:
    """Translate the errors that SQLite raises while a file is opened."""
    try:
        yield
    except apsw.NotADBError as error:
        raise InvalidInput(
            f"{path!r} is not a SQLite database; nothing was changed. Give the path of a database, or of a new file. "
            "If it was one, its first page is damaged: restore a backup."
        ) from error
    except apsw.CorruptError as error:
        raise damaged(error, path or "") from error
    except apsw.Error as error:
        if path and os.path.isdir(path):
            raise InvalidInput(f"{path!r} is a folder. Give the path of a file in it.") from error
        raise StoreUnavailable(
            f"SQLite cannot open {path!r}: {reason(error)}. Check that the folder exists and is writable, and that the "
            "disk is not full."
        ) from error
