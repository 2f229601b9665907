"""Core: the base class of the groups of verbs. It asks the clerk for changes, and reads the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hark.app.answer_links import AnswerLinks
from hark.app.handle import Handle
from hark.app.nats_option import NatsOption
from hark.app.new_instances import StartBuilder
from hark.app.registered_jobs import RegisteredJobs
from hark.engine.tasks.definition_sources import DefinitionSources
from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply
from hark.engine.worker.registry import Registry
from hark.engine.worker.worker_services import WorkerServices
from hark.kernel.requests import Request
from hark.store.protocol import Store

if TYPE_CHECKING:
    from hark.app.hark import Hark
    from hark.engine.check.code_check import CheckServices

T = TypeVar("T")


class Core:
    """The parts of an app. `Hark.__init__` makes them; each group of verbs is a class on top of this one."""

    _clerk: Clerk
    _registry: Registry
    _starts: StartBuilder
    _jobs: RegisteredJobs
    _sources: DefinitionSources
    _links: AnswerLinks
    _nats: NatsOption
    _services: WorkerServices
    _max_payload: int

    def _handle(self, id: str) -> Handle[Any]:
        return Handle(cast("Hark", self), id)

    def _check_services(self, registry: Registry | None = None) -> CheckServices:
        """The services of replays that only check whether code fits."""
        from hark.engine.check.code_check import CheckServices

        services, known = self._services, self._registry if registry is None else registry
        new = self._starts.apart(known.copy()).build
        return CheckServices(new, services.rate_limit, services.concurrency_key, self._max_payload, self._clerk.now())

    def _ask(self, request: Request, convert: Callable[[Any], T] | None = None) -> Reply[T]:
        """Queue a request for the next turn. The reply is its answer, passed through `convert`."""
        reply: Reply[T]
        if self._services.tracing is None:
            reply = Reply(convert)
        else:
            clerk = self._clerk
            reply = self._services.tracing.reply(request, convert, lambda read: clerk.spawn(read, clerk.store))
        self._clerk.submit(request, reply)
        return reply

    def _read(self, question: Callable[[Store], Awaitable[T]]) -> Reply[T]:
        """Read the store beside the turns."""
        reply: Reply[T] = Reply()
        self._clerk.read(question, reply)
        return reply

    def _read_after(self, request: Request, question: Callable[[Store, str], Awaitable[T]]) -> Reply[T]:
        """Queue a request that answers with an id and, once it is committed, read about that id."""
        asked: Reply[str] = self._ask(request)

        async def both(store: Store) -> T:
            return await question(store, await asked)

        return self._read(both)
