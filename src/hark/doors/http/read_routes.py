"""The handlers that read."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from hark.doors.http.long_poll import call_over
from hark.doors.http.pages import Limit, PageQuery, page_of, page_response
from hark.doors.http.parsing import Name, Seconds
from hark.doors.http.responses import Response, error_body, json_response
from hark.doors.http.routes import HttpRequest, answer_with
from hark.doors.times import parse_time
from hark.model import json
from hark.model.errors import HarkError, StoreUnavailable
from hark.model.page import Page
from hark.model.values import Awakeable, Entry, Event, Instance, Wait, WorkerInfo

VERSION = version("hark")
_HEALTH_TIMEOUT = 2.0  # seconds; a probe that waits as long as a request may would report a failure of a minute ago
_NO_ANSWER = f"The store did not answer within {_HEALTH_TIMEOUT:g} s. Check the database, then try again."


# For /openapi.json only: the handler parses both.
Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
JsonObject = Annotated[str, msgspec.Meta(extra_json_schema={"contentMediaType": "application/json"})]


class InstanceQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The time to wait for the end of the instance.

    Attributes:
        wait: Answer when it has ended, or after so many seconds with the instance as it is then.
    """

    wait: Seconds = 0.0


class InstancesQuery(PageQuery):
    """Filters, and a page of what they leave.

    Attributes:
        status: Only instances with this status.
        definition: Only instances of the definition with this name.
        kind: Only instances of this kind: machine, workflow, job, bpmn or task. Without it, all but the tasks of jobs
            and processes.
        tags: Only instances that were started with all of these tags, a JSON object.
        key_prefix: Only instances whose correlation key begins with this text.
        created_after: Only instances that were started later than this time.
        created_before: Only instances that were started earlier than this time.
    """

    status: str | None = None
    definition: Name | None = None
    kind: str | None = None
    tags: JsonObject | None = None
    key_prefix: Name | None = None
    created_after: Time | None = None
    created_before: Time | None = None


class AwakeablesQuery(PageQuery):
    """Filters, and a page of what they leave.

    Attributes:
        job: Only awakeables of this instance, by its id or correlation key.
        status: Only awakeables with this status.
    """

    job: Name | None = None
    status: str | None = None


class HistoryQuery(PageQuery):
    """A page of events.

    Attributes:
        limit: How many events a page has at most.
        after: The `next` of the page before, which goes back in time; or the `cursor` of an event as TX.SEQ, which
            goes forward.
    """


class JournalQuery(PageQuery):
    """A page of entries.

    Attributes:
        limit: How many entries a page has at most.
        after: The `next` of the page before: the number of its last entry.
    """

    limit: Limit = 1000


class EventsQuery(HistoryQuery):
    """A page of events.

    Attributes:
        job: Only events of this instance, by its id or correlation key.
    """

    limit: Limit = 50
    job: Name | None = None


class WaitsQuery(PageQuery):
    """Filters, and a page of what they leave.

    Attributes:
        name: Only waits for this name.
        kind: Only waits of this kind.
    """

    name: Name | None = None
    kind: str | None = None


# X3: the link of an awakeable is a credential: a caller without the scope `answer` sees null.
AwakeableView: Any = msgspec.defstruct(
    "Awakeable", [*(get_type_hints(Awakeable) | {"url": str | None}).items()], namespace={"__doc__": Awakeable.__doc__}
)


Instances = page_of(Instance, "Instances", "instances", "newest first")
Awakeables = page_of(AwakeableView, "Awakeables", "awakeables", "newest first")
Events = page_of(Event, "Events", "events", "newest last")
Journal = page_of(Entry, "Journal", "entries", "in the order in which the code asked")
Waits = page_of(Wait, "Waits", "waits", "oldest first")
Workers = page_of(WorkerInfo, "Workers", "workers", "the longest running first", next=None)


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
    found = await request.app.list(
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
    return page_response(found)


async def instance(request: HttpRequest) -> Response:
    query: InstanceQuery = request.query()
    [target] = request.args
    if not query.wait:
        return json_response(await request.app.get(target))
    async with call_over(request) as gone:
        return json_response(await request.access.get_when_ended(target, query.wait, gone))


why = answer_with(lambda request, target: request.app.why(target))


async def awakeables(request: HttpRequest) -> Response:
    query: AwakeablesQuery = request.query()
    status = None if query.status is None else query.status.upper()
    found = await request.app.awakeables(job=query.job, status=status, limit=query.limit, after=query.after)
    return page_response(Page((view_awakeable(request, awakeable) for awakeable in found), found.next))


async def awakeable(request: HttpRequest) -> Response:
    [id] = request.args
    return json_response(view_awakeable(request, await request.app.awakeable(id)))


async def history(request: HttpRequest) -> Response:
    query: HistoryQuery = request.query()
    return page_response(await request.app.events(request.args[0], limit=query.limit, after=query.after))


async def journal(request: HttpRequest) -> Response:
    query: JournalQuery = request.query()
    return page_response(await request.app.journal(request.args[0], limit=query.limit, after=query.after))


async def events(request: HttpRequest) -> Response:
    query: EventsQuery = request.query()
    return page_response(await request.app.events(query.job, limit=query.limit, after=query.after))


async def waits(request: HttpRequest) -> Response:
    query: WaitsQuery = request.query()
    return page_response(
        await request.app.waits(name=query.name, kind=query.kind, limit=query.limit, after=query.after)
    )


async def workers(request: HttpRequest) -> Response:
    return page_response(await request.app.workers())


async def health(request: HttpRequest) -> Response:
    answer = request.access.ping()
    answer.expect_nothing()  # once the time is over
    try:
        async with asyncio.timeout(_HEALTH_TIMEOUT):
            await answer
    except (TimeoutError, HarkError) as error:
        failure = error if isinstance(error, HarkError) else StoreUnavailable(_NO_ANSWER)
        return json_response({"status": "unavailable", **error_body(type(failure).__name__, str(failure))}, 503)
    return json_response(Health("ok", request.app.url.partition(":")[0], VERSION))


def view_awakeable(request: HttpRequest, awakeable: Awakeable) -> Any:
    """The awakeable as the caller may see it: with a complete link, or without one."""
    values = {name: getattr(awakeable, name) for name in AwakeableView.__struct_fields__ if name != "url"}
    link = awakeable.url if "answer" in request.caller.scopes else None
    if link is not None and link.startswith("/"):
        link = request.origin + link
    return AwakeableView(**values, url=link)
