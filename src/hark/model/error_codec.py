"""Errors as text that can be kept, and back: of the same type, with the same data."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hark.model import errors, json
from hark.model.errors import HarkError


def encode_error(error: HarkError) -> str:
    return json.dump({"type": type(error).__name__, "message": str(error), "data": vars(error)})


def decode_error(text: str) -> HarkError:
    body = json.load(text)
    kind: type[HarkError] = getattr(errors, body["type"], HarkError)
    error = kind.__new__(kind)
    error.args = (body["message"],)
    data: dict[str, Any] = body["data"]
    if isinstance(data.get("at"), str):
        data["at"] = datetime.fromisoformat(data["at"])
    vars(error).update(data)
    return error
