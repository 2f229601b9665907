"""The verbs of `Hark` that the commands use, over HTTP to a running server: same names, results and errors.

An error of the server is raised here as the engine raised it there: the same class with the same data, so a command
ends with the same exit code. The client is that of the standard library: a command sends one request or a few.
"""

from __future__ import annotations

import builtins
import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from hark.doors.errors import Forbidden, NoMethod, NoRoute, Unauthenticated
from hark.model import json
from hark.model.error_codec import ERROR_TYPES, rebuild_error
from hark.model.errors import Conflict, HarkError, InvalidInput, NotFound, PayloadTooLarge, StoreUnavailable
from hark.model.names import check_name
from hark.model.values import Awakeable, Delivery, Event, Instance, Why

T = TypeVar("T")
_PATIENCE = 60.0
_PAGE = 1000  # the most a server returns in one page
_ERRORS: dict[str, type[HarkError]] = {
    **ERROR_TYPES,
    **{kind.__name__: kind for kind in (Unauthenticated, Forbidden, NoRoute, NoMethod)},
}


@dataclass(frozen=True, slots=True)
class RemoteReply(Generic[T]):
    """What came back, where `Hark` has a reply."""

    value: T

    def result(self) -> T:
        return self.value


@dataclass(frozen=True, slots=True)
class RemoteHandle:
    """Who was started or reached."""

    id: str


