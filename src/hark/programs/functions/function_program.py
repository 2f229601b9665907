"""FunctionProgram: runs a durable function in a worker, one activation at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from hark.model.activation import FUNCTION_TRAITS, Claim, Traits
from hark.model.decisions import Decision
from hark.programs.functions.function_session import Session
from hark.programs.functions.replay import Replay
from hark.programs.functions.undo import cannot_go_on
from hark.programs.services import FunctionServices, InputCodec


class FunctionProgram(Struct, eq=False):
    """A durable function, as the interpreter needs it."""

    name: str
    version: int
    queue: str
    codec: InputCodec
    function: Callable[..., Any]
    begin: Callable[[Any, str], Coroutine[Any, Any, Any]]  # from the context and the stored input
    context: Callable[[Replay], Any]
    initial: str = "start"
    kind: str = "workflow"
    traits: Traits = FUNCTION_TRAITS
    source: str | None = None
    digest: str | None = None
    on_cancel: str | None = None  # set per instance, once it has something to undo

    @property
    def code(self) -> Callable[..., Any]:
        return self.function

    @property
    def steps(self) -> dict[str, Any]:
        return {self.initial: self.function}

    async def run(self, claim: Claim, services: FunctionServices) -> Decision:
        session: Session | None = claim.session
        if session is None:
            session = claim.session = Session(self, claim, services)
            services.watch()
        try:
            return await session.next_decision()
        except BaseException:
            session.close()
            raise

    async def recover(self, claim: Claim, services: FunctionServices, error: BaseException) -> Decision:
        """Fail the instance: errors of its operations were raised in the function; this one is outside of it."""
        if claim.session is not None:
            claim.session.close()
        return cannot_go_on(claim, error)
