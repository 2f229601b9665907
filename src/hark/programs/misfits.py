"""Hold instances whose code does not fit what was committed (V3)."""

from __future__ import annotations

from typing import Final

import msgspec

from hark.model.activation import Claim
from hark.model.decisions import Decision, Hold
from hark.model.errors import NonDeterministic
from hark.model.failures import failure_of, storable, traceback_of

ADVICE: Final = (
    "It is held and loses nothing: it goes on by itself when a worker registers code that fits, or with a retry. Give "
    "changed code a new version=, or guard the change with ctx.patched."
)


def hold(claim: Claim, error: NonDeterministic) -> Decision:
    """The decision that keeps the instance as it is, with the reason."""
    parts = {"entry": error.entry, "expected": error.expected, "found": error.found, "line": error.line}
    known = {name: part for name, part in parts.items() if part is not None}
    details = {name: storable(part) if isinstance(part, str) else part for name, part in known.items()}
    text = msgspec.json.encode({"cause": storable(error.cause), **details}).decode()
    traceback = None if error.__cause__ is None else traceback_of(error.__cause__)
    return Decision("held", claim.step, claim.state, Hold(failure_of(error).text, traceback, text))
