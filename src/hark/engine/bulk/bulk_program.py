"""The program of `hark.bulk`: a durable function that carries out an action on many instances, page by page.

A page is one run in its journal. A crash repeats a page at most, and each action recognises what it has done already.
After some pages the function continues as new, so that its journal stays short.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hark.engine.bulk.bulk_request import Asked, Change, Selection, Tally
from hark.engine.bulk.migrate_page import PageResult
from hark.model.lanes import BULK
from hark.programs.functions.workflow import Workflow
from hark.views.listing import LivePage, Place

if TYPE_CHECKING:
    from hark.programs.functions.function_context import FunctionContext
    from hark.programs.functions.function_program import FunctionProgram

PAGE: Final = 200  # instances of one turn
_PAGES: Final = 50  # of a visit
_AGAIN: Final = timedelta(seconds=1)
_TRIES: Final = 30  # to move an instance that executes, one second apart
_SHOWN: Final = 20  # problems
_MAX_TEXT: Final = 300  # characters of a problem


class BulkWork:
    """The operations of the app that the function needs."""

    def __init__(
        self,
        select: Callable[[Selection, Place | None], Awaitable[LivePage]],
        migrate: Callable[[Change, list[str], str, str | None], Awaitable[PageResult]],
    ) -> None:
        self.select = select
        self.migrate = migrate


def bulk_program(work: BulkWork) -> FunctionProgram:
    """The program of the lane of bulk instances."""

    async def bulk(ctx: FunctionContext, **request: Any) -> Any:
        asked = msgspec.convert(request, Asked)
        tally = asked.tally

        async def page() -> PageResult:
            found = await work.select(asked.selection, tally.place)
            result = await work.migrate(asked.migrate, found.ids, ctx.id, asked.by)
            result.place = found.place
            return result

        async def again() -> PageResult:
            result = PageResult()
            for first in range(0, len(tally.busy), PAGE):
                result.add(await work.migrate(asked.migrate, tally.busy[first : first + PAGE], ctx.id, asked.by))
            return result

        for _ in range(_PAGES):
            if tally.ended and (not tally.busy or tally.tries >= _TRIES):
                tally.skipped += len(tally.busy)
                _report(ctx, tally)
                return {"done": tally.done, "skipped": tally.skipped, "failed": tally.failed}
            if tally.ended:
                await ctx.sleep(_AGAIN)
                tally.tries += 1
            result = msgspec.convert(await ctx.run(again if tally.ended else page), PageResult)
            if result.lacks is not None:  # another worker may have it
                _report(ctx, tally, f"The worker that tried has no code for this: {result.lacks}.")
                await ctx.sleep(_AGAIN)
                continue
            if tally.ended:
                tally.busy = []
            else:
                tally.place, tally.ended = result.place, result.place is None
            _add(tally, result, count_ended=asked.selection.ids is not None)
            _report(ctx, tally)
        return ctx.continue_as_new({**request, "tally": msgspec.to_builtins(tally)}, version="same")

    program: FunctionProgram = Workflow(bulk, BULK, 1, "default").__hark_program__
    return program


def _add(tally: Tally, result: PageResult, *, count_ended: bool) -> None:
    """Add a page. What has ended counts if it was named, and else did not match the filters any more."""
    tally.done += result.done
    tally.skipped += result.skipped + (result.ended if count_ended else 0)
    tally.failed += result.failed
    tally.busy += result.busy
    for id, problem in result.problems.items():
        if len(tally.problems) < _SHOWN:
            tally.problems[id] = problem[:_MAX_TEXT]


def _report(ctx: FunctionContext, tally: Tally, waits: str | None = None) -> None:
    said: dict[str, Any] = {"done": tally.done, "skipped": tally.skipped, "failed": tally.failed}
    if tally.problems:
        said["problems"] = dict(tally.problems)
    if waits is not None:
        said["waits"] = waits
    ctx.progress(said)
