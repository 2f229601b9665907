"""DoorAccess: the operations that only the doors (HTTP, command line, links) need of an app.

These are not verbs of `Hark`: a user of the library needs none of them, and they may change in any release.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

from hark.app import drawings
from hark.app.arguments import check_cursor, check_limit, optional_name, target_of
from hark.app.checking import Progress
from hark.app.hark import Hark
from hark.engine.callers.waiting import Ended
from hark.engine.observe import metrics
from hark.engine.observe.metric_families import Family, families
from hark.engine.tasks.outside_tasks import OutsideTasks
from hark.engine.turns.reply import Reply
from hark.kernel.requests import CheckWritable, CommitNote, RecordOrigin
from hark.model.errors import InvalidInput
from hark.model.job_report import JobReport
from hark.model.lanes import lane_name_problem
from hark.model.masking import masked
from hark.model.names import check_name, is_name
from hark.model.nats import NatsReport
from hark.model.notes import NoteAwakeable
from hark.model.outside import FetchedTask
from hark.model.page import Page
from hark.model.report import Report
from hark.model.task_lease import parse_lease
from hark.model.tokens import digest
from hark.model.values import TERMINAL, Awakeable, DefinitionView, Event, Instance, Schedule, Token
from hark.programs import effects
from hark.store import connect, reads
from hark.store import statements as sql
from hark.store.protocol import Store, Unmigrated
from hark.views import definition_views, health, instance_views, job_reporting, run_events, schedule_views, worker_info
from hark.views.listing import prefix_range
from hark.views.run_events import Cursor

_MAX_FETCHED = 100  # tasks of one fetch
_MAX_LEASE = 3600  # seconds
_MAX_WAIT = 60  # seconds of a fetch


class DoorAccess:
    """An app as a door sees it. It holds no state of its own: a door may construct several."""

    def __init__(self, app: Hark) -> None:
        self.app = app

    # -- the store ----------------------------------------------------------------------------------

    def use_store(self, url: str | None = None, *, schema: str | None = None) -> None:
        """Let the app work on another store than the one it was made for, as `--db` and `--schema` do.

        Args:
            url: The URL of the other store; None keeps the app's own.
            schema: The schema in PostgreSQL; None keeps the app's own.

        Raises:
            InvalidInput: The app is open, or the URL or schema is not valid.
        """
        app = self.app
        if app.is_open:
            raise InvalidInput("This app is open. Close it before you give it another store.")
        url, schema = app.url if url is None else url, app._schema if schema is None else schema
        app._clerk.make_store = connect.factory(url, schema=schema, lease=app._lease, clock=app._clock)
        app.url, app._schema = url, schema

    @contextmanager
    def opened(self, access: Literal["create", "write", "read"], *, migrate: str) -> Iterator[Hark]:
        """Open the app on a store that exists: nothing is created or migrated, whatever the URL says.

        Args:
            access: With "create", a store without tables is created first. With "read" nothing is written: the
                definitions of the app are not recorded, and a database that this process may only read is enough.
            migrate: The command that creates or updates the store, for the error.

        Raises:
            InvalidInput: There is no such database, or it lacks tables that this version needs.
        """
        app = self.app
        app._links.warn = False  # a command that shows a link reports a missing address itself
        with ExitStack() as stack:
            stack.callback(setattr, app._clerk, "access", "migrate")
            if connect.exists(app.url):
                app._clerk.access = "write" if access == "create" else access
            elif access != "create":
                raise InvalidInput(
                    f"There is no database at {masked(app.url)}, and none was created. Check --db or HARK_DB, or "
                    f"create it with `{migrate}`."
                )
            try:
                stack.enter_context(app)
            except Unmigrated as error:
                if error.version:
                    raise InvalidInput(
                        f"The store has the tables of version {error.version}, and this version of Hark needs those of "
                        f"version {error.newest}; nothing was changed. Stop its older processes and update it with "
                        f"`{migrate}`."
                    ) from None
                if access != "create":
                    raise InvalidInput(
                        "The store has no tables of Hark, and none were created. Check --db and --schema, or create "
                        f"them with `{migrate}`."
                    ) from None
                app._clerk.access = "migrate"
                stack.enter_context(app)
            yield app

    def is_shareable(self) -> bool:
        """Return True if other processes can open the store of the app, which is not in memory then."""
        return connect.shared_url(self.app.url) is not None

    def dump_migrations(self) -> str:
        """The SQL that creates the tables of the app's store. Nothing is run."""
        return connect.dump_migrations(self.app.url, self.app._schema)

    def ping(self) -> Reply[None]:
        """Send the store one small write, which changes nothing. The reply raises `StoreUnavailable` if it does not
        answer or accepts no writes."""
        return self.app._ask(CheckWritable())

    def startable(
        self, *, name: str | None = None, limit: int, after: str | None = None
    ) -> Reply[Page[DefinitionView]]:
        """List the definitions that can be started, by name, each with the version that a start by name chooses.

        Args:
            name: Only this definition.
            limit: How many at most, up to 10,000.
            after: The `.next` of the page before.
        """
        size, wanted, place = check_limit(limit), optional_name(name, "name"), optional_name(after, "after")
        return self.app._read(lambda store: definition_views.startable(store, wanted, size, place))

    # -- deploys ------------------------------------------------------------------------------------

    def check(self, names: Sequence[str], export: Path | None, progress: Progress) -> Reply[Report]:
        """Check as `Hark.check` does, and report how far it is."""
        return self.app._check(names, export, progress)

    def export_live(
        self, path: Path, names: Sequence[str] = (), progress: Progress = lambda done, total: None
    ) -> Reply[int]:
        """Write what a check needs into a file. The reply has the number of instances."""
        return self.app._export_live(path, frozenset(names) or None, progress)

    # -- jobs ---------------------------------------------------------------------------------------

    def job_report(self, target: str) -> Reply[JobReport]:
        """A job with its tasks, what they wait for and how to answer it.

        Raises:
            NotFound: There is no such instance.
            InvalidInput: It is not a job.
        """
        wanted = target_of(target)
        here = self.app._registry.lanes() if self.app._clerk.worker is not None else {}
        return self.app._read(lambda store: job_reporting.report(store, wanted, here))

    def lingering_tasks(self) -> frozenset[str]:
        """The tasks whose handlers wait in slots of the worker of this app."""
        worker = self.app._clerk.worker
        return frozenset() if worker is None else frozenset(worker.lingering.copy())

    def park_lingering_tasks(self) -> None:
        """Park the tasks whose handlers wait in slots of the worker of this app, if they still do."""
        if (worker := self.app._clerk.worker) is not None:
            worker.make_room([*worker.lingering.copy().values()])

    def instance_drawing(self, target: str) -> Reply[drawings.Drawing]:
        """Find the function that draws a job as SVG, with the states of its tasks; or a process, with its tokens.

        Raises:
            NotFound: There is no such instance.
            InvalidInput: It is neither a job nor a process.
        """
        wanted = target_of(target)
        return self.app._read(lambda store: drawings.draw_instance(store, wanted))

    def definition_drawing(self, name: str) -> Reply[drawings.Drawing]:
        """Find the function that draws the newest version of a deployed job or process as SVG.

        Raises:
            NotFound: There is no deployed job or process of this name.
        """
        return self.app._read(lambda store: drawings.draw_definition(store, name))

    def handlers_of_app(self) -> set[str]:
        """The handlers, agents and gates of the app, by the names that `WorkerInfo.handlers` has for them."""
        return set(worker_info.handlers_in(self.app._registry.lanes()))

    def use_agents(self, agents: Mapping[str, Sequence[str]]) -> None:
        """Let the app run these agents too, as `--agent` does. They replace its own of the same type.

        Raises:
            InvalidInput: A type or a command line is malformed.
        """
        self.app._use_agents(agents)

    def queues_of_app(self) -> set[str]:
        """The queues of the definitions that the app has registered."""
        return {row.queue for row in self.app._registry.rows()}

    def health(self) -> Reply[dict[str, Any]]:
        """The condition of the store as plain facts: `hark doctor` judges them."""
        return self.app._read(health.facts)

    # -- NATS ---------------------------------------------------------------------------------------

    def use_nats(self, url: str | None) -> None:
        """Let the app use another NATS server than the one it was made for, as `--nats` does. None changes nothing.

        Raises:
            InvalidInput: The URL is malformed.
            MissingExtra: The NATS client is not installed.
        """
        self.app._nats.use(url)

    def leave_nats_alone(self) -> None:
        """Do not connect to NATS when the app opens: for a command that looks, or makes one call."""
        self.app._nats.connects = False

    def nats_report(self) -> Reply[NatsReport | None]:
        """Read the state of NATS; None if the app does not use it."""
        return self.app._read(lambda store: self.app._nats.report())

    def tracing(self, traceparent: bytes | None) -> AbstractContextManager[None]:
        """Let the verbs called inside continue the trace of a request, if a tracer provider is configured."""
        tracing = self.app._services.tracing
        return (
            nullcontext()
            if tracing is None or traceparent is None
            else tracing.continued(traceparent.decode("latin-1"))
        )

    def metrics(self) -> Reply[list[Family]]:
        """Read the gauges of the store and the counters of this process, from indexes only, never a whole table."""

        async def read(store: Store) -> list[Family]:
            return families(await metrics.read(store, self.app._clerk.counters))

        return self.app._read(read)

    # -- tasks --------------------------------------------------------------------------------------

    def create_awakeable(
        self,
        lease: str,
        place: str,
        *,
        run: str,
        task: str,
        timeout: float | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: dict[str, Any] | None = None,
        assignees: Iterable[str] = (),
    ) -> Reply[str]:
        """Create an awakeable of an executing task, as `hark awakeable create` does in a shell task.

        Args:
            lease: The lease of the task, from `HARK_LEASE`.
            place: Which question of the task it is: the same place again gives the same awakeable.
            run: The id of the job.
            task: The name of the task.
            timeout: Seconds until it times out; None for never.
            title: One line for the answerer.
            description: More text for the answerer.
            schema: The JSON Schema of the answer.
            assignees: The people and programs that may answer; empty: anyone may.

        Returns:
            Its id.

        Raises:
            InvalidInput: An argument is malformed.
            TaskLost: The task does not execute under this lease any more.
        """
        task_id, epoch = parse_lease(lease)
        if not task_id.startswith(f"{run}."):
            raise InvalidInput(f"HARK_JOB is {run!r}, and HARK_LEASE that of a task of another job. Do not set them.")
        fields, _ = effects.question(timeout, title, description, schema, assignees)
        nonce = secrets.token_urlsafe(12)
        note = NoteAwakeable(task_id, epoch, run_id=run, place=place, task=task, nonce=nonce, **fields)
        return self.app._ask(CommitNote(note=note), lambda made: str(made.id))

    @property
    def turns(self) -> int:
        """The number of turns that this process has committed. If it changes, there may be new events."""
        return self.app._clerk.counters.turns

    @property
    def max_payload(self) -> int:
        """The number of bytes of JSON that a payload, state or result may have."""
        return self.app._max_payload

    # -- reading ------------------------------------------------------------------------------------

    def follow(self, positions: dict[str, int], *, limit: int = 100) -> Reply[tuple[list[Event], set[str]]]:
        """Read the events of some instances after a position each, in one statement.

        Args:
            positions: For each instance id the `seq` of the last event seen, 0 for none.
            limit: How many events of each instance at most.

        Returns:
            The events, oldest first, none skipped; and the ids of the instances that were finished, or removed,
            before the events were read: there are no more of them.
        """
        size = check_limit(limit)
        return self.app._read(lambda store: instance_views.follow(store, positions, size))

    def follow_run(self, id: str, after: tuple[int, int], *, limit: int) -> Reply[tuple[list[Event], Cursor, bool]]:
        """Read the events of a job and of its tasks after a cursor.

        Args:
            id: The id of the job.
            after: The cursor that the last call returned; (0, 0) for the beginning.
            limit: How many events at most.

        Returns:
            The events, oldest first, none skipped; the cursor of the next call; and True if there will be no more.
        """
        size, place = check_limit(limit), check_cursor(after)
        return self.app._read(lambda store: run_events.follow(store, id, place, size))

    def scan_runs(self, ids: set[str], after: tuple[int, int]) -> Reply[tuple[list[Event], Cursor, set[str], bool]]:
        """Read the new events of several jobs after one cursor, which is near the newest events of all instances.

        Returns:
            The events; the cursor of the next call; the jobs that will have no more events; and True if there are more
            to read now.
        """
        return self.app._read(lambda store: run_events.scan(store, ids, after))

    def run_of(self, event: Event, ids: set[str]) -> str | None:
        """The one of these jobs that an event of `scan_runs` belongs to."""
        return run_events.run_of(event, ids)

    def schedule(self, name: str) -> Reply[Schedule]:
        """Read one schedule.

        Raises:
            NotFound: There is no such schedule.
        """
        wanted = check_name(name, "schedule name")
        return self.app._read(lambda store: schedule_views.find(store, wanted))

    def ids_beginning(self, prefix: str, *, limit: int = 2) -> Reply[list[str]]:
        """The first ids of instances that begin with these characters, in order."""
        low, high = prefix_range(prefix)

        async def find(store: Store) -> list[str]:
            return [id for (id,) in await store.read(reads.ids_between, low=low, high=high, size=limit)]

        return self.app._read(find)

    # -- task workers in other languages ------------------------------------------------------------

    @property
    def outside_tasks(self) -> OutsideTasks:
        """The operations of workers in other languages on tasks that they have fetched."""
        app = self.app
        return OutsideTasks(app._clerk, app._services, app._max_payload)

    async def fetch_tasks(
        self, worker: str, handlers: list[str], *, most: int, lease: float, wait: float, gone: asyncio.Future[None]
    ) -> list[FetchedTask]:
        """Claim tasks for a worker outside; wait until there is one.

        Args:
            worker: A name for people.
            handlers: The handlers whose tasks it takes.
            most: How many tasks, 1 to 100.
            lease: Seconds until another worker gets a task that has no heartbeat, 1 to 3,600.
            wait: Seconds, 0 to 60.
            gone: Done when the caller does not wait any more.

        Raises:
            InvalidInput: One of them is out of range.
        """
        check_name(worker, "name of a worker")
        if not 1 <= len(handlers) <= _MAX_FETCHED or not 1 <= most <= _MAX_FETCHED:
            raise InvalidInput(f"Give 1 to {_MAX_FETCHED} handlers, and a `max` of 1 to {_MAX_FETCHED}.")
        for handler in handlers:
            if problem := lane_name_problem(check_name(handler, "name of a handler"), "handler"):
                raise InvalidInput(problem)
        if not 1 <= lease <= _MAX_LEASE or not 0 <= wait <= _MAX_WAIT:
            raise InvalidInput(f"Give a `lease` of 1 to {_MAX_LEASE} seconds, and a `wait` of 0 to {_MAX_WAIT}.")
        return await self.outside_tasks.fetch(worker, handlers, most, lease, wait, gone)

    async def get_when_ended(self, target: str, wait: float, gone: asyncio.Future[None]) -> Instance:
        """Read an instance when it has ended, or after a time as it is then.

        It costs no thread, and no reads while it waits: the commits of this process, or one read after a hint for all
        that wait, say which instances have ended.

        Args:
            target: The instance: its id or its key.
            wait: Seconds, 0 to 60.
            gone: Done when the caller does not wait any more.

        Raises:
            NotFound: There is no such instance.
            InvalidInput: `wait` is out of range.
        """
        if not 0 <= wait <= _MAX_WAIT:
            raise InvalidInput(f"wait={wait!r}: give 0 to {_MAX_WAIT} seconds, and ask again for a longer time.")
        found = await self.app.get(target)
        if found.status in TERMINAL:
            return found
        end: Reply[Any] = Reply()
        # By its id: the key may belong to another instance by the time this one has ended.
        self.app._clerk.wait_until(found.id, Ended(), wait, end)
        ended = asyncio.ensure_future(_unless_late(end))
        try:
            done, _ = await asyncio.wait([ended, gone], return_when=asyncio.FIRST_COMPLETED)
            if ended in done:
                await ended
        finally:
            ended.cancel()
        return await self.app.get(found.id)

    # -- links and forms ----------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        """The address of the HTTP server, `http://host:port`: links start with it if the app has no `base_url`."""
        return self.app._links.origin

    @origin.setter
    def origin(self, address: str) -> None:
        self.app._links.origin = address

    @property
    def base_url(self) -> str:
        """The option `base_url` of the app, or HARK_BASE_URL; else empty."""
        return self.app._links.base_url

    def record_origin(self, address: str) -> Reply[None]:
        """Set `origin`, and record it (or the `base_url`) in the store, for the links that other processes make."""
        self.origin = address
        return self.app._ask(RecordOrigin(url=self.app._links.base_url or address))

    def linked(self, awakeable_id: str, token: str) -> Reply[Awakeable]:
        """Read the awakeable behind a signed link.

        Raises:
            NotFound: The link does not work. The error is the same for every reason.
        """
        app, links = self.app, self.app._links
        wanted = awakeable_id if is_name(awakeable_id) else "-"  # an id that no awakeable has

        async def find(store: Store) -> Awakeable:
            await links.look_up(token, store)
            return await instance_views.linked(store, links.url, links.keys, wanted, token, app._clerk.now())

        return app._read(find)

    def sign_texts(self, *fields: str) -> str:
        """Sign some texts with the app's secret: the answer page puts one into each form."""
        return self.app._links.keys.sign_texts(*fields)

    def verify_texts(self, signature: str, *fields: str) -> bool:
        """Return True if `sign_texts` made this signature for these texts."""
        return self.app._links.keys.verify_texts(signature, *fields)

    # -- tokens -------------------------------------------------------------------------------------

    def known_tokens(self, secrets: Iterable[str]) -> Reply[dict[str, Token]]:
        """Find the tokens of these secrets, in one read; a secret that is unknown, expired or revoked is left out."""
        hashes = {digest(secret): secret for secret in secrets}

        async def find(store: Store) -> dict[str, Token]:
            found = await instance_views.live_tokens(store, list(hashes), self.app._clerk.now())
            return {hashes[hash]: token for hash, token in found.items()}

        return self.app._read(find)

    def has_tokens(self) -> Reply[bool]:
        """Return True if the store has a token that is neither expired nor revoked."""

        async def find(store: Store) -> bool:
            return bool(await store.read(sql.any_live_token, now=self.app._clerk.now()))

        return self.app._read(find)


async def _unless_late(end: Reply[Any]) -> None:
    """Wait for the end of an instance, or for the timeout."""
    with suppress(TimeoutError):
        await end