class RemoteHark:
    """One server and a credential for it."""

    def __init__(self, url: str, token: str | None) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise InvalidInput(f"--server {url!r} is no address of a server. Write it as http://127.0.0.1:4097.")
        if token is not None and not (token.isascii() and token.isprintable()):
            raise InvalidInput("--token is no token: it has characters that none has. Check HARK_TOKEN.")
        self.url = url.rstrip("/")
        self._token = token
        self._path = parts.path.rstrip("/")
        self._host, self._port = parts.hostname, port
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection

    # -- telling ----------------------------------------------------------------------------------

    def start(self, definition: str, input: Any = None, **options: Any) -> RemoteReply[RemoteHandle]:
        given = {name: value for name, value in options.items() if value is not None}
        made = self._post("/instances", {"definition": definition, "input": input, **given})
        return RemoteReply(RemoteHandle(made["id"]))

    def signal(
        self, target: str, name: str, payload: Any = None, *, dedup_key: str | None = None
    ) -> RemoteReply[Delivery]:
        path = f"/instances/{_part(target, 'target')}/signals/{_part(name, 'signal name')}"
        told = self._post(path, payload, dedup_key)
        return RemoteReply(Delivery(told["status"], told.get("instance_id", target)))

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> RemoteReply[int]:
        body = {"SignalName": name} | ({} if payload is None else {"Payload": payload})
        return RemoteReply(int(self._post("/signal", body, dedup_key)["DeliveredCount"]))

    def message(self, name: str, correlation_key: str, payload: Any = None) -> RemoteReply[RemoteHandle]:
        body = {"MessageName": name, "CorrelationKey": correlation_key}
        told = self._post("/message", body | ({} if payload is None else {"Variables": payload}))
        return RemoteReply(RemoteHandle(told["WorkflowInstanceIds"][0]))

    def resolve(
        self, awakeable_id: str, payload: Any = None, *, by: str | None = None, via: str = "cli"
    ) -> RemoteReply[Awakeable]:
        _refuse_by(by)
        self._post(f"/awakeables/{_part(awakeable_id, 'awakeable id')}/resolve", payload)
        return self.awakeable(awakeable_id)

    def reject(
        self, awakeable_id: str, error: str = "rejected", *, by: str | None = None, via: str = "cli"
    ) -> RemoteReply[Awakeable]:
        _refuse_by(by)
        self._post(f"/awakeables/{_part(awakeable_id, 'awakeable id')}/reject", {"error": error})
        return self.awakeable(awakeable_id)

    # -- looking ----------------------------------------------------------------------------------

    def get(self, target: str) -> RemoteReply[Instance]:
        return RemoteReply(_as(Instance, self._get(f"/instances/{_part(target, 'target')}")))

    def why(self, target: str) -> RemoteReply[Why]:
        return RemoteReply(_as(Why, self._get(f"/instances/{_part(target, 'target')}/why")))

    def list(self, *, limit: int = 100, **wanted: Any) -> RemoteReply[builtins.list[Instance]]:
        return RemoteReply([_as(Instance, item) for item in self._items("/instances", limit, wanted)])

    def events(self, target: str | None = None, *, limit: int = 50) -> RemoteReply[builtins.list[Event]]:
        """Pages lead back in time, each newest last."""
        found: builtins.list[Event] = []
        for page in self._pages("/events", limit, {"job": target}):
            found[:0] = [_as(Event, item) for item in page]
        return RemoteReply(found)

    def events_after(self, cursor: tuple[int, int] = (0, 0), *, limit: int = 1000) -> RemoteReply[builtins.list[Event]]:
        page = self._get("/events", {"after": f"{cursor[0]}.{cursor[1]}", "limit": min(limit, _PAGE)})
        return RemoteReply([_as(Event, item) for item in page["items"]])

    def follow(
        self, places: dict[str, int], *, limit: int = 100
    ) -> RemoteReply[tuple[builtins.list[Event], builtins.set[str]]]:
        """Of one at a time; whether it has finished is not said."""
        [(id, seq)] = places.items()
        page = self._get("/events", {"job": id, "after": f"0.{seq}", "limit": min(limit, _PAGE)})
        return RemoteReply(([_as(Event, item) for item in page["items"]], set()))

    def awakeable(self, id: str) -> RemoteReply[Awakeable]:
        return RemoteReply(_awakeable(self._get(f"/awakeables/{_part(id, 'awakeable id')}")))

    def awakeables(self, *, limit: int = 100, **wanted: Any) -> RemoteReply[builtins.list[Awakeable]]:
        return RemoteReply([_awakeable(item) for item in self._items("/awakeables", limit, wanted)])

    # -- steering ---------------------------------------------------------------------------------

    def cancel(self, target: str, reason: str | None = None) -> RemoteReply[Instance]:
        body = {} if reason is None else {"reason": reason}
        return RemoteReply(_as(Instance, self._post(f"/instances/{_part(target, 'target')}/cancel", body)))

    def retry(self, target: str) -> RemoteReply[Instance]:
        return RemoteReply(_as(Instance, self._post(f"/instances/{_part(target, 'target')}/retry", None)))

    def health(self) -> RemoteReply[dict[str, Any]]:
        raise InvalidInput("The store's health is looked at on the store. Leave --server out and give --db.")

    def sweep(self) -> RemoteReply[None]:
        raise InvalidInput("A server with a worker fires what is due by itself. Leave --server out and give --db.")

    # -- the wire ---------------------------------------------------------------------------------

    def _items(self, path: str, limit: int, wanted: dict[str, Any]) -> builtins.list[Any]:
        return [item for page in self._pages(path, limit, wanted) for item in page]

    def _pages(self, path: str, limit: int, wanted: dict[str, Any]) -> Iterator[builtins.list[Any]]:
        """So many in all, in as many pages as the server makes of it."""
        if limit < 1:
            raise InvalidInput(f"--limit {limit}: give a whole number from 1.")
        while limit > 0:
            answer = self._get(path, {**wanted, "limit": min(limit, _PAGE)})
            yield answer["items"]
            limit -= len(answer["items"])
            if answer["next"] is None:
                return
            wanted = {**wanted, "after": answer["next"]}

    def _get(self, path: str, wanted: dict[str, Any] | None = None) -> Any:
        asked = {name: value for name, value in (wanted or {}).items() if value is not None}
        return self._ask("GET", f"{path}?{urlencode(asked)}" if asked else path)

    def _post(self, path: str, body: Any, dedup_key: str | None = None) -> Any:
        headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
        if dedup_key is not None:
            if not check_name(dedup_key, "dedup key").isprintable():
                raise InvalidInput("--dedup-key has characters no header can carry. Use printable text, or --db.")
            headers["Idempotency-Key"] = dedup_key.encode()
        return self._ask("POST", path, json.dump(body).encode(), headers)

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str | bytes] | None = None
    ) -> Any:
        headers = {"Accept": "application/json", **(headers or {})}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._kind(self._host, self._port, timeout=_PATIENCE)
        try:
            connection.request(method, self._path + path, body, headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(
                f"No server answers at {self.url}: {error}. Start one with `hark serve`, or give --db."
            ) from error
        finally:
            connection.close()
        try:
            found = json.load(content)
        except (HarkError, msgspec.DecodeError, UnicodeDecodeError):
            found = None
        if status >= 300 or found is None:
            raise _error(status, found, self.url)
        return found


def _part(text: str, what: str) -> str:
    return quote(check_name(text, what), safe="")


def _as(kind: type[T], item: Any) -> T:
    return msgspec.convert(item, kind, strict=False)


def _awakeable(item: Any) -> Awakeable:
    return _as(Awakeable, {**item, "url": item["url"] or ""})  # null for who may not answer


def _refuse_by(by: str | None) -> None:
    if by is not None:
        raise InvalidInput("--by is for a store: a server records whose token it was. Leave it out.")


def _error(status: int, body: Any, url: str) -> HarkError:
    """Rebuild the error that the server describes."""
    if not isinstance(body, dict) or not isinstance(body.get("error"), str):
        return HarkError(f"{url} answered with status {status}, but not as Hark does. Is this a Hark server?")
    message = body["error"]
    kind = _ERRORS.get(str(body.get("type"))) or _error_of_status(status)
    if kind is Unauthenticated:
        message += " Give --token or HARK_TOKEN; `hark token create --scope read` makes a token."
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
