"""Read a value of the bucket: it is a signal, nothing, or something that Hark refuses. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hark.engine.nats.keys import BadKey, parse_signal_key
from hark.kernel.requests import Deliver
from hark.model import json
from hark.model.errors import InvalidInput, PayloadTooLarge
from hark.model.names import check_name

SENT_BY_HARK: Final = "Hark-Signal"
"""The header of the values that Hark puts itself. They are committed before, and are not read back."""
_MARKERS: Final = ("KV-Operation", "Nats-Marker-Reason")  # deleted or purged by a client, or by a limit of the server


class BadSignal(Exception):
    """A value that is not a signal; the text says why. `target` and `name` are those of its key, if it can be read."""

    def __init__(self, why: str, target: str | None = None, name: str | None = None) -> None:
        super().__init__(why)
        self.target = target
        self.name = name


def is_signal(headers: Mapping[str, str] | None) -> bool:
    """Return True if a client has put this value: not a marker that a key was deleted, and not a put of Hark."""
    if not headers:
        return True
    return SENT_BY_HARK not in headers and not any(marker in headers for marker in _MARKERS)


def read_signal(key: str, data: bytes, dedup_key: str, max_payload: int) -> Deliver:
    """The request that delivers a value: JSON if it parses, otherwise bytes.

    Raises:
        BadSignal: The key or the value is malformed.
    """
    try:
        run, name = parse_signal_key(key)
        check_name(run, "run")
        check_name(name, "signal name")
    except BadKey as error:
        raise BadSignal(f"the key cannot be read: {error}") from None
    except InvalidInput as error:
        raise BadSignal(str(error).rstrip(".")) from None
    try:
        payload = _payload(data, max_payload)
    except InvalidInput as error:
        raise BadSignal(str(error).rstrip("."), run, name) from None
    return Deliver(target=run, name=name, payload=payload, dedup_key=dedup_key, is_in_bucket=True)


def _payload(data: bytes, max_payload: int) -> str:
    try:
        value = json.parse(data, limit=max_payload, what="value")
    except PayloadTooLarge:
        raise
    except InvalidInput:
        value = data
    return json.dump(value, limit=max_payload, what="value")
