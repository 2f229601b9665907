"""The verbs about versions of definitions and about deploys."""

from __future__ import annotations

from hark.app.arguments import check_limit, optional_name
from hark.app.core import Core
from hark.app.registered_jobs import schedule_of_job
from hark.engine.turns.reply import Reply
from hark.kernel.requests import DefinitionRow, Register, Retire
from hark.model import json
from hark.model.errors import InvalidInput
from hark.model.lanes import BPMN, INTERPRETED
from hark.model.log import get_logger
from hark.model.names import check_name, version_problem
from hark.model.page import Page
from hark.model.trigger import Trigger
from hark.model.values import DefinitionView
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import DefinitionSource
from hark.views import definition_views

_log = get_logger()


class VersionVerbs(Core):
    """definitions, retire, unretire."""

    def definitions(
        self, *, name: str | None = None, limit: int = 100, after: str | None = None
    ) -> Reply[Page[DefinitionView]]:
        """List the versions of all definitions, or of one, by name and version.

        Args:
            name: Only the versions of this definition.
            limit: How many at most, up to 10,000.
            after: The `.next` of the page before.

        Returns:
            A reply with a `Page` of `DefinitionView`s.

        Example:
            for version in await app.definitions(name="order"):
                print(version.version, version.live, version.workers)
        """
        size = check_limit(limit)
        wanted, place = optional_name(name, "name"), optional_name(after, "after")
        return self._read(lambda store: definition_views.versions(store, wanted, size, place))

    def retire(self, name: str, version: int) -> Reply[None]:
        """Take a version out of the choice of starts by name, schedules, messages and broadcasts: they choose the
        newest other one. Its instances finish, and it can still be started with `version=`.

        Args:
            name: The name of the definition.
            version: Its version.

        Raises:
            NotFound: There is no such version.
            InvalidInput: An argument is malformed.

        Example:
            await app.retire("order", 3)  # roll back: starts choose version 2 again
        """
        return self._retire(name, version, retired=True)

    def unretire(self, name: str, version: int) -> Reply[None]:
        """Take a retired version back into the choice of starts by name.

        Args:
            name: The name of the definition.
            version: Its version.

        Raises:
            NotFound: There is no such version.
            InvalidInput: An argument is malformed.
        """
        return self._retire(name, version, retired=False)

    def _retire(self, name: str, version: int, *, retired: bool) -> Reply[None]:
        check_name(name, "definition")
        if problem := version_problem(version):
            raise InvalidInput(f"{problem}.")

        async def change(store: Store) -> None:
            is_changed = False
            while not is_changed:
                chosen, starts = await self._left_to_start(store, name, version, retired=retired)
                asked: Reply[bool] = self._ask(
                    Retire(name=name, version=version, retired=retired, chosen=chosen, starts=starts)
                )
                is_changed = await asked

        return self._read(change)

    async def _left_to_start(
        self, store: Store, name: str, version: int, *, retired: bool
    ) -> tuple[int | None, list[Trigger]]:
        """The version of a job or a process that starts by name will choose, and its triggers."""
        rows = [row for row in await store.read(reads.all_versions) if row.name == name and row.kind in INTERPRETED]
        startable = [
            row.version for row in rows if (retired if row.version == version else row.retired_at is not None) is False
        ]
        if not startable:
            return None, []
        chosen = max(startable)
        [source] = await store.read(reads.sources_of, [(name, chosen)])
        return chosen, _triggers_of(source, self._clerk.now())

    def _register_code(self, rows: list[DefinitionRow]) -> Reply[None]:
        """Record definitions that are code, and say in the log which of them have other code than before."""
        asked: Reply[list[tuple[str, int]]] = self._ask(
            Register(rows=rows), lambda changes: [(change.name, change.version) for change in changes]
        )

        async def warn(store: Store) -> None:
            if changed := await asked:
                for text in await definition_views.changes(store, changed, self._registry.fingerprints()):
                    _log.warning("%s", text)

        return self._read(warn)


def _triggers_of(source: DefinitionSource, now: int) -> list[Trigger]:
    """The triggers that a version of a job or a process brings. The code of both is imported where it is used."""
    assert source.source is not None
    if source.kind == BPMN:
        from hark.app.bpmn_deployment import triggers_of
        from hark.programs.bpmn.bpmn_spec import decode_bpmn

        return triggers_of(decode_bpmn(source.source).process, now)
    from hark.programs.jobs.job_spec import decode_job

    spec = decode_job(source.source)
    if spec.schedule is None:
        return []
    state = json.dump(spec.schedule.input)
    return [schedule_of_job(source.name, spec.schedule, state)]
