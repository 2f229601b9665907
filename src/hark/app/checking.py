"""The verb that checks code against what is live, before a deploy (V2)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hark.app import live_export
from hark.app.core import Core
from hark.app.new_instances import program_of
from hark.engine.turns.reply import Reply, answer_all
from hark.engine.worker.registry import Registry
from hark.model.activation import Claim
from hark.model.names import check_name
from hark.model.report import Report
from hark.store import reads
from hark.store.protocol import Store
from hark.views import live

if TYPE_CHECKING:
    from hark.engine.check.code_check import CodeCheck
    from hark.programs.functions.workflow import Workflow
    from hark.programs.machines.machine import Machine

_REST = 14  # times the processor time of a page

Progress = Callable[[int, int], None]
"""Called with how many instances are done, and how many there are."""


class CheckVerbs(Core):
    """check."""

    def check(
        self, *definitions: Workflow[..., Any] | type[Machine] | str, export: str | Path | None = None
    ) -> Reply[Report]:
        """Find out what the code of this process does to the unfinished instances, before it is deployed.

        Every function is replayed from its journal: its code runs up to where the instance is, and no further. No run
        is executed, and nothing is written. Of machines the step and the state are looked up, of jobs the handlers and
        gates, of processes the source.

        Args:
            *definitions: Only these, by name or as code, which need not be registered; by default all.
            export: A file that `hark export --live` wrote, instead of the store. The app need not be open.

        Returns:
            A reply with a `Report`.

        Raises:
            InvalidInput: An argument is malformed, or the file is not such an export.

        Example:
            report = await app.check()
            assert not report.problems, report.problems
        """
        return self._check(definitions, export, lambda done, total: None)

    def _check(self, definitions: Collection[Any], export: str | Path | None, progress: Progress) -> Reply[Report]:
        registry, names = self._registry.copy(), set()
        for one in definitions:
            if isinstance(one, str):
                names.add(check_name(one, "definition"))
            else:
                program = program_of(one)
                registry.replace(program)
                names.add(program.name)
        wanted = names or None
        if export is not None:
            return _in_a_thread(lambda: self._check_export(Path(export), registry, wanted, progress))
        return self._read(lambda store: self._check_store(store, registry, wanted, progress))

    def _begin(self, registry: Registry, names: Collection[str] | None) -> CodeCheck:
        from hark.engine.check.code_check import CodeCheck

        return CodeCheck(registry, names, self._check_services(registry))

    async def _check_store(
        self, store: Store, registry: Registry, names: Collection[str] | None, progress: Progress
    ) -> Report:
        check = self._begin(registry, names)
        async for claims, done, total in _live(store, names):
            for source in await store.read(reads.sources_of, check.lacks_source(claims)):
                check.add_source(source.name, source.version, source.source or "")
            await asyncio.to_thread(check.add, claims)
            progress(done, total)
        return check.report()

    def _check_export(
        self, path: Path, registry: Registry, names: Collection[str] | None, progress: Progress
    ) -> Report:
        check = self._begin(registry, names)
        with live_export.read(path) as exported:
            for source in exported.sources:
                check.add_source(*source)
            for done, claim in enumerate(exported.claims(), 1):
                if names is None or claim.definition in names:
                    try:
                        check.add([claim])
                    except Exception as error:  # of a row that no store has
                        raise exported.damaged(error) from error
                progress(done, exported.total)
        return check.report()

    def _export_live(self, path: Path, names: Collection[str] | None, progress: Progress) -> Reply[int]:
        """Write the file that `check(export=…)` reads. The reply has the number of instances."""

        async def write(store: Store) -> int:
            versions = [
                (row.name, row.version)
                for row in await store.read(reads.all_versions)
                if row.kind in ("job", "bpmn") and (names is None or row.name in names)
            ]
            sources = await store.read(reads.sources_of, versions)
            written = 0
            with live_export.write(path, [(one.name, one.version, one.source or "") for one in sources]) as file:
                async for claims, done, total in _live(store, names):
                    await asyncio.to_thread(file.add, claims)
                    written += len(claims)
                    progress(done, total)
            return written

        return self._read(write)


async def _live(store: Store, names: Collection[str] | None) -> AsyncIterator[tuple[list[Claim], int, int]]:
    """The unfinished instances in pages, each with how many ids are done and how many there are.

    It rests between them while there are workers: one on a machine with two cores kept 0.83 of its rate without that,
    because the connection of the check has the priority of all connections. Processor time, and not time: on a busy
    machine the check waits as it is."""
    ids, now = await live.live_ids(store, names), await store.time()
    rest = _REST if any(worker.until >= now for worker in await store.read(reads.all_workers)) else 0
    used = time.process_time()
    async for claims, left in live.pages(store, ids):
        yield claims, len(ids) - left, len(ids)
        if left:
            await asyncio.sleep(rest * (time.process_time() - used))
            used = time.process_time()


def _in_a_thread(work: Callable[[], Report]) -> Reply[Report]:
    reply: Reply[Report] = Reply()

    def answer() -> None:
        try:
            found: Any = work()
        except Exception as error:
            found = error
        answer_all([(reply, found)])

    threading.Thread(target=answer, name="hark-check", daemon=True).start()
    return reply
