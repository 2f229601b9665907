"""Hark: the composition root. Checks what it is given, hands it to the clerk, and gives back a reply."""

from __future__ import annotations

import builtins
import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Self, get_args

from hark.dialects import machine, workflow
from hark.kernel.limits import Limits
from hark.kernel.requests import (
    Cancel,
    Deliver,
    Grant,
    Message,
    Publish,
    Reclaim,
    Register,
    Request,
    Retain,
    RetryInstance,
    Revoke,
    SettleAwakeable,
    SignalWithStart,
    StartInstances,
    Sweep,
)  # fmt: skip
from hark.kernel.turn import Rules
from hark.model import json
from hark.model.decisions import NewInstance, Settle
from hark.model.errors import InstanceCancelled, InstanceFailed, InvalidInput, NotFound
from hark.model.links import LIFE, Keys, secrets_of
from hark.model.names import check_awakeable_id, check_id, check_name, micros, moment, new_id
from hark.model.outcomes import Duration
from hark.model.tokens import check_scopes, digest, new_secret
from hark.model.values import (
    Awakeable,
    AwakeableStatus,
    Delivery,
    Event,
    Instance,
    Kind,
    Rate,
    Status,
    Token,
    Wait,
    WaitKind,
    Why,
)
from hark.runtime import views, why
from hark.runtime.clerk import Clerk, not_open
from hark.runtime.registry import Program, Registry
from hark.runtime.reply import Reply, answer_all, refuse_to_block_a_loop
from hark.runtime.worker import Worker, WorkerServices
from hark.store import connect, reads
from hark.store.protocol import Store

_LIMIT = 10_000
_TEXT = 1 << 16


class Start:
    """One start of `start_many`, with its options."""

    __slots__ = ("definition", "input", "options")

    def __init__(self, definition: Any, input: Any = None, **options: Any) -> None:
        self.definition = definition
        self.input = input
        self.options = options


