"""The verbs of `Hark` that the commands use, over HTTP to a running server: same names, results and errors.

The table of routes has the method, the path, the fields of the body and the type of the result of each.

An error of the server is raised here as the engine raised it there: as the same class with the same data, so a command
ends with the same exit code. The client is that of the standard library: a command sends one request or a few.
"""

from __future__ import annotations

import builtins
import http.client
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from hark.app.arguments import check_limit
from hark.app.deploying import is_xml
from hark.doors import errors as door_errors
from hark.doors.errors import Forbidden, Unauthenticated
from hark.doors.http.api import ROUTES
from hark.doors.http.read_routes import AwakeableView
from hark.doors.http.routes import Route
from hark.model import json
from hark.model.error_codec import ERROR_TYPES, rebuild_error
from hark.model.errors import Conflict, HarkError, InvalidInput, NotFound, PayloadTooLarge, StoreUnavailable
from hark.model.masking import masked
from hark.model.names import check_name
from hark.model.page import Page
from hark.model.reasons import reason
from hark.model.values import Awakeable, DefinitionView, Delivery, Event

T = TypeVar("T")
_TIMEOUT = 60.0  # seconds
_PAGE = 1000  # the most a server returns in one page
_ROUTES = {route.id: route for route in ROUTES}
# The nearest class for an error whose type is missing or unknown here: the server is older or newer.
_ERRORS_BY_STATUS: dict[int, type[HarkError]] = {
    400: InvalidInput, 401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 413: PayloadTooLarge,
    422: InvalidInput, 503: StoreUnavailable,
}  # fmt: skip
_ERRORS: dict[str, type[HarkError]] = {
    **ERROR_TYPES,
    **{name: kind for name, kind in vars(door_errors).items() if isinstance(kind, type)},
}


@dataclass(frozen=True, slots=True)
class RemoteReply(Generic[T]):
    """The result of a request, in place of the reply that a verb of `Hark` returns."""

    value: T

    def result(self) -> T:
        return self.value


@dataclass(frozen=True, slots=True)
class RemoteHandle:
    """The id of an instance, in place of a `Handle`."""

    id: str


class Raw(NamedTuple):
    """A body that is sent as it is."""

    data: bytes
    kind: str


def _verb(operation: str, result: Callable[[Any], Any] | None = None) -> Callable[..., RemoteReply[Any]]:
    """Make the verb of `Hark` that sends an operation of the HTTP API, with the arguments of `RemoteHark._call`.

    Args:
        operation: The `id` of its route.
        result: Makes the result of the verb from the response, if they differ.
    """

    def verb(self: RemoteHark, *arguments: Any, **options: Any) -> RemoteReply[Any]:
        found = self._call(operation, *arguments, **options)
        return RemoteReply(found if result is None else result(found))

    return verb


