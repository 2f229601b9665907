"""ProcessAccess: what the interpreter of processes and the programs of their tasks read of the store."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

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

    async def variables(self, process: str) -> Mapping[str, Any]:
        """The variables that a process has now. All its tasks that begin before they change share them."""

        async def read(store: Store) -> Mapping[str, Any]:
            # On the clerk's loop, as all that touches `_variables`.
            kept = self._variables.get(process)
            if kept is None:
                kept = self._variables[process] = _KeptVariables()
                if len(self._variables) > _MAX_KEPT:
                    self._variables.popitem(last=False)
            self._variables.move_to_end(process)
            return await kept.current(store, process)

        reply: Reply[Mapping[str, Any]] = Reply()
        self._clerk.read(read, reply)
        return await reply


class _KeptVariables:
    """The variables of one process, as they were last read."""

    def __init__(self) -> None:
        self._variables: dict[str, Any] = {}
        self._epoch = -1  # at which they were read
        self._beginning = ""  # of the text of the state, up to the end of the variables; empty: not known
        self._lock = asyncio.Lock()

    async def current(self, store: Store, process: str) -> Mapping[str, Any]:
        """The variables now. One of the tasks that begin at an epoch reads them; the others only ask for the epoch."""
        for (epoch,) in await store.read(reads.process_epoch, id=process):
            async with self._lock:
                if self._epoch >= epoch:
                    return self._variables
                for at, text in await store.read(reads.process_state, id=process):
                    self._keep(text)
                    self._epoch = at
                    return self._variables
        raise NotFound(f"The process {process!r} is not in the store any more.")

    def _keep(self, text: str) -> None:
        """Decode the variables, unless they are the same as before: each of thousands of tasks changes the state of its
        process when it ends, and few change its variables."""
        if self._beginning and text.startswith(self._beginning):
            return
        raw = _decode(text).variables
        beginning = _FIRST_KEY + bytes(raw).decode()
        self._beginning = beginning if text.startswith(beginning) else ""
        self._variables = json.load(bytes(raw))


class _StoredVariables(msgspec.Struct):
    """What is read of the state of a process (programs/processes/state.py)."""

    variables: msgspec.Raw = msgspec.Raw(b"{}")


_FIRST_KEY: Final = '{"variables":'
_decode = msgspec.json.Decoder(_StoredVariables).decode
