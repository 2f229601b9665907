"""Hark: the composition root. Checks its options, makes the parts of an app, opens and closes them.

The verbs are in one file per topic: starting, signalling, answering, reading, scheduling, operating, deploying. The
operations that only the doors need are in door_access.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from hark.app.answer_links import AnswerLinks
from hark.app.answering import AnswerVerbs
from hark.app.arguments import (
    check_count,
    check_rates,
    check_retention,
    seconds,
)
from hark.app.checking import CheckVerbs
from hark.app.deploying import DeployVerbs, load_bpmn_program
from hark.app.forking import ForkVerbs
from hark.app.handlers import HandlerVerbs
from hark.app.migrating import MigrationVerbs
from hark.app.nats_option import NatsOption
from hark.app.new_instances import StartBuilder, program_of
from hark.app.operating import OperationVerbs
from hark.app.reading import ReadVerbs
from hark.app.registered_jobs import RegisteredJobs, job_of, load_job_program
from hark.app.scheduling import ScheduleVerbs
from hark.app.signalling import SignalVerbs
from hark.app.starting import StartVerbs
from hark.app.versioning import VersionVerbs
from hark.engine.commands.command_lanes import (
    CommandStore,
    agents_of_environment,
    check_agents,
    register_agents,
    register_shell,
)
from hark.engine.observe import metrics
from hark.engine.observe.metrics import Metrics
from hark.engine.tasks.definition_sources import DefinitionSources
from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply, answer_all, refuse_to_block_a_loop
from hark.engine.worker.lazy_program import LazyProgram
from hark.engine.worker.registry import Registry
from hark.engine.worker.worker import Worker
from hark.engine.worker.worker_services import WorkerServices
from hark.kernel.limits import Limits
from hark.kernel.rules import Rules
from hark.model.activation import FUNCTION_TRAITS, TASK_TRAITS
from hark.model.extras import import_extra
from hark.model.lanes import BPMN, BULK, JOB
from hark.model.nats import Nats
from hark.model.values import Rate
from hark.programs.machines.machine import Machine
from hark.store import connect, reads
from hark.store.protocol import Store

if TYPE_CHECKING:
    from hark.programs.functions.workflow import Workflow
    from hark.programs.jobs.file import Dag, Job

_BROADCAST_CHUNK = 5000


class Hark(
    StartVerbs,
    SignalVerbs,
    AnswerVerbs,
    ReadVerbs,
    ScheduleVerbs,
    OperationVerbs,
    DeployVerbs,
    VersionVerbs,
    CheckVerbs,
    MigrationVerbs,
    ForkVerbs,
    HandlerVerbs,
):
    """Durable workflows that wait for the outside world.

    A verb acts when it is called and returns a `Reply`: `await` it, or call `.result()` in synchronous code, where
    `with app:` opens the app. Every verb raises `NotOpen` before the app is open and `StoreUnavailable` when the
    database does not answer.

    Args:
        url: The store: "sqlite:///file.db", "sqlite://" (in memory) or "postgresql://…".
        schema: The schema of the tables in PostgreSQL.
        lease: Seconds after which the work of a worker that died is given to others.
        max_family: How many live descendants an instance may have: children, their children and so on. A child that
            would start more gets an error; see docs/operations.md.
        max_crashes: How many times in a row a step may take its worker down before the instance is quarantined.
        linger: Seconds that a task handler that waits keeps its slot; then its task parks, and the handler runs again
            when the signal arrives. It parks earlier, at once, when other work waits for the slot.
        max_signal_wait: The longest timeout of `task.wait_for_signal`, in seconds.
        max_payload: How many bytes of JSON a payload, state or result may have.
        max_stream: How many bytes of JSON the stream of one task may have, with its heartbeats: a mark replaces what is
            above that.
        max_run_stream: How many bytes the streams of all tasks of one run may have.
        retention: Seconds that finished instances are kept. A process with a worker removes older ones, every minute.
        retention_failed: Seconds that failed instances are kept, and the tasks of failed jobs, so that there is time to
            look at them and to retry them. At least as long as `retention`.
        event_retention: Seconds that events are kept, also those of live instances, for definitions that run for
            months, at least a day; None keeps them for as long as their instance.
        rate_limits: Rate limits by name, each a `Rate` or a dict of its parameters: `{"stripe": Rate(100, 60)}`.
        concurrency: How many instances execute at once under a concurrency key, by the part of the key before `:`. A
            key that is not named has 1.
        agents: What an agent of each type is: a command line as a list of texts, in which `{model}` becomes the model
            of the task. It gets the prompt on stdin, and in `HARK_CONTEXT` the path of a JSON file with the context.
            The environment's `HARK_AGENTS`, JSON of the same shape, adds to these, and replaces those of the same type.
        base_url: What links to the answer page start with, as people reach the server from outside. By default the
            environment's `HARK_BASE_URL`, else the address of a server on the same store.
        secret: Signs these links; several separated by commas, newest first. By default the environment's
            `HARK_SECRET`, else a secret that is generated and kept in the store.
        nats: A NATS server: its URL, or `Nats(url, …)` with options. Other programs put signals into a KV bucket there,
            and see the signals and streams that Hark sends. See docs/nats.md.
        broadcast_limit: Up to how many subscribers a broadcast is delivered in one commit.
        resident_functions: How many parked functions a worker keeps in memory, for a minute at most: an answer within
            that time needs no replay. 0 keeps none.
        one_call_turns: On PostgreSQL, carry out the most frequent turns as one call of a function in the database;
            False sends their statements one by one, which is slower and otherwise the same.
        clock: The time in µs since 1970, instead of the database's clock. For tests.

    Attributes:
        url: The URL of the store.

    Raises:
        InvalidInput: An option is malformed.
        MissingExtra: The driver of the database or the NATS client is not installed: `pip install 'hark[postgres]'`,
            `pip install 'hark[nats]'`.

    Example:
        app = Hark("sqlite:///hark.db")
        app.register(checkout)
        async with app, app.worker():
            order = await app.start(checkout, {"order": 42})
            print(await order.result())
    """

    def __init__(
        self,
        url: str = "sqlite:///hark.db",
        *,
        schema: str = "hark",
        lease: float = 30.0,
        max_crashes: int = 5,
        max_family: int = 100_000,
        linger: float = 60.0,
        max_signal_wait: float = 3600,
        max_payload: int = 1 << 20,
        max_stream: int = 16 << 20,
        max_run_stream: int = 64 << 20,
        retention: float = 7 * 86400,
        retention_failed: float = 90 * 86400,
        event_retention: float | None = None,
        rate_limits: dict[str, Rate | dict[str, Any]] | None = None,
        concurrency: dict[str, int] | None = None,
        agents: dict[str, list[str]] | None = None,
        base_url: str | None = None,
        secret: str | None = None,
        nats: str | Nats | None = None,
        broadcast_limit: int = 50_000,
        resident_functions: int = 2000,
        one_call_turns: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.url = url
        self._schema = schema
        self._clock = clock
        self._exports_metrics = False
        self._resident_functions = check_count(resident_functions, "resident_functions", least=0)
        self._lease = seconds(lease, "lease")
        self._max_payload = check_count(max_payload, "max_payload")
        limits = Limits(check_rates(rate_limits or {}), concurrency or {})
        whole = check_count(broadcast_limit, "broadcast_limit")
        streams = check_count(max_stream, "max_stream"), check_count(max_run_stream, "max_run_stream")
        rules = Rules(
            limits,
            check_count(max_crashes, "max_crashes"),
            whole,
            min(whole, _BROADCAST_CHUNK),
            *streams,
            check_count(max_family, "max_family"),
        )
        self._clerk = Clerk(
            connect.factory(url, schema=schema, lease=self._lease, clock=clock),
            rules,
            lease=self._lease,
            retention=check_retention(retention, retention_failed, event_retention),
            clock=clock,
            one_call_turns=one_call_turns,
        )
        self._nats = NatsOption(self._clerk, self._max_payload)
        self._nats.use(nats)
        self._links = AnswerLinks(secret, base_url, self._clerk.now)
        self._clerk.background.append(lambda: self._links.follow(lambda: self._clerk.store))
        self._clerk.peers.on_new_origin = self._links.read_soon
        self._registry = Registry(self._clerk.code_changed)
        self._registry.add_lane(JOB, LazyProgram(TASK_TRAITS, load_job_program))
        self._registry.add_lane(BPMN, LazyProgram(TASK_TRAITS, load_bpmn_program))
        self._registry.add_lane(BULK, LazyProgram(FUNCTION_TRAITS, self._load_bulk_program))
        self._jobs = RegisteredJobs(self._max_payload)
        self._starts = StartBuilder(self._registry, self._jobs, limits, self._max_payload, self.register)
        self._sources = DefinitionSources(self._clerk, self._registry)
        self._services = WorkerServices(
            self._clerk, limits, self._max_payload, self._starts.build, self._links.url, self._sources
        )
        register_shell(self._registry, self._command_store())
        self._use_agents({} if agents is None else agents)
        self._use_agents(agents_of_environment(os.environ.get("HARK_AGENTS")))
        self._services.linger = seconds(linger, "linger", zero=True)
        self._services.max_signal_wait = seconds(max_signal_wait, "max_signal_wait")

    def _use_agents(self, agents: Mapping[str, Sequence[str]]) -> None:
        register_agents(self._registry, self._command_store(), check_agents(agents))

    def _command_store(self) -> CommandStore:
        async def pending(store: Store, task: str) -> list[str]:
            return [row[0] for row in await store.read(reads.pending_of_task, task=task)]

        return CommandStore(
            url=lambda: connect.shared_url(self.url),
            schema=lambda: self._schema,
            open_awakeables=lambda task: self._read(lambda store: pending(store, task)),
            lease=self._services.lease_relay,
        )

    # -- open, close ------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True while the app is open: it has been entered and not yet closed."""
        return self._clerk.is_open

    async def __aenter__(self) -> Self:
        self._observe()
        await self._clerk.open()
        await self._read(self._links.read)
        for recorded in self._record():
            await recorded
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._clerk.close()

    def __enter__(self) -> Self:
        refuse_to_block_a_loop("`with app:`", "async with")
        self._observe()
        self._clerk.open().result()
        self._read(self._links.read).result()
        for recorded in self._record():
            recorded.result()
        return self

    def __exit__(self, *exc: object) -> None:
        self._clerk.close().result()

    def _record(self) -> list[Reply[Any]]:
        self._jobs.forget_versions()
        self._sources.forget()
        if self._clerk.access == "read":
            return []
        recorded: list[Reply[Any]] = [self._deploy(job) for job in self._jobs.jobs()]
        if self._registry.rows():
            recorded.append(self._register_code(self._registry.rows()))
        return recorded

    def _deploy(self, job: Job) -> Reply[tuple[str, int]]:
        request, deployed = self._jobs.deployment(job)
        return self._ask(request, deployed)

    def _observe(self) -> None:
        """Use OpenTelemetry if the program has loaded it. It is not loaded from here: that would take longer than all
        of Hark."""
        if "opentelemetry.trace" in sys.modules:
            from hark.engine.observe.tracing import find_tracing

            tracing = self._services.tracing = find_tracing()
            self._starts.trace = None if tracing is None else tracing.current
        if "opentelemetry.metrics" in sys.modules and not self._exports_metrics:
            from hark.engine.observe.otel_metrics import export_metrics

            self._exports_metrics = export_metrics(self._read_metrics, self._clerk.counters)

    def _read_metrics(self) -> Reply[Metrics]:
        return self._read(lambda store: metrics.read(store, self._clerk.counters))

    # -- work, serve ------------------------------------------------------------------------------

    def register(self, *definitions: Workflow[..., Any] | type[Machine] | Job | Dag) -> Reply[None]:
        """Make definitions known to this process, and record them in the store.

        They are recorded when the app opens, or now if it is open. A worker runs the machines and workflows that are
        registered here, and the jobs of the whole store: those need only the handlers of their tasks.

        Args:
            *definitions: `Machine` classes, `@workflow` functions, and jobs: what `load_job` returns, or a `Dag`.

        Raises:
            InvalidDefinition: Another definition has the same name and version, a type hint cannot be resolved, or a
                job has mistakes.
            InvalidInput: An argument is not a definition.

        Example:
            app.register(Checkout, deploy)
        """
        jobs = [job for definition in definitions if (job := job_of(definition)) is not None]
        code = [definition for definition in definitions if job_of(definition) is None]
        new = [program for program in map(program_of, code) if self._registry.add(program)]
        rows = [
            row for row in self._registry.rows() if any((row.name, row.version) == (p.name, p.version) for p in new)
        ]
        changed = [job for job in jobs if self._jobs.add(job)]
        for job in changed:
            self._registry.add_queues(job.spec.queues())
        recorded: list[Reply[Any]] = []
        if self._clerk.is_open:
            recorded = [self._deploy(job) for job in changed]
            if rows:
                recorded.append(self._register_code(rows))
        if not recorded:
            nothing: Reply[None] = Reply()
            answer_all([(nothing, None)])
            return nothing

        async def all_of_them(store: Store) -> None:
            for one in recorded:
                await one

        return self._read(all_of_them)

    def worker(self, queues: dict[str, int] | None = None, *, grace: float = 10.0) -> Worker:
        """Make a worker for this process. It runs between `async with` and its end, or `with` in synchronous code.

        Args:
            queues: Which queues to work on, and how many instances of each execute at once. By default the queues of
                the registered definitions, 100 each.
            grace: Seconds that steps get to finish when the worker stops; then they are handed back.

        Returns:
            The `Worker`, not yet running.

        Raises:
            InvalidInput: A queue name or number is malformed.

        Example:
            async with app, app.worker({"default": 100, "billing": 5}):
                ...
        """
        return Worker(
            self._clerk, self._registry, self._services, queues,
            lease=self._lease, grace=grace, residents=self._resident_functions,
        )  # fmt: skip

    def asgi(self, *, require_token: bool = False) -> Any:
        """Return the HTTP API as an ASGI application, to be served or mounted in another one under a prefix.

        Served alone, it opens and closes the app; mounted, the app must be opened by its owner. See docs/http.md.

        Args:
            require_token: Whether a request without a credential is refused, also from this machine.

        Raises:
            MissingExtra: The packages of the server are not installed: `pip install 'hark[server]'`.
        """
        return _import_door("asgi", "app.asgi()").AsgiApp(self, require_token=require_token)

    async def serve(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 4097,
        worker: bool = True,
        queues: dict[str, int] | None = None,
        grace: float = 10.0,
        require_token: bool = False,
        max_connections: int | None = None,
        max_connections_per_client: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """Serve the HTTP API, with a worker and timers in this process, until Ctrl-C or SIGTERM: as `hark serve` does.

        Args:
            host: The address to listen on. Beyond this machine only if the store has a token.
            port: The port; 0 takes a free one.
            worker: Whether to run a worker too.
            queues: The queues of that worker, as for `worker`.
            grace: Seconds that steps get to finish at the end.
            require_token: Whether a request without a credential is refused, also from this machine.
            max_connections: How many connections may be open at a time; further ones get a 503. By default as many as
                the limit of open files allows, less those that the database needs, and not more than 10,000.
            max_connections_per_client: How many of them one address may have, by default half. Behind a proxy all
                clients have the address of the proxy.
            say: Called with a line that has the address once requests are accepted, and with a line when a signal stops
                the server. By default they are printed.

        Raises:
            InvalidInput: The address cannot be used, or can be reached from outside while the store has no token; or
                the app has a worker already.
            MissingExtra: The packages of the server are not installed: `pip install 'hark[server]'`.

        Example:
            await app.serve(port=4097)
        """
        await _import_door("server", "app.serve()").serve(
            self, host=host, port=port, worker=worker, queues=queues, grace=grace, require_token=require_token,
            max_connections=max_connections, max_connections_per_client=max_connections_per_client, say=say,
        )  # fmt: skip


def _import_door(module: str, needed_by: str) -> Any:
    """Import a module of the HTTP door. By name: doors import the app, and not the other way round."""
    return import_extra(f"hark.doors.http.{module}", extra="server", needed_by=needed_by)
