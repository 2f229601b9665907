"""The verb that moves live instances to another version of their definition."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from hark.app.arguments import check_filters, optional_name, target_of
from hark.app.core import Core
from hark.app.handle import Handle, Target
from hark.engine.bulk.bulk_request import Asked, Change, Selection
from hark.engine.turns.reply import Reply
from hark.kernel.requests import StartInstances
from hark.model import json
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidInput, InvalidMigration, NotFound
from hark.model.lanes import BPMN, BULK, ENGINE_QUEUE
from hark.model.migration import refuse
from hark.model.names import check_name, new_id, version_problem
from hark.model.problem import Problem
from hark.model.values import Preview
from hark.store import reads
from hark.store.protocol import Store
from hark.views import instance_views, listing

if TYPE_CHECKING:
    from hark.engine.bulk.bulk_program import BulkWork
    from hark.engine.bulk.migrate_page import PageResult
    from hark.engine.bulk.migrator import Migrator
    from hark.programs.functions.function_program import FunctionProgram

# The code that computes migrations is imported where it is used: few programs do.
_PAGE = 200  # instances of one turn
_SHOWN = 20
_FILTERS = ("status", "definition", "kind", "tags", "key_prefix", "created_after", "created_before")

StateFunction = Callable[[Any], Any] | str


class MigrationVerbs(Core):
    """migrate."""

    @overload
    def migrate(
        self, target_or_filter: Target | Mapping[str, Any], *, to_version: int, state: StateFunction | None = None,
        steps: Mapping[str, str] | None = None, elements: Mapping[str, str] | None = None,
        preview: Literal[False] = False, by: str | None = None,
    ) -> Reply[Handle[dict[str, int]]]: ...  # fmt: skip
    @overload
    def migrate(
        self, target_or_filter: Target | Mapping[str, Any], *, to_version: int, state: StateFunction | None = None,
        steps: Mapping[str, str] | None = None, elements: Mapping[str, str] | None = None,
        preview: Literal[True], by: str | None = None,
    ) -> Reply[Preview]: ...  # fmt: skip
    def migrate(
        self,
        target_or_filter: Target | Mapping[str, Any],
        *,
        to_version: int,
        state: StateFunction | None = None,
        steps: Mapping[str, str] | None = None,
        elements: Mapping[str, str] | None = None,
        preview: bool = False,
        by: str | None = None,
    ) -> Reply[Any]:
        """Move live instances to another version of their definition, each in one commit.

        A machine continues at the same step, or at that of `steps`, with its state, or what `state` makes of it. A
        process continues at the elements with the same ids, or those of `elements`. A function or a job moves if the
        new version fits what it has done. What an instance waits for, its questions, children and inbox stay. Instances
        that execute are tried again for half a minute.

        The instances are moved by an instance of the definition `hark.bulk`, which a worker runs: one that has the new
        code and can import `state`.

        Args:
            target_or_filter: One instance, by its id, key or handle; or the options of `list` that select many, as a
                dict, with a `definition`. Without a `status` all that have not finished are selected.
            to_version: The version to go on with.
            state: Of machines: a function at the top level of a module, or its name as "module:function". It gets the
                stored state as JSON, or as an object of the type of its parameter, and returns the new one.
            steps: Of machines: the new name of each step that is not called the same.
            elements: Of processes: the new id of each element and flow that has another one; `""` for an event that
                is waited for anew.
            preview: Compute what would happen, and change nothing.
            by: The name of the person or program that asks for it, for the history.

        Returns:
            A reply with the `Handle` of the bulk instance, whose result is `{"done": …, "skipped": …, "failed": …}`,
            and whose progress names the first instances that cannot be moved; or, with `preview`, a `Preview`.

        Raises:
            InvalidMigration: The one instance cannot be moved, or a map names a step that does not exist; nothing has
                changed. `.problems` has the reasons.
            NotFound: There is no such instance, definition or version.
            InvalidInput: An argument is malformed, or `state` cannot be imported.

        Example:
            moved = await app.migrate({"definition": "order"}, to_version=2, state="orders:with_currency")
            print(await moved.result())
        """
        from hark.engine.bulk.migrator import state_name

        if problem := version_problem(to_version):
            raise InvalidInput(f"to_{problem}.")
        change = Change(to_version, state_name(state), _names(steps, "steps"), _names(elements, "elements", gone=True))
        name = optional_name(by, "by")
        many = isinstance(target_or_filter, Mapping)
        filters = _filters(target_or_filter) if isinstance(target_or_filter, Mapping) else None
        target = None if many else target_of(target_or_filter)

        async def carry_out(store: Store) -> Any:
            if target is not None:
                selection, definition, old_kind = await _one(store, target)
            else:
                assert filters is not None
                assert filters.definition is not None
                selection, definition, old_kind = Selection(filters=filters), filters.definition, None
            kind = await self._check_change(store, change, definition)
            if target is not None and kind != old_kind:
                raise _refusal(target, f"it is a {old_kind}, and version {to_version} of {definition!r} is a {kind}")
            if selection.filters is not None:
                selection = Selection(filters=dataclasses.replace(selection.filters, kind=kind))
            return await self._begin_migration(store, change, selection, name, preview=preview)

        return self._read(carry_out)

    async def _check_change(self, store: Store, change: Change, definition: str) -> str:
        """The kind of the definition, after a check of what concerns all of its instances."""
        rows = [row for row in await store.read(reads.all_versions) if row.name == definition]
        row = next((row for row in rows if row.version == change.to_version), None)
        if row is None:
            have = ", ".join(str(row.version) for row in rows)
            found = f"it has: {have}" if rows else "it is not a definition of this store"
            raise NotFound(
                f"There is no version {change.to_version} of {definition!r}; {found}. Register it, or deploy its file."
            )
        if row.kind != "machine" and (change.state is not None or change.steps):
            raise InvalidInput(f"{definition!r} is a {row.kind}: `state` and `steps` are for machines.")
        if row.kind != BPMN and change.elements:
            raise InvalidInput(f"{definition!r} is a {row.kind}: `elements` is for processes.")
        program = self._registry.find(definition, change.to_version)
        if program is not None and (unknown := [step for step in change.steps.values() if step not in program.steps]):
            raise refuse(
                f"{definition} version {change.to_version}",
                [Problem(step, None, f"there is no such step; it has: {', '.join(program.steps)}") for step in unknown],
            )
        return row.kind

    async def _begin_migration(
        self, store: Store, change: Change, selection: Selection, by: str | None, *, preview: bool
    ) -> Any:
        if preview or selection.ids is not None:
            found, error = await self._preview(store, change, selection)
            if error is not None:
                raise error
            if preview:
                return found
        asked = Asked(selection, change, by)
        item = NewInstance(
            definition=BULK, state=json.dump(msgspec.to_builtins(asked), limit=self._max_payload, what="request"),
            id=new_id(), version=1, step="start", queue=ENGINE_QUEUE, lane=BULK, kind="workflow",
        )  # fmt: skip
        started: Reply[list[str]] = self._ask(StartInstances(items=[item]))
        await started
        return self._handle(item.id)

    async def _preview(
        self, store: Store, change: Change, selection: Selection
    ) -> tuple[Preview, InvalidMigration | None]:
        """Compute what would happen; for a single instance also the error that refuses it."""
        from hark.engine.bulk.migrate_page import compute
        from hark.engine.bulk.migrator import CodeMissing, problems_of

        migrator = self._migrator(change)
        count, skipped, receivers, problems = 0, 0, list[str](), list[str]()
        error: InvalidMigration | None = None
        page = await _select(store, selection, None)
        while True:
            try:
                found = await compute(store, migrator, change, page.ids)
            except CodeMissing as missing:
                if not selection.ids:
                    raise InvalidInput(
                        f"This process cannot tell what would happen: it does not have {missing}. Register it here, or "
                        "leave out the preview."
                    ) from None
                return Preview(1, selection.ids), None
            count += len(found.moves) + len(found.busy)
            skipped += len(found.already)
            receivers += [one.id for one in found.moves] + found.busy
            problems += [
                f"{id}: {'; '.join(str(problem) for problem in problems_of(one))}" for id, one in found.problems.items()
            ]
            if selection.ids is not None:
                error = _error_of_one(selection.ids[0], found.problems, found.busy)
            if page.place is None:
                break
            page = await _select(store, selection, page.place)
        return Preview(count, tuple(receivers[:_SHOWN]), (), (), skipped, tuple(problems[:_SHOWN])), error

    def _migrator(self, change: Change) -> Migrator:
        from hark.engine.bulk.migrator import Migrator

        return Migrator(change, self._registry, self._check_services(), self._max_payload)

    def _load_bulk_program(self) -> FunctionProgram:
        from hark.engine.bulk.bulk_program import bulk_program

        return bulk_program(self._bulk_work())

    def _bulk_work(self) -> BulkWork:
        """Make what the program of bulk instances asks of this app."""
        from hark.engine.bulk.bulk_program import BulkWork
        from hark.engine.bulk.migrate_page import PageResult, migrate_page

        async def select(selection: Selection, place: listing.Place | None) -> listing.LivePage:
            return await self._read(lambda store: _select(store, selection, place))

        async def migrate(change: Change, ids: list[str], bulk: str, by: str | None) -> PageResult:
            try:
                migrator = self._migrator(change)
            except InvalidInput as error:  # this process cannot import `state`
                return PageResult(lacks=str(error).rstrip("."))
            return await self._read(lambda store: migrate_page(store, self._ask, migrator, change, ids, bulk, by))

        return BulkWork(select, migrate)


async def _select(store: Store, selection: Selection, place: listing.Place | None) -> listing.LivePage:
    if selection.ids is not None:
        return listing.LivePage([*selection.ids], None)
    assert selection.filters is not None
    return await listing.live_page(store, selection.filters, _PAGE, place)


async def _one(store: Store, target: str) -> tuple[Selection, str, str]:
    """The selection of one instance, its definition and its kind."""
    found = await instance_views.get(store, target)
    if found.kind == "task":
        raise InvalidInput(f"{target!r} is a task: move the job or process that it belongs to.")
    if found.status in ("done", "cancelled"):
        raise _refusal(target, f"it is {found.status}")
    return Selection(ids=(found.id,)), found.definition, found.kind


def _error_of_one(id: str, problems: Mapping[str, Any], busy: Sequence[str]) -> InvalidMigration | None:
    if busy:
        return _refusal(id, "it executes a step; wait until that has ended, and try again")
    return problems.get(id)


def _refusal(label: str, reason: str) -> InvalidMigration:
    return refuse(repr(label), [Problem(None, None, reason)])


def _names(names: Mapping[str, str] | None, what: str, *, gone: bool = False) -> dict[str, str]:
    """Check a map of names. `gone`: an empty new name is accepted."""
    if names is None:
        return {}
    if not isinstance(names, Mapping):
        raise InvalidInput(f"{what}={names!r}: give a dict of old names to new ones.")
    return {
        check_name(_step(old), f"old name in {what}"): (
            "" if gone and new == "" else check_name(_step(new), f"new name in {what}")
        )
        for old, new in names.items()
    }


def _step(name: Any) -> Any:
    """The name of a step; a step of a machine may be given itself."""
    return getattr(name, "__hark_step__", name)


def _filters(given: Mapping[str, Any]) -> listing.Filters:
    options = {
        "status", "definition", "kind", "tags", "key_prefix", "created_after", "created_before",
    }  # fmt: skip
    if unknown := sorted(set(given) - options):
        raise InvalidInput(
            f"There is no filter {', '.join(map(repr, unknown))}. There are: {', '.join(sorted(options))}."
        )
    filters = check_filters(**{name: given.get(name) for name in options})
    if filters.definition is None:
        raise InvalidInput("Name the definition whose instances are to be moved: {'definition': …}.")
    return dataclasses.replace(filters, only_live=True)
