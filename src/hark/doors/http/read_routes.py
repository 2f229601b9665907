"""The handlers that read. A list is {"items": …, "next": …}; `next` is the `after` of the next page, or null."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from hark.doors.http.parsing import Cursor, Name
from hark.doors.http.responses import Response, error_body, json_response
from hark.doors.http.routes import HttpRequest
from hark.doors.times import parse_time
from hark.model import json
from hark.model.errors import HarkError, InvalidInput, StoreUnavailable
from hark.model.values import Awakeable, Event, Instance, Wait, WorkerInfo

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
VERSION = version("hark")
_HEALTH_TIMEOUT = 2.0  # seconds; a probe that waits as long as a request may would report a failure of a minute ago


# For /openapi.json only: the handler parses both.
Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
JsonObject = Annotated[str, msgspec.Meta(extra_json_schema={"contentMediaType": "application/json"})]


class InstancesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters, and a page of what they leave.

    Attributes:
        status: Only instances with this status.
        definition: Only instances of the definition with this name.
        kind: Only instances of definitions of this kind.
        tags: Only instances that were started with all of these tags, a JSON object.
        key_prefix: Only instances whose correlation key begins with this text.
        created_after: Only instances that were started later than this time.
        created_before: Only instances that were started earlier than this time.
        limit: How many items a page has at most.
        after: The `next` of the page before.
    """

    status: str | None = None
    definition: Name | None = None
    kind: str | None = None
    tags: JsonObject | None = None
    key_prefix: Name | None = None
    created_after: Time | None = None
    created_before: Time | None = None
    limit: Limit = 100
    after: Cursor | None = None


class AwakeablesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters, and a page of what they leave.

    Attributes:
        job: Only awakeables of this instance, by its id or correlation key.
        status: Only awakeables with this status.
        limit: How many items a page has at most.
        after: The `next` of the page before.
    """

    job: Name | None = None
    status: str | None = None
    limit: Limit = 100
    after: Cursor | None = None


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A page of events.

    Attributes:
        limit: How many events a page has at most.
        after: The `next` of the page before, which goes back in time; or the `cursor` of an event as TX.SEQ, which
            goes forward.
    """

    limit: Limit = 100
    after: Cursor | None = None


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A page of events.

    Attributes:
        job: Only events of this instance, by its id or correlation key.
        limit: How many events a page has at most.
        after: The `next` of the page before, which goes back in time; or the `cursor` of an event as TX.SEQ, which
            goes forward.
    """

    job: Name | None = None
    limit: Limit = 50
    after: Cursor | None = None


class WaitsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filters, and a page of what they leave.

    Attributes:
        name: Only waits for this name.
        kind: Only waits of this kind.
        limit: How many items a page has at most.
        after: The `next` of the page before.
    """

    name: Name | None = None
    kind: str | None = None
    limit: Limit = 100
    after: Cursor | None = None


# X3: the link of an awakeable is a credential: a caller without the scope `answer` sees null.
AwakeableView: Any = msgspec.defstruct(
    "Awakeable", [*(get_type_hints(Awakeable) | {"url": str | None}).items()], namespace={"__doc__": Awakeable.__doc__}
)


class Instances(msgspec.Struct):
    """A page of instances.

    Attributes:
        items: The instances, newest first.
        next: The `after` of the next page, or None.
    """

    items: list[Instance]
    next: str | None


class Awakeables(msgspec.Struct):
    """A page of awakeables.

    Attributes:
        items: The awakeables, newest first.
        next: The `after` of the next page, or None.
    """

    items: list[AwakeableView]
    next: str | None


class Events(msgspec.Struct):
    """A page of events.

    Attributes:
        items: The events, newest last.
        next: The `after` of the next page, or None.
    """

    items: list[Event]
    next: str | None


class Waits(msgspec.Struct):
    """A page of waits.

    Attributes:
        items: The waits, oldest first.
        next: The `after` of the next page, or None.
    """

    items: list[Wait]
    next: str | None


class Workers(msgspec.Struct):
    """A page of workers.

    Attributes:
        items: The workers, the longest running first.
        next: The `after` of the next page, or None.
    """

    items: list[WorkerInfo]
    next: None = None


class Health(msgspec.Struct):
    """The server and its store respond.

    Attributes:
        status: Always "ok"; a store that does not respond is a 503.
        store: The kind of the store: "sqlite" or "postgresql".
        version: The version of Hark.
    """

    status: Literal["ok"]
    store: str
    version: str


