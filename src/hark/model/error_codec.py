"""Write errors as JSON and rebuild them: the same class, the same message, the same data.

The journal uses it for errors that a replay must raise again, the HTTP door and its client for errors that cross
the network.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final

from hark.model import errors, json
from hark.model.errors import BpmnError, HarkError

ERROR_TYPES: Final[dict[str, type[HarkError]]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, HarkError)
}


def data_of(error: HarkError) -> dict[str, Any]:
    """Return the data attributes of an error: everything but its message."""
    return {name: value for name, value in vars(error).items() if not name.startswith("_")}


def rebuild_error(kind: type[HarkError], message: str, data: Mapping[str, Any]) -> HarkError:
    """Make an error from its class, its message and its data as read from JSON.

    Data that the class does not have is ignored (a newer Hark may have written it); data that is missing is None.
    """
    if kind is BpmnError:  # made by handlers, so its data comes first and makes up the message
        return BpmnError(str(data.get("code", message)), str(data.get("message") or ""), data.get("variables"))
    parameters = _data_parameters(kind)  # type: ignore[arg-type]  # mypy looks for the __hash__ of an instance
    known: dict[str, Any] = {name: data.get(name) for name, required in parameters if name in data or required}
    if isinstance(known.get("at"), str):
        known["at"] = datetime.fromisoformat(known["at"])
    return kind(message, **known)


@cache  # a replay may rebuild thousands of errors, and inspecting a signature takes longer than all the rest
def _data_parameters(kind: type[HarkError]) -> list[tuple[str, bool]]:
    parameters = inspect.signature(kind).parameters.items()
    return [(name, p.default is p.empty) for name, p in parameters if p.kind is p.KEYWORD_ONLY]


def encode_error(error: HarkError) -> str:
    """Write an error as JSON text, for `decode_error`."""
    return json.dump_unchecked({"type": type(error).__name__, "message": str(error), "data": data_of(error)})


def decode_error(text: str) -> HarkError:
    """Read what `encode_error` wrote; a class that this version does not have becomes a HarkError."""
    body = json.load(text)
    return rebuild_error(ERROR_TYPES.get(body["type"], HarkError), body["message"], body["data"])
