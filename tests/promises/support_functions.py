"""Share among the tests of functions: runs that note what they do, fail until they are fixed, or never end."""

from __future__ import annotations

import asyncio
from typing import Any

from hark import FunctionContext, RunFailed, workflow


async def one() -> int:
    return 1


async def two() -> int:
    return 2


async def hang() -> None:
    await asyncio.Event().wait()


class Calls(list[Any]):
    """The calls that really happened, in order."""

    async def note(self, value: Any) -> Any:
        self.append(value)
        return value

    def plain(self, value: Any) -> Any:
        self.append(value)
        return value


class Flaky:
    """A run that raises as often as it is told to, by default until it is fixed, and then returns 1."""

    def __init__(self, failures: float = float("inf")) -> None:
        self.failures = failures
        self.tries = 0

    async def run(self) -> int:
        self.tries += 1
        if self.tries <= self.failures:
            raise OSError("no")
        return 1

    def fix(self) -> None:
        self.failures = 0


def failure_of(*args: Any, **options: Any) -> Any:
    """A function that returns how `ctx.run` with these arguments failed."""

    @workflow
    async def careful(ctx: FunctionContext) -> Any:
        try:
            return await ctx.run(*args, **options)
        except RunFailed as error:
            return [error.type, error.message]

    return careful
