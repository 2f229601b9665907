"""Migrator: computes what becomes of instances that move to another version of their definition (V4).

It reads what they have committed and writes nothing. Machines get the function and the map of steps that the caller
gave, processes the map of elements; functions and jobs move if the new code fits what they have committed.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hark.engine.bulk.bulk_request import Change
from hark.engine.worker.registry import Registry
from hark.model import json
from hark.model.activation import Claim
from hark.model.errors import HarkError, InvalidInput, InvalidMigration
from hark.model.failures import failure_of
from hark.model.lanes import BPMN, JOB, code_lane, what_runs
from hark.model.migration import Migrated, refuse
from hark.model.problem import Problem

if TYPE_CHECKING:
    from hark.programs.machines.steps import StepProgram

Version = tuple[str, int]


class CodeMissing(Exception):
    """This process does not have the code that the migration needs; another one may."""


class Migrator:
    """Computes one migration, for any number of instances."""

    def __init__(self, change: Change, registry: Registry, check_services: Any, max_payload: int) -> None:
        self._change = change
        self._registry = registry
        self._check_services = check_services
        self._max_payload = max_payload
        self._sources: dict[Version, str] = {}
        self._convert = None if change.state is None else _converter(change.state)

    def lacks_source(self, claims: Iterable[Claim]) -> list[Version]:
        """The versions of jobs and processes whose source is needed for these, both the present and the new one."""
        wanted: set[Version] = set()
        for claim in claims:
            if claim.kind in (JOB, BPMN):
                wanted |= {(claim.definition, claim.version), (claim.definition, self._change.to_version)}
        return sorted(wanted - self._sources.keys())

    def add_source(self, name: str, version: int, source: str) -> None:
        self._sources[name, version] = source

    def migrate(self, claim: Claim) -> Migrated:
        """Compute what becomes of an instance. Runs the caller's function in the thread of the caller.

        Raises:
            InvalidMigration: It cannot be moved.
            CodeMissing: The new version is not registered in this process.
        """
        label = f"{claim.definition} {claim.correlation_key or claim.id}"
        if claim.kind == BPMN:
            from hark.programs.bpmn.interpreter.bpmn_graph import bpmn_graph
            from hark.programs.bpmn.interpreter.process_migration import migrate_process

            old, new = map(bpmn_graph, self._sources_of(claim, label))
            return migrate_process(old, new, claim, self._change.elements)
        if claim.kind == JOB:
            from hark.programs.jobs.job_graph import job_graph
            from hark.programs.jobs.job_migration import migrate_job

            before, after = map(job_graph, self._sources_of(claim, label))
            return migrate_job(before, after, claim)
        program: Any = self._registry.find(claim.definition, self._change.to_version)
        if program is None:
            raise CodeMissing(what_runs(code_lane(claim.definition, self._change.to_version)))
        if claim.kind == "workflow":
            return self._function(program, claim, label)
        return self._machine(program, claim, label)

    def _sources_of(self, claim: Claim, label: str) -> tuple[str, str]:
        """The sources of the present and of the new version."""
        versions = (claim.version, self._change.to_version)
        old, new = (self._sources.get((claim.definition, version)) for version in versions)
        if not old or not new:
            raise _refuse(label, "the store does not have both versions of its file")
        return old, new

    def _machine(self, program: StepProgram, claim: Claim, label: str) -> Migrated:
        from hark.programs.machines.machine_migration import migrate_machine

        state = claim.state
        if self._convert is not None:
            try:
                new = self._convert(state)
                if new is None and state != "null":
                    raise InvalidInput("it returned None: return the new state, also if you have changed the old one")
                state = program.codec.dump(program.codec.build(new, limit=self._max_payload, what="state"))
            except BaseException as error:  # the caller's function may raise anything; an exit would end the worker
                raise _refuse(label, f"{self._change.state} failed: {failure_of(error).brief}") from error
        return migrate_machine(program, claim, self._change.steps, state, label)

    def _function(self, program: Any, claim: Claim, label: str) -> Migrated:
        from hark.programs.functions.function_check import check_function
        from hark.programs.misfits import reason_alone

        fit = check_function(program, claim, self._check_services)
        if fit.misfit is not None:
            raise _refuse(label, reason_alone(str(fit.misfit)))
        if fit.failure is not None:
            raise _refuse(label, f"it would fail as soon as it runs next: {failure_of(fit.failure).brief}")
        return Migrated(step=claim.step, state=claim.state)


def _refuse(label: str, reason: str) -> InvalidMigration:
    return refuse(label, [Problem(None, None, reason)])


def state_name(function: Any) -> str | None:
    """The name under which another process imports this function.

    Raises:
        InvalidInput: It is not a function that can be imported.
    """
    if function is None:
        return None
    name = function if isinstance(function, str) else f"{_module_of(function)}:{getattr(function, '__qualname__', '')}"
    found = _imported(name)
    if inspect.iscoroutinefunction(found):
        raise InvalidInput(f"state={name!r} is an async function: give one that returns the new state at once.")
    if not isinstance(function, str) and found is not function:
        raise InvalidInput(
            f"state={function!r}: give a function at the top level of a module, or its name as 'module:function'. The "
            "worker that carries out the migration imports it."
        )
    return name


def _module_of(function: Any) -> str:
    return getattr(function, "__module__", None) or ""


def _imported(name: str) -> Callable[[Any], Any]:
    module, _, path = name.partition(":")
    found: Any = None
    try:
        found = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # of the module, which is user code
        raise InvalidInput(
            f"state={name!r} cannot be imported ({type(error).__name__}: {error}). Give a function at the top level of "
            "a module, as 'module:function'."
        ) from error
    if not callable(found):
        raise InvalidInput(f"state={name!r} is not a function.")
    return found  # type: ignore[no-any-return]


def _converter(name: str) -> Callable[[str], Any]:
    """Call the function with the stored state: as JSON, or as an object if its parameter has a type."""
    function = _imported(name)
    codec = _codec_of(function)
    return lambda text: function(json.load(text) if codec is None else codec.load(text))


def _codec_of(function: Callable[..., Any]) -> json.Codec[Any] | None:
    try:
        hints: Mapping[str, Any] = typing.get_type_hints(function)
    except Exception as error:  # a name in quotes that cannot be resolved
        raise InvalidInput(f"The type hints of {function!r} cannot be resolved: {error}.") from error
    hint = next((hint for parameter, hint in hints.items() if parameter != "return"), None)
    return json.Codec(hint) if isinstance(hint, type) and json.is_typed(hint) else None


def problems_of(error: HarkError) -> list[Problem]:
    """The reasons why an instance was not moved."""
    return error.problems if isinstance(error, InvalidMigration) else [Problem(None, None, str(error))]