class RemoteHark:
    """A client of one server; `token` may be None on the machine of the server."""

    def __init__(self, url: str, token: str | None) -> None:
        parts, port = _parse(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(
                f"--server {masked(url)!r} is not the URL of a server. Write it like http://127.0.0.1:4097."
            )
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidInput("--token has characters that no token has. Check it, or HARK_TOKEN.")
        self.url = masked(url.rstrip("/"))  # for messages
        self._token = token
        self._prefix = parts.path.rstrip("/")
        self._host, self._port = parts.hostname, port
        self._connection_class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection

    # -- verbs: each names its operation in the table of routes ------------------------------------

    start = _verb("startInstance")
    get = _verb("getInstance")
    list = _verb("listInstances")
    why = _verb("explainInstance")
    journal = _verb("readJournal")
    retry = _verb("retryInstance")
    cancel = _verb("cancelInstance")
    set_variables = _verb("setVariables")
    fork = _verb("forkInstance", lambda found: RemoteHandle(found.id))
    job_report = _verb("listJobTasks")
    instance_drawing = _verb("drawInstance", lambda svg: lambda: svg)
    broadcast = _verb("broadcastSignal", lambda sent: sent.DeliveredCount)
    message = _verb("sendMessage", lambda sent: RemoteHandle(sent.WorkflowInstanceIds[0]) if sent.Delivered else None)
    awakeable = _verb("getAwakeable")
    awakeables = _verb("listAwakeables")
    claim = _verb("claimAwakeable")
    unclaim = _verb("unclaimAwakeable")
    schedule = _verb("putSchedule")
    schedules = _verb("listSchedules")
    pause_schedule = _verb("pauseSchedule")
    resume_schedule = _verb("resumeSchedule")
    trigger_schedule = _verb("triggerSchedule")
    unschedule = _verb("deleteSchedule")
    startable = _verb("listDefinitions")
    retire = _verb("retireVersion", lambda _: None)
    unretire = _verb("unretireVersion", lambda _: None)
    undeploy = _verb("undeployDefinition")
    workers = _verb("listWorkers")

    def migrate(self, target_or_filter: Any, *, preview: bool = False, **how: Any) -> RemoteReply[Any]:
        wanted = {"target": target_or_filter} if isinstance(target_or_filter, str) else target_or_filter
        found = self._call("migrateInstances", **wanted, **how, preview=preview)
        return RemoteReply(found if preview else RemoteHandle(found.id))

    def signal(
        self, target: str, name: str, payload: Any = None, *, dedup_key: str | None = None
    ) -> RemoteReply[Delivery]:
        sent = self._call("signalInstance", target, name, payload, dedup_key=dedup_key)
        return RemoteReply(Delivery(sent.status, target))

    def resolve(
        self, awakeable_id: str, payload: Any = None, *, by: str | None = None, via: str = "cli"
    ) -> RemoteReply[Awakeable]:
        _refuse_by(by)
        self._call("resolveAwakeable", awakeable_id, payload)
        return self.awakeable(awakeable_id)

    def reject(
        self, awakeable_id: str, error: str = "rejected", *, by: str | None = None, via: str = "cli"
    ) -> RemoteReply[Awakeable]:
        _refuse_by(by)
        self._call("rejectAwakeable", awakeable_id, error)
        return self.awakeable(awakeable_id)

    def events(
        self, target: str | None = None, *, limit: int = 50, after: str | tuple[int, int] | None = None
    ) -> RemoteReply[Page[Event]]:
        place = f"{after[0]}.{after[1]}" if isinstance(after, tuple) else after
        return RemoteReply(self._call("listEvents", job=target, limit=limit, after=place))

    def definitions(
        self, *, name: str | None = None, limit: int = 100, after: str | None = None
    ) -> RemoteReply[Page[DefinitionView]]:
        return RemoteReply(self._call("listDefinitions", name=name, all_versions=True, limit=limit, after=after))

    def deploy(self, data: bytes, *, ignore_extensions: bool = False) -> RemoteReply[builtins.list[tuple[str, int]]]:
        form = "xml" if is_xml(data) else "json" if data.lstrip().startswith(b"{") else "yaml"
        done = self._call(
            "deployDefinition", Raw(data, f"application/{form}"), ignore_extensions=ignore_extensions or None
        )
        return RemoteReply([(one.name, one.version) for one in done.deployed])

    # -- operations without a route ------------------------------------------------------------------

    def ids_beginning(self, prefix: str, *, limit: int = 2) -> RemoteReply[builtins.list[str]]:
        """Find ids as `DoorAccess.ids_beginning` does, but among the newest instances only."""
        found = self.list(limit=_PAGE).result()
        return RemoteReply([one.id for one in found if one.id.startswith(prefix)][:limit])

    def sweep(self) -> RemoteReply[None]:
        raise InvalidInput(
            "A server with a worker fires what is due by itself. To fire it here, give --db instead of --server."
        )

    def worker(self, queues: dict[str, int], *, grace: float) -> AbstractContextManager[None]:
        """Do nothing: the workers of the server work."""
        return nullcontext()

    def queues_of_app(self) -> set[str]:
        return set()

    # -- HTTP -------------------------------------------------------------------------------------

    def _call(
        self, operation: str, *arguments: Any, dedup_key: str | None = None, via: str | None = None, **options: Any
    ) -> Any:
        """Send the request of an operation, and convert its response to the type that the table of routes has.

        Args:
            operation: The `id` of the route.
            *arguments: Those of the path; then the body, or the fields of it.
            dedup_key: The header `Idempotency-Key`.
            via: Not sent: the server records its own door.
            **options: The fields of the body by name; the parameters of the query, if the body has no fields.
        """
        route, values = _ROUTES[operation], iter(arguments)
        path, body = _path(route, values), None
        headers: dict[str, str | bytes] = {}
        options = {name: value for name, value in options.items() if value is not None}
        if route.body is Any:
            body = next(values)
        elif route.body is not None:
            given = zip(route.bodies[0].__struct_fields__, values, strict=False)
            body = {name: value for name, value in given if value is not None} | options
        if route.body in (None, Any) and options:
            if "limit" in options:
                options["limit"] = min(check_limit(options["limit"]), _PAGE)
            path += f"?{urlencode({name: _query_text(value) for name, value in options.items()})}"
        if dedup_key is not None:
            if not check_name(dedup_key, "dedup key").isprintable():
                raise InvalidInput(
                    "--dedup-key has characters that an HTTP header cannot have. Use printable characters, or --db."
                )
            headers["Idempotency-Key"] = dedup_key.encode()
        if route.body is not None and not isinstance(body, Raw):
            body = Raw(json.dump(body).encode(), "application/json")
        return self._exchange(route.method, path, body, headers, route.responses)

    def _exchange(
        self, method: str, path: str, body: Raw | None, headers: dict[str, str | bytes], shapes: dict[int, Any]
    ) -> Any:
        [shape, *_] = shapes.values()
        headers["Accept"] = f"{shape}, application/json" if isinstance(shape, str) else "application/json"
        if body is not None:
            headers["Content-Type"] = body.kind
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection_class(self._host, self._port, timeout=_TIMEOUT)
        try:
            connection.request(method, self._prefix + path, None if body is None else body.data, headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(
                f"There is no server at {self.url}: {reason(error)}. Start one with `hark serve`, or give --db."
            ) from error
        finally:
            connection.close()
        if isinstance(shape, str) and status == 200 and content.startswith(b"<svg"):
            return content.decode("utf-8", "replace")
        found = _parsed(content)
        if isinstance(shape, str) or status >= 300 or found is None:
            raise error_of_response(status, found, self.url)
        return _converted(shapes.get(status, shape), found)


def _path(route: Route, values: Iterator[Any]) -> str:
    parts = [""]
    for part in route.segments:
        if part.startswith("{"):
            name = part[1:-1]
            what = name if name in ("target", "definition") else f"{parts[-1].removesuffix('s')} {name}"
            part = quote(check_name(next(values), what), safe="")
        parts.append(part)
    return "/".join(parts)


def _query_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str) else json.dump(value)


def _converted(shape: Any, found: Any) -> Any:
    """JSON as the type of a response; an awakeable and a page as the verbs of `Hark` return them."""
    if shape is AwakeableView:
        return msgspec.convert({**found, "url": found["url"] or ""}, Awakeable, strict=False)  # null without `answer`
    if getattr(shape, "__struct_fields__", None) == ("items", "next"):
        [item] = get_args(get_type_hints(shape)["items"])
        return Page((_converted(item, one) for one in found["items"]), found["next"])
    return msgspec.convert(found, shape, strict=False)


def _parsed(content: bytes | str) -> Any:
    """The JSON of a response; None if it is not JSON."""
    try:
        return json.load(content)
    except (HarkError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _parse(url: str) -> tuple[SplitResult | None, int | None]:
    """The parts of a URL, and its port; no parts if it is malformed."""
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError:
        return None, None


def _refuse_by(by: str | None) -> None:
    if by is not None:
        raise InvalidInput("--by needs a store: a server records the name of the token. Leave it out.")


def error_of_response(status: int, body: Any, url: str) -> HarkError:
    """Rebuild the error that the server describes."""
    if not isinstance(body, dict) or not isinstance(body.get("error"), str):
        return HarkError(f"{url} answered with status {status}, but not as Hark does. Is this a Hark server?")
    message = body["error"]
    kind = _ERRORS.get(str(body.get("type"))) or _ERRORS_BY_STATUS.get(status, HarkError)
    if kind is Unauthenticated:
        message += " Give it with --token or HARK_TOKEN."
    try:
        return rebuild_error(kind, message, body)
    except (TypeError, ValueError):  # data that no Hark server sends
        return HarkError(message)
