"""Hold instances whose code does not fit what was committed (V3)."""

from __future__ import annotations

from typing import Final

import msgspec

from hark.model.activation import Claim
from hark.model.decisions import Decision, Hold
from hark.model.errors import NonDeterministic
from hark.model.failures import failure_of, storable, traceback_of

HELD: Final = (
    "It is held and loses nothing: it goes on by itself when a worker registers code that fits, or with a retry."
)
ADVICE: Final = f"{HELD} Give changed code a new version=, or guard the change with ctx.patched."  # for functions


def reason_alone(error: str) -> str:
    """The error of a held instance without the general advice; of an instance that is not held by it, too."""
    return error.partition(f" {HELD}")[0]


def hold(claim: Claim, error: NonDeterministic) -> Decision:
    """The decision that keeps the instance as it is, with the reason."""
    parts = {"entry": error.entry, "expected": error.expected, "found": error.found, "line": error.line}
    known = {name: part for name, part in parts.items() if part is not None}
    details = {name: storable(part) if isinstance(part, str) else part for name, part in known.items()}
    text = msgspec.json.encode({"cause": storable(error.cause), **details}).decode()
    traceback = None if error.__cause__ is None else traceback_of(error.__cause__)
    return Decision("held", claim.step, claim.state, Hold(failure_of(error).text, traceback, text))
