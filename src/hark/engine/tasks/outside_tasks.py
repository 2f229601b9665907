"""OutsideTasks: carries out the calls of workers in other languages, one at a time (J11).

A fetched task is claimed in the store (kernel/runs/outside_claims.py); this process keeps nothing of it, so each call
about it may come to another server. The outcomes are those of any task (programs/jobs/tasks/task_outcomes.py): gates,
retries and regressions are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply
from hark.kernel.requests import Commit, CommitNote, CommitTask, FetchTasks, HandBack, RenewTask, Request
from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import Decision
from hark.model.durations import short_duration
from hark.model.errors import BpmnError, HarkError, StoreUnavailable, TaskLost, task_lost
from hark.model.failures import Failure, failure_of, storable
from hark.model.lanes import handler_of, task_lane
from hark.model.log import get_logger
from hark.model.names import SECOND, check_name, from_micros, micros
from hark.model.notes import AnyNote, NotedEvent, NoteEvents, NoteState
from hark.model.outside import FetchedTask, TaskHeartbeat, owner_of
from hark.programs import effects
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.tasks.task_data import load_data
from hark.programs.jobs.tasks.task_outcomes import TaskActivation
from hark.programs.jobs.tasks.task_state import dump_task_state, load_task_state
from hark.store import statements as sql
from hark.store.protocol import Store
from hark.views.worker_info import describe_outside

_POLL: Final = 2.0  # seconds after which a waiting fetch asks again, whatever it heard
_BETWEEN_QUESTIONS: Final = 0.02  # seconds between two questions of one fetch
_encode = msgspec.json.encode
_log = get_logger()


class OutsideTasks:
    """The tasks of one app, for workers outside."""

    def __init__(self, clerk: Clerk, services: JobServices, max_payload: int) -> None:
        self._clerk = clerk
        self._services = services
        self._max_payload = max_payload

    # -- fetching ---------------------------------------------------------------------------------

    async def fetch(
        self, worker: str, handlers: list[str], most: int, lease: float, wait: float, gone: asyncio.Future[None]
    ) -> list[FetchedTask]:
        """Claim up to `most` tasks of these handlers; wait up to `wait` seconds for the first one.

        Args:
            worker: A name for people.
            handlers: The names of the handlers.
            most: How many tasks.
            lease: Seconds until another worker gets a task that is not renewed.
            wait: Seconds.
            gone: Done when the caller does not wait any more: what was claimed for it is handed back.
        """
        lanes = tuple(dict.fromkeys(task_lane(handler) for handler in handlers))
        info = describe_outside(worker, lease)
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        with self._clerk.arrivals.listen(lanes) as arrived:
            while True:
                arrived.clear()  # before the question: what comes after it is not missed
                request = FetchTasks(lanes=lanes, most=most, lease=int(lease * SECOND), info=info)
                claims = await self._claims(request)
                tasks = await self._fetched(claims, request.tokens)
                if claims and gone.done():
                    await self._ask(HandBack(claims=claims, outside=True))
                    return []
                left = end - loop.time()
                if tasks or left <= 0 or gone.done():
                    return tasks
                await asyncio.sleep(min(left, _BETWEEN_QUESTIONS))
                listening: asyncio.Future[Any] = asyncio.ensure_future(arrived.wait())
                await asyncio.wait([listening, gone], timeout=min(left, _POLL), return_when=asyncio.FIRST_COMPLETED)
                listening.cancel()

    async def _claims(self, request: FetchTasks) -> list[Claim]:
        reply: Reply[list[Claim]] = self._submit(request)
        try:
            return await reply
        except asyncio.CancelledError:  # the server ends this call: what it claims nevertheless is handed back
            self._clerk.spawn(self._hand_back, reply)
            raise

    async def _hand_back(self, claimed: Reply[list[Claim]]) -> None:
        with contextlib.suppress(HarkError):
            if claims := await claimed:
                self._clerk.submit(HandBack(claims=claims, outside=True))

    async def _fetched(self, claims: list[Claim], tokens: Mapping[str, str]) -> list[FetchedTask]:
        try:
            return [task for claim in claims if (task := await self._task(claim, tokens[claim.id])) is not None]
        except asyncio.CancelledError:
            self._clerk.submit(HandBack(claims=claims, outside=True))
            raise

    async def _task(self, claim: Claim, token: str) -> FetchedTask | None:
        """Return a claimed task as its worker gets it. None if it cannot run: its input cannot be made, or it is a loop
        that has reached its bound. Then it has failed."""
        try:
            activation = await self._activation(claim, claim.now)
            if (reached := activation.bound_reached(claim.now)) is not None:
                await self._commit(claim, activation.failed(reached, final=True))
                return None
            state = activation.state
            graph = await self._services.job_graph(claim.definition, claim.version)
            data = await load_data(state, graph, self._services)
        except StoreUnavailable:  # not the fault of the task
            self._clerk.submit(HandBack(claims=[claim], outside=True))
            return None
        except Exception as error:
            await self._fail_early(claim, error)
            return None
        return FetchedTask(
            claim.id, token, handler_of(claim.lane) or "", state.run, claim.step,
            data.input, data.inputs, state.attempt, state.iteration,
            None if state.checkpoint is UNSET else _load(state.checkpoint),
            UNSET if state.previous is UNSET else _load(state.previous), activation.task.headers or UNSET,
        )  # fmt: skip

    async def _fail_early(self, claim: Claim, error: Exception) -> None:
        try:
            await self._commit(claim, (await self._activation(claim, claim.now)).failed(failure_of(error)))
        except HarkError as problem:
            _log.warning("Task %s could not be given to a worker: %s", claim.id, problem)

    async def _activation(self, claim: Claim, since: int) -> TaskActivation:
        """The activation of a task that was fetched at `since`, µs."""
        graph = await self._services.job_graph(claim.definition, claim.version)
        activation = TaskActivation(claim, load_task_state(claim.state), graph.spec)
        activation.begin(since)
        return activation

    # -- while it runs ----------------------------------------------------------------------------

    async def heartbeat(
        self, id: str, token: str, *, checkpoint: Any = UNSET, stream: Any = UNSET, details: Any = UNSET
    ) -> TaskHeartbeat:
        """Renew the lease of a task, and store what its worker reports.

        Raises:
            TaskLost: The worker does not hold the task any more. Nothing was stored.
            PayloadTooLarge: The stream of the task or of its run is full, and this chunk was not stored. The lease is
                renewed, and the rest is stored.
        """
        try:
            activation = await self._held(id, token)
            asked = [
                self._submit(CommitNote(note=note)) for note in self._notes(activation, checkpoint, stream, details)
            ]
            renewed = self._submit(RenewTask(id=id, epoch=activation.claim.epoch))
            for reply in asked:
                await reply
            return TaskHeartbeat(False, from_micros(await renewed))
        except TaskLost as lost:
            if lost.status == "cancelled":
                return TaskHeartbeat(True, None)
            raise

    def _notes(self, activation: TaskActivation, checkpoint: Any, stream: Any, details: Any) -> list[AnyNote]:
        claim, state = activation.claim, activation.state
        notes: list[AnyNote] = []
        events: list[NotedEvent] = []
        progress = None
        if stream is not UNSET:
            chunk = json.dump(stream, limit=self._max_payload, what="stream")
            events.append(NotedEvent("stream", _data(claim.step, "chunk", chunk)))
        if details is not UNSET:
            progress = effects.progress(details)
            events.append(NotedEvent("heartbeat", _data(claim.step, "details", progress)))
        if events:
            notes.append(
                NoteEvents(
                    claim.id,
                    claim.epoch,
                    events=tuple(events),
                    step=claim.step,
                    progress=progress,
                    run_id=state.run,
                    refuses_stream=True,
                )
            )
        if checkpoint is not UNSET:
            state.checkpoint = Raw(json.dump(checkpoint, limit=self._max_payload, what="checkpoint").encode())
            state.period += 1
            event = NotedEvent("checkpoint", _encode({"task": claim.step}).decode())
            notes.append(
                NoteState(claim.id, claim.epoch, state=dump_task_state(state), events=(event,), step=claim.step)
            )
        return notes

    # -- outcomes ---------------------------------------------------------------------------------

    async def complete(self, id: str, token: str, output: Any) -> None:
        """Complete the task with this output. Raises TaskLost."""
        text = json.dump(output, limit=self._max_payload, what="output")
        activation = await self._held(id, token)
        await self._commit(activation.claim, activation.completed(text))

    async def continue_(self, id: str, token: str, output: Any) -> None:
        """Begin the next iteration of a loop, with this output as its `previous`. Raises TaskLost."""
        text = json.dump(output, limit=self._max_payload, what="output")
        activation = await self._held(id, token)
        await self._commit(activation.claim, activation.continued(text, activation.claim.now))

    async def fail(self, id: str, token: str, error: str, *, retry: bool = True, delay: float | None = None) -> None:
        """Fail the attempt. Without `retry` no other one follows; `delay` is the seconds until the next one if they are
        not those of the retry policy. Raises TaskLost, InvalidInput."""
        wait = None if delay is None else micros(delay, "delay", zero=True)
        activation = await self._held(id, token)
        await self._commit(activation.claim, activation.failed(failure_of(error), final=not retry, delay=wait))

    async def throw(self, id: str, token: str, code: str, message: str, variables: dict[str, Any] | None) -> None:
        """End the task with a BPMN error, which its process may catch by its code. A job catches none: the task fails,
        without another attempt, and its history has the variables. Raises TaskLost, InvalidInput."""
        check_name(code, "code")
        json.check_text(message, "message")
        text = json.dump(variables, limit=self._max_payload, what="variables")
        activation = await self._held(id, token)
        failure = Failure("BpmnError", storable(str(BpmnError(code, message))))
        await self._commit(activation.claim, activation.thrown(code, storable(message), text, failure))

    async def escalate(self, id: str, token: str, code: str, variables: dict[str, Any] | None) -> None:
        """Throw an escalation to the process of the task, which goes on. Raises TaskLost, InvalidInput."""
        check_name(code, "code")
        text = json.dump(variables, limit=self._max_payload, what="variables")
        activation = await self._held(id, token)
        await self._ask(CommitNote(note=activation.escalation(code, text)))

    async def _held(self, id: str, token: str) -> TaskActivation:
        """Find the task that this token holds. An attempt whose time is over fails now, and is lost."""
        owner = owner_of(token)

        async def read(store: Store) -> tuple[Claim, int] | str:
            for *columns, its_owner, since in await store.read(sql.fetched_task, id=id):
                if not hmac.compare_digest(owner, its_owner):
                    break
                return Claim(*columns), self._clerk.now() if since is None else since
            for _, status in await store.read(sql.status_of_task, id=id):
                return str(status)
            return "deleted"

        reply: Reply[tuple[Claim, int] | str] = Reply()
        self._clerk.read(read, reply)
        found = await reply
        if found == "executing":
            why = "another worker has it, or this is not the token that came with it"
            raise TaskLost(f"Task {id} was lost: {why}. Nothing was stored; end the work on it.", status=found)
        if isinstance(found, str):
            raise task_lost(id, found)
        claim, since = found
        claim.counted, claim.has_inbox_rows, claim.now = (
            bool(claim.counted),
            bool(claim.has_inbox_rows),
            self._clerk.now(),
        )
        activation = await self._activation(claim, since)
        limit = activation.task.timeout_sec
        if limit is not None and claim.now - since > limit * SECOND:
            late = Failure("TimeoutError", f"the task did not end within {short_duration(limit)} (timeout_sec)")
            await self._commit(claim, activation.failed(late))
            raise TaskLost(f"Task {id} was lost: {late.message}. Nothing was stored; drop it.", status="lost")
        return activation

    # -- the clerk --------------------------------------------------------------------------------

    async def _commit(self, claim: Claim, decision: Decision) -> None:
        await self._ask(CommitTask(commit=Commit(claim=claim, decision=decision)))

    async def _ask(self, request: Request) -> Any:
        return await self._submit(request)

    def _submit(self, request: Request) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        self._clerk.submit(request, reply)
        return reply


def _load(value: Raw) -> Any:
    return json.load(bytes(value).decode())


def _data(task: str, name: str, value: str) -> str:
    return f'{{"task":{_encode(task).decode()},"{name}":{value}}}'
