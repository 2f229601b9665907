"""The verbs that read instances, their history and their waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, get_args, overload

from hark.app.arguments import (
    check_cursor,
    check_filters,
    check_limit,
    check_word,
    cursor_number,
    cursor_of,
    cursor_of_wait,
    optional_name,
    optional_seconds,
    optional_target,
    target_of,
)
from hark.app.core import Core
from hark.app.handle import Handle, Target
from hark.engine.callers.waiting import Ended, StatusReached
from hark.engine.turns.reply import Reply
from hark.model import json
from hark.model.errors import InvalidInput, end_without_result
from hark.model.outcomes import Duration
from hark.model.page import Page
from hark.model.values import Entry, Event, Instance, Status, Wait, WaitKind, Why, WorkerInfo
from hark.store.protocol import Store
from hark.views import instance_views, worker_info

R = TypeVar("R")


class ReadVerbs(Core):
    """get, list, result, journal, events, events_after, waits, why, workers."""

    def get(self, target: Target) -> Reply[Instance]:
        """Read one instance as it is in the store now.

        Args:
            target: The instance: its id, its correlation key or its handle.

        Raises:
            NotFound: There is none, or retention has removed it.

        Example:
            print((await app.get("order:42")).status)
        """
        wanted = target_of(target)
        return self._read(lambda store: instance_views.get(store, wanted))

    def list(
        self,
        *,
        status: str | None = None,
        definition: str | None = None,
        kind: str | None = None,
        tags: Mapping[str, str] | None = None,
        key_prefix: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Reply[Page[Instance]]:
        """List instances, newest first: by the time of their start, and those of one commit in the order of the starts.

        The tasks of jobs and processes are listed only with `kind="task"`; children that code has started are listed.

        Filters can be combined: an instance is listed if it matches all of them. A page of large instances ends early,
        with the one that reaches 8 MiB; go on with `after=page.next` until that is None.

        Args:
            status: Only those with this status: runnable, executing, awaiting_signal, awaiting_children, held, done,
                failed or cancelled.
            definition: Only those of this definition, by its name.
            kind: Only those of this kind: machine, workflow, job, task or bpmn. Without it, all but tasks.
            tags: Only those that were started with all of these tags.
            key_prefix: Only those whose correlation key begins with this text.
            created_after: Only those started later than this time, an aware `datetime`.
            created_before: Only those started earlier than this time, an aware `datetime`.
            limit: How many at most, up to 10,000.
            after: The `.next` of the page before, which is the id of its last instance.

        Returns:
            A reply with a `Page` of `Instance`s.

        Raises:
            NotFound: The instance `after` has been removed.
            InvalidInput: A filter is malformed, or has a value that does not exist.

        Example:
            failed = await app.list(status="failed", definition="checkout")
        """
        size, wanted = check_limit(limit), check_filters(
            status=status, definition=definition, kind=kind, tags=tags, key_prefix=key_prefix,
            created_after=created_after, created_before=created_before,
        )  # fmt: skip
        optional_name(after, "after")
        return self._read(lambda store: instance_views.instance_page(store, wanted, size, after))

    @overload
    def result(self, target: Handle[R], timeout: Duration | None = None) -> Reply[R]: ...
    @overload
    def result(self, target: str | Instance, timeout: Duration | None = None) -> Reply[Any]: ...
    def result(self, target: Target, timeout: Duration | None = None) -> Reply[Any]:
        """Wait until an instance has finished, and return its result.

        Args:
            target: The instance: its id, its correlation key or its handle.
            timeout: How long to wait, in seconds or as a `timedelta`; None waits forever.

        Returns:
            A reply with the result: a JSON value.

        Raises:
            InstanceFailed: It failed; `.error` is its error.
            InstanceCancelled: It was cancelled; `.reason` says why.
            TimeoutError: It has not finished in time. It continues.
            NotFound: There is no such instance.

        Example:
            total = await app.result("order:42", timeout=60)
        """
        wanted = target_of(target)
        reply: Reply[Any] = Reply(_result)
        self._clerk.wait_until(wanted, Ended(), optional_seconds(timeout, "timeout"), reply)
        return reply

    def _wait_for_status(self, target: str, status: Status, timeout: Duration | None) -> Reply[Instance]:
        check_word(status, "status", Status)
        if status is None:
            raise InvalidInput(f"Give the status to wait for, one of {', '.join(get_args(Status))}.")
        reply: Reply[Instance] = Reply()
        self._clerk.wait_until(target, StatusReached(status), optional_seconds(timeout, "timeout"), reply)
        return reply

    def journal(self, target: Target, *, limit: int = 1000, after: str | int | None = None) -> Reply[Page[Entry]]:
        """Read the journal of a function: what its code has asked for so far, and what it received.

        Operations that are open have no entry yet, except questions, whose value is None until the answer; `waits`
        shows them all. What is not a function has no journal. After `continue_as_new`, only the present visit has one.

        Args:
            target: The instance: its id, its correlation key or its handle.
            limit: How many entries at most, up to 10,000.
            after: The `.next` of the page before, which is the number of its last entry.

        Returns:
            A reply with a `Page` of `Entry`s, in the order in which the code asked.

        Raises:
            NotFound: There is no such instance.
            InvalidInput: An argument is malformed.

        Example:
            for entry in await app.journal("order:42"):
                print(entry.number, entry.kind, entry.name, entry.value)
        """
        wanted, size, number = target_of(target), check_limit(limit), -1 if after is None else cursor_number(str(after))

        async def read(store: Store) -> Page[Entry]:
            from hark.views import journal_view  # only programs with functions need it

            return await journal_view.entries(store, wanted, size, number)

        return self._read(read)

    def events(
        self,
        target: Target | None = None,
        *,
        limit: int = 50,
        before: tuple[int, int] | None = None,
        after: str | tuple[int, int] | None = None,
    ) -> Reply[Page[Event]]:
        """Read the latest events of one instance, or of all, newest last; those of a job include those of its tasks.

        The `.next` of such a page goes back in time. A page ends early if its events have over 8 MiB of data; go on
        with `after=page.next` until that is None.

        Args:
            target: The instance: its id, its correlation key or its handle; None for all instances.
            limit: How many at most, up to 10,000.
            before: The `.cursor` of the oldest event seen, to read what happened before it.
            after: The `.next` of the page before; or the `.cursor` of an event, to read what happened after it, oldest
                first: then `.next` goes forward, and (0, 0) is the beginning.

        Returns:
            A reply with a `Page` of `Event`s.

        Raises:
            NotFound: There is no such instance.
        """
        wanted, size = optional_target(target), check_limit(limit)
        if isinstance(after, str) and after.startswith("~"):
            before, after = cursor_of(after[1:]), None
        if after is not None:
            start = check_cursor(after)
            return self._read(lambda store: instance_views.history(store, wanted, start, size))
        place = () if before is None else (check_cursor(before),)
        return self._read(lambda store: instance_views.events(store, wanted, size, *place))

    def events_after(self, cursor: str | tuple[int, int] = (0, 0), *, limit: int = 1000) -> Reply[Page[Event]]:
        """Read the events of all instances after a cursor, oldest first.

        It skips none, also when a transaction with a lower number commits later: read in a loop, each time after the
        `.cursor` of the last event, it is a complete feed. It returns fewer if they have over 8 MiB of data.

        Args:
            cursor: The `.cursor` of the last event seen, or the `.next` of the page before; (0, 0) for the beginning.
            limit: How many at most, up to 10,000.

        Returns:
            A reply with a `Page` of `Event`s; `.next` is None if there are no more now.
        """
        size, place = check_limit(limit), check_cursor(cursor)
        return self._read(lambda store: instance_views.history(store, None, place, size))

    def waits(
        self, *, name: str | None = None, kind: str | None = None, limit: int | None = None, after: str | None = None
    ) -> Reply[Page[Wait]]:
        """List what instances wait for, the longest wait first.

        Args:
            name: Only waits for this signal, broadcast, message or awakeable id.
            kind: Only waits of this kind: signal, broadcast, message, timer, awakeable or children.
            limit: How many at most, up to 10,000; None for all of them.
            after: The `.next` of the page before.

        Returns:
            A reply with a `Page` of `Wait`s.
        """
        size = None if limit is None else check_limit(limit)
        optional_name(name, "name")
        check_word(kind, "kind", WaitKind)
        place = (-1, "") if after is None else cursor_of_wait(after)
        return self._read(lambda store: instance_views.waits(store, name, kind, size, place))

    def why(self, target: Target) -> Reply[Why]:
        """Explain why an instance does not continue.

        Args:
            target: The instance: its id, its correlation key or its handle.

        Returns:
            A reply with a `Why`: what the instance waits for and what would wake it, what else blocks it, and the
            near misses: signals that arrived and did not wake it.

        Raises:
            NotFound: There is no such instance.

        Example:
            print((await app.why("order:42")).text)
        """
        from hark.views import why  # seldom used, and 4 ms of every import

        wanted = target_of(target)
        here = self._registry.lanes() if self._clerk.worker is not None else {}
        return self._read(lambda store: why.explain(store, wanted, here))

    def workers(self) -> Reply[Page[WorkerInfo]]:
        """List the worker processes on this store, the longest running first; also those whose lease has ended.

        A store in memory has none: its worker is in this process, and needs no lease.

        Example:
            for worker in await app.workers():
                print(worker.host, worker.pid, worker.free)
        """
        return self._read(worker_info.workers)


def _result(row: Sequence[Any]) -> Any:
    id, status, result, error = row
    if status == "done":
        return None if result is None else json.load_for_code(result)
    raise end_without_result(id, status, error)