class Handle:
    """An instance that was started, or found by its key."""

    __slots__ = ("_app", "id")

    def __init__(self, app: Hark, id: str) -> None:
        self._app = app
        self.id = id

    def get(self) -> Reply[Instance]:
        """The instance as it is now."""
        return self._app.get(self.id)

    def result(self, timeout: Duration | None = None) -> Reply[Any]:
        """Its result, when it has one."""
        return self._app.result(self.id, timeout)

    def signal(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Reply[Delivery]:
        """Send it a signal."""
        return self._app.signal(self.id, name, payload, dedup_key=dedup_key)

    def cancel(self, reason: str | None = None) -> Reply[Instance]:
        """Cancel it and everything below it."""
        return self._app.cancel(self.id, reason)

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"


class Hark:
    """Durable workflows that wait for the world.

    app = Hark("sqlite:///hark.db")      # or "sqlite://" in memory, or "postgresql://…"

    Every verb acts when it is called and returns a reply: `await` it, or `.result()` in plain code.
    """

    def __init__(
        self,
        url: str = "sqlite:///hark.db",
        *,
        schema: str = "hark",
        lease: float = 30.0,
        max_crashes: int = 5,
        linger: float = 60.0,
        max_signal_wait: float = 3600,
        max_payload: int = 1 << 20,
        retention: float = 7 * 86400,
        rate_limits: dict[str, Rate | dict[str, Any]] | None = None,
        concurrency: dict[str, int] | None = None,
        agents: dict[str, builtins.list[str]] | None = None,
        base_url: str | None = None,
        secret: str | None = None,
        nats: str | None = None,
        broadcast_limit: int = 50_000,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.url = url
        self._lease = micros(lease, "lease", zero=False) / 1_000_000
        self._linger = micros(linger, "linger", zero=True) / 1_000_000
        self._max_signal_wait = micros(max_signal_wait, "max_signal_wait", zero=False) / 1_000_000
        self._retention = micros(retention, "retention", zero=False) / 1_000_000
        self._max_payload = _whole(max_payload, "max_payload")
        self._agents = agents or {}
        self._base_url = "" if base_url is None else check_name(base_url, "base_url").rstrip("/")
        self._origin = ""  # where the HTTP door is reached: links start with it when there is no base_url
        given = os.environ.get("HARK_SECRET") or None if secret is None else secret
        self._keys = None if given is None else Keys(secrets_of(given))  # else the store's, when it is opened
        self._nats = nats
        self._limits = Limits(_rates(rate_limits or {}), concurrency or {})
        self._registry = Registry()
        limit = _whole(broadcast_limit, "broadcast_limit")
        rules = Rules(self._limits, _whole(max_crashes, "max_crashes"), limit, min(limit, 5000))
        self._schema = schema
        self._clock = clock
        make = connect.factory(url, schema=schema, lease=self._lease, clock=clock)
        self._clerk = Clerk(make, rules, lease=self._lease, retention=self._retention, clock=clock)
        self._services = WorkerServices(self._clerk, self._limits, self._max_payload, self._new, self._link)

    # -- open, close, work ------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._clerk.open()
        await self._read(self._learn_secrets)
        if self._registry.rows():
            await self._ask(Register(rows=self._registry.rows()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._clerk.close()

    def __enter__(self) -> Self:
        refuse_to_block_a_loop("`with app:`", "async with")
        self._clerk.open().result()
        self._read(self._learn_secrets).result()
        if self._registry.rows():
            self._ask(Register(rows=self._registry.rows())).result()
        return self

    def __exit__(self, *exc: object) -> None:
        self._clerk.close().result()

    async def _learn_secrets(self, store: Store) -> None:
        if self._keys is None:
            self._keys = Keys(row[0] for row in await store.read(reads.secrets))

    @property
    def _signing(self) -> Keys:
        if self._keys is None:
            raise not_open()
        return self._keys

    def worker(self, queues: dict[str, int] | None = None, *, grace: float = 10.0) -> Worker:
        """A worker for these queues and how many of each at once; by default 100 of every queue known here."""
        return Worker(self._clerk, self._registry, self._services, queues, lease=self._lease, grace=grace)

    @property
    def is_open(self) -> bool:
        """Between opening and closing."""
        return self._clerk.is_open

    def asgi(self, *, require_token: bool = False) -> Any:
        """The HTTP API as an ASGI application: to be served, or mounted in another one under a prefix.

        `require_token`: no request without a credential, whoever sends it. See docs/http.md.
        """
        # By name: doors import the app, and the app imports nothing of a door until it is asked for one.
        return importlib.import_module("hark.doors.http.asgi").AsgiApp(self, require_token=require_token)

    async def serve(self, *, host: str = "127.0.0.1", port: int = 4097, worker: bool = True, **options: Any) -> None:
        """The HTTP API, a worker and timers in this process, until Ctrl-C or SIGTERM: what `hark serve` runs."""
        await importlib.import_module("hark.doors.http.server").serve(
            self, host=host, port=port, worker=worker, **options
        )

    def register(self, *definitions: Any) -> Reply[None]:
        """Make definitions known here, and in the store: when the app opens, or now if it is open."""
        new = [program for program in map(_program, definitions) if self._registry.add(program)]
        rows = [row for row in self._registry.rows() if any(row[:2] == (p.name, p.version) for p in new)]
        if rows and self._clerk.is_open:
            return self._ask(Register(rows=rows))
        reply: Reply[None] = Reply()
        answer_all([(reply, None)])
        return reply

    def _ask(self, request: Request, convert: Callable[[Any], Any] | None = None) -> Reply[Any]:
        reply: Reply[Any] = Reply(convert)
        self._clerk.submit(request, reply)
        return reply

    def _read(self, question: Callable[[Store], Any]) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        self._clerk.read(question, reply)
        return reply

    # -- starting ---------------------------------------------------------------------------------

    def start(
        self,
        definition: Any,
        input: Any = None,
        *,
        id: str | None = None,
        correlation_key: str | None = None,
        correlation_scope: str = "live",
        step: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        at: datetime | None = None,
        concurrency_key: str | None = None,
        rate_limit: str | tuple[str, str] | None = None,
        weight: float = 1,
        version: int | None = None,
    ) -> Reply[Handle]:
        """Start an instance. `Duplicate` when its id or key is taken, `NotFound` when nobody knows the definition."""
        options = {
            "id": id, "correlation_key": correlation_key, "correlation_scope": correlation_scope, "step": step,
            "queue": queue, "priority": priority, "delay": delay, "at": at, "concurrency_key": concurrency_key,
            "rate_limit": rate_limit, "weight": weight, "version": version,
        }  # fmt: skip
        item = self._new(definition, input, options)
        return self._ask(StartInstances(items=[item]), lambda answers: self._handle(_raise(answers[0])))

    def start_many(self, starts: Iterable[tuple[Any, Any] | Start]) -> Reply[builtins.list[Any]]:
        """Start many at once: a list of Handle or Duplicate, in order."""
        items = [self._new(one.definition, one.input, one.options) for one in _starts(starts)]
        request = StartInstances(items=items)
        return self._ask(request, lambda answers: [self._handle_or_duplicate(answer) for answer in answers])

    def _handle(self, id: str) -> Handle:
        return Handle(self, id)

    def _handle_or_duplicate(self, answer: Any) -> Any:
        if isinstance(answer, NotFound):
            raise answer
        return Handle(self, answer) if isinstance(answer, str) else answer

    def _know(self, definition: Any) -> Program:
        """A definition that is started is registered by that."""
        program = _program(definition)
        if self._registry.find(program.name, program.version) is not program:
            self.register(definition)
        return program

    def _new(self, definition: Any, input: Any, options: dict[str, Any]) -> NewInstance:
        """A start as data; refused here when it is malformed."""
        options = dict(options)  # a Start or a Child may be used again
        program = None if isinstance(definition, str) else self._know(definition)
        name = definition if program is None else program.name
        version = options.pop("version", None)
        if program is not None and version is None:
            version = program.version
        if version is not None and (type(version) is not int or not 0 <= version < 2**31):
            raise InvalidInput(f"version={version!r}: give a whole number, or leave it out for the newest.")
        known = self._registry.find(check_name(name, "definition"), version)
        step = options.pop("step", None)
        step = None if step is None else check_name(getattr(step, "__hark_step__", step), "step name")
        state = self._state(known, input)
        if known is not None and step is not None and step not in known.steps:
            raise InvalidInput(f"{name} has no step {step!r}. It has: {', '.join(known.steps)}.")
        given, key, queue = (
            options.pop("id", None),
            options.pop("correlation_key", None),
            options.pop("queue", None),
        )
        scope, priority = options.pop("correlation_scope", "live"), options.pop("priority", 0)
        delay, at = options.pop("delay", None), options.pop("at", None)
        concurrency_key = options.pop("concurrency_key", None)
        rate_limit, weight = options.pop("rate_limit", None), options.pop("weight", 1)
        if options:
            raise InvalidInput(f"start has no option {', '.join(options)}. See `help(Hark.start)` for those it has.")
        if scope not in ("live", "forever"):
            raise InvalidInput(f"correlation_scope={scope!r}: give 'live' or 'forever'.")
        if type(priority) is not int or not -(2**31) <= priority < 2**31:
            raise InvalidInput(f"priority={priority!r}: give a whole number; lower goes first.")
        return NewInstance(
            definition=name,
            state=state,
            id=new_id() if given is None else check_id(given),
            named=given is not None,
            version=version,
            step=step,
            queue=None if queue is None else check_name(queue, "queue name"),
            priority=priority,
            correlation_key=None if key is None else check_name(key, "correlation key"),
            scope=scope,
            delay=None if delay is None else micros(delay, "delay", zero=True),
            at=None if at is None else moment(at, "at"),
            concurrency_key=None if concurrency_key is None else check_name(concurrency_key, "concurrency key"),
            rate_limit=self._limits.check(rate_limit, weight),
            weight=float(weight),
        )

    def _state(self, program: Program | None, input: Any) -> str:
        if program is None:
            return json.dump({} if input is None else input, limit=self._max_payload, what="input")
        return program.codec.dump(program.codec.build(input, limit=self._max_payload), self._max_payload)

    # -- telling ----------------------------------------------------------------------------------

    def signal(self, target: Any, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Reply[Delivery]:
        """Put a signal into an instance's inbox. `NoTarget` when it is finished or not there."""
        request = Deliver(
            target=_target(target),
            name=check_name(name, "signal name"),
            payload=json.dump(payload, limit=self._max_payload),
            dedup_key=None if dedup_key is None else check_name(dedup_key, "dedup key"),
        )
        return self._ask(request)

    def signal_with_start(
        self,
        definition: Any,
        correlation_key: str,
        name: str,
        payload: Any = None,
        *,
        input: Any = None,
        dedup_key: str | None = None,
    ) -> Reply[Handle]:
        """Signal the live holder of a key, or start one and signal it, in one commit."""
        request = SignalWithStart(
            item=self._new(definition, input, {"correlation_key": check_name(correlation_key, "correlation key")}),
            name=check_name(name, "signal name"),
            payload=json.dump(payload, limit=self._max_payload),
            dedup_key=None if dedup_key is None else check_name(dedup_key, "dedup key"),
        )
        return self._ask(request, self._handle)

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Reply[int]:
        """Wake everybody who waits for this broadcast; how many that were."""
        request = Publish(
            name=check_name(name, "broadcast name"),
            payload=json.dump(payload, limit=self._max_payload),
            dedup_key=None if dedup_key is None else check_name(dedup_key, "dedup key"),
        )
        return self._ask(request)

    def message(self, name: str, correlation_key: str, payload: Any = None) -> Reply[Handle]:
        """Give a message to the one who waits for it under this key."""
        request = Message(
            name=check_name(name, "message name"),
            key=check_name(correlation_key, "correlation key"),
            payload=json.dump(payload, limit=self._max_payload),
        )
        return self._ask(request, self._handle)

    def resolve(
        self, awakeable_id: str, payload: Any = None, *, by: str | None = None, via: str = "python"
    ) -> Reply[Awakeable]:
        """Answer an awakeable. Recorded are `by`, who answered, and `via`, the door: python, cli, http, link, step."""
        text = json.dump(payload, limit=self._max_payload)
        return self._settle(Settle(check_awakeable_id(awakeable_id), "RESOLVED", text, None, by, via))

    def reject(
        self, awakeable_id: str, error: str = "rejected", *, by: str | None = None, via: str = "python"
    ) -> Reply[Awakeable]:
        """Refuse an awakeable, with a reason."""
        reason = _text(error, "error")
        return self._settle(Settle(check_awakeable_id(awakeable_id), "REJECTED", None, reason, by, via))

    def _settle(self, settle: Settle) -> Reply[Awakeable]:
        _check_texts(by=settle.by, via=settle.via)
        return self._ask(SettleAwakeable(settle=settle), lambda row: views.awakeable(row, self._link))

    def _then(self, request: Request, question: Callable[[Store, str], Any]) -> Reply[Any]:
        """Ask for a change and, once it is committed, read what came of it."""
        reply: Reply[Any] = Reply()
        asked = self._ask(request)

        async def both(store: Store) -> Any:
            return await question(store, await asked)

        self._clerk.read(both, reply)
        return reply

    # -- looking ----------------------------------------------------------------------------------

    def get(self, target: Any) -> Reply[Instance]:
        """An instance, by id or key."""
        wanted = _target(target)
        return self._read(lambda store: views.get(store, wanted))

    def list(
        self,
        *,
        status: str | None = None,
        definition: str | None = None,
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Reply[builtins.list[Instance]]:
        """Instances, newest first; `after` is the last id seen."""
        size = _size(limit)
        _check_texts(definition=definition, after=after)
        _check_word(status, "status", Status)
        _check_word(kind, "kind", Kind)
        return self._read(lambda store: views.listing(store, status, definition, kind, size, after))

    def events(
        self, target: Any = None, *, limit: int = 50, before: tuple[int, int] | None = None
    ) -> Reply[builtins.list[Event]]:
        """What happened, newest last; `before` is the `.cursor` of the oldest event seen."""
        wanted, size = None if target is None else _target(target), _size(limit)
        place = _cursor(before)
        return self._read(lambda store: views.events(store, wanted, size, *place))

    def events_after(self, cursor: tuple[int, int] = (0, 0), *, limit: int = 1000) -> Reply[builtins.list[Event]]:
        """Events of everybody after a cursor (`Event.cursor`), oldest first. Skips none, ever."""
        size = _size(limit)
        _cursor(cursor)
        return self._read(lambda store: views.events_after(store, cursor, size))

    def why(self, target: Any) -> Reply[Why]:
        """What an instance waits for, what would wake it, what is in its way, and what almost woke it."""
        wanted = _target(target)
        here = self._registry.lanes() if self._clerk.worker is not None else []
        return self._read(lambda store: why.explain(store, wanted, here))

    def waits(self, *, name: str | None = None, kind: str | None = None) -> Reply[builtins.list[Wait]]:
        """What is waited for, longest first."""
        _check_texts(name=name)
        _check_word(kind, "kind", WaitKind)

        async def all_of_them(store: Store) -> builtins.list[Wait]:
            return (await views.waits(store, name, kind))[0]

        return self._read(all_of_them)

    def awakeable(self, id: str) -> Reply[Awakeable]:
        """One awakeable."""
        wanted = check_awakeable_id(id)
        return self._read(lambda store: self._one_awakeable(store, wanted))

    def awakeables(
        self, *, job: Any = None, status: str | None = None, limit: int = 100, after: str | None = None
    ) -> Reply[builtins.list[Awakeable]]:
        """Awakeables, newest first; those of one instance when `job` names it (id, key or handle)."""
        size, whose = _size(limit), None if job is None else _target(job)
        _check_texts(after=after)
        _check_word(status, "status", AwakeableStatus)
        return self._read(
            lambda store: views.awakeables(store, self._link, job=whose, status=status, limit=size, after=after)
        )

    def _link(self, awakeable_id: str, nonce: str, timeout_at: int | None, asked_at: int | None = None) -> str:
        """Where this awakeable is answered. Never in an event, a log or an error: who has it may answer."""
        now = self._clerk.now()
        if timeout_at is None and asked_at is not None and now > asked_at + LIFE // 2:
            timeout_at = now + LIFE  # an old question that is looked up gets a link that works
        token = self._signing.sign(awakeable_id, nonce, timeout_at)
        return f"{self._base_url or self._origin}/a/{awakeable_id}?t={token}"

    async def _one_awakeable(self, store: Store, id: str) -> Awakeable:
        found = await views.awakeables(store, self._link, id=id)
        if not found:
            raise NotFound(f"There is no awakeable {id!r}. Check the id.")
        return found[0]

    def result(self, target: Any, timeout: Duration | None = None) -> Reply[Any]:
        """Wait for the end: the result, or `InstanceFailed`, `InstanceCancelled`, `TimeoutError`."""
        wanted = _target(target)
        seconds = None if timeout is None else micros(timeout, "timeout", zero=True) / 1_000_000
        reply: Reply[Any] = Reply(_result)
        self._clerk.wait_for_end(wanted, seconds, reply)
        return reply

    # -- steering ---------------------------------------------------------------------------------

    def cancel(self, target: Any, reason: str | None = None) -> Reply[Instance]:
        """Cancel an instance and everything below it, at once."""
        request = Cancel(target=_target(target), reason=None if reason is None else _text(reason, "reason"))
        return self._then(request, views.get)

    def retry(self, target: Any) -> Reply[Instance]:
        """Run a failed instance again, from its failed step."""
        return self._then(RetryInstance(target=_target(target)), views.get)

    def sweep(self) -> Reply[None]:
        """Fire what is due now: delays, deadlines, dead leases."""

        async def all_of_it(store: Store) -> None:
            dead = await self._clerk.find_dead()
            if dead:
                await self._ask(Reclaim(owners=dead))
            while await self._ask(Sweep()):
                pass

        return self._read(all_of_it)

    def export(self, *, before: datetime, limit: int = 1000) -> Reply[builtins.list[dict[str, Any]]]:
        """The histories of the finished that `forget` with the same `before` would remove next, oldest first."""
        until, size = moment(before, "before"), _size(limit)
        return self._read(lambda store: views.export(store, until, size))

    def forget(self, *, before: datetime, limit: int = 1000) -> Reply[builtins.list[str]]:
        """Remove finished instances older than this, now; their ids. (Retention does it by itself.)"""
        until, size = moment(before, "before"), _size(limit)

        async def forget(store: Store) -> Any:
            return await self._ask(Retain(before=until, ids=await views.oldest(store, until, size), size=size))

        return self._read(forget)

    # -- who may come in over HTTP ------------------------------------------------------------------

    def create_token(
        self, scopes: Any, name: str | None = None, expires: Duration | datetime | None = None
    ) -> Reply[Token]:
        """A token for the HTTP API; its `.secret` is shown this once. `expires` is a time, or how long it lasts."""
        _check_texts(name=name)
        until = lasts = None
        if isinstance(expires, datetime):
            until = moment(expires, "expires")
        elif expires is not None:
            lasts = micros(expires, "expires", zero=False)
        secret = new_secret()
        granted = json.dump(check_scopes(scopes))
        request = Grant(
            id=new_id(), hash=digest(secret), name=name, scopes=granted, expires_at=until, lasts=lasts
        )  # fmt: skip
        return self._ask(request, lambda row: views.token(row, secret))

    def tokens(self) -> Reply[builtins.list[Token]]:
        """All tokens ever made, oldest first, without their secrets."""
        return self._read(views.tokens)

    def revoke_token(self, id: str) -> Reply[Token]:
        """From now on it opens nothing. Revoking it again changes nothing."""
        return self._ask(Revoke(id=check_name(id, "token id")), views.token)


def _rates(given: Any) -> dict[str, Rate]:
    if not isinstance(given, dict):
        raise InvalidInput(f"rate_limits={given!r}: give a dict of names and Rate(allowed=…, period=…).")
    rates = {}
    for name, rate in given.items():
        try:
            rates[name] = rate if isinstance(rate, Rate) else Rate(**rate)
        except TypeError as error:
            raise InvalidInput(f"rate_limits[{name!r}]: {error}. Give Rate(allowed=…, period=…), or a dict.") from error
    return rates


def _starts(starts: Any) -> builtins.list[Start]:
    if not isinstance(starts, Iterable) or isinstance(starts, str | bytes | dict):
        raise InvalidInput(f"start_many takes a list of (definition, input) or Start(…), not {starts!r}.")
    found = []
    for start in starts:
        if not isinstance(start, Start) and not (isinstance(start, tuple | builtins.list) and len(start) == 2):
            raise InvalidInput(f"start_many takes (definition, input) or Start(definition, …) for each, not {start!r}.")
        found.append(start if isinstance(start, Start) else Start(*start))
    return found


def _program(definition: Any) -> Program:
    program: Program | None = machine.program_of(definition) or workflow.program_of(definition)
    if program is None:
        raise InvalidInput(f"{definition!r} is no definition. Give a Machine class, a @workflow, or the name of one.")
    return program


def _target(target: Any) -> str:
    return check_name(getattr(target, "id", target), "target")


def _check_texts(**given: str | None) -> None:
    for what, text in given.items():
        if text is not None:
            check_name(text, what)


def _check_word(word: Any, what: str, words: Any) -> None:
    if word is not None and word not in get_args(words):
        raise InvalidInput(f"{what}={word!r}: give one of {', '.join(get_args(words))}.")


def _text(text: str, what: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be text, not {text!r}.")
    json.dump(text, limit=_TEXT, what=what)
    return text


def _whole(number: int, what: str) -> int:
    if type(number) is not int or number < 1:
        raise InvalidInput(f"{what}={number!r}: give a whole number from 1.")
    return number


def _size(limit: int) -> int:
    if type(limit) is not int or not 1 <= limit <= _LIMIT:
        raise InvalidInput(f"limit={limit!r}: give a whole number from 1 to {_LIMIT}.")
    return limit


def _cursor(cursor: tuple[int, int] | None) -> builtins.list[tuple[int, int]]:
    if cursor is None:
        return []
    if not isinstance(cursor, tuple) or [type(n) is int and 0 <= n < 2**63 for n in cursor] != [True, True]:
        raise InvalidInput(f"{cursor!r} is no place in history: give the `.cursor` of an event, or (0, 0) to begin.")
    return [cursor]


def _raise(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _result(row: Sequence[Any]) -> Any:
    id, status, result, error = row
    if status == "done":
        return None if result is None else json.load(result)
    if status == "cancelled":
        raise InstanceCancelled(f"Instance {id} was cancelled: {error}", id=id, reason=error)
    raise InstanceFailed(f"Instance {id} failed: {error}. Mend the cause, then retry it.", id=id, error=error)
