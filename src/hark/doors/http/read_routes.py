"""The handlers that only look. Lists are {"items": …, "next": the `after` of the next page, or null}."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from hark.doors.http.responses import Response, error_body, json_response
from hark.doors.http.routes import HttpRequest
from hark.model.errors import HarkError, InvalidInput, StoreUnavailable
from hark.model.values import Awakeable, AwakeableStatus, Event, Instance, Kind, Status, Wait, WaitKind

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
VERSION = version("hark")
_QUICK = 2.0  # seconds the store has to answer a health check


def _one_of(words: Any) -> msgspec.Meta:
    """For the description; the app refuses others. (As Literals in a query, `null` would be taken for none.)"""
    return msgspec.Meta(extra_json_schema={"enum": [*get_args(words)]})


OfStatus = Annotated[str, _one_of(Status)] | None
OfKind = Annotated[str, _one_of(Kind)] | None
OfAnswer = Annotated[str, _one_of(AwakeableStatus)] | None
OfWait = Annotated[str, _one_of(WaitKind)] | None


class InstancesQuery(msgspec.Struct, forbid_unknown_fields=True):
    status: OfStatus = None
    definition: str | None = None
    kind: OfKind = None
    limit: Limit = 100
    after: str | None = None


class AwakeablesQuery(msgspec.Struct, forbid_unknown_fields=True):
    job: str | None = None
    status: OfAnswer = None
    limit: Limit = 100
    after: str | None = None


class HistoryQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Limit = 100
    after: str | None = None


class EventsQuery(msgspec.Struct, forbid_unknown_fields=True):
    job: str | None = None
    limit: Limit = 50
    after: str | None = None


class WaitsQuery(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    kind: OfWait = None
    limit: Limit = 100
    after: str | None = None


# X3: the link of an awakeable is a credential; who may not answer sees null.
AwakeableView: Any = msgspec.defstruct(
    "Awakeable", [*(get_type_hints(Awakeable) | {"url": str | None}).items()], namespace={"__doc__": Awakeable.__doc__}
)


class Instances(msgspec.Struct):
    items: list[Instance]
    next: str | None


class Awakeables(msgspec.Struct):
    items: list[AwakeableView]
    next: str | None


class Events(msgspec.Struct):
    items: list[Event]
    next: str | None


class Waits(msgspec.Struct):
    items: list[Wait]
    next: str | None


class Health(msgspec.Struct):
    status: Literal["ok"]
    store: str
    version: str


async def instances(request: HttpRequest) -> Response:
    wish: InstancesQuery = request.query()
    found = await request.app.list(
        status=wish.status, definition=wish.definition, kind=wish.kind, limit=wish.limit + 1, after=wish.after
    )
    return json_response(Instances(found[: wish.limit], _next(found, wish.limit)))


async def instance(request: HttpRequest) -> Response:
    [target] = request.args
    return json_response(await request.app.get(target))


async def why(request: HttpRequest) -> Response:
    [target] = request.args
    return json_response(await request.app.why(target))


async def awakeables(request: HttpRequest) -> Response:
    wish: AwakeablesQuery = request.query()
    found = await request.app.awakeables(job=wish.job, status=wish.status, limit=wish.limit + 1, after=wish.after)
    shown = [_shown(request, one) for one in found[: wish.limit]]
    return json_response(Awakeables(shown, _next(found, wish.limit)))


async def awakeable(request: HttpRequest) -> Response:
    [id] = request.args
    return json_response(_shown(request, await request.app.awakeable(id)))


async def history(request: HttpRequest) -> Response:
    """The events of one instance: a page of the latest, newest last; `after` goes back in time."""
    wish: HistoryQuery = request.query()
    return await _events(request, request.args[0], wish.limit, wish.after)


async def events(request: HttpRequest) -> Response:
    wish: EventsQuery = request.query()
    return await _events(request, wish.job, wish.limit, wish.after)


async def waits(request: HttpRequest) -> Response:
    wish: WaitsQuery = request.query()
    after = (-1, "")
    if wish.after is not None:
        since, _, id = wish.after.partition("-")
        after = (cursor_number(since), id)
    found, place = await request.access.wait_page(name=wish.name, kind=wish.kind, limit=wish.limit, after=after)
    return json_response(Waits(found, None if place is None else f"{place[0]}-{place[1]}"))


async def health(request: HttpRequest) -> Response:
    """Quickly: a probe that waits as long as a request may would report the outage of a minute ago."""
    try:
        await asyncio.wait_for(_ping(request), _QUICK)
    except (TimeoutError, HarkError) as error:
        failure = error if isinstance(error, HarkError) else _no_answer()
        return json_response({"status": "unavailable", **error_body(type(failure).__name__, str(failure))}, 503)
    return json_response(Health("ok", request.app.url.partition(":")[0], VERSION))


def _no_answer() -> StoreUnavailable:
    return StoreUnavailable(f"The store did not answer within {_QUICK:g} s. Check the database, then try again.")


async def _ping(request: HttpRequest) -> None:
    await request.access.ping()


async def _events(request: HttpRequest, target: str | None, limit: int, after: str | None) -> Response:
    """The latest, newest last; `next` leads back (`~` before its cursor). After an event's own cursor: forward."""
    if after is not None and not after.startswith("~"):
        tx, seq = _cursor(after)
        if target is None:
            found = await request.app.events_after((tx, seq), limit=limit + 1)
        else:
            found, _ = await request.access.follow({await _id(request, target): seq}, limit=limit + 1)
        page = found[:limit]
        return json_response(Events(page, _place(page[-1]) if len(found) > limit else None))
    found = await request.app.events(target, limit=limit + 1, before=None if after is None else _cursor(after[1:]))
    page = found[-limit:]
    return json_response(Events(page, f"~{_place(page[0])}" if len(found) > limit else None))


async def _id(request: HttpRequest, target: str) -> str:
    return (await request.app.get(target)).id


def _place(event: Event) -> str:
    return f"{event.cursor[0]}.{event.cursor[1]}"


def _cursor(after: str) -> tuple[int, int]:
    tx, _, seq = after.partition(".")
    return cursor_number(tx), cursor_number(seq)


def _shown(request: HttpRequest, found: Awakeable) -> Any:
    shown = {name: getattr(found, name) for name in AwakeableView.__struct_fields__}
    if "answer" not in request.caller.scopes:
        shown["url"] = None
    elif found.url.startswith("/"):
        shown["url"] = request.origin + found.url
    return AwakeableView(**shown)


def _next(found: Sequence[Instance | Awakeable], limit: int) -> str | None:
    return found[limit - 1].id if len(found) > limit else None


def cursor_number(text: str) -> int:
    """A part of a cursor."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput("this `after` is none that was handed out; leave it out to begin, or use the last `next`")
    return int(text)
