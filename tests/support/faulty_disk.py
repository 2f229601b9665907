"""A disk under SQLite that can be full or fail to sync: a VFS in front of the real one.

>>> with FaultyDisk() as disk:  # the default for every connection opened meanwhile
...     disk.full = True
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import apsw


class FaultyDisk(apsw.VFS):
    def __init__(self) -> None:
        self.full = False  # writes fail as on a disk without room
        self.unsynced = False  # fsync fails: what was written may not be there after a power cut
        self.failures = 0
        self._before = apsw.vfs_names()[0]
        super().__init__("faulty", self._before)

    def xOpen(self, name: Any, flags: Any) -> _File:
        return _File(self, name, flags)

    def fail(self, error: type[apsw.Error], code: int = 0) -> None:
        self.failures += 1
        found = error("injected")
        found.extendedresult = code
        raise found

    def __enter__(self) -> Self:
        apsw.set_default_vfs("faulty")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        apsw.set_default_vfs(self._before)
        self.unregister()


class _File(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: Any) -> None:
        self.disk = disk
        super().__init__(disk._before, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.disk.full:
            self.disk.fail(apsw.FullError)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self.disk.unsynced:
            self.disk.fail(apsw.IOError, apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)
