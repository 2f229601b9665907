"""LazyProgram: loads the program of a lane when the first instance of it is claimed.

Every worker can run jobs and shell tasks, and most processes never do: they need not import the code for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from hark.engine.worker.registry import LaneProgram
from hark.model.activation import Claim, Traits
from hark.model.decisions import Decision


class LazyProgram:
    """The program that `load` makes, and its traits, which are needed before."""

    code = None  # that of Hark

    def __init__(self, traits: Traits, load: Callable[[], LaneProgram]) -> None:
        self.traits = traits
        self._load = load

    @cached_property
    def _program(self) -> LaneProgram:
        return self._load()

    async def run(self, claim: Claim, services: Any) -> Decision:
        return await self._program.run(claim, services)

    async def recover(self, claim: Claim, services: Any, error: BaseException) -> Decision:
        return await self._program.recover(claim, services, error)
