"""Registry: holds what this process can run, by lane: code of definitions, interpreters, handlers of tasks.

A worker claims nothing else (M6).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from hark.engine.worker.fingerprints import fingerprint
from hark.kernel.requests import DefinitionRow
from hark.model.activation import Claim, Traits
from hark.model.decisions import Decision
from hark.model.errors import InvalidDefinition
from hark.model.lanes import code_lane
from hark.model.version import VERSION
from hark.programs.services import FunctionServices, InputCodec


class LaneProgram(Protocol):
    """The program that runs the instances of a lane."""

    traits: Traits

    @property
    def code(self) -> Any:
        """The code of the user: a function, a class or a callable object; None if there is none."""

    def run(self, claim: Claim, services: Any) -> Coroutine[Any, Any, Decision]: ...
    def recover(self, claim: Claim, services: Any, error: BaseException) -> Coroutine[Any, Any, Decision]: ...


class Program(LaneProgram, Protocol):
    """The program of a definition, however it is written."""

    name: str
    version: int
    kind: str
    queue: str
    initial: str
    source: str | None
    digest: str | None
    on_cancel: str | None

    @property
    def codec(self) -> InputCodec: ...
    @property
    def steps(self) -> dict[str, Any]: ...
    def run(self, claim: Claim, services: FunctionServices) -> Coroutine[Any, Any, Decision]: ...
    def recover(
        self, claim: Claim, services: FunctionServices, error: BaseException
    ) -> Coroutine[Any, Any, Decision]: ...


class Registry:
    """Programs: those of definitions by name and version, and all of them by lane."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after each new lane: instances that wait for it may be claimable here now."""
        self._changed = changed
        self._programs: dict[tuple[str, int], Program] = {}
        self._by_lane: dict[str, LaneProgram] = {}
        self._lanes: dict[str, Traits] = {}
        self._fingerprints: tuple[dict[str, LaneProgram], dict[str, str]] = ({}, {})  # of these programs
        self._queues: frozenset[str] = frozenset({"default"})

    def copy(self) -> Registry:
        """A registry with the same programs, which may get others."""
        other = Registry(lambda: None)
        other._programs, other._by_lane, other._lanes = self._programs, self._by_lane, self._lanes
        return other

    def replace(self, program: Program) -> None:
        """Register a program in place of another one with its name and version, if there is one."""
        program.codec.prepare()
        self._programs = {**self._programs, (program.name, program.version): program}
        self._add_lane(code_lane(program.name, program.version), program)

    def add(self, program: Program) -> bool:
        """Register a program. Return False if it is registered already.

        Raises:
            InvalidDefinition: Another program has this name and version.
        """
        key = (program.name, program.version)
        known = self._programs.get(key)
        if known is program:
            return False
        if known is not None:
            raise InvalidDefinition(
                f"{program.name!r} version {program.version} is registered twice, with different code. "
                "Give one of them another name= or version=.",
                problems=[],
            )
        program.codec.prepare()
        # Copies, never changed: the clerk and the lease thread iterate over them while callers register.
        self._programs = {**self._programs, key: program}
        self.add_queues([program.queue])
        self._add_lane(code_lane(*key), program)
        return True

    def add_lane(self, lane: str, program: LaneProgram, *, replace: bool = False) -> bool:
        """Register the program of a lane that is not the code of a definition. Return False if it is registered
        already. `replace`: instead of another one.

        Raises:
            InvalidDefinition: Something else runs this lane.
        """
        known = self._by_lane.get(lane)
        if known is program:
            return False
        if known is not None and not replace:
            raise InvalidDefinition(
                f"{lane!r} is registered twice, with different code. Give one of them another name.", problems=[]
            )
        self._add_lane(lane, program)
        return True

    def _add_lane(self, lane: str, program: LaneProgram) -> None:
        self._by_lane = {**self._by_lane, lane: program}
        self._lanes = {**self._lanes, lane: program.traits}
        self._changed()

    def program(self, lane: str) -> LaneProgram:
        """The program of this lane, which must be one of `lanes`."""
        return self._by_lane[lane]

    def find(self, name: str, version: int | None) -> Program | None:
        """The program of this version, or of the newest; None if there is no code for it."""
        if version is not None:
            return self._programs.get((name, version))
        versions = [v for n, v in self._programs if n == name]
        return self._programs[(name, max(versions))] if versions else None

    def programs(self) -> list[Program]:
        """The programs of definitions."""
        return [*self._programs.values()]

    def rows(self) -> list[DefinitionRow]:
        """The rows of the definitions, as they are recorded in the store."""
        codes = self.fingerprints()
        return [
            DefinitionRow(
                p.name, p.version, p.kind, p.queue, p.initial, p.source, p.digest, p.on_cancel,
                codes[code_lane(p.name, p.version)],
            )
            for p in self._programs.values()
        ]  # fmt: skip

    def add_queues(self, queues: Iterable[str]) -> None:
        """Queues that instances of registered definitions, or their tasks, are started in."""
        self._queues = self._queues.union(queues)

    def queues(self) -> frozenset[str]:
        """The queues of its definitions, and the default one."""
        return self._queues

    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of the code of each lane; of what Hark itself runs, its version."""
        programs, found = self._fingerprints
        if programs is not self._by_lane:
            programs = self._by_lane
            codes = {lane: program.code for lane, program in programs.items()}
            found = {lane: VERSION if code is None else fingerprint(code) for lane, code in codes.items()}
            self._fingerprints = programs, found
        return found

    def own_codes(self) -> dict[str, str]:
        """The fingerprints of the code of the user, by lane."""
        codes = self.fingerprints()
        return {lane: codes[lane] for lane, program in self._by_lane.items() if program.code is not None}

    def lanes(self) -> dict[str, Traits]:
        """The lanes that this process can run, each with its traits."""
        return self._lanes
