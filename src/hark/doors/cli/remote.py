"""The verbs of `Hark` that the commands use, over HTTP to a running server: same names, results and errors.

An error of the server is raised here as the engine raised it there: the same class with the same data, so a command
ends with the same exit code. The client is that of the standard library: a command sends one request or a few.
"""

from __future__ import annotations

import builtins
import http.client
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from hark.app.arguments import check_limit
from hark.doors import errors as door_errors
from hark.doors.errors import Forbidden, Unauthenticated
from hark.model import json
from hark.model.error_codec import ERROR_TYPES, rebuild_error
from hark.model.errors import Conflict, HarkError, InvalidInput, NotFound, PayloadTooLarge, StoreUnavailable
from hark.model.job_report import JobReport
from hark.model.masking import masked
from hark.model.names import check_name
from hark.model.reasons import reason
from hark.model.values import Awakeable, Delivery, Event, Instance, Schedule, Why, WorkerInfo

T = TypeVar("T")
_TIMEOUT = 60.0  # seconds
_PAGE = 1000  # the most a server returns in one page
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

    # -- write ------------------------------------------------------------------------------------

    def start(self, definition: str, input: Any = None, **options: Any) -> RemoteReply[RemoteHandle]:
        present = {name: value for name, value in options.items() if value is not None}
        reply = self._post("/instances", {"definition": definition, "input": input, **present})
        return RemoteReply(RemoteHandle(reply["id"]))

    def signal(
        self, target: str, name: str, payload: Any = None, *, dedup_key: str | None = None
    ) -> RemoteReply[Delivery]:
        path = f"/instances/{_path_segment(target, 'target')}/signals/{_path_segment(name, 'signal name')}"
        reply = self._post(path, payload, dedup_key)
        return RemoteReply(Delivery(reply["status"], reply.get("instance_id", target)))

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> RemoteReply[int]:
        body = {"SignalName": name} | ({} if payload is None else {"Payload": payload})
        return RemoteReply(int(self._post("/signal", body, dedup_key)["DeliveredCount"]))

    def message(
        self,
        name: str,
        correlation_key: str,
        payload: Any = None,
        *,
        ttl: float = 0,
        dedup_key: str | None = None,
    ) -> RemoteReply[RemoteHandle | None]:
        body: dict[str, Any] = {"MessageName": name, "CorrelationKey": correlation_key}
        body |= ({} if payload is None else {"Variables": payload}) | ({"ttl": ttl} if ttl else {})
        reply = self._post("/message", body, dedup_key)
        return RemoteReply(RemoteHandle(reply["WorkflowInstanceIds"][0]) if reply["Delivered"] else None)

    def resolve(
        self, awakeable_id: str, payload: Any = None, *, by: str | None = None, via: str = "cli"
    ) -> RemoteReply[Awakeable]:
        _refuse_by(by)
        self._post(f"/awakeables/{_path_segment(awakeable_id, 'awakeable id')}/resolve", payload)
        return self.awakeable(awakeable_id)

    def reject(
        self, awakeable_id: str, error: str = "rejected", *, by: str | None = None, via: str = "cli"
    ) -> RemoteReply[Awakeable]:
        _refuse_by(by)
        self._post(f"/awakeables/{_path_segment(awakeable_id, 'awakeable id')}/reject", {"error": error})
        return self.awakeable(awakeable_id)

    def claim(self, awakeable_id: str, by: str, *, via: str = "cli") -> RemoteReply[Awakeable]:
        path = f"/awakeables/{_path_segment(awakeable_id, 'awakeable id')}/claim"
        return RemoteReply(_convert(Awakeable, self._post(path, {"by": by})))

    def unclaim(self, awakeable_id: str, *, via: str = "cli") -> RemoteReply[Awakeable]:
        path = f"/awakeables/{_path_segment(awakeable_id, 'awakeable id')}/unclaim"
        return RemoteReply(_convert(Awakeable, self._post(path, None)))

    # -- schedules --------------------------------------------------------------------------------

    def schedule(self, name: str, definition: str, input: Any = None, **options: Any) -> RemoteReply[Schedule]:
        present = {option: value for option, value in options.items() if value is not None}
        path = f"/schedules/{_path_segment(name, 'schedule name')}"
        return RemoteReply(
            _convert(Schedule, self._send("PUT", path, {"definition": definition, "input": input, **present}))
        )

    def schedules(self) -> RemoteReply[builtins.list[Schedule]]:
        return RemoteReply([_convert(Schedule, item) for item in self._items("/schedules", 10_000, {})])

    def pause_schedule(self, name: str) -> RemoteReply[Schedule]:
        return RemoteReply(_convert(Schedule, self._post(_of_schedule(name, "pause"), None)))

    def resume_schedule(self, name: str) -> RemoteReply[Schedule]:
        return RemoteReply(_convert(Schedule, self._post(_of_schedule(name, "resume"), None)))

    def trigger_schedule(self, name: str) -> RemoteReply[RemoteHandle]:
        return RemoteReply(RemoteHandle(self._post(_of_schedule(name, "trigger"), None)["id"]))

    def unschedule(self, name: str) -> RemoteReply[None]:
        self._request("DELETE", f"/schedules/{_path_segment(name, 'schedule name')}")
        return RemoteReply(None)

    # -- read -------------------------------------------------------------------------------------

    def get(self, target: str) -> RemoteReply[Instance]:
        return RemoteReply(_convert(Instance, self._get(f"/instances/{_path_segment(target, 'target')}")))

    def why(self, target: str) -> RemoteReply[Why]:
        return RemoteReply(_convert(Why, self._get(f"/instances/{_path_segment(target, 'target')}/why")))

    def list(self, *, limit: int = 100, **filters: Any) -> RemoteReply[builtins.list[Instance]]:
        if filters.get("tags"):
            filters["tags"] = json.dump(filters["tags"])
        for name in ("created_after", "created_before"):
            filters[name] = filters[name].isoformat() if filters.get(name) else None
        return RemoteReply([_convert(Instance, item) for item in self._items("/instances", limit, filters)])

    def ids_beginning(self, prefix: str, *, limit: int = 2) -> RemoteReply[builtins.list[str]]:
        """As `DoorAccess.ids_beginning`, among the newest instances: a server has no route for it."""
        found = (one for one in self.list(limit=_PAGE).result() if one.kind != "task")
        return RemoteReply([one.id for one in found if one.id.startswith(prefix)][:limit])

    def events(self, target: str | None = None, *, limit: int = 50) -> RemoteReply[builtins.list[Event]]:
        """The latest events, newest last. The server returns them in pages that go back in time."""
        found: builtins.list[Event] = []
        for page in self._pages("/events", limit, {"job": target}):
            found[:0] = [_convert(Event, item) for item in page]
        return RemoteReply(found)

    def events_after(self, cursor: tuple[int, int] = (0, 0), *, limit: int = 1000) -> RemoteReply[builtins.list[Event]]:
        page = self._get("/events", {"after": f"{cursor[0]}.{cursor[1]}", "limit": min(limit, _PAGE)})
        return RemoteReply([_convert(Event, item) for item in page["items"]])

    def history_page(
        self, target: str, *, after: tuple[int, int], limit: int
    ) -> RemoteReply[tuple[builtins.list[Event], bool]]:
        """Events of one instance after a cursor, and whether there are more; a job with its tasks."""
        page = self._get("/events", {"job": target, "after": f"{after[0]}.{after[1]}", "limit": min(limit, _PAGE)})
        return RemoteReply(([_convert(Event, item) for item in page["items"]], page["next"] is not None))

    def awakeable(self, id: str) -> RemoteReply[Awakeable]:
        return RemoteReply(_awakeable(self._get(f"/awakeables/{_path_segment(id, 'awakeable id')}")))

    def awakeables(self, *, limit: int = 100, **filters: Any) -> RemoteReply[builtins.list[Awakeable]]:
        return RemoteReply([_awakeable(item) for item in self._items("/awakeables", limit, filters)])

    def workers(self) -> RemoteReply[builtins.list[WorkerInfo]]:
        return RemoteReply([_convert(WorkerInfo, item) for item in self._get("/workers")["items"]])

    # -- jobs, processes -------------------------------------------------------------------------------------

    def deploy(self, text: str) -> RemoteReply[builtins.list[tuple[str, int]]]:
        """Deploy the text of a job file."""
        form = "json" if text.lstrip().startswith("{") else "yaml"
        reply = self._request("POST", "/definitions", text.encode(), {"Content-Type": f"application/{form}"})
        return RemoteReply([(one["name"], one["version"]) for one in reply["deployed"]])

    def deploy_file(
        self, data: bytes, *, ignore_extensions: bool = False
    ) -> RemoteReply[builtins.list[tuple[str, int]]]:
        """Deploy the processes of a BPMN file."""
        query = "?ignore_extensions=true" if ignore_extensions else ""
        reply = self._request("POST", f"/definitions{query}", data, {"Content-Type": "application/xml"})
        return RemoteReply([(one["name"], one["version"]) for one in reply["deployed"]])

    def definition_page(
        self, *, limit: int, after: str | None
    ) -> RemoteReply[tuple[builtins.list[tuple[str, str, int]], str | None]]:
        """The definitions that can be started, by name: name, kind and newest version."""
        page = self._get("/definitions", {"limit": limit, "after": after})
        return RemoteReply(([(one["name"], one["kind"], one["version"]) for one in page["items"]], page["next"]))

    def undeploy(self, name: str) -> RemoteReply[None]:
        self._request("DELETE", f"/definitions/{_path_segment(name, 'definition')}")
        return RemoteReply(None)

    def set_variables(self, target: str, variables: dict[str, Any]) -> RemoteReply[Instance]:
        path = f"/instances/{_path_segment(target, 'target')}/variables"
        return RemoteReply(_convert(Instance, self._send("PATCH", path, variables)))

    def instance_drawing(self, target: str) -> RemoteReply[Callable[[], str]]:
        """What draws an instance as SVG: the server has done so."""
        path = f"/instances/{_path_segment(target, 'target')}/diagram.svg"
        status, content = self._exchange("GET", path, headers={"Accept": "image/svg+xml, application/json"})
        text = content.decode("utf-8", "replace")
        if status != 200 or not text.startswith("<svg"):
            raise error_of_response(status, _parsed(text), self.url)
        return RemoteReply(lambda: text)

    def job_report(self, target: str) -> RemoteReply[JobReport]:
        path = f"/instances/{_path_segment(target, 'target')}/tasks"
        return RemoteReply(_convert(JobReport, self._get(path)))

    # -- cancel, retry ----------------------------------------------------------------------------

    def cancel(self, target: str, reason: str | None = None, *, force: bool = False) -> RemoteReply[Instance]:
        body: dict[str, Any] = ({} if reason is None else {"reason": reason}) | ({"force": True} if force else {})
        return RemoteReply(_convert(Instance, self._post(f"/instances/{_path_segment(target, 'target')}/cancel", body)))

    def retry(self, target: str) -> RemoteReply[Instance]:
        return RemoteReply(_convert(Instance, self._post(f"/instances/{_path_segment(target, 'target')}/retry", None)))

    def sweep(self) -> RemoteReply[None]:
        raise InvalidInput(
            "A server with a worker fires what is due by itself. To fire it here, give --db instead of --server."
        )

    # -- HTTP -------------------------------------------------------------------------------------

    def _items(self, path: str, limit: int, filters: dict[str, Any]) -> builtins.list[Any]:
        return [item for page in self._pages(path, limit, filters) for item in page]

    def _pages(self, path: str, limit: int, filters: dict[str, Any]) -> Iterator[builtins.list[Any]]:
        """Yield pages until there are `limit` items in all, or no more."""
        limit = check_limit(limit)
        while limit > 0:
            answer = self._get(path, {**filters, "limit": min(limit, _PAGE)})
            yield answer["items"]
            limit -= len(answer["items"])
            if answer["next"] is None:
                return
            filters = {**filters, "after": answer["next"]}

    def _get(self, path: str, filters: dict[str, Any] | None = None) -> Any:
        query = {name: value for name, value in (filters or {}).items() if value is not None}
        return self._request("GET", f"{path}?{urlencode(query)}" if query else path)

    def _post(self, path: str, body: Any, dedup_key: str | None = None) -> Any:
        headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
        if dedup_key is not None:
            if not check_name(dedup_key, "dedup key").isprintable():
                raise InvalidInput(
                    "--dedup-key has characters that an HTTP header cannot have. Use printable characters, or --db."
                )
            headers["Idempotency-Key"] = dedup_key.encode()
        return self._request("POST", path, json.dump(body).encode(), headers)

    def _send(self, method: str, path: str, body: Any) -> Any:
        return self._request(method, path, json.dump(body).encode(), {"Content-Type": "application/json"})

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str | bytes] | None = None
    ) -> Any:
        status, content = self._exchange(method, path, body, headers)
        found = _parsed(content)
        if status >= 300 or found is None:
            raise error_of_response(status, found, self.url)
        return found

    def _exchange(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str | bytes] | None = None
    ) -> tuple[int, bytes]:
        """Send a request; the status and the body of the response."""
        headers = {"Accept": "application/json", **(headers or {})}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection_class(self._host, self._port, timeout=_TIMEOUT)
        try:
            connection.request(method, self._prefix + path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(
                f"There is no server at {self.url}: {reason(error)}. Start one with `hark serve`, or give --db."
            ) from error
        finally:
            connection.close()


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


def _path_segment(text: str, what: str) -> str:
    return quote(check_name(text, what), safe="")


def _of_schedule(name: str, verb: str) -> str:
    return f"/schedules/{_path_segment(name, 'schedule name')}/{verb}"


def _convert(kind: type[T], item: Any) -> T:
    return msgspec.convert(item, kind, strict=False)


def _awakeable(item: Any) -> Awakeable:
    return _convert(Awakeable, {**item, "url": item["url"] or ""})  # null without the scope `answer`


def _refuse_by(by: str | None) -> None:
    if by is not None:
        raise InvalidInput("--by needs a store: a server records the name of the token. Leave it out.")


def error_of_response(status: int, body: Any, url: str) -> HarkError:
    """Rebuild the error that the server describes."""
    if not isinstance(body, dict) or not isinstance(body.get("error"), str):
        return HarkError(f"{url} answered with status {status}, but not as Hark does. Is this a Hark server?")
    message = body["error"]
    kind = _ERRORS.get(str(body.get("type"))) or _error_of_status(status)
    if kind is Unauthenticated:
        message += " Give it with --token or HARK_TOKEN."
    try:
        return rebuild_error(kind, message, body)
    except (TypeError, ValueError):  # data that no Hark server sends
        return HarkError(message)


def _error_of_status(status: int) -> type[HarkError]:
    """The nearest class for an error whose type is missing or unknown here: the server is older or newer."""
    match status:
        case 400 | 422:
            return InvalidInput
        case 401:
            return Unauthenticated
        case 403:
            return Forbidden
        case 404:
            return NotFound
        case 409:
            return Conflict
        case 413:
            return PayloadTooLarge
        case 503:
            return StoreUnavailable
        case _:
            return HarkError