async def instances(request: HttpRequest) -> Response:
    query: InstancesQuery = request.query()
    found, after = await request.access.instance_page(
        status=query.status,
        definition=query.definition,
        kind=query.kind,
        tags=None if query.tags is None else json.parse(query.tags, what="tags"),
        key_prefix=query.key_prefix,
        created_after=parse_time(query.created_after, "created_after"),
        created_before=parse_time(query.created_before, "created_before"),
        limit=query.limit,
        after=query.after,
    )
    return json_response(Instances(found, after))


async def instance(request: HttpRequest) -> Response:
    [target] = request.args
    return json_response(await request.app.get(target))


async def why(request: HttpRequest) -> Response:
    [target] = request.args
    return json_response(await request.app.why(target))


async def awakeables(request: HttpRequest) -> Response:
    query: AwakeablesQuery = request.query()
    status = None if query.status is None else query.status.upper()
    found, after = await request.access.awakeable_page(
        job=query.job, status=status, limit=query.limit, after=query.after
    )
    return json_response(Awakeables([view_awakeable(request, awakeable) for awakeable in found], after))


async def awakeable(request: HttpRequest) -> Response:
    [id] = request.args
    return json_response(view_awakeable(request, await request.app.awakeable(id)))


async def history(request: HttpRequest) -> Response:
    query: HistoryQuery = request.query()
    return await _page_of_events(request, request.args[0], query.limit, query.after)


async def events(request: HttpRequest) -> Response:
    query: EventsQuery = request.query()
    return await _page_of_events(request, query.job, query.limit, query.after)


async def waits(request: HttpRequest) -> Response:
    query: WaitsQuery = request.query()
    after = (-1, "")
    if query.after is not None:
        since, _, id = query.after.partition("-")
        after = (cursor_number(since), id)
    found, last = await request.access.wait_page(name=query.name, kind=query.kind, limit=query.limit, after=after)
    return json_response(Waits(found, None if last is None else f"{last[0]}-{last[1]}"))


async def workers(request: HttpRequest) -> Response:
    return json_response(Workers(await request.app.workers()))


async def health(request: HttpRequest) -> Response:
    try:
        await asyncio.wait_for(_ping(request), _HEALTH_TIMEOUT)
    except (TimeoutError, HarkError) as error:
        failure = error if isinstance(error, HarkError) else _no_answer()
        return json_response({"status": "unavailable", **error_body(type(failure).__name__, str(failure))}, 503)
    return json_response(Health("ok", request.app.url.partition(":")[0], VERSION))


def _no_answer() -> StoreUnavailable:
    return StoreUnavailable(
        f"The store did not answer within {_HEALTH_TIMEOUT:g} s. Check the database, then try again."
    )


async def _ping(request: HttpRequest) -> None:
    await request.access.ping()


async def _page_of_events(request: HttpRequest, target: str | None, limit: int, after: str | None) -> Response:
    """A page of events, newest last.

    Without `after` it is the latest page. Its `next` has a `~` before the cursor and goes back in time; the cursor of
    an event, without `~`, goes forward.
    """
    if after is not None and not after.startswith("~"):
        tx, seq = _parse_cursor(after)
        if target is None:
            page, more = await request.access.events_after_page((tx, seq), limit=limit)
        else:
            page, more = await request.access.history_page(target, after=(tx, seq), limit=limit)
        return json_response(Events(page, _cursor(page[-1]) if more else None))
    before = None if after is None else _parse_cursor(after[1:])
    page, more = await request.access.event_page(target, limit=limit, before=before)
    return json_response(Events(page, f"~{_cursor(page[0])}" if more else None))


def _cursor(event: Event) -> str:
    return f"{event.cursor[0]}.{event.cursor[1]}"


def _parse_cursor(after: str) -> tuple[int, int]:
    tx, _, seq = after.partition(".")
    return cursor_number(tx), cursor_number(seq)


def view_awakeable(request: HttpRequest, awakeable: Awakeable) -> Any:
    """The awakeable as this caller may see it: with a complete link, or without one."""
    values = {name: getattr(awakeable, name) for name in AwakeableView.__struct_fields__ if name != "url"}
    link = awakeable.url if "answer" in request.caller.scopes else None
    if link is not None and link.startswith("/"):
        link = request.origin + link
    return AwakeableView(**values, url=link)


def cursor_number(text: str) -> int:
    """Parse a number of a cursor."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput("Invalid cursor in `after`: use the `next` of an earlier page, or leave it out to begin.")
    return int(text)
