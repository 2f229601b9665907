"""Bytes among JSON values: `{"$bytes": "<base64>"}` in JSON, bytes in Python (J8).

An object whose only key is `$bytes`, with canonical base64 as its value, is bytes wherever it comes from: from Python,
over HTTP, from the command line. Any other object with that key is itself. What reads JSON for people, for expressions
and for other programs sees this form; what hands values to Python code restores them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec

KEY: Final = "$bytes"
MARK: Final = '"$bytes"'
"""Part of every JSON text with bytes in it: without it, nothing has to be restored."""
_BYTES: Final = (bytes, bytearray, memoryview)
_ATOMS: Final = frozenset((str, int, float, bool, type(None)))


class BytesKey(TypeError):
    """A dict has bytes as a key."""


def as_json(value: Any) -> Any:
    """The value with its bytes in their JSON form; the value itself if it has none. Looks into dicts, lists and tuples:
    a dataclass, Struct or model writes its own fields. Raises BytesKey."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, _BYTES):
        return {KEY: base64.b64encode(value).decode()}
    if isinstance(value, dict):
        if any(isinstance(key, _BYTES) for key in value):
            raise BytesKey
        written = {key: as_json(inner) for key, inner in value.items()}
        return value if all(written[key] is inner for key, inner in value.items()) else written
    if kind is list or kind is tuple:
        if _ATOMS.issuperset(map(type, value)):
            return value
        items = [as_json(inner) for inner in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    return value


def restore(value: Any) -> Any:
    """The value with bytes for their JSON form: what Python code gets. The value itself if it has none."""
    if type(value) is dict:
        if len(value) == 1 and type(text := value.get(KEY)) is str and (data := _decoded(text)) is not None:
            return data
        found = {key: restore(inner) for key, inner in value.items()}
        return value if all(found[key] is inner for key, inner in value.items()) else found
    if type(value) is list:
        if _ATOMS.issuperset(map(type, value)):
            return value
        items = [restore(inner) for inner in value]
        return value if all(one is other for one, other in zip(items, value, strict=True)) else items
    return value


def on_the_wire(text: str) -> bytes:
    """Return what a program that knows nothing of Hark gets for JSON text: the text, or the bytes themselves (J10)."""
    if text.startswith("{" + MARK):
        value = restore(msgspec.json.decode(text))
        if isinstance(value, bytes):
            return value
    return text.encode()


def _decoded(text: str) -> bytes | None:
    """The bytes of canonical base64; None for any other text, which would not be written back as it was."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == text else None
