"""SettledAnswer: the answer of an awakeable, as the inbox row of its asker has it."""

from __future__ import annotations

from typing import Final, assert_never

import msgspec
from msgspec import Raw, Struct

from hark.model.errors import AwakeableRejected, AwakeableTimedOut
from hark.model.values import SettledStatus

_NULL: Final = Raw(b"null")


class SettledAnswer(Struct, omit_defaults=True, gc=False):
    """The payload of an inbox row of kind `awakeable`: the kernel writes it, and every interpreter reads it."""

    status: SettledStatus
    payload: Raw = _NULL
    error: str | None = None
    by: str | None = None

    @property
    def text(self) -> str:
        return bytes(self.payload).decode()

    def failure(self, id: str, title: str | None) -> AwakeableRejected | AwakeableTimedOut | None:
        """The error that the code which asked receives; None if the awakeable was resolved."""
        match self.status:
            case "RESOLVED":
                return None
            case "TIMEOUT":
                shown = f" ({title})" if title else ""
                return AwakeableTimedOut(f"Awakeable {id}{shown} was not answered in time.")
            case "CANCELLED":
                return AwakeableRejected(f"Awakeable {id} was cancelled: the attempt that asked it has ended.")
            case "REJECTED":
                return AwakeableRejected(self.error or "rejected")
            case _ as never:
                assert_never(never)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SettledAnswer).decode


def dump_answer(status: SettledStatus, payload: str | None, error: str | None, by: str | None) -> str:
    """The payload of the inbox row; `payload` is JSON text, and None means that there is none."""
    return _encode(SettledAnswer(status, _NULL if payload is None else Raw(payload.encode()), error, by)).decode()


def load_answer(text: str) -> SettledAnswer:
    return _decode(text)
