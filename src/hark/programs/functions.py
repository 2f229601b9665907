"""What a durable function can say (`ctx`). Each call has its entry; awaiting gives what it came to."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from typing import Any

from hark.model import json
from hark.model.decisions import NewAwakeable, SendBroadcast, SendSignal, Settle
from hark.model.errors import InvalidInput
from hark.model.names import awakeable_id, check_awakeable_id, check_name, from_micros, micros
from hark.model.outcomes import Broadcast, Duration, waited_names
from hark.model.schema import compile_schema
from hark.programs.branches import First, Gather, Promise, as_promise
from hark.programs.operations import AwakeableAnswer, ChildCall, EffectOperation, Operation, Run, Sleep, WaitForSignal
from hark.programs.replay import ContinueAsNew, Session

_ATTEMPTS = 1000
_TEXT = 1 << 14


class AwakeableHandle:
    """An awakeable in the function that created it: `.id` and `.url` to hand out, and to be awaited."""

    __slots__ = ("__hark_promise__", "_link", "id")

    def __init__(self, id: str, link: Callable[[], str], answer: AwakeableAnswer) -> None:
        self.id = id
        self._link = link
        self.__hark_promise__ = answer

    @property
    def url(self) -> str:
        """Signed when it is asked for: a replay asks for few of them."""
        return self._link()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.__hark_promise__.__await__()

    def __repr__(self) -> str:
        return f"AwakeableHandle({self.id!r})"  # without the url: it is a credential


class FunctionContext:
    """The hands of a durable function."""

    __slots__ = ("_session", "correlation_key", "id")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.id = session.claim.id
        self.correlation_key = session.claim.correlation_key

    # -- doing ------------------------------------------------------------------------------------

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        retries: int = 0,
        backoff: Duration = 1.0,
    ) -> Promise[Any]:
        """Run a function once: its result is in the journal, and a replay reads it there.

        When it raises it is tried again up to `retries` times, after `backoff`, twice that, and so on;
        then RunFailed. `async def` runs on the worker's loop, `def` in a thread.
        """
        if not callable(function):
            raise InvalidInput(f"ctx.run takes a function and its arguments, not {function!r}. Leave out the ().")
        if type(retries) is not int or not 0 <= retries <= _ATTEMPTS:
            raise InvalidInput(f"retries={retries!r}: give a whole number from 0 to {_ATTEMPTS}.")
        if name is None:
            label = getattr(function, "__name__", None) or type(function).__name__
        else:
            label = check_name(name, "name of a run")
        wait = micros(backoff, "backoff", zero=True) if retries or backoff != 1.0 else 0
        return self._session.ask(Run(function, args, label, retries, wait))

    def signal(self, target: Any, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Promise[Any]:
        """Send a signal; awaited, a Delivery. `NoTarget` when there is nobody."""
        effect = SendSignal(
            check_name(getattr(target, "id", target), "target"),
            check_name(name, "signal name"),
            json.dump(payload, limit=self._session.services.max_payload),
            None if dedup_key is None else check_name(dedup_key, "dedup key"),
        )
        return self._session.ask(EffectOperation("signal", name, effect))

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Promise[Any]:
        """Wake everybody who waits for this broadcast; awaited, how many that were."""
        effect = SendBroadcast(
            check_name(name, "broadcast name"),
            json.dump(payload, limit=self._session.services.max_payload),
            None if dedup_key is None else check_name(dedup_key, "dedup key"),
        )
        return self._session.ask(EffectOperation("broadcast", name, effect))

    def start(self, definition: Any, input: Any = None, **options: Any) -> Promise[Any]:
        """Start an instance that goes its own way; awaited, its id. `Duplicate` when its id or key is taken."""
        item = self._session.services.new(definition, input, options)
        return self._session.ask(EffectOperation("start", item.definition, item))

    def call(self, definition: Any, input: Any = None, **options: Any) -> Promise[Any]:
        """Start a child; awaited, its result. `CallFailed` when it fails or cannot start."""
        return self._session.ask(ChildCall(self._session.services.new(definition, input, options)))

    def resolve(self, awakeable_id: str, payload: Any = None, *, by: str | None = None) -> Promise[Any]:
        """Resolve somebody's awakeable."""
        text = json.dump(payload, limit=self._session.services.max_payload)
        return self._settle(
            "resolve", Settle(check_awakeable_id(awakeable_id), "RESOLVED", text, by=by or self.id, via="step")
        )

    def reject(self, awakeable_id: str, error: str = "rejected", *, by: str | None = None) -> Promise[Any]:
        """Reject somebody's awakeable."""
        reason = _text(error, "error") or "rejected"
        wish = Settle(check_awakeable_id(awakeable_id), "REJECTED", error=reason, by=by or self.id, via="step")
        return self._settle("reject", wish)

    def _settle(self, verb: str, wish: Settle) -> Promise[Any]:
        return self._session.ask(EffectOperation(verb, wish.awakeable, wish))

    # -- waiting ----------------------------------------------------------------------------------

    async def awakeable(
        self,
        timeout: Duration | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        assignees: Iterable[str] = (),
    ) -> AwakeableHandle:
        """A question to the world. Hand out its id or url, then await it.

        Awaited it gives the answer, or raises AwakeableRejected or AwakeableTimedOut.
        """
        session = self._session
        life = None if timeout is None else micros(timeout, "timeout", zero=False)
        fits, read = compile_schema(schema)
        heading, text = _text(title, "title"), _text(description, "description")
        names = [check_name(name, "assignee") for name in _listed(assignees)]
        asked = Operation("awakeable")
        nonce = json.load(await session.ask_known(asked, lambda: json.dump(secrets.token_urlsafe(12))))
        id = awakeable_id(self.id, asked.entry)
        answer = AwakeableAnswer(id, read, heading)
        answer.new = NewAwakeable(
            id, asked.entry, "", str(asked.entry), None, life, nonce, heading, text, fits,
            json.dump(names) if names else None,
        )  # fmt: skip
        session.open_answer(answer, asked.entry)
        until = session.awakeable_deadline(asked.entry, life)
        return AwakeableHandle(id, lambda: session.services.link(id, nonce, until), answer)

    def wait_for_signal(self, *names: str | Broadcast, timeout: Duration | None = None) -> Promise[Any]:
        """Wait for a signal of one of these names (or a Broadcast). `SignalTimeout` when none comes in time."""
        wanted = waited_names(names)
        if not wanted:
            raise InvalidInput("wait_for_signal() would wait for nothing, forever. Give it a name.")
        limit = None if timeout is None else micros(timeout, "timeout", zero=False)
        return self._session.ask(WaitForSignal(wanted, limit))

    def sleep(self, seconds: Duration) -> Promise[Any]:
        """Sleep, for seconds or for years, holding nothing."""
        return self._session.ask(Sleep(micros(seconds, "sleep", zero=True)))

    def gather(self, *awaitables: Any) -> Promise[Any]:
        """All of these at once; awaited, the list of what they came to. The first error ends the others."""
        return Gather([as_promise(one, self._session.branch) for one in awaitables])

    def first(self, *awaitables: Any) -> Promise[Any]:
        """The first of these; awaited, (index, value). The others are withdrawn."""
        if not awaitables:
            raise InvalidInput("first() of nothing would wait forever. Give it something to wait for.")
        return First([as_promise(one, self._session.branch) for one in awaitables])

    # -- knowing ----------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """The database's clock, the same in every replay."""
        session = self._session
        return from_micros(int(await session.ask_known(Operation("now"), lambda: str(session.services.micros()))))

    def random(self) -> float:
        """A number from 0 to 1, the same in every replay."""
        self._session.check_caller()
        return self._session.random.random()

    def uuid(self) -> uuid.UUID:
        """A UUID, the same in every replay: good as an idempotency key."""
        self._session.check_caller()
        return uuid.UUID(int=self._session.random.getrandbits(128), version=4)

    def continue_as_new(self, input: Any = None) -> ContinueAsNew:
        """`return ctx.continue_as_new(input)`: begin again, with an empty journal. Signals not taken yet stay."""
        return ContinueAsNew(input)


def _text(value: str | None, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, not {value!r}.")
    json.dump(value, limit=_TEXT, what=what)
    return value


def _listed(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise InvalidInput(f"assignees={names!r}: give a list of names.")
    return list(names)
