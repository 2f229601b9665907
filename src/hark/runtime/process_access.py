"""ProcessAccess: what the interpreter of processes and the programs of their tasks read of the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from hark.model import json
from hark.model.errors import NotFound
from hark.runtime.clerk import Clerk
from hark.runtime.reply import Reply
from hark.store import reads
from hark.store.protocol import Store

if TYPE_CHECKING:
    from hark.programs.processes.graph import ProcessGraph

_MAX_KEPT: Final = 64  # processes whose variables are kept for their tasks


async def read_source(clerk: Clerk, definition: str, version: int) -> tuple[str, str]:
    """The kind and the source of a version of a deployed definition."""

    async def read(store: Store) -> tuple[str, str]:
        for row in await store.read(reads.sources_of, [(definition, version)]):
            if row.source is not None:
                return row.kind, row.source
        raise NotFound(f"The source of {definition!r} version {version} is not in the store. Deploy it again.")

    reply: Reply[tuple[str, str]] = Reply()
    clerk.read(read, reply)
    return await reply


class ProcessAccess:
    """The processes of one app. Sources are read once and kept: the source of a version never changes.

    The code of processes is imported where it is used: an app without processes never loads it.
    """

    def __init__(self, clerk: Clerk) -> None:
        self._clerk = clerk
        self._graphs: dict[tuple[str, int], ProcessGraph] = {}
        self._variables: OrderedDict[str, _KeptVariables] = OrderedDict()

    def forget(self) -> None:
        """The app may be opened on another store, which has versions and instances of its own."""
        self._graphs = {}
        self._variables = OrderedDict()

    async def process(self, definition: str, version: int) -> ProcessGraph:
        """The process of one version of a definition."""
        known = self._graphs.get((definition, version))
        if known is None:
            from hark.programs.processes.graph import process_graph

            _, source = await read_source(self._clerk, definition, version)
            known = self._graphs[definition, version] = process_graph(source)
        return known

    async def variables(self, process: str, epoch: int, since: int) -> Mapping[str, Any]:
        """The variables that a process has at this epoch or a later one; it was at an earlier one at `since`, µs. Its
        tasks share them. What was read before `since` may be of an earlier instance with the same id."""
        kept = self._variables.get(process)
        if kept is None:
            kept = self._variables[process] = _KeptVariables(process)
            if len(self._variables) > _MAX_KEPT:
                with contextlib.suppress(KeyError):  # another thread was faster
                    self._variables.popitem(last=False)
        if kept.last.is_current(epoch, since):
            return kept.last.variables
        reply: Reply[Mapping[str, Any]] = Reply()
        self._clerk.read(lambda store: kept.read(store, epoch, since, self._clerk.now), reply)
        return await reply


class _ReadVariables(NamedTuple):
    """Variables, with the epoch of the process and the time when they were read."""

    variables: dict[str, Any]
    epoch: int
    at: int

    def is_current(self, epoch: int, since: int) -> bool:
        return self.epoch >= epoch and self.at >= since


class _KeptVariables:
    """The variables of one process, as they were last read.

    Attributes:
        last: What was read.
    """

    def __init__(self, process: str) -> None:
        self.last = _ReadVariables({}, -1, 0)
        self._process = process
        self._beginning = ""  # of the text of the state, up to the end of the variables; empty: not known
        self._lock = asyncio.Lock()

    async def read(self, store: Store, epoch: int, since: int, now: Callable[[], int]) -> Mapping[str, Any]:
        """The variables at this epoch or a later one. On the clerk's loop. Of many that ask together, one reads."""
        async with self._lock:
            if not self.last.is_current(epoch, since):
                at = now()
                rows = await store.read(reads.process_state, id=self._process)
                if not rows:
                    raise NotFound(f"The process {self._process!r} is not in the store any more.")
                [(found, text)] = rows
                self.last = _ReadVariables(self._decoded(text), found, max(at, since))
            return self.last.variables

    def _decoded(self, text: str) -> dict[str, Any]:
        """The variables in a state: those that were read before, if they are the same. Each end of a task changes the
        state of its process, and few change the variables."""
        if self._beginning and text.startswith(self._beginning):
            return self.last.variables
        raw = _decode(text).variables
        beginning = _FIRST_KEY + bytes(raw).decode()
        self._beginning = beginning if text.startswith(beginning) else ""
        found: dict[str, Any] = json.load(bytes(raw))
        return found


class _StoredVariables(msgspec.Struct):
    """What is read of the state of a process (programs/processes/state.py)."""

    variables: msgspec.Raw = msgspec.Raw(b"{}")


_FIRST_KEY: Final = '{"variables":'
_decode = msgspec.json.Decoder(_StoredVariables).decode
